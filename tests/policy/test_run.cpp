#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <execinfo.h>
#include <triage/triage.h>

using triage::InputError;
using triage::Policy;
using triage::PolicyError;
using triage::Runtime;
using triage::test::first;
using triage::test::says;

TEST_CASE("a backend of the host sees the deadline and the donated inputs of a call") {
  struct Spy final : triage::Executable {
    void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
             const triage::CallContext& call) const override {
      deadline = call.deadline;
      donated = call.donated.vec();
      outputs.push_back(inputs[0] + 1);
    }
    mutable std::optional<std::chrono::steady_clock::time_point> deadline;
    mutable std::vector<at::Tensor> donated;
  };
  static Spy* spy = nullptr;
  triage::register_backend("sees-calls", [](const triage::graph::Graph&, const std::vector<at::Tensor>&) {
    auto made = std::make_unique<Spy>();
    spy = made.get();
    return made;
  });
  const Policy policy = Runtime({.backend = "sees-calls"}).load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({2, 2});
  policy.prepare({z});
  policy.run({z});
  REQUIRE(spy);
  CHECK_FALSE(spy->deadline);
  CHECK(spy->donated.empty());
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::hours(1);
  policy.run({z}, {.donate = {0}, .deadline = deadline});
  CHECK(spy->deadline == deadline);
  REQUIRE(spy->donated.size() == 1);
  CHECK(spy->donated[0].is_same(z));
}

namespace {

/// How many functions this thread is in.
[[gnu::noinline]] int depth_of_stack() {
  void* frames[256];
  return ::backtrace(frames, 256);
}

}  // namespace

TEST_CASE("a warm call is at most ten functions deep when it comes to its graph") {
  // Whoever wants to know what a call does reads these. Without optimisation each of them is a frame of the stack.
  static int in_graph = 0;
  struct Probe final : triage::Executable {
    void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
             const triage::CallContext& /*call*/) const override {
      in_graph = depth_of_stack();
      outputs.push_back(inputs[0] + 1);
    }
  };
  triage::register_backend("tells-depth", [](const triage::graph::Graph&, const std::vector<at::Tensor>&) {
    return std::make_unique<Probe>();
  });
  const Policy policy = Runtime({.backend = "tells-depth"}).load_source("add 1", "p.fake");
  const std::vector<at::Tensor> inputs = {at::zeros({2, 2})};
  policy.prepare(inputs);
  const int here = depth_of_stack();
  policy.run(inputs);
  CHECK(in_graph - here > 1);
  CHECK(in_graph - here <= 10);
}

TEST_CASE("a policy runs in vector form, destructured, and by name") {
  Runtime runtime;
  const Policy policy = runtime.load_source("inputs z f\noutputs z f\nadd 1", "two.fake");
  const at::Tensor z = at::zeros({3, 2}), f = at::ones({3, 1});
  const std::vector<at::Tensor> outputs = policy.run({z, f});
  REQUIRE(outputs.size() == 2);
  CHECK(at::equal(outputs[0], z + 1));
  CHECK(outputs[1].is_same(f));

  auto [z2, f2] = policy.run<2>({z, f});
  CHECK(at::equal(z2, z + 1));
  CHECK(f2.is_same(f));

  const triage::Outputs named = policy.run_named({{"f", f}, {"z", z}});
  CHECK(named.size() == 2);
  CHECK(at::equal(named["z"], z + 1));
  CHECK(named[1].is_same(f));
  CHECK(named.contains("f"));
  CHECK_FALSE(named.contains("q"));
  CHECK(says(fake::message_of([&] { named["q"]; }), "there is no output 'q'; there are (z, f)"));
}

TEST_CASE("an identity policy returns the very tensor, captured once for all batch sizes") {
  Runtime runtime;
  const Policy policy = runtime.load_source("name id", "id.fake");
  CHECK(policy.name() == "id");
  for (const int64_t rows : {4, 0, 1, 2, 31, 32, 33}) {
    const at::Tensor z = at::rand({rows, 3});
    CHECK(policy.run<1>({z})[0].is_same(z));
  }
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.signature().outputs == std::vector<std::string>{"out0"});
}

