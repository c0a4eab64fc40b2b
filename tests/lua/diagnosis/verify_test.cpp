// The laws of a recovery policy (triage/verify.h): each fault that is planted here is found, with its line.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <triage/verify.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/folder.h"

namespace {

using triage::Law;
using triage::LawResult;
using triage::Verification;
using triage::Violation;
using Verdict = LawResult::Verdict;
using Tensors = std::vector<at::Tensor>;

Verification verified(const std::string& source, triage::VerifyOptions options = {}) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.lua";
  std::ofstream(path) << source;
  if (options.batches.empty()) options.batches = {{at::arange(1, 13, at::kFloat).view({4, 3})}};
  return triage::verify_policy(path, options);
}

const LawResult& of(const Verification& found, Law law) { return found.laws.at(static_cast<size_t>(law)); }

struct Planted {
  const char* what;
  Law law;
  int line;
  const char* source;
};

/// Line 1 of each is the head of the policy.
const Planted planted[] = {
    {"a zero fallback divided by its norm", Law::finite, 5, R"(return policy { inputs = {"x"}, outputs = {"x", "f"},
  verify = {unchanged = false, stable = false}, run = function(x)
    local f = flag_nan(x, "x")
    x, f = fix(x, f, "x")
    return x / x:norm(2, -1, true), f
  end})"},
    {"a full record loses a NaN", Law::finite, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = err.new(z)
    for i = 1, 16 do f = push(f, err.VALUE_CLAMPED, "note." .. i) end
    f = flag_nan_and_inf(z, "late", f)
    return fix(z, f, "late", {codes = {err.NAN, err.INF}})
  end})"},
    {"only NaN is looked for", Law::finite, 2,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan(z, "z")
    z, f = fix(z, f, "z")
    return z, f
  end})"},
    {"the square of a large number", Law::finite, 5, R"(return policy { inputs = {"z"}, outputs = {"z", "f"},
  verify = {unchanged = false, stable = false}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return z * z, f
  end})"},
    {"the root of a negative number", Law::finite, 4,
     R"(return policy { inputs = {"z"}, outputs = {"y", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return z:sqrt(), f
  end})"},
    {"a fallback that is not finite", Law::finite, 3,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z", {fallback = 0/0})
    return z, f
  end})"},
    {"a NaN between two numbers of the script", Law::finite, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, verify = {unchanged = false, stable = false}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return torch.where((z > 7.25) & (z < 7.5), 0/0, z), f
  end})"},
    {"a number that the script computes of constants", Law::finite, 4,
     R"(local c = torch.tensor({1000.0, 234.5, 0.125})
return policy { inputs = {"z"}, outputs = {"z", "f"}, verify = {unchanged = false, stable = false}, run = function(z)
    local f = flag_nan_and_inf(z, "z") z, f = fix(z, f, "z")
    return torch.where(z == c:sum(), 0/0, z), f
  end})"},
    {"values that are clamped in silence", Law::unchanged, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return z:clamp(-1e4, 1e4), f
  end})"},
    {"a mean over the batch", Law::isolated, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, verify = {unchanged = false, stable = false}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return z - z:mean(0), f
  end})"},
    {"state that carries a bad sample on", Law::isolated, 3,
     R"(return policy { inputs = {"x"}, outputs = {"x", "f"}, verify = {unchanged = false, stable = false, finite = false},
  state = {m = {shape = {}}}, run = function(x, s)
    local mean = x:mean()
    return x - s.m, flag_nan_and_inf(x, "a"), {m = mean}
  end})"},
    {"the first sample is special", Law::order, 3,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    local first = torch.arange(z:size(0)) == 0
    f = push(f, err.SATURATED, "z", {where = first})
    return fix(z, f, "z", {codes = {err.NAN, err.INF}})
  end})"},
    {"a repair that does not rest", Law::stable, 5,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    local far = z:abs() > 100
    local y = torch.where(far, z * 0.5, z)
    return y, push(f, err.VALUE_CLAMPED, "z", {where = far:any(-1)})
  end})"},
    {"an id beyond the table", Law::answers, 3,
     R"(return policy { inputs = {"z"}, outputs = {"y", "f"}, run = function(z)
    local table = torch.arange(11):to(torch.float32)
    return table:index_select(0, z:select(-1, 0):nan_to_num():clamp(0, 12):to(torch.int64)), flag_nan(z, "z")
  end})"},
    {"a batch of three samples", Law::answers, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    if z:size(0) == 3 then error("three") end
    return z, f
  end})"},
    {"a batch without samples", Law::answers, 4,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, verify = {unchanged = false}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    local most = z:max()
    return z + (most - most), f
  end})"},
    {"state that makes others bad after two bad calls", Law::isolated, 5,
     R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, state = {n = {shape = {}, dtype = torch.int64}},
  verify = {unchanged = false, stable = false}, run = function(z, s)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    local n = s.n + err.has_nan(f):any():to(torch.int64)
    local limit = torch.where(s.n >= 2, 1.0, 1e30)
    f = push(f, err.OUT_OF_BOUNDS, "z", {where = (z > limit):any(-1)})
    return z, f, {n = n}
  end})"},
};

