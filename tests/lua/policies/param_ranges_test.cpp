// Declared params: what a policy may declare, what it then takes, and booleans that decide which way a script goes.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/compile_profiler.h>
#include <triage/triage.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/logs.h"
#include "tests/lua/policies/policies.h"
#include "tests/paths.h"

namespace {

using triage::Params;
using triage::ParamValue;
using triage::Policy;
using triage::Runtime;
using triage::test::backends;
using triage::test::says;

Runtime runtime_of(const std::string& backend = "fused", bool fullgraph = false) {
  return Runtime({.log = triage::test::no_log(), .backend = backend, .fullgraph = fullgraph});
}

/// On two lines.
std::string source_with(const std::string& params, const std::string& body = "return z") {
  return "return policy {inputs = {'z'}, params = {" + params + "},\n  run = function(z, p) " + body + " end}";
}

template <class Error, class Work>
std::string message_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

std::string refusal_of(const std::string& params) {
  Runtime runtime = runtime_of();
  return message_of<triage::LoadError>([&] { runtime.load_source(source_with(params), "p.lua"); });
}

/// What `set_param` says.
std::string refusal_of(const Policy& policy, const std::string& name, const ParamValue& value) {
  return message_of<triage::InputError>([&] { policy.set_param(name, value); });
}

}  // namespace

TEST_CASE("a wrong declaration of a param is an error at load that names the param, the field and the line") {
  const auto refused = [](const std::string& declared, const std::string& why) {
    CAPTURE(declared);
    const std::string message = refusal_of("k = " + declared);
    CAPTURE(message);
    CHECK(says(message, "p.lua:1: policy: param 'k': " + why));
  };
  refused("{min = 1}", "field 'default' is missing");
  refused("{default = 1, mni = 0}",
          "there is no field 'mni'; did you mean 'min'? (fields: default, min, max, finite, values, help)");
  refused("{1, a = 2}", "a declaration has named fields only (fields: ");
  refused("{default = 'x'}", "field 'default': expected a number, a boolean, a tensor, or a list");
  refused("{default = {default = 1}}", "field 'default': expected a number");
  refused("{default = 1.0, min = 'x'}", "field 'min': expected a number, got string \"x\"");
  refused("{default = 1.0, max = 0/0}", "field 'max': expected a number, got");
  refused("{default = 1, min = 0.5}",
          "field 'min': expected a whole number, because the default is one (write 3.0 for a param with fractions)");
  refused("{default = {1, 2}, max = 2.5}", "field 'max': expected a whole number");
  refused("{default = 1.0, min = 2, max = 1}", "field 'min': 2 is above the field 'max', 1");
  refused("{default = 7, min = 0, max = 5}", "field 'default' must lie between 0 and 5, got 7");
  refused("{default = -1.5, min = 0}", "field 'default' must be at least 0, got -1.5");
  refused("{default = 3, values = {1, 2, 4}}", "field 'default' must be one of 1, 2, 4, got 3");
  refused("{default = math.huge}", "field 'default' must be a finite number, got inf; write finite = false");
  refused("{default = 0/0, min = 0, finite = false}", "field 'default' must be at least 0, got");
  refused("{default = {0.5, 1.5}, max = 1}", "field 'default' must be at most 1, got 1.5 at index 1");
  refused("{default = torch.tensor({{0, 1}, {2, 3}}), max = 2}",
          "field 'default' must be at most 2, got 3 at index (1, 1)");
  refused("{default = torch.tensor({1.0, 0/0}), finite = true}", "field 'default' must be a finite number, got");
  refused("{default = 1, values = {}}", "field 'values': expected a list of 1 to 1000 numbers such as { 1, 2, 4 }");
  refused("{default = 1, values = {1, 'x'}}", "field 'values': expected a list of 1 to 1000 numbers");
  refused("{default = 1, values = {1, a = 2}}", "field 'values': expected a list of 1 to 1000 numbers");
  refused("{default = 1, values = 1}", "field 'values': expected a list of 1 to 1000 numbers");
  refused("{default = 1, values = {1, 2}, min = 0}", "field 'min': field 'values' lists all that is allowed");
  refused("{default = 1.0, values = {1, math.huge}}", "field 'values': inf is not finite; write finite = false");
  refused("{default = 1, finite = 1}", "field 'finite': expected true or false, got int 1");
  refused("{default = true, min = 0}", "field 'min': a boolean has no range; leave the field out");
  refused("{default = true, finite = true}", "field 'finite': a boolean has no range");
  refused("{default = torch.ones({2}, {dtype = torch.bool}), max = 1}", "field 'max': a boolean has no range");
  refused("{default = 1, help = 'two\\nlines'}", "field 'help': expected one line of 1 to 255 bytes of text");
  refused("{default = 1, help = ''}", "field 'help': expected one line");
  refused("{default = 1, help = 3}", "field 'help': expected one line");
}