TEST_CASE("calls that do not fit the signature say what was expected") {
  Runtime runtime;
  const Policy policy = runtime.load_source("inputs z f\nadd 1", "two.fake");
  const at::Tensor z = at::zeros({2, 2});
  CHECK_THROWS_AS(policy.run({z}), InputError);
  CHECK(says(fake::message_of([&] { policy.run({z}); }), "policy 'two' takes 2 inputs (z, f), got 1"));
  CHECK(says(fake::message_of([&] { policy.run({z, at::Tensor()}); }), "input 'f' is an undefined tensor"));
  CHECK(says(fake::message_of([&] { policy.run({z, z}, {.donate = {2}}); }), "cannot donate input 2"));
  CHECK(says(fake::message_of([&] { policy.run<3>({z, z}); }), "has 2 outputs (out0, out1); run<3>"));
  CHECK(says(fake::message_of([&] { policy.run_named({{"z", z}, {"q", z}}); }), "has no input 'q'; it takes (z, f)"));
  CHECK(says(fake::message_of([&] { policy.run_named({{"z", z}}); }), "input 'f' is missing"));
  CHECK(says(fake::message_of([&] { policy.run_named({{"z", z}, {"z", z}}); }), "input 'z' is given twice"));
  CHECK_NOTHROW(policy.run({z, z}, {.donate = {0, 1}}));
  CHECK(says(fake::message_of([] { Policy().run({}); }), "holds no policy"));
}

TEST_CASE("sources that cannot be loaded say why and where") {
  fake::Folder folder;
  Runtime runtime;
  CHECK(says(fake::message_of([&] { runtime.load(folder / "none.fake"); }), "there is no such file"));
  CHECK(says(fake::message_of([&] { runtime.load(folder.path()); }), "it is a directory"));
  CHECK(says(fake::message_of([&] { runtime.load_source("add 1", "p.python"); }),
             "no script engine for the extension '.python'"));
  CHECK(says(fake::message_of([] { Runtime({.backend = "warp"}); }), "warp"));
  fake::write(folder / "bad.fake", "add 1\nbroken on purpose");
  try {
    runtime.load(folder / "bad.fake");
    FAIL("a broken script was loaded");
  } catch (const triage::LoadError& error) {
    CHECK(error.source().line == 2);
    CHECK(says(error.source().file, "bad.fake"));
  }
}

TEST_CASE("params: defaults, per call, and for all calls from now on") {
  Runtime runtime;
  const Policy policy =
      runtime.load_source("param limit 2.0\nint_param steps 3\nadd_param limit\nadd_param steps", "p.fake");
  const at::Tensor z = at::zeros({2, 2});
  CHECK(first(policy.run({z})[0]) == 5.0f);
  CHECK(first(policy.run({z}, {.params = {{"limit", 10.0}}})[0]) == 13.0f);
  CHECK(first(policy.run({z})[0]) == 5.0f);
  policy.set_param("limit", 7);
  CHECK(first(policy.run({z})[0]) == 10.0f);
  CHECK(first(policy.run({z}, {.params = {{"steps", 1}}})[0]) == 8.0f);
  CHECK(policy.graphs().size() == 1);
  CHECK(policy.replace("param limit 2.0\nint_param steps 3\nadd_param limit\nadd_param steps\nmul 2") ==
        triage::Reload::swapped);
  CHECK(first(policy.run({z})[0]) == 20.0f);
  CHECK(says(fake::message_of([&] { policy.set_param("speed", 1); }), "no param 'speed'; it has (limit, steps)"));
  CHECK(says(fake::message_of([&] { policy.run({z}, {.params = {{"steps", 1.5}}}); }), "param 'steps' is an integer"));
  CHECK((policy.run({z.to(at::kHalf)})[0].scalar_type() == at::kHalf));  // params are wrapped numbers
}

TEST_CASE("a param takes what its policy allows, through every door of the host") {
  Runtime runtime;
  const Policy policy = runtime.load_source("param limit 2.0 0 10\nparam free 1.0\nadd_param limit", "p.fake");
  const at::Tensor z = at::zeros({2, 2});
  const triage::Param limit = policy.signature().params.at(0);
  CHECK(limit.min->toDouble() == 0.0);
  CHECK(limit.max->toDouble() == 10.0);
  for (const double allowed : {0.0, 10.0, 5.5})
    CHECK(first(policy.run({z}, {.params = {{"limit", allowed}}})[0]) == allowed);
  const std::string refused = "policy 'p': param 'limit' must lie between 0 and 10, got 10.5";
  CHECK(fake::message_of([&] { policy.run({z}, {.params = {{"limit", 10.5}}}); }) == refused);
  CHECK(fake::message_of([&] { policy.set_param("limit", 10.5); }) == refused);
  CHECK(fake::message_of([&] { policy.prepare({z}, {.params = {{"limit", 10.5}}}); }) == refused);
  CHECK(fake::message_of([&] { policy.unmasked_rows({z}, {{"limit", 10.5}}); }) == refused);
  CHECK_THROWS_AS(policy.set_param("limit", -1), InputError);
  for (const double odd : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
    CHECK(says(fake::message_of([&] { policy.set_param("limit", odd); }), "'limit' must be a finite number, got"));
    CHECK(says(fake::message_of([&] {
                 policy.run({z}, {.params = {{"free", odd}}});
               }),
               "must be a finite number, got"));
  }
  CHECK(first(policy.run({z})[0]) == 2.0f);  // as if nobody had asked
  policy.set_param("limit", 10);
  CHECK(first(policy.run({z})[0]) == 10.0f);
}