/// Faults in a form that the declared types allow.
struct PlantedForm {
  const char *what, *types, *body;
  int line;
};

const PlantedForm planted_forms[] = {
    {"its declared types with dims of size 1", "{'N', 'D'}",
     "z, f = fix(z, f, 'z')\n z = z / (1 + z:std(-1, true, true))", 4},
    {"its declared types with dims of size 7", "{'N', 'D'}",
     "z, f = fix(z, f, 'z')\n z = z:size(1) == 7 and z / 0 or z", 4},
    {"its declared types with dims of size 7", "{'N', '...'}",
     "z, f = fix(z, f, 'z')\n z = z:dim() == 3 and z / 0 or z", 4},
    {"its declared types in float16", "{'N', 'D'}", "z, f = fix(z, f, 'z')\n z = z:clamp(-1e4, 1e4) * 10", 4},
};

}  // namespace

TEST_CASE("verify finds each planted fault, and the line that has it") {
  for (const Planted& fault : planted) {
    CAPTURE(fault.what);
    const Verification found = verified(fault.source);
    for (const LawResult& law : found.laws) {
      CAPTURE(to_string(law.law));
      CAPTURE(law.why);
      std::string all;
      for (const Violation& one : law.violations)
        all += one.what + " (line " + std::to_string(one.source.line) + " " + one.op + ")\n";
      CAPTURE(all);
      if (law.law != fault.law) {
        CHECK(law.verdict != Verdict::broken);
        continue;
      }
      REQUIRE(law.verdict == Verdict::broken);
      CHECK(law.violations.front().source.line == fault.line);
      CHECK_FALSE(law.violations.front().inputs.empty());
    }
    CHECK_FALSE(found.ok());
  }
}

TEST_CASE("verify tries the forms that declared types leave open") {
  for (const PlantedForm& fault : planted_forms) {
    CAPTURE(fault.what);
    const TemporaryFolder folder;
    const std::string path = folder / "policy.lua";
    std::ofstream(path) << "return policy { inputs = {'z'}, outputs = {'z', 'f'}, signature = {z = Tensor(floating_t, "
                        << fault.types << ")}, verify = {unchanged = false, stable = false}, run = function(z)\n"
                        << " local f = flag_nan_and_inf(z, 'z')\n " << fault.body << "\n return z, f\nend }";
    const Verification found = triage::verify_policy(path);
    CHECK(found.left_out.empty());
    const LawResult& finite = of(found, Law::finite);
    REQUIRE(finite.violations.size() == 1);
    CHECK(finite.violations[0].what.find(std::string("(with ") + fault.what) != std::string::npos);
    CHECK(finite.violations[0].source.line == fault.line);
  }
}

TEST_CASE("verify: a form whose good samples fail is left out, with the reason") {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.lua";
  std::ofstream(path) << R"(return policy { inputs = {'z'}, outputs = {'z', 'f'},
  signature = {z = Tensor(float32_t, {'N', 'D'})}, run = function(z)
    z:reshape(z:size(0), -1, 2)
    return z, flag_nan_and_inf(z, 'z')
  end })";
  const Verification found = triage::verify_policy(path);
  REQUIRE(found.left_out.size() == 2);
  CHECK(found.left_out[1].find("its declared types with dims of size 7") == 0);
  CHECK(found.left_out[1].find("policy.lua:3") != std::string::npos);
}

TEST_CASE("verify: the sample that it shows is small, and shows the fault by itself") {
  const Verification found = verified(planted[0].source);
  const Violation& violation = of(found, Law::finite).violations.front();
  CHECK(violation.output == "x");
  CHECK(violation.op == "aten::div.Tensor");
  CHECK(violation.what == "x leaves with NaN; its record is clean");
  REQUIRE(violation.inputs.size() == 1);
  CHECK(violation.inputs[0].first == "x");
  CHECK((violation.inputs[0].second.sizes() == at::IntArrayRef({1, 1})));
  CHECK(violation.inputs[0].second.item<float>() == 0);
}

