// The policies that ship on a device without kernels of triage: warm calls wait for nothing there, and give what they
// give on the host.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/cli/folder.h"
#include "tests/logs.h"
#include "tests/other_device.h"
#include "tests/policy_library.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

using namespace triage::test;

TEST_CASE("warm calls of the policies of the library wait for no device, and give there what they give here") {
  triage::RuntimeOptions options;
  options.trusted = true;  // the contracts of operators know no such device
  options.log = no_log();
  size_t tests = 0;
  for (const char* backend : {"eager", "fused"})
    for (const std::filesystem::path& path : library()) {
      CAPTURE(std::string(backend));
      CAPTURE(path.string());
      options.backend = backend;
      triage::lua::LuaScript script(read_bytes(path), script_options(path));
      const triage::Policy here = triage::Runtime(options).load(path), there = triage::Runtime(options).load(path);
      for (size_t test = 0; test < script.test_count(); ++test, ++tests) {
        const std::vector<at::Tensor> params = script.test_params(test), inputs = script.test_arguments(test);
        for (size_t i = 0; i < params.size(); ++i)
          for (const triage::Policy& policy : {here, there})
            policy.set_param(script.signature().params[i].name, params[i].item());
        std::vector<at::Tensor> moved;
        for (const at::Tensor& input : inputs) moved.push_back(to_other(input.detach()));
        for (const triage::Policy& policy : {here, there}) policy.reset_state();
        for (const char* call : {"first", "second", "third"}) {
          CAPTURE(std::string(call));
          const std::vector<at::Tensor> expected = here.run(inputs);
          std::vector<at::Tensor> got;
          const Calls calls = calls_of([&] { got = there.run(moved); });
          if (std::string(call) != "first")  // which moves the numbers of params there
            CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
          REQUIRE(got.size() == expected.size());
          for (size_t i = 0; i < got.size(); ++i)
            CHECK(at::allclose(from_other(got[i]).to(at::kDouble), expected[i].detach().to(at::kDouble), 1e-5, 1e-6,
                               /*equal_nan=*/true));
        }
      }
      CHECK(there.breaks().empty());
    }
  CHECK(tests > 100);
}