TEST_CASE("a reload that does not allow what the host has set is refused; a way back is not, and has its default") {
  Runtime runtime({.trial_calls = 0});
  const std::string narrow = "param limit 2.0 0 10\nadd_param limit", wide = "param limit 2.0 0 100\nadd_param limit";
  const Policy policy = runtime.load_source(narrow, "p.fake");
  const at::Tensor z = at::zeros({2, 2});
  policy.run({z});
  REQUIRE(policy.replace(wide) == triage::Reload::swapped);
  policy.set_param("limit", 50);
  CHECK(policy.replace("param limit 2.0 0 20\nadd_param limit") == triage::Reload::refused);
  const std::string why = policy.version().last_error->message;
  CHECK(says(why, "does not allow the value that the host has set: param 'limit' must lie between 0 and 20, got 50"));
  CHECK(first(policy.run({z})[0]) == 50.0f);
  CHECK(policy.versions().size() == 2);  // what was refused has no number
  policy.rollback(1);
  CHECK(first(policy.run({z})[0]) == 2.0f);
  CHECK(policy.replace(wide) == triage::Reload::swapped);
  CHECK(first(policy.run({z})[0]) == 50.0f);
  CHECK(policy.replace(narrow) == triage::Reload::swapped);
  CHECK(first(policy.run({z})[0]) == 2.0f);
  policy.set_param("limit", 5);
  CHECK(policy.replace("param limit 2.0 0 20\nadd_param limit") == triage::Reload::swapped);
  CHECK(first(policy.run({z})[0]) == 5.0f);
}

TEST_CASE("an error of the policy is raised by default, and says which policy") {
  Runtime runtime;
  const Policy policy = runtime.load_source("fail_unless_rows 4", "rows.fake");
  CHECK_NOTHROW(policy.run({at::zeros({4, 2})}));
  CHECK_THROWS_AS(policy.run({at::zeros({3, 3})}), PolicyError);
  CHECK(says(fake::message_of([&] { policy.run({at::zeros({3, 3})}); }), "rows"));
  const Policy cold = runtime.load_source("fail_unless_rows 4", "cold.fake");
  const std::string message = fake::message_of([&] { cold.run({at::zeros({3, 3})}); });
  CAPTURE(message);
  CHECK(says(message, "policy 'cold' (version 1) failed"));
  CHECK_NOTHROW(policy.run({at::zeros({4, 2})}));
}

TEST_CASE("on_error = pass_through hands inputs on, and flags every sample as unknown") {
  Runtime runtime({.on_error = triage::OnError::pass_through});
  const Policy policy = runtime.load_source("outputs z f\nfail_unless_rows 4\nflags", "rows.fake");
  CHECK_NOTHROW(policy.run({at::zeros({4, 2})}));
  const at::Tensor z = at::ones({3, 3});
  const auto [out, f] = policy.run<2>({z});
  CHECK(out.is_same(z));
  CHECK(f.size(0) == 3);
  CHECK(f.size(1) == triage::get_config().num_words());
  const int64_t unknown = to_int(triage::err::unknown) << triage::CODE_SHIFT | to_int(triage::err::error);
  CHECK(at::equal(f.select(1, 0), at::full({3}, unknown, at::kLong)));
  CHECK_THROWS_AS(policy.run({z, z}), InputError);  // the host's mistake stays an error

  CHECK_THROWS_AS(policy.prepare({z}), PolicyError);

  const Policy other = runtime.load_source("outputs y\nraise it", "other.fake");
  CHECK_THROWS_AS(other.run({z}), PolicyError);
  CHECK(says(fake::message_of([&] { other.run({z}); }), "its output 'y' is neither an input nor known to be flags"));
}

