// Loops of a graph that is not trusted take no more than a call of its operators may.
#include "runtime/backends/deadline.h"
#include "runtime/operators/untrusted.h"
#include "tests/fused/programs.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

namespace triage::fused {

TEST_CASE("what broadcasts beyond the terms of a call is refused by loops as by operators") {
  const std::vector<Program> programs = {
      [](const Tensors& in) { return Tensors{(in[0].unsqueeze(1) - in[0].unsqueeze(0)).exp() * 2}; },
      [](const Tensors& in) { return Tensors{(in[0].unsqueeze(1) - in[0].unsqueeze(0)).exp().sum(1)}; },
      [](const Tensors& in) {
        return Tensors{(in[0].unsqueeze(1).expand({-1, 7}) * 2 + 1).exp()};
      },
  };
  const operators::Untrusted::Terms small{.bytes = 1 << 20};
  for (size_t i = 0; i < programs.size(); ++i) {
    INFO("program " << i);
    const auto fused = compiled(programs[i], {data({7})});
    run(*fused, {data({9})});
    const int64_t rows = i == 2 ? 200'000 : 1500;
    CHECK(shares(programs[i], {data({7})}).first > 0);  // in loops
    CHECK_NOTHROW(run(*fused, {data({rows})}));         // it is trusted
    const operators::Untrusted held(&small);
    CHECK_NOTHROW(run(*fused, {data({64})}));
    CHECK_THROWS_WITH(run(*fused, {data({rows})}), doctest::Contains("it may take"));
  }
}

TEST_CASE("loops that would run far beyond the deadline of a call do not begin") {
  const auto fused = compiled(
      [](const Tensors& in) { return Tensors{(in[0].unsqueeze(1) - in[0].unsqueeze(0)).exp().sum(1)}; }, {data({7})});
  run(*fused, {data({9})});
  const operators::Untrusted::Terms terms{.bytes = int64_t{64} << 30};
  const operators::Untrusted held(&terms);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  CHECK_THROWS_WITH(run(*fused, {data({60'000})}, {deadline}), doctest::Contains("deadline"));
}

}  // namespace triage::fused
