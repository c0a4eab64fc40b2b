// TorchScript modules as Lua values, through the door that whoever loads them opens (script_modules.h).
#include "bindings/lua/flags/script_modules.h"
#include "tests/diagnose/script_model.h"
#include "tests/lua/lua_fixture.h"

#include <triage/location.h>

#include <doctest/doctest.h>

namespace triage::lua::testing {
namespace {

const char* const test_type = "a TorchScript module of this test";

const torch::jit::Module* module_at(lua_State* L, int index) {
  auto** held = static_cast<torch::jit::Module**>(luaL_testudata(L, index, test_type));
  return held ? *held : nullptr;
}

/// A state with the modules as globals. They must outlive it.
class ModulesScene : public Fixture {
 public:
  ModulesScene() { set_script_module_at(module_at); }
  ~ModulesScene() { set_script_module_at(nullptr); }
  void define(const char* name, torch::jit::Module& module) {
    in_protected_call(lua(), [&](lua_State* L) {
      *static_cast<torch::jit::Module**>(lua_newuserdatauv(L, sizeof(void*), 0)) = &module;
      luaL_newmetatable(L, test_type);
      lua_setmetatable(L, -2);
      lua_setglobal(L, name);
    });
  }
};

}  // namespace

TEST_CASE("T16: a TorchScript module is a location in Lua") {
  ErrorLocation::reset();
  torch::jit::Module model = triage::testing::network(), untracked = triage::testing::relu();
  torch::jit::Module layer = model.attr("second").toModule().attr("2").toModule();
  ModulesScene scene;
  scene.define("model", model);
  scene.define("layer", layer);
  scene.define("untracked", untracked);
  scene.run(R"(
    tracked(model, {prefix = "net"})
    assert(ErrorLocation.get("net.second.2") > 0)
    local function name(module)
      return flags.unpack(err.from_code(err.NAN, module, 1), 0)[1].location_name
    end
    assert(name(layer) == "net.second.2", name(layer))
    assert(name(model) == "net")
    assert(name(untracked) == "Unknown")
  )");
}

TEST_CASE("triage.instrument counts the values of a TorchScript module") {
  ErrorLocation::reset();
  torch::jit::Module model = triage::testing::network();
  ModulesScene scene;
  scene.define("model", model);
  scene.run(R"(
    local counted = triage.instrument(model, {statistics = true})
    for _ = 1, 3 do counted(torch.ones({5, 4}), 1.0) end
    local found = counted:statistics()
    assert(#found == 9 and found[1].batches == 3)   -- two of them are activations
    for _, one in ipairs(found) do assert(one.location ~= "first.0" or one.values == 3 * 5 * 8) end
    counted:reset_statistics()
    assert(#counted:statistics() == 0)
    local ok, message = pcall(function() triage.instrument(model):statistics() end)
    assert(not ok and tostring(message):find("without `statistics`", 1, true), tostring(message))
  )");
}

TEST_CASE("T01 T16: triage.instrument on a TorchScript module") {
  ErrorLocation::reset();
  torch::jit::Module model = triage::testing::network();
  ModulesScene scene;
  scene.define("model", model);
  for (int64_t rows : {0, 1, 2, 31, 32, 33}) {
    const at::Tensor x = at::randn({rows, 4});
    const auto results = scene.run(R"(
      local x = ...
      looked_at = looked_at or triage.instrument(model)
      local y, more, f = looked_at(x, 1.0)
      assert(looked_at:checked() and #looked_at:unlooked() == 0 and #looked_at:unseen() == 0)
      assert(looked_at:locations()[2] == "first")
      return y, more.hidden, f
    )",
                                   {x});
    const c10::IValue plain = model.forward({x, 1.0});
    const at::Tensor expected = plain.toTupleRef().elements()[0].toTensor();
    CHECK(same_bits(results.at(0), expected));
    CHECK(results.at(1).size(0) == rows);
    CHECK(at::equal(results.at(2).ne(0).any(1), expected.isfinite().all(1).logical_not()));
  }
  scene.run(R"(
    local quiet = triage.instrument(model, {benign = {"*"}, every = 2, prefix = "quiet", config = ErrorConfig{num_slots = 4}})
    local _, _, f = quiet(torch.full({2, 4}, 0 / 0))
    assert(f:size(1) == 1 and not has_err(f))
    quiet(torch.zeros({2, 4}))
    assert(not quiet:checked())
  )");
  const std::string message = scene.error_of("triage.instrument(model)('no tensor')");
  CHECK(message.find("tensor with the batch as its first dimension") != std::string::npos);
}

}  // namespace triage::lua::testing
