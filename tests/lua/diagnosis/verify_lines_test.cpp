// The line that `triage verify` names for a fault, and the batch that it shows: policies with one fault each, whose
// line is that of
// `-- here`.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <triage/verify.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/folder.h"

namespace verify_lines {
namespace {

using triage::Law;
using triage::LawResult;
using triage::Verification;
using triage::Violation;

Verification verified(const std::string& source, triage::VerifyOptions options = {}) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.lua";
  std::ofstream(path) << source;
  if (options.batches.empty()) options.batches = {{at::arange(1, 17, at::kFloat).view({4, 4})}};
  return triage::verify_policy(path, options);
}

const LawResult& of(const Verification& found, Law law) { return found.laws.at(static_cast<size_t>(law)); }

std::string text_of(const Verification& found) {
  std::string all;
  for (const LawResult& law : found.laws)
    for (const Violation& one : law.violations)
      all += std::string(to_string(law.law)) + ": " + one.what + " (line " + std::to_string(one.source.line) + " " +
             one.op + ")\n";
  return all;
}

int line_of_fault(const std::string& source) {
  const size_t place = source.find("-- here");
  return place == std::string::npos ? -1
                                    : 1 + static_cast<int>(std::count(source.begin(), source.begin() + place, '\n'));
}

struct Planted {
  const char* what;
  Law law;
  const char* promises;
  const char* body;  // between the repair of z and the end
};

constexpr const char* new_values = "{unchanged = false, stable = false}";

const Planted planted[] = {
    {"the branch of a natural if that was taken", Law::finite, new_values, R"(
    z = z:clamp(-1e6, 1e6)
    if z:amin(-1) > 3 then
      z = (z - 3):log() / 1e4
    else
      z = z / (z:amax(-1, true) - z:amin(-1, true)) -- here
    end)"},
    {"the branch of IF that was taken", Law::finite, new_values, R"(
    z = z:clamp(-1e6, 1e6)
    z = IF(z:amin(-1) > 3, function()
      return (z - 3):log() / 1e4
    end):ELSE(function()
      return z / (z:amax(-1, true) - z:amin(-1, true)) -- here
    end))"},
    {"a fallback that was computed before", Law::finite, "{isolated = false}", R"(
    local good = torch.isfinite(seen)
    local total = torch.where(good, seen, 0.0):sum(-1, true)
    local mean = total / good:sum(-1, true) -- here
    f = flag_nan_and_inf(seen, "seen", f)
    z, f = fix(seen, f, "seen", {fallback = mean}))"},
    {"the fallback of recover_with_fallback", Law::finite, "{isolated = false}", R"(
    local own = seen:mean(-1, true) -- here
    f = flag_nan_and_inf(seen, "seen", f)
    z, f = err.recover_with_fallback(f, seen, own, "seen"))"},
    {"NaN of a row whose elements are all masked", Law::finite, new_values, R"(
    local masked = torch.where(z:abs() < 1e6, z, -1/0)
    z = masked:softmax(-1) -- here)"},
    {"values out of a declared range that were made before they were chosen", Law::finite, new_values, R"(
    local low = z:clamp(-5, 5)
    local wide = low * 3 -- here
    z = torch.where(z:amax(-1, true) > 0, wide, low))"},
    {"one of several branches of a natural if", Law::unchanged, "true", R"(
    local top = z:abs():amax(-1)
    if top > 900 then
      f = push(f, err.VALUE_CLAMPED, "z")
      z = z:clamp(-900, 900)
    elseif top > 600 then
      z = z:round() -- here
    elseif top < 0.25 then
      f = push(f, err.SATURATED, "z")
    else
      z = z
    end)"},
    {"one of several branches of IF", Law::unchanged, "{stable = false}", R"(
    local top = z:abs():amax(-1)
    local y, g = IF(top > 900, function()
      return z:clamp(-900, 900), push(f, err.VALUE_CLAMPED, "z")
    end):ELIF(top > 600, function()
      return z * 0.5, f -- here
    end):ELSE(function()
      return z, f
    end)
    z, f = y, g)"},
    {"a choice by values, then other forms", Law::unchanged, "{stable = false}", R"(
    local half = z * 0.5
    z = torch.where((z > 6.25) & (z < 6.5), half, z) -- here
    z = z:view({-1, 2, 2}):flatten(1))"},
    {"arithmetic in another dtype", Law::unchanged, "{stable = false}", R"(
    local x = z:double()
    x = x * 1.0000001 -- here
    z = x:float())"},
    {"a dtype that loses digits, behind a choice by flags", Law::unchanged, "{stable = false}", R"(
    local x = z:to(torch.float16) -- here
    x = x:float()
    z = torch.where(err.is_err(f):unsqueeze(1), z, x))"},
    {"a mean of the batch beside a harmless range over it", Law::order,
     "{isolated = false, unchanged = false, stable = false}",
     R"(
    local rows = torch.arange(z:size(0))
    z = z:index_select(0, rows)
    local mean = z:clamp(-1e6, 1e6):mean(0, true) -- here
    f = push(f, err.SATURATED, "z", {where = (z - mean):abs():amax(-1) > 3}))"},
    {"a range over the batch", Law::order, "{isolated = false}", R"(
    local place = torch.arange(z:size(0)) -- here
    f = push(f, err.UNKNOWN, "tail", {where = place >= 8}))"},
    {"a count of bad samples", Law::order, "{isolated = false, unchanged = false, stable = false}", R"(
    local many = err.is_err(f):sum() > 5 -- here
    f = push(f, err.UNKNOWN, "many", {where = many:expand({z:size(0)})}))"},
    {"a running count of bad samples", Law::order, "{isolated = false}", R"(
    local nth = err.is_err(f):to(torch.int64):cumsum(0) -- here
    f = push(f, err.UNKNOWN, "many", {where = nth > 3}))"},
    {"a small batch", Law::order, "true", R"(
    if z:size(0) < 4 then
      f = push(f, err.UNKNOWN, "small") -- here
    end)"},
    {"the derivative of a value that is not taken", Law::gradients,
     "{gradients = true, unchanged = false, stable = false}", R"(
    local root = z:sqrt() -- here
    z = torch.where(z > 0, root, 0.0))"},
};

std::string policy_of(const Planted& fault) {
  const bool has_range = std::string(fault.body).find("wide") != std::string::npos;
  return std::string("return policy { inputs = {'z'}, outputs = {") +
         (has_range ? "{name = 'z', min = -10, max = 10}" : "'z'") +
         ", 'f'}, lua = 'tensor', verify = " + fault.promises + ", run = function(z)\n    local seen = z\n" +
         "    local f = flag_nan_and_inf(z, 'z')\n    z, f = fix(z, f, 'z', {fallback = 2.0})" + fault.body +
         "\n    return z, f\n  end}";
}

}  // namespace

