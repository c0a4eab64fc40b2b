// libFuzzer takes what clang's instrumentation tells it of the code that ran. GCC's -fsanitize-coverage=trace-pc calls
// one function at each edge instead, which libFuzzer's runtime library answers by ending the process: the linker puts
// this one in its place
// (--wrap). The counters are what libFuzzer calls extra counters: it clears them before each input, and reads them
// after it.
#include <cstdint>

extern "C" const char __executable_start;

__attribute__((section("__libfuzzer_extra_counters"), used)) static uint8_t counters[1 << 16];

extern "C" void __wrap___sanitizer_cov_trace_pc() {
  // Relative to the program, which is mapped elsewhere in each process.
  const auto edge =
      reinterpret_cast<uintptr_t>(__builtin_return_address(0)) - reinterpret_cast<uintptr_t>(&__executable_start);
  ++counters[(edge * 0x9E3779B97F4A7C15u) >> 48];
}

// Comparisons of floats, of which GCC tells and clang does not.
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
