// Who keeps a tensor alive, what its memory counts, and when Lua's collector hears of it.
#include "runtime/capture/recording/recorder.h"
#include "tests/lua/lua_fixture.h"
#include "tests/memory_use.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/output_memory.h>
#include <triage/runtime.h>

namespace triage::lua::testing {
namespace {

void collect(Fixture& fixture) { lua_gc(fixture.lua(), LUA_GCCOLLECT); }

}  // namespace

TEST_CASE("nothing of a script's tensors is left after a collection") {
  Fixture fixture;
  collect(fixture);
  int64_t live = fixture.context().live_tensors, bytes = fixture.context().tensor_bytes;
  fixture.run("local x = torch.ones(100, 100) for i = 1, 50 do local y = x[0] + x:t() end pcall(torch.mm, x, x[0])");
  collect(fixture);
  CHECK_EQ(fixture.context().live_tensors, live);
  CHECK_EQ(fixture.context().tensor_bytes, bytes);
}

TEST_CASE("views count their storage once") {
  Fixture fixture;
  collect(fixture);
  int64_t bytes = fixture.context().tensor_bytes;
  fixture.run(
      "kept = {torch.zeros({1000}, {dtype = torch.float32})} for i = 1, 99 do kept[i + 1] = kept[1]:view(10, 100) end");
  CHECK_EQ(fixture.context().tensor_bytes - bytes, 4000);
  fixture.run("kept = nil");
  collect(fixture);
  CHECK_EQ(fixture.context().tensor_bytes.load(), bytes);
}

TEST_CASE("a tensor outlives its state, and a state its tensors") {
  at::Tensor made, given = at::ones({3});
  {
    Fixture fixture;
    made = fixture.run1("kept = ... return kept * 2", {given});
    CHECK_EQ(given.use_count(), 2);
  }
  CHECK_EQ(given.use_count(), 1);
  CHECK(same_bits(made, given * 2));
}

TEST_CASE("garbage stays bounded though Lua sees only pointers") {
  StateOptions options = trusted_options();
  options.limits.tensor_bytes = 512u << 20;
  Fixture fixture(options);
  CHECK_EQ(fixture.error_of("for i = 1, 1000 do torch.zeros(1000000) end"), "");
}

TEST_CASE("a captured policy keeps nothing of its capture") {
  const test::CountedTensorMemory memory;
  const size_t before = memory.now();
  Runtime runtime;
  const Policy policy = runtime.load_source("return function(z) return ((z * 2 + 1):relu() - z):abs():softmax(-1) end");
  {
    const at::Tensor z = at::ones({256, 256});
    for (int i = 0; i < 2; ++i) CHECK(policy.run({z})[0].sizes() == z.sizes());
  }
  free_idle_output_memory();           // which `fused` keeps for later calls
  CHECK(memory.now() - before < 256);  // numbers that stand in the script
}

TEST_CASE("a detached result of a function with graph breaks keeps no gradients alive") {
  for (const std::string backend : {"eager", "aot_eager", "fused"}) {
    CAPTURE(backend);
    Fixture fixture;
    fixture.run(
        "f = triage.compile(function(z) local y = (z * 2):exp() triage.graph_break() return y:square(), y end, "
        "{backend = '" +
        backend + "'}) kept = {}");
    for (int call = 0; call < 5; ++call) {
      const at::Tensor z = at::ones({4, 3}).requires_grad_();
      fixture.run1(
          "local a, b = f(...) assert(a.requires_grad and b.requires_grad) kept[#kept + 1] = a:detach() "
          "kept[#kept + 1] = b:detach() return kept[1]",
          {z});
      collect(fixture);
      CHECK_EQ(z.use_count(), 1);
    }
  }
}

TEST_CASE("a call that is captured takes little more tensor memory than one that is not") {
  for (const std::string body : {"x = x + 1", "x = (x * 2):relu() - x"}) {
    CAPTURE(body);
    StateOptions options = trusted_options();
    options.limits.tensor_bytes = 512u << 20;
    Fixture fixture(options);
    test::CountedTensorMemory memory;
    memory.begin();
    CHECK_EQ(fixture.error_of("local f = triage.compile(function(x) for _ = 1, 500 do " + body +
                              " end return x end, {backend = 'eager'}) for i = 1, 2 do f(torch.zeros(1000000)) end"),
             "");
    CHECK(memory.highest() < options.limits.tensor_bytes);
  }
}

TEST_CASE("what a capture must hold counts, though the script has let it go") {
  for (const std::string body :
       {"x = x + 1 kept[#kept + 1] = x", "x = x + 1 triage.graph_break()", "x = (x + 1):contiguous()"}) {
    CAPTURE(body);
    StateOptions options = trusted_options();
    options.limits.tensor_bytes = 256u << 20;
    Fixture fixture(options);
    test::CountedTensorMemory memory;
    memory.begin();
    const std::string error =
        fixture.error_of("local f = triage.compile(function(x) local kept = {} for _ = 1, 500 do " + body +
                         " end return x end, {backend = 'eager'}) f(torch.zeros(1000000))");
    CHECK((error.empty() || error.find("budget of tensor memory") != std::string::npos));
    CHECK(memory.highest() < 2 * options.limits.tensor_bytes);
  }
}

TEST_CASE("without a budget no account is kept of memory that autograd holds") {
  Fixture fixture;
  fixture.run("local y = torch.ones({4}, {requires_grad = true}) for i = 1, 200 do y = y:exp() end kept = y");
  collect(fixture);
  CHECK(fixture.context().storages.size() < 20);
}

TEST_CASE("new data of a parameter takes the place of the old in the account") {
  StateOptions options = trusted_options();
  options.limits.tensor_bytes = 512u << 20;
  Fixture fixture(options);
  fixture.run("m = nn.Linear(100, 100)");
  collect(fixture);
  const int64_t bytes = fixture.context().tensor_bytes;
  fixture.run("m:to(torch.float64)");
  collect(fixture);
  CHECK_EQ(fixture.context().tensor_bytes.load(), bytes + 4 * (100 * 100 + 100));
  CHECK_EQ(fixture.context().held_bytes, 0);
}

TEST_CASE("tensor memory has a budget, and the error keeps its type") {
  StateOptions options = trusted_options();
  options.limits.tensor_bytes = 8u << 20;
  Fixture fixture(options);
  CHECK_THROWS_AS(fixture.run("kept = {} for i = 1, 100 do kept[i] = torch.zeros(1000, 1000) end"), LimitError);
  fixture.run("kept = nil");
  CHECK_THROWS_AS(fixture.run("return torch.zeros(1 << 40)"), LimitError);
  CHECK_THROWS_AS(fixture.run("return torch.zeros(1 << 40, 1 << 40)"), LimitError);
  CHECK_EQ(fixture.error_of("return torch.zeros(10)"), "");
}

TEST_CASE("a graph break keeps its type through Lua, and reads as text there") {
  Fixture fixture;
  at::Tensor x = at::ones({3});
  capture::Recorder recorder("test", true);
  at::Tensor traced = recorder.add_input("x", graph::InputKind::tensor, x);
  CHECK_THROWS_AS(fixture.run("local x = ... return torch.tensor(x:sum():item())", {traced}), GraphBreakError);
  CHECK(recorder.broken().has_value());
}

TEST_CASE("an assignment is captured as a value of the graph") {
  Fixture fixture;
  at::Tensor x = at::randn({4, 3});
  const char* source =
      "local x = ... local y = x * 1 y[{':', 1}] = 5 y[x > 0] = 0 y[{{1, 3}, 0}] = x[{{0, 2}, 2}] return y";
  at::Tensor eager = fixture.run1(source, {x});
  capture::Recorder recorder("test", true);
  at::Tensor traced = recorder.add_input("x", graph::InputKind::tensor, x);
  at::Tensor result = fixture.run1(source, {traced});
  CHECK(same_bits(result, eager));
  auto captured = recorder.finish({result});
  CHECK(captured.sizes.empty());
  CHECK_GT(captured.graph.nodes().size(), 5);
}

TEST_CASE("D19: sizes that a script goes by become guards, sizes that it passes on do not") {
  Fixture fixture;
  for (const bool goes_by_it : {true, false}) {
    capture::Recorder recorder("test", true);
    at::Tensor traced = recorder.add_input("x", graph::InputKind::tensor, at::ones({4, 3}));
    at::Tensor result = fixture.run1(
        goes_by_it ? "local x = ... return x / ({7, 8, 9})[x:size(-1)]" : "local x = ... return x / x:size(-1)",
        {traced});
    auto captured = recorder.finish({result});
    REQUIRE_EQ(captured.sizes.size(), goes_by_it ? 1 : 0);
    if (!goes_by_it) continue;
    CHECK_EQ(captured.sizes[0].dim, 1);
    CHECK_EQ(captured.sizes[0].size, 3);
  }
}

TEST_CASE("a policy's param stays a value of the graph where an operator takes a number") {
  Fixture fixture;
  at::Tensor limit = at::scalar_tensor(0.5, at::kDouble);
  limit.unsafeGetTensorImpl()->set_wrapped_number(true);
  capture::Recorder recorder("test", true);
  at::Tensor x = recorder.add_input("x", graph::InputKind::tensor, at::full({3}, NAN));
  at::Tensor param = recorder.add_input("limit", graph::InputKind::param, limit);
  at::Tensor result = fixture.run1("local x, limit = ... return x:nan_to_num(limit)", {x, param});
  CHECK(same_bits(result, at::full({3}, 0.5)));
  auto captured = recorder.finish({result});
  REQUIRE_EQ(captured.graph.nodes().size(), 1);
  CHECK_EQ(captured.graph.nodes()[0]->operands[1].value(), captured.graph.inputs()[1].value);
}

}  // namespace triage::lua::testing
