// What `verify` searches for: faults that need several conditions at once, a narrow interval, rounding, a neighbour, a
// large batch or many calls. Each stands beside the same policy without the fault.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <triage/verify.h>

#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/folder.h"

namespace {

using triage::Law;
using triage::LawResult;
using triage::Verification;
using Verdict = LawResult::Verdict;
using Tensors = std::vector<at::Tensor>;

/// `source` is the body of `run` from line 6 on, in which FAULT stands for the one or the other text.
struct Searched {
  const char* what;
  Law law;
  int line;
  const char *head, *source, *fault, *right;
  Tensors (*batch)() = [] { return Tensors{at::randn({4, 4})}; };
};

constexpr const char* one_input = "inputs = {'x'}, outputs = {'y', 'f'}, run = function(x)";
constexpr const char* repaired = R"(
  local f = flag_nan_and_inf(x, 'x')
  f = push(f, err.OUT_OF_BOUNDS, 'x', {where = (x:abs() > 1e4):any(-1)})
  x, f = fix(x, f, 'x')
  local a, b, c, d = x:select(1, 0), x:select(1, 1), x:select(1, 2), x:select(1, 3)
)";

const Searched searched[] = {
    {"a divisor of zero where a branch is taken", Law::finite, 6, one_input,
     "  return torch.where(a > 7.25, FAULT, a), f", "a / (b - 3.0)", "a / (b - 3.0):abs():clamp({min = 1})"},
    {"four conditions at once", Law::finite, 6, one_input,
     "  return torch.where((a > 3) & (b < -2) & (c > 0.5) & (c < 0.75), FAULT, a), f", "(b * d):sqrt()",
     "(b * d):abs():sqrt()"},
    {"a narrow band of a norm", Law::finite, 7, one_input,
     "  local n = x:norm(2, -1, true)\n  return torch.where((n > 3.0) & (n < 3.001), FAULT, n), f", "(3.0 - n):log()",
     "(3.0 - n):abs():clamp({min = 1e-9}):log()"},
    {"a rising row", Law::finite, 8, one_input,
     "  local rising = (x:diff(1, -1) > 0):all(-1) & (a > 0) & (d > a * 2)\n  local trend = d - a\n"
     "  return torch.where(rising, FAULT, trend), f",
     "(a - d):sqrt()", "(d - a):sqrt()"},
    {"rounding of equal inputs", Law::finite, 6, "inputs = {'x', 'z'}, outputs = {'y', 'f'}, run = function(x, z)",
     "  z, f = fix(z, flag_nan_and_inf(z, 'z', f), 'z') f = push(f, err.OUT_OF_BOUNDS, 'z', {where = (z:abs() > 1e4)"
     ":any(-1)}) z = err.take_ok_p(f, z, 1) x = err.take_ok_p(f, x, 1) local y = ((x * z):sum(-1) / (x:norm(2, -1) * "
     "z:norm(2, -1)):clamp({min = 1e-20}))FAULT:acos() return err.take_ok_p(f, y, 0), f",
     "", ":clamp(-1, 1)",
     [] {
       return Tensors{at::randn({4, 8}), at::randn({4, 8})};
     }},
    {"a large value where a label is false", Law::finite, 6,
     "inputs = {'x', 'label'}, outputs = {'y', 'f'}, verify = {isolated = false}, run = function(x, label)",
     "  return torch.where(label:select(1, 0), a * 0, FAULT), f", "a:exp()", "a:clamp({max = 80}):exp()",
     [] {
       return Tensors{at::randn({4, 4}), at::ones({4, 1}, at::kBool)};
     }},
    {"what is changed by the sample before, under a condition of its own", Law::isolated, 6, one_input,
     "  return torch.where(a:unsqueeze(1) > 100, FAULT, x), f", "x:roll(1, 0)", "x:roll(1, 1)"},
    {"a batch that is larger than the script expects", Law::finite, 6, one_input,
     "  if x:size(0) FAULT 900 then x = x / 0 end return x, f", ">", "< 0 and 0 <"},
    {"the hundredth call", Law::finite, 6,
     "inputs = {'x'}, outputs = {'y', 'f'}, verify = {isolated = false}, state = {n = {shape = {}, dtype = "
     "torch.int64}}, run = function(x, s)",
     "  return torch.where(s.n >= 100, x / FAULT, x), f, {n = s.n + 1}", "(a - b):unsqueeze(1)",
     "((a - b):abs():unsqueeze(1) + 1)"},
};

Verification verified(const Searched& one, const char* text) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.lua";
  std::string source = one.source;
  source.replace(source.find("FAULT"), 5, text);
  std::ofstream(path) << "return policy {" << one.head << repaired << source << "\nend}\n";
  at::manual_seed(7);
  triage::VerifyOptions options;
  options.batches = {one.batch()};
  return triage::verify_policy(path, options);
}

std::string broken(const Verification& found) {
  std::string text;
  for (const LawResult& law : found.laws)
    for (const triage::Violation& violation : law.violations)
      text += std::string(triage::to_string(law.law)) + ", line " + std::to_string(violation.source.line) + ": " +
              violation.what + "; ";
  return text;
}

}  // namespace

TEST_CASE("verify finds what several conditions make together") {
  for (const Searched& one : searched) {
    INFO(one.what);
    const Verification found = verified(one, one.fault);
    INFO(broken(found));
    const LawResult& law = found.laws.at(static_cast<size_t>(one.law));
    CHECK((law.verdict == Verdict::broken));
    bool is_named = false;
    for (const triage::Violation& violation : law.violations) is_named |= violation.source.line == one.line;
    CHECK(is_named);
    const Verification right = verified(one, one.right);
    CHECK_MESSAGE(right.ok(), broken(right));
  }
}
