// What LibTorch's profiler sees of triage: spans of policies, functions, graphs, groups and kernels, as
// at::RecordFunction tells them.
#include "tests/lua/lua_fixture.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <doctest/doctest.h>
#include <triage/diagnostics.h>
#include <triage/runtime.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace {

/// What a profiler on this thread hears while it lives.
class Listener {
 public:
  struct Heard {
    std::string name, inside;  // `inside`: the innermost span of triage around it
  };
  Listener() {
    current() = this;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&open, &close));
  }
  ~Listener() { at::removeCallback(handle_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The first whose name begins so; empty where there is none.
  std::string with(const std::string& begin) const {
    const auto found =
        std::find_if(heard.begin(), heard.end(), [&](const Heard& one) { return begins(one.name, begin); });
    return found == heard.end() ? "" : found->name;
  }
  std::string around(const std::string& begin) const {
    const auto found =
        std::find_if(heard.begin(), heard.end(), [&](const Heard& one) { return begins(one.name, begin); });
    return found == heard.end() ? "(not heard)" : found->inside;
  }
  size_t spans() const {
    return static_cast<size_t>(
        std::count_if(heard.begin(), heard.end(), [](const Heard& one) { return begins(one.name, "triage::"); }));
  }

  std::vector<Heard> heard;
  std::vector<std::string> open_spans;

 private:
  struct Mark : at::ObserverContext {};
  static Listener*& current() {
    static Listener* listener = nullptr;
    return listener;
  }
  static bool begins(const std::string& text, const std::string& with) { return text.rfind(with, 0) == 0; }
  static bool is_span(const at::RecordFunction& function) {
    return function.scope() == at::RecordScope::USER_SCOPE && begins(function.name(), "triage::");
  }
  static std::unique_ptr<at::ObserverContext> open(const at::RecordFunction& function) {
    Listener& listener = *current();
    listener.heard.push_back({function.name(), listener.open_spans.empty() ? "" : listener.open_spans.back()});
    if (is_span(function)) listener.open_spans.emplace_back(function.name());
    return std::make_unique<Mark>();
  }
  static void close(const at::RecordFunction& function, at::ObserverContext*) {
    if (is_span(function)) current()->open_spans.pop_back();
  }

  at::CallbackHandle handle_;
};

struct SpansOn {
  SpansOn() { triage::set_diagnostics({.profiler_spans = true}); }
  ~SpansOn() { triage::set_diagnostics({}); }
};

triage::RuntimeOptions options(const std::string& backend = "fused") {
  triage::RuntimeOptions options;
  options.backend = backend;
  options.log = [](const triage::LogRecord&) {};
  return options;
}

constexpr const char* repair = R"(return policy {
  name = "repair", inputs = {"z"},
  run = function(z)
    local y = torch.sort(z, 1)
    return torch.exp(y) * 2 + 1
  end,
})";

}  // namespace

TEST_CASE("D15: a policy, its graph, its groups and their loops are spans of LibTorch's profiler") {
  triage::Runtime runtime(options());
  const triage::Policy policy = runtime.load_source(repair, "repair.lua");
  const SpansOn on;
  CHECK(triage::get_diagnostics().profiler_spans);
  {
    const Listener listener;
    policy.run({at::ones({8, 16})});
    CHECK(listener.around("triage::capture repair") == "triage::policy repair");
    CHECK(listener.around("triage::fused loops repair") != "(not heard)");
    CHECK(listener.open_spans.empty());
  }
  const at::Tensor input = at::ones({8, 16});
  const Listener listener;
  policy.run({input});
  const std::string group = "repair: aten::exp, aten::mul.Scalar, aten::add.Scalar (repair.lua:5)";
  CHECK(listener.heard.at(0).name == "triage::policy repair");
  CHECK(listener.around("triage::graph repair[0]") == "triage::policy repair");
  CHECK(listener.around("triage::fused group ") == "triage::graph repair[0]");
  CHECK(listener.with("triage::fused group ") == "triage::fused group " + group);
  CHECK(listener.with("triage::tape ") == "triage::tape " + group);
  CHECK(listener.around("triage::tape ") == "triage::fused group " + group);
  CHECK(listener.around("triage::node repair.lua:4: ") == "triage::graph repair[0]");
  CHECK(listener.around("aten::sort").rfind("triage::node repair.lua:4: ", 0) == 0);  // ATen's operators beside them
  CHECK(listener.open_spans.empty());
}

TEST_CASE("D15: spans are off unless somebody wants them, and nobody listens to a thread without a profiler") {
  triage::Runtime runtime(options());
  const triage::Policy policy = runtime.load_source(repair, "repair.lua");
  CHECK_FALSE(triage::get_diagnostics().profiler_spans);
  {
    const Listener listener;
    policy.run({at::ones({8, 16})});
    policy.run({at::ones({8, 16})});
    CHECK(listener.spans() == 0);
    CHECK(listener.with("aten::sort") == "aten::sort");
  }
  const SpansOn on;
  CHECK(policy.run({at::ones({8, 16})}).size() == 1);
}

TEST_CASE("D15: segments between graph breaks, and scripts, are spans") {
  triage::Runtime runtime(options());
  const triage::Policy policy = runtime.load_source(
      "return function(z)\n local n = (z * 2 + 1):exp():sum():item()\n if n > 0 then z = z * 3 + 1 end return z end",
      "broken.lua");
  for (int i = 0; i < 4; ++i) policy.run({at::ones({4, 3})});
  const SpansOn on;
  const Listener listener;
  policy.run({at::ones({4, 3})});
  CHECK(listener.around("triage::script broken") == "triage::policy broken");
  CHECK(listener.around("triage::segment ") == "triage::script broken");
}

TEST_CASE("D15: a call that fails closes its spans, and a name cannot break the JSON of a trace") {
  triage::Runtime runtime(options("eager"));
  const triage::Policy policy = runtime.load_source(
      "return policy { name = 'a \"b\\\\c', inputs = {'z', 'w'}, run = function(z, w) return torch.mm(z, w) end }",
      "odd.lua");
  const at::Tensor a = at::ones({2, 3}), b = at::ones({3, 2}), too_long = at::ones({4, 2});
  const SpansOn on;
  const Listener listener;
  policy.run({a, b});
  CHECK_THROWS(policy.run({a, too_long}));
  CHECK(listener.open_spans.empty());
  CHECK(listener.heard.at(0).name == "triage::policy a 'b/c");
}

TEST_CASE_FIXTURE(triage::lua::testing::Fixture, "D15: compiled functions and their gradients are spans") {
  run("f = triage.compile(function(x) return (x * 2):exp() end, {name = 'f', backend = 'fused'})\n"
      "x = torch.ones({4, 3}):requires_grad_(true)\n"
      "for i = 1, 2 do f(x):sum():backward() end");
  const SpansOn on;
  const Listener listener;
  run("f(x):sum():backward()");
  CHECK(listener.with("triage::function ") == "triage::function f");
  CHECK(listener.around("triage::graph f[0]") == "triage::function f");
  CHECK(listener.around("triage::fused group f: ") == "triage::graph f[0]");
  CHECK(listener.with("triage::fused group f_backward: ") != "");
  CHECK(listener.around("triage::fused group f_backward: ") == "triage::backward f");
}