TEST_CASE("verify names the line that made what leaves, not one that passed it on or was not taken") {
  for (const Planted& fault : planted) {
    CAPTURE(std::string(fault.what));
    const std::string source = policy_of(fault);
    const Verification found = verified(source);
    const LawResult& law = of(found, fault.law);
    CAPTURE(law.why);
    CAPTURE(text_of(found));
    CHECK(law.verdict == LawResult::Verdict::broken);
    if (law.violations.empty()) continue;
    CHECK(law.violations.front().source.line == line_of_fault(source));
  }
}

TEST_CASE("verify: a record that is full with fewer slots than the default loses an entry") {
  const std::string source = R"(local small = ErrorConfig{num_slots = 4}
return policy { inputs = {"z"}, outputs = {"z", "f"}, verify = {unchanged = false, stable = false}, run = function(z)
  local f = err.new(z, {config = small})
  for i = 0, 3 do
    f = push(f, err.VALUE_CLAMPED, "column." .. i, {where = ~(z:select(1, i):abs() <= 3), config = small})
  end
  f = flag_nan_and_inf(z, "late", f, {config = small}) -- here
  return z, f
end})";
  const Verification found = verified(source);
  CAPTURE(text_of(found));
  REQUIRE(of(found, Law::finite).verdict == LawResult::Verdict::broken);
  CHECK(of(found, Law::finite).violations.front().source.line == line_of_fault(source));
}

TEST_CASE("verify shows the fewest samples that change a record") {
  const std::string source = policy_of(*std::find_if(std::begin(planted), std::end(planted), [](const Planted& fault) {
    return std::string(fault.what) == "a count of bad samples";
  }));
  const Verification found = verified(source);
  CAPTURE(text_of(found));
  REQUIRE(of(found, Law::order).violations.size() == 1);
  const Violation& violation = of(found, Law::order).violations.front();
  REQUIRE(violation.inputs.size() == 1);
  const int64_t samples = violation.inputs[0].second.size(0);
  CHECK(samples <= 7);  // six bad ones, and one that may be good
  CHECK(samples >= 6);
  CHECK(violation.row < samples);
  CHECK(violation.what.find("alone, and ") != std::string::npos);
  CHECK(violation.what.find("UNKNOWN @ many") != std::string::npos);
}