TEST_CASE("a declared param takes what its range allows, and says what it is for") {
  Runtime runtime = runtime_of();
  const Policy policy = runtime.load_source(
      source_with("share = {default = 0.5, min = 0, max = 1, help = 'the share of bad rows'}, "
                  "size = {default = 4, values = {1, 2, 4}}, least = {default = 1.0, min = 0.1}, "
                  "most = {default = -1, max = 9}, open = {default = 1.0, finite = false}, plain = 2.5, "
                  "huge = math.huge, on = {default = true, help = 'a switch'}",
                  "return z * p.share"),
      "ranges.lua");
  const std::vector<triage::Param> params = policy.signature().params;
  const auto find = [&](const std::string& name) {
    for (const triage::Param& param : params)
      if (param.name == name) return param;
    return triage::Param();
  };
  CHECK(find("share").help == "the share of bad rows");
  CHECK(find("share").max->toDouble() == 1.0);
  CHECK(find("size").values.size() == 3);
  CHECK(find("plain").finite);
  CHECK_FALSE(find("open").finite);
  CHECK_FALSE(find("huge").finite);  // who writes it means it
  CHECK(refusal_of(policy, "share", 1.5) ==
        "policy 'ranges': param 'share' must lie between 0 and 1, got 1.5 (the share of bad rows)");
  CHECK(refusal_of(policy, "share", std::nan("")) ==
        "policy 'ranges': param 'share' must be a finite number, got nan (the share of bad rows)");
  CHECK(refusal_of(policy, "size", 3) == "policy 'ranges': param 'size' must be one of 1, 2, 4, got 3");
  CHECK(refusal_of(policy, "least", 0.05) == "policy 'ranges': param 'least' must be at least 0.1, got 0.05");
  CHECK(refusal_of(policy, "most", 10) == "policy 'ranges': param 'most' must be at most 9, got 10");
  CHECK(says(refusal_of(policy, "plain", INFINITY), "'plain' must be a finite number, got inf"));
  CHECK(says(refusal_of(policy, "on", 1), "param 'on' is a boolean"));
  for (const ParamValue& value : {ParamValue(1), ParamValue(4), ParamValue(2.0)}) policy.set_param("size", value);
  for (const double value : {0.1, 5.0}) policy.set_param("least", value);
  for (const double value : {std::nan(""), double{INFINITY}, 3.0}) {
    policy.set_param("open", value);
    policy.set_param("huge", value);
  }
  const at::Tensor z = at::ones({2});
  policy.set_param("share", 0.25);
  CHECK(policy.run({z})[0].equal(z * 0.25));
  CHECK_THROWS_AS(policy.run({z}, {.params = {{"share", -0.1}}}), triage::InputError);
  CHECK(policy.run({z}, {.params = {{"share", 1}}})[0].equal(z));
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("the range of a list or tensor holds for each element") {
  Runtime runtime = runtime_of();
  const Policy policy = runtime.load_source(
      source_with("limits = {default = {0.1, 0.5}, min = 0.1, max = 0.5}, free = {1.0, 2.0}, "
                  "columns = {default = {0, 2}, min = 0}, weights = {default = torch.ones({2, 2}), min = 0, max = 1}, "
                  "mask = torch.tensor({0.0, -math.huge}), finite = {default = torch.ones({2}), finite = true}",
                  "return z + p.limits:sum()"),
      "p.lua");
  CHECK(refusal_of(policy, "limits", std::vector<double>{0.2, 0.6}) ==
        "policy 'p': each number of param 'limits' must lie between 0.1 and 0.5, got 0.6 at index 1");
  policy.set_param("limits", std::vector<double>{0.1, 0.5});
  policy.set_param("limits", at::tensor({0.1F, 0.5F}));  // which is above 0.1, as a number of 64 bits
  CHECK(says(refusal_of(policy, "limits", at::tensor({0.1F, 0.6F})), "got 0.6 at index 1"));
  CHECK(says(refusal_of(policy, "free", std::vector<double>{1.0, INFINITY}),
             "must be a finite number, got inf at index 1"));
  CHECK(says(refusal_of(policy, "free", std::vector<double>{1e39}), "must be a finite number"));  // in float32, Inf
  CHECK(says(refusal_of(policy, "columns", std::vector<int64_t>{1, -1}), "must be at least 0, got -1 at index 1"));
  CHECK(says(refusal_of(policy, "weights", at::full({2, 2}, 1.5)), "got 1.5 at index (0, 0)"));
  CHECK(says(refusal_of(policy, "weights", at::tensor({1, 2})), "got 2 at index 1"));
  CHECK(says(refusal_of(policy, "weights", at::complex(at::ones({1}), at::ones({1}))), "must hold real numbers"));
  for (const at::ScalarType dtype : {at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kBool})
    policy.set_param("weights", at::ones({3}, dtype));
  policy.set_param("mask", at::full({2}, -INFINITY));
  CHECK(says(refusal_of(policy, "finite", at::full({2}, INFINITY)), "must be a finite number"));
  const at::Tensor z = at::ones({2});
  CHECK_THROWS_AS(policy.run({z}, {.params = {{"weights", at::full({1024}, 2.0)}}}), triage::InputError);
  CHECK_NOTHROW(
      policy.run({z}, {.params = {{"weights", at::full({1025}, 2.0)}}}));  // a call reads no large tensor for that
  CHECK_THROWS_AS(policy.set_param("weights", at::full({1025}, 2.0)), triage::InputError);
}

TEST_CASE("tests of a policy set only what its params take") {
  const auto refused = [](const std::string& params) {
    Runtime runtime = runtime_of();
    return message_of<triage::LoadError>([&] {
      runtime.load_source(
          "return policy {inputs = {'z'}, params = {k = {default = 1, max = 5}}, run = function(z, p) return z end,\n"
          "tests = {{args = function() return torch.ones({2}) end, check = function() end, params = " +
              params + "}}}",
          "p.lua");
    });
  };
  CHECK(says(refused("{k = 6}"), "policy: test 1: field 'params': param 'k' must be at most 5, got 6"));
  CHECK(says(refused("{k = 0.5}"),
             "policy: test 1: field 'params': param 'k' is an integer, and the given value is not"));
}

TEST_CASE("a reload is refused where it does not allow what the host has set") {
  Runtime runtime = runtime_of();
  const Policy policy = runtime.load_source(source_with("k = 1.0", "return z * p.k"), "p.lua");
  const at::Tensor z = at::ones({2});
  policy.set_param("k", 7.0);
  policy.run({z});
  CHECK(policy.replace(source_with("k = {default = 1.0, max = 5}", "return z * p.k")) == triage::Reload::refused);
  const auto error = policy.version().last_error;
  REQUIRE(error);
  CHECK(says(
      error->message,
      "p.lua:2: the new source does not allow the value that the host has set: param 'k' must be at most 5, got 7"));
  CHECK(error->source.line == 2);
  CHECK(policy.run({z})[0].equal(z * 7));
  policy.set_param("k", 2.0);
  CHECK(policy.replace(source_with("k = {default = 1.0, max = 5}", "return z * p.k")) == triage::Reload::swapped);
  CHECK(policy.run({z})[0].equal(z * 2));
}

TEST_CASE("gradients of the library cannot be turned round") {
  Runtime runtime = runtime_of();
  const Policy policy = runtime.load(triage::test::source_dir() + "/scripts/policies/gradients.lua");
  CHECK(refusal_of(policy, "max_norm", -1) ==
        "policy 'gradients': param 'max_norm' must be at least 0, got -1 (the longest gradient of a sample, in the "
        "2-norm)");
  CHECK_THROWS_AS(policy.run({at::ones({2, 2})}, {.params = {{"max_norm", std::nan("")}}}), triage::InputError);
}

TEST_CASE("a boolean param decides which way a script goes: one graph for each value, without a break") {
  for (const std::string backend : backends) {
    CAPTURE(backend);
    Runtime runtime = runtime_of(backend, /*fullgraph=*/true);
    const Policy policy =
        runtime.load_source(source_with("on = true, both = {default = false, help = 'twice'}",
                                        "local y = z + 1\n"
                                        "if p.on and not p.both then y = y * 2 elseif p.both then y = y * 4 end\n"
                                        "return p.on and y or -y"),
                            "p.lua");
    const auto expected = [](const at::Tensor& z, bool on, bool both) {
      const at::Tensor y = (z + 1) * (both ? 4 : on ? 2 : 1);
      return on ? y : -y;
    };
    for (int round = 0; round < 3; ++round)
      for (const bool on : {true, false})
        for (const bool both : {false, true})
          for (const int64_t rows : {2, 3}) {
            const at::Tensor z = at::rand({rows, 2});
            triage::RunInfo info;
            triage::RunOptions options;
            options.params = {{"on", on}, {"both", both}};
            options.info = &info;
            CHECK(policy.run({z}, options)[0].equal(expected(z, on, both)));
            if (round > 0) CHECK(info.form == triage::CallForm::graph);
          }
    CHECK(policy.graphs().size() == 4);
    CHECK(policy.graph_breaks().empty());
    CHECK(says(policy.graphs()[0].guards, "on == true (a condition of the script at p.lua:3)"));
    const at::Tensor z = at::rand({4, 2});
    policy.set_param("on", false);
    CHECK(policy.run({z})[0].equal(expected(z, false, false)));
    CHECK(policy.graphs().size() == 4);
  }
}

TEST_CASE("a boolean param is no graph break in a policy that has others") {
  Runtime runtime = runtime_of();
  const Policy policy = runtime.load_source(source_with("on = true",
                                                        "local y = z * 2 + 1\nif y:sum():item() < 0 then y = -y end\n"
                                                        "if p.on then y = y * 3 + 1 else y = y - 1 end\nreturn y * 2"),
                                            "p.lua");
  for (int call = 0; call < 8; ++call) {
    const bool on = call % 3 != 0;
    const at::Tensor z = at::rand({2, 2}), y = z * 2 + 1;
    CHECK(policy.run({z}, {.params = {{"on", on}}})[0].equal((on ? y * 3 + 1 : y - 1) * 2));
  }
  CHECK(policy.graph_breaks().size() == 1);
  CHECK(says(policy.graph_breaks()[0], "item"));
}

TEST_CASE("IF keeps both values of a boolean param in one graph, as before") {
  Runtime runtime = runtime_of("fused", /*fullgraph=*/true);
  const Policy policy = runtime.load_source(
      source_with("on = true", "return IF(p.on, function() return z * 2 end):ELSE(function() return z - 1 end)"),
      "p.lua");
  const at::Tensor z = at::rand({2, 2});
  for (const bool on : {true, false, true})
    CHECK(policy.run({z}, {.params = {{"on", on}}})[0].equal(on ? z * 2 : z - 1));
  CHECK(policy.graphs().size() == 1);
}

TEST_CASE("a recompile for a boolean param says so") {
  const auto profiler = std::make_shared<triage::CompileProfiler>();
  triage::RuntimeOptions options;
  options.profiler = profiler;
  options.log = triage::test::no_log();
  Runtime runtime(options);
  const Policy policy = runtime.load_source(source_with("on = true", "if p.on then return z end return -z"), "p.lua");
  const at::Tensor z = at::ones({2});
  policy.run({z});
  policy.run({z}, {.params = {{"on", false}}});
  CHECK(policy.graphs().size() == 2);
  REQUIRE(profiler->recompiles().size() == 1);
  CHECK(profiler->recompiles()[0].example == "param 'on' was true, is now false (decided at p.lua:2)");
}
