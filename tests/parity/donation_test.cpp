// RunOptions::donate, from a host's call to the memory of the output.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/backend.h>
#include <triage/triage.h>

#include <limits>

#include "programs.h"

namespace triage::parity {

TEST_CASE("donated inputs: equal results with every backend, in the memory of the input with fused, never otherwise") {
  const char* source = "return function(z) return fix(z, flag_nan_and_inf(z, 'z'), 'z', {fallback = 0.5}) end";
  for (const std::string& backend : list_backends()) {
    RuntimeOptions options;
    options.backend = backend;
    options.compiler = CompilerMode::background;
    const Policy policy = Runtime(options).load_source(source, "repair.lua");
    for (const int64_t n : {5, 1, 2, 31, 32, 33}) {
      at::Tensor z = at::arange(n * 7).to(at::kFloat).view({n, 7});
      z[n / 2][3] = std::numeric_limits<float>::quiet_NaN();
      const auto expected = policy.run({z.clone()});
      for (int round = 0; round < 3; ++round) {
        const at::Tensor given = z.clone();
        const auto got = policy.run({given}, {.donate = {0}});
        CHECK(got[0].equal(expected[0]));
        CHECK(got[1].equal(expected[1]));
        if (round == 2) CHECK((got[0].data_ptr() == given.data_ptr()) == (backend == "fused"));
        policy.prepare({z.clone()});  // the first donated call that finds the other kernel asks for its own
      }
      const at::Tensor kept = z.clone();
      CHECK_FALSE(policy.run({kept})[0].is_alias_of(kept));
      CHECK(at::equal(kept.nan_to_num(7), z.nan_to_num(7)));
    }
  }
}

}  // namespace triage::parity
