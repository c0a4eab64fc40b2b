// Vectors of exponentials have instructions of their own (runtime/backends/fused/tape/exponentials.h).
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/tape/instructions.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace triage::fused {
namespace {

/// Every 257th float is tried; TRIAGE_EXPONENTIALS=1 tries all of them, in about a minute for each instruction set.
uint64_t distance() {
  const char* const asked = std::getenv("TRIAGE_EXPONENTIALS");
  return asked ? std::max<uint64_t>(1, std::strtoull(asked, nullptr, 10)) : 257;
}

bool same_float(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0 || (a != a && b != b); }

}  // namespace

TEST_CASE("e^x has the same bits alone and among others, whatever the number") {
  constexpr size_t most = 1024;
  std::array<float, most> values{}, together{};
  for (const Primitives* set : instruction_sets()) {
    const MapStep exponential = set->map(Opcode::exp, Type::f32, Type::f32, 0);
    REQUIRE((exponential != nullptr));
    uint64_t different = 0;
    float last{};
    for (uint64_t bits = 0; bits < uint64_t{1} << 32;) {
      size_t count = 0;
      for (; count < most && bits < uint64_t{1} << 32; bits += distance(), ++count) {
        const auto word = static_cast<uint32_t>(bits);
        std::memcpy(&values[count], &word, sizeof(word));
      }
      const void* const all[] = {values.data()};
      exponential(together.data(), all, static_cast<int64_t>(count), nullptr);
      for (size_t i = 0; i < count; ++i) {
        float alone{};
        const void* const one[] = {&values[i]};
        exponential(&alone, one, 1, nullptr);
        if (same_float(alone, together[i])) continue;
        ++different;
        last = values[i];
      }
    }
    CHECK_MESSAGE(different == 0, fmt::format("{}: {} numbers, {} among them", set->name, different, last));
  }
}

}  // namespace triage::fused