TEST_CASE("verify: a policy that repairs what it flags keeps all laws") {
  const std::string repairs = R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    return fix(z, f, "z")
  end})";
  const Verification found = verified(repairs);
  CHECK(found.ok());
  CHECK(found.samples > 40);
  for (const Law law : {Law::answers, Law::finite, Law::unchanged, Law::isolated, Law::order, Law::stable})
    CHECK(of(found, law).verdict == Verdict::held);
  CHECK(of(found, Law::gradients).verdict == Verdict::not_promised);
  // The same options, the same result.
  CHECK(verified(repairs).calls == found.calls);
}

TEST_CASE("verify: gradients are a law for policies that promise it") {
  const auto policy = [](const std::string& body) {
    return "return policy { inputs = {'z'}, outputs = {'y', 'f'}, verify = {gradients = true, finite = false}, run = "
           "function(z)\n"
           "  local f = flag_nan_and_inf(z, 'z')\n" +
           body + "end}";
  };
  const Verification leaks =
      verified(policy("  return torch.where(err.is_err(f):unsqueeze(1), 0.0, z * z:abs():log()), f\n"));
  REQUIRE(of(leaks, Law::gradients).verdict == Verdict::broken);
  CHECK(of(leaks, Law::gradients).violations[0].what.find("the gradient of z has NaN or Inf") == 0);
  const Verification kept = verified(policy("  z, f = fix(z, f, 'z')\n  return z:clamp(-10, 10) * 2, f\n"));
  CHECK(of(kept, Law::gradients).verdict == Verdict::held);
}

TEST_CASE("verify: what a policy promises of a law") {
  const auto policy = [](const std::string& verify) {
    return "return policy { inputs = {'z'}, outputs = {'z', 'y', 'f'}, verify = " + verify +
           ", run = function(z)\n local f = flag_nan(z, 'z')\n z, f = fix(z, f, 'z')\n return z, z:log(), f end}";
  };
  const auto refused = [&](const std::string& verify) {
    try {
      verified(policy(verify));
    } catch (const triage::LoadError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  CHECK(of(verified(policy("true")), Law::finite).verdict == Verdict::broken);
  CHECK(of(verified(policy("{finite = false}")), Law::finite).verdict == Verdict::not_promised);
  CHECK(of(verified(policy("{finite = {'z'}}")), Law::finite).violations.size() == 1);  // Inf in z
  const auto only_nan = of(verified(policy("{finite = 'nan'}")), Law::finite).violations;
  REQUIRE(only_nan.size() == 1);
  CHECK(only_nan[0].output == "y");  // the logarithm of a negative number
  CHECK(refused("{finte = false}").find("there is no law 'finte'; did you mean 'finite'?") != std::string::npos);
  CHECK(refused("{stable = 3}").find("'stable': expected true, false") != std::string::npos);
  CHECK(refused("{finite = {'w'}}").find("the policy has no output 'w'") != std::string::npos);
  CHECK(refused("{finite = {}}").find("got an empty table") != std::string::npos);
  CHECK(refused("{'finite'}").find("expected names of laws as keys") != std::string::npos);
  CHECK(refused("'yes'").find("expected true, or a table of laws") != std::string::npos);
}

TEST_CASE("verify: batches, integers, several inputs and what the host gives") {
  const std::string range =
      R"(return policy { inputs = {"ids", "limit"}, outputs = {"ids", "f"}, run = function(ids, limit)
    local bad = (ids < 0) | (ids >= limit)
    local f = push(err.new(ids), err.OUT_OF_BOUNDS, "ids", {where = bad:any(-1)})
    return torch.where(bad, 0, ids), f
  end})";
  triage::VerifyOptions options;
  options.batches = {{at::arange(8).view({4, 2}), at::full({}, 9, at::kLong)}};
  CHECK(verified(range, options).ok());

  options.batches = {{at::ones({2, 2})}};
  CHECK_THROWS_WITH_AS(verified(range, options), "verify_policy: batch 0 has 1 tensors; policy 'policy' has 2 inputs",
                       triage::InputError);
  const std::string no_tests = "return function(z) return z end";
  options.batches = {{at::ones({})}};
  CHECK_THROWS_AS(verified(no_tests, options), triage::InputError);

  const std::string given = R"(return policy { inputs = {"z"}, outputs = {"z", "f"}, run = function(z)
    local f = flag_nan_and_inf(z, "z")
    z, f = fix(z, f, "z")
    return same(z) * scale, f
  end})";
  options.batches = {{at::ones({2, 2})}};
  options.host_tensors = {{"scale", at::full({}, 1.0)}};
  options.host_functions = {{"same", [](const Tensors& in) { return in; }}};
  const Verification found = verified(given, options);
  CHECK(of(found, Law::isolated).verdict == Verdict::held);
  CHECK(of(found, Law::unchanged).verdict == Verdict::held);
}