TEST_CASE("verify cuts a sample in each dim") {
  const auto scaled = [](const char* form) {
    return std::string(
               "return policy { inputs = {'z'}, outputs = {'z', 'f'}, verify = {unchanged = false, stable = false}, "
               "run = function(z)\n  local f = flag_nan_and_inf(z, 'z')\n  z, f = fix(z, f, 'z')\n  ") +
           form + "\n  local x = z:flatten(1)\n  return (x / x:norm(2, -1, true)):reshape_as(z), f\nend}";
  };
  triage::VerifyOptions options;
  options.search = 0;
  options.batches = {{at::arange(1, 1 + 2 * 3 * 12 * 12, at::kFloat).view({2, 3, 12, 12})}};
  const auto sizes = [&](const std::string& source) {
    const Verification found = verified(source, options);
    REQUIRE(of(found, Law::finite).verdict == LawResult::Verdict::broken);
    return of(found, Law::finite).violations.front().inputs[0].second.sizes().vec();
  };
  CHECK(sizes(scaled("")) == std::vector<int64_t>{1, 1, 1, 1});
  CHECK(sizes(scaled("assert(z:size(2) == 12 and z:size(1) >= 2)")) == std::vector<int64_t>{1, 2, 12, 1});
}

TEST_CASE("verify: what one output of flags tells, the repair in another does not take back") {
  const auto two = [](const char* repaired) {
    return std::string(
               "return policy { inputs = {'z'}, outputs = {'z', 'f', 'g'}, run = function(z)\n"
               "  local f, g = flag_nan_and_inf(z, 'z'), flag_nan_and_inf(z, 'copy')\n"
               "  local y\n  y, g = fix(z, g, 'copy')\n  ") +
           repaired + "\n  return z, f, g\nend}";
  };
  const Verification told = verified(two(""));
  CAPTURE(text_of(told));
  CHECK(told.ok());
  const Verification untold = verified(two("y, f = fix(z, f, 'z')"));
  CHECK(of(untold, Law::finite).verdict == LawResult::Verdict::broken);
}

TEST_CASE("verify: a value beside its bound is told from it") {
  const Verification found = verified(
      "return policy { inputs = {'z'}, outputs = {{name = 'z', min = -4, max = 4}, 'f'}, "
      "verify = {unchanged = false, stable = false}, run = function(z)\n"
      "  local f = flag_nan_and_inf(z, 'z')\n  z, f = fix(z, f, 'z')\n"
      "  return torch.where((z > 4.000001) | (z < -4), 0.0, z), f\nend}");
  REQUIRE(of(found, Law::finite).verdict == LawResult::Verdict::broken);
  CHECK(of(found, Law::finite).violations.front().what == "z leaves with 4.0000005, and is declared -4 to 4");
}

TEST_CASE("verify: a sample that changes another one is shown beside one, with few values") {
  const Verification found = verified(
      "return policy { inputs = {'z'}, outputs = {'y', 'f'}, signature = {z = Tensor(float32_t, {'N', 'D'})},\n"
      "run = function(z)\n  local f = flag_nan_and_inf(z, 'z')\n  z, f = fix(z, f, 'z')\n"
      "  return z - z:roll({1}, {0}), f\nend}");
  const LawResult& isolated = of(found, Law::isolated);
  REQUIRE(isolated.verdict == LawResult::Verdict::broken);
  const Violation& violation = isolated.violations.front();
  CHECK(violation.source.line == 5);
  CHECK(violation.inputs.front().second.sizes() == at::IntArrayRef({2, 1}));
  CHECK(violation.what.find("changes 1 other samples, in its call") != std::string::npos);
}

TEST_CASE("verify: an input that all samples share, and that is taken for one that has them") {
  triage::VerifyOptions options;
  options.batches = {{at::ones({4, 4}), at::eye(4)}};
  const Verification found = verified(
      "return policy { inputs = {'z', 'w'}, outputs = {'y', 'f'}, run = function(z, w)\n"
      "  local f = flag_nan_and_inf(z, 'z')\n  z, f = fix(z, f, 'z')\n  return z:clamp(-1, 1):matmul(w), f\nend}",
      options);
  REQUIRE(of(found, Law::answers).verdict == LawResult::Verdict::broken);
  const auto& violations = of(found, Law::answers).violations;
  CHECK(std::any_of(violations.begin(), violations.end(),
                    [](const auto& one) { return one.what.find("--shared") != std::string::npos; }));
}

}  // namespace verify_lines