TEST_CASE("on_error = last_good answers with the latest earlier version that has run") {
  Runtime runtime({.on_error = triage::OnError::last_good, .trial_calls = 0, .failures_to_revert = 0});
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const at::Tensor z = at::zeros({3, 3});
  CHECK(first(policy.run({z})[0]) == 1.0f);
  CHECK(policy.replace("fail_unless_rows 3\nadd 2") == triage::Reload::swapped);
  CHECK(policy.version().number == 2);
  CHECK(first(policy.run({z})[0]) == 2.0f);
  CHECK(first(policy.run({at::zeros({2, 2})})[0]) == 1.0f);
  CHECK(first(policy.run({z})[0]) == 2.0f);
  CHECK(policy.version().number == 2);

  const Policy alone = runtime.load_source("raise it", "alone.fake");
  CHECK_THROWS_AS(alone.run({z}), PolicyError);
}

TEST_CASE("a deadline stops the script with LimitError") {
  Runtime runtime;
  const Policy policy = runtime.load_source("add 1", "p.fake");
  const auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  CHECK_THROWS_AS(policy.run({at::zeros({1})}, {.deadline = past}), triage::LimitError);
}

TEST_CASE("a deadline stops a captured graph between two operators") {
  triage::RuntimeOptions options;
  options.backend = "eager";  // two operators: `fused` makes one loop of them
  Runtime runtime(options);
  const Policy policy = runtime.load_source("add 1\nadd 2", "p.fake");
  const at::Tensor z = at::zeros({1});
  policy.prepare({z});
  REQUIRE(policy.graphs().size() == 1);
  const auto now = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(policy.run({z}, {.deadline = now - std::chrono::seconds(1)}), triage::LimitError);
  CHECK(says(fake::message_of([&] { policy.run({z}, {.deadline = now - std::chrono::seconds(1)}); }),
             "ended before `%1 = aten::add"));
  CHECK(first(policy.run({z}, {.deadline = now + std::chrono::hours(1)})[0]) == 3.0f);
  CHECK(first(policy.run({z})[0]) == 3.0f);  // the deadline was that call's alone
}

TEST_CASE("host functions, graph breaks and fullgraph") {
  Runtime runtime;
  runtime.define("twice", [](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{in.at(0) * 2}; });
  const Policy policy = runtime.load_source("add 1\nhost twice", "p.fake");
  for (int i = 0; i < 3; ++i) CHECK(first(policy.run({at::ones({2})})[0]) == 4.0f);
  CHECK(policy.graphs().empty());
  CHECK(policy.graph_breaks().size() == 1);
  const Policy strict = runtime.load_source("fullgraph\nadd 1\nbreak", "strict.fake");
  CHECK_THROWS_AS(strict.run({at::ones({2})}), triage::GraphBreakError);
  CHECK_THROWS_AS(Runtime({.fullgraph = true}).load_source("break", "p.fake").run({at::ones({2})}),
                  triage::GraphBreakError);
  CHECK_THROWS_AS(runtime.define("", {}), InputError);
}

TEST_CASE("introspection: graphs with guards, which outputs are flags, the policy's tests") {
  Runtime runtime;
  const Policy policy = runtime.load_source("outputs z f\nflags\ntest good\ntest bad why", "p.fake");
  CHECK(policy.graphs().empty());
  policy.prepare({at::zeros({4, 2})});
  policy.prepare({at::zeros({4, 2}, at::kDouble)});
  REQUIRE(policy.graphs().size() == 2);
  CHECK(policy.graphs()[0].graph->outputs().size() == 2);
  CHECK_FALSE(policy.graphs()[0].guards.empty());
  CHECK(policy.flags_outputs() == std::vector<bool>{false, true});
  const auto tests = policy.run_tests();
  REQUIRE(tests.size() == 2);
  CHECK(tests[0].second.empty());
  CHECK(tests[1].second == "why");
}

TEST_CASE("policies outlive their runtime, and runtimes list the policies that are held") {
  const int before = fake::alive;
  Policy kept;
  {
    Runtime runtime;
    kept = runtime.load_source("add 1", "kept.fake");
    const Policy dropped = runtime.load_source("add 2", "dropped.fake");
    CHECK(runtime.policies().size() == 2);
  }
  CHECK(fake::alive == before + 1);  // the destructor of the runtime has waited for the other one
  CHECK(first(kept.run({at::zeros({1})})[0]) == 1.0f);
  CHECK(kept.replace("add 5") == triage::Reload::swapped);
  CHECK(first(kept.run({at::zeros({1})})[0]) == 5.0f);
  kept = Policy();
  CHECK(fake::alive == before);

  Runtime a;
  Policy policy = a.load_source("add 1", "p.fake");
  Runtime b = std::move(a);
  CHECK(b.policies().size() == 1);
  b = Runtime();
  CHECK(first(policy.run({at::zeros({1})})[0]) == 1.0f);
}
