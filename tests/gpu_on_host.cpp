#include "tests/gpu_on_host.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "runtime/backends/fused/loops/gpu_text.h"
#include "runtime/backends/run_program.h"

namespace triage::test {
namespace {

/// What support/gpu.h asks of a device, for one thread.
constexpr const char* device_of_one_thread = R"(
#include <cstdint>
struct Index { unsigned x, y; };
static thread_local Index threadIdx{0, 0}, blockIdx{0, 0}, blockDim{1, 1}, gridDim{1, 1};
#define TRIAGE_KERNEL static void
#define TRIAGE_SHARED static thread_local
namespace triage::fused {
inline constexpr int warp_threads = 1;
inline void wait_for_warp() {}
inline void wait_for_block() {}
inline void wait_for_cluster() {}
inline uint64_t other_thread(uint64_t word, int) { return word; }
inline uint64_t shared_of(const uint64_t* word, int) { return *word; }
template <class T>
inline T load(const T* address) {
  return *address;
}
}
)";

/// A function that computes all rows.
std::string launcher(const std::string& parameters) {
  std::string list;
  for (size_t i = 0; i < parameters.size(); ++i)
    list += fmt::format("{}{}arguments[{}]", i == 0 ? "" : ", ",
                        parameters[i] == 'p'   ? "(const void*)"
                        : parameters[i] == 'o' ? "(void*)"
                                               : "",
                        i);
  return fmt::format(R"(
extern "C" void triage_rows(const int64_t* arguments, int64_t rows) {{
  for (blockIdx.x = 0; blockIdx.x < rows; ++blockIdx.x) triage_kernel({});
}}
)",
                     list);
}

using Rows = void (*)(const int64_t* arguments, int64_t rows);

class Code final : public fused::GpuCode {
 public:
  explicit Code(Rows rows) : rows_(rows) {}
  void launch(const fused::GpuGrid& /*grid*/, at::ArrayRef<int64_t> arguments) const override {
    rows_(arguments.data(), arguments[arguments.size() - 2]);
  }

 private:
  Rows rows_;
};

/// The function of a source that the compiler of the host has compiled, with the options of tapes
/// (runtime/backends/CMakeLists.txt).
Rows compiled(const std::string& source) {
  std::string folder = (std::filesystem::temp_directory_path() / "triage-gpu-on-host-XXXXXX").string();
  if (!::mkdtemp(folder.data())) throw std::runtime_error("there is no folder to compile in");
  const std::string object = folder + "/rows.so";
  run_program({{TRIAGE_TEST_COMPILER, "-std=c++20", "-O3",
#ifndef __aarch64__
                "-march=native",
#endif
                "-fopenmp-simd", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-w", "-fPIC",
                "-shared", "-x", "c++", "-", "-o", object},
               source,
               std::chrono::minutes(5)});
  void* const library = ::dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(::dlerror());
  std::filesystem::remove_all(folder);
  return reinterpret_cast<Rows>(::dlsym(library, "triage_rows"));
}

class OnHost final : public fused::Accelerator {
 public:
  bool has_clusters(c10::Device) const override { return false; }
  std::unique_ptr<const fused::GpuCode> compile(c10::Device, const std::string& source,
                                                const std::string& parameters) const override {
    return std::make_unique<Code>(compiled(device_of_one_thread + fused::gpu_source() + source + launcher(parameters)));
  }
};

}  // namespace

const fused::Accelerator& gpu_on_host() {
  static const OnHost accelerator;
  return accelerator;
}

}  // namespace triage::test
