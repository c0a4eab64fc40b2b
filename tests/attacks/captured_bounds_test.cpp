// What is captured on small inputs and called with large ones is refused as the plain script is.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/attacks/forked.h"

#include <triage/front_end.h>

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace triage::lua::testing {
namespace {

/// On a vector `z`: each makes a matrix of it somewhere.
const std::vector<std::string> makes_matrices = {
    "(z:unsqueeze(1) - z:unsqueeze(0)):abs():sum()",
    "z:unsqueeze(1) * z:unsqueeze(0) + 1",
    "z:unsqueeze(1):eq(z:unsqueeze(0)):sum()",
    "torch.where(z:unsqueeze(1):gt(0), z:unsqueeze(0), z:unsqueeze(1)):sum(0)",
    "z:unsqueeze(1):maximum(z):sum()",
    "z:unsqueeze(1):expand_as(torch.broadcast_tensors({z:unsqueeze(1), z})[1]):contiguous():sum()",
    "torch.broadcast_tensors({z:unsqueeze(1), z})[1]:clone():sum()",
    "torch.broadcast_tensors({z:unsqueeze(1), z})[2]:reshape({-1}):sum()",
    "torch.broadcast_tensors({z:unsqueeze(1), z})[2]:softmax(0):sum()",
    "torch.broadcast_tensors({z:unsqueeze(1), z})[1]:cumsum(1):sum()",
    "torch.meshgrid({z, z})[1]:exp():sum()",
    "torch.stack({torch.broadcast_tensors({z:unsqueeze(1), z})[1], torch.broadcast_tensors({z, "
    "z:unsqueeze(1)})[1]}):sum()",
    "torch.outer(z, z):sum()",
    "torch.mm(z:unsqueeze(1), z:unsqueeze(0)):sum()",
    "torch.cdist(z:unsqueeze(1), z:unsqueeze(1)):sum()",
    "torch.einsum(\"i,j->ij\", {z, z}):sum()",
    "torch.mse_loss(z:unsqueeze(1), z:unsqueeze(0), 0):sum()",
    "z:tile({z:size(0)}):sum()",
    "z:unsqueeze(1):expand({z:size(0), z:size(0)}):mul(2):sum()",
    "torch.lerp(z:unsqueeze(1), z, 0.5):sum()",
    "z:unsqueeze(1):masked_fill(z:unsqueeze(0):gt(2), 0):sum()",
    "torch.cosine_similarity(z:unsqueeze(1):unsqueeze(2), z:unsqueeze(0):unsqueeze(2), 2):sum()",
    "torch.diag(z):sum()",
};

/// Says what a small and a large vector give: "allowed", or why not.
std::string script_of(const std::string& expression, const std::string& backend) {
  return "local function f(z) return " + expression + R"( end
local function outcome(f, n)
  local fine, why = pcall(f, torch.ones(n))
  return fine and "allowed" or tostring(why)
end
local g = triage.compile(f, {backend = ")" +
         backend + R"("})
for n = 8, 10 do assert(outcome(g, n) == "allowed", outcome(g, n)) end
for _, n in ipairs({64, 12000}) do
  local plain, captured = outcome(f, n), outcome(g, n)
  if n == 12000 then
    assert(plain ~= "allowed", "the plain script is not refused")
    assert(captured ~= "allowed", "the captured call is not refused")
    assert(captured:find("it may take", 1, true) or captured:find("budget", 1, true), captured)
  else
    assert(plain == "allowed" and captured == "allowed", plain .. "; captured: " .. captured)
  end
end
return function(z) return z end)";
}

}  // namespace

TEST_CASE("attacks: what is captured small and called large is refused as the plain script is") {
  for (const std::string backend : {"eager", "fused"}) {
    const Ended ended = in_fork(
        [&](const Say& say) {
          std::string errors;
          for (const std::string& expression : makes_matrices) {
            say(expression);
            ScriptOptions options;
            options.limits.tensor_bytes = 64 << 20;
            options.limits.seconds = 30;
            try {
              LuaScript(script_of(expression, backend), options);
            } catch (const std::exception& error) {
              errors += expression + ": " + error.what() + "\n";
            }
          }
          return errors;
        },
        60);
    INFO(backend << ", " << ended.stage);
    CHECK(ended.death == "");
    CHECK(ended.text == "");
  }
}

}  // namespace triage::lua::testing
