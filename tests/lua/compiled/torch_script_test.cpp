// nn.load: TorchScript modules as modules of Lua.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <torch/csrc/jit/api/module.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/lua/lua_fixture.h"

namespace triage::lua::testing {
namespace {

namespace fs = std::filesystem;

/// A file with a module of two levels: inner(x) * w + mean, log(x).
class ScriptFile {
 public:
  ScriptFile() : path_(fs::temp_directory_path() / ("triage-script-" + std::to_string(::getpid()) + ".pt")) {
    torch::jit::Module inner("Inner"), outer("Outer");
    inner.register_parameter("shift", at::ones({3}).requires_grad_(), false);
    inner.register_attribute("training", c10::BoolType::get(), true);
    inner.define("def forward(self, x):\n    if self.training:\n        return x + self.shift\n    return x\n");
    outer.register_module("inner", inner);
    outer.register_parameter("w", at::full({3}, 2.0).requires_grad_(), false);
    outer.register_buffer("mean", at::zeros({3}));
    outer.register_attribute("training", c10::BoolType::get(), true);
    outer.define("def forward(self, x):\n    return self.inner.forward(x) * self.w + self.mean, torch.log(x)\n");
    outer.save(path_.string());
  }
  ~ScriptFile() { fs::remove(path_); }
  ScriptFile(const ScriptFile&) = delete;
  ScriptFile& operator=(const ScriptFile&) = delete;

  /// Lua that begins with `model`.
  std::string script(const std::string& text) const {
    return "local model = nn.load('" + path_.string() + "')\n" + text;
  }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("T31: a TorchScript module is a module: calls, names, modes, conversion") {
  const ScriptFile file;
  Fixture fixture;
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  const auto outputs = fixture.run(file.script("return model(...)"), {x});
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[0].detach().equal((x + 1) * 2));
  CHECK(outputs[1].equal(x.log()));
  CHECK(fixture.run1(file.script("return (model:eval()(...))"), {x}).detach().equal(x * 2));
  CHECK(fixture.run1(file.script("return model.inner(...)"), {x}).detach().equal(x + 1));
  CHECK((fixture.run1(file.script("return (model:to(torch.float64)((...):double()))"), {x}).scalar_type() ==
         at::kDouble));
  CHECK(fixture.error_of(file.script(R"lua(
    local function names(list) local text = "" for _, pair in ipairs(list) do text = text .. pair[1] .. " " end return text end
    assert(names(model:named_modules()) == " inner ")
    assert(names(model:named_parameters()) == "w inner.shift ", names(model:named_parameters()))
    assert(names(model:named_buffers()) == "mean ")
    assert(tostring(model) == "Outer(\n  (inner): Inner()\n)", tostring(model))
    assert(model.training and not model:eval().inner.training)
    model.inner._fx_path = "inner"
    assert(model.inner._fx_path == "inner"))lua")) == "");
}

TEST_CASE("T31: a TorchScript module trains, with guards around it in branches") {
  const ScriptFile file;
  Fixture fixture;
  CHECK(fixture.error_of(file.script(R"lua(
    local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
    local before = model(torch.ones({1, 3})):sum():item()
    model(torch.ones({1, 3})):sum():backward()
    optimizer:step()
    assert(model(torch.ones({1, 3})):sum():item() < before)
    model:load_state_dict({w = torch.zeros({3}), mean = torch.ones({3}), ["inner.shift"] = torch.zeros({3})})
    assert(model(torch.ones({1, 3})):sum():item() == 3.0)
    local x = torch.tensor({{1.0, 2.0, 4.0}, {0.0, 1.0, 1.0}}, {requires_grad = true})
    IF((x > 0):all(-1), function() return (select(2, model(x))) end):ELSE(function() return x end):sum():backward()
    assert(x.grad:equal(torch.tensor({{1.0, 0.5, 0.25}, {1.0, 1.0, 1.0}})), tostring(x.grad)))lua")) == "");
}

TEST_CASE("T31: calling a TorchScript module breaks the graph, wrong use says what is expected") {
  const ScriptFile file;
  Fixture fixture;
  const auto says = [&](const std::string& text, const std::string& part) {
    const std::string message = fixture.error_of(file.script(text));
    CHECK_MESSAGE(message.find(part) != std::string::npos, "expected '" << part << "', got '" << message << "'");
  };
  says("triage.compile(function(x) return (model(x)) end, {fullgraph = true})(torch.ones({1, 3}))",
       "graph break: a TorchScript module runs operators that capture does not see");
  CHECK(fixture.run1(file.script("return (triage.compile(model)(torch.ones({1, 3})))"))
            .detach()
            .equal(at::full({1, 3}, 4.0)));
  says("model.w = torch.ones({3})", "field 'w' of a TorchScript module cannot be assigned");
  says("model.extra = nn.Linear(1, 1)", "cannot be assigned");
  says("model('x')", "a TorchScript module failed");
  says("model(print)", "a TorchScript module takes tensors");
  says("nn.load('/nowhere/model.pt')", "nn.load: cannot read '/nowhere/model.pt'");
  says("nn.load(3)", "nn.load: expected the path of a TorchScript file, got int 3");
}

}  // namespace triage::lua::testing
