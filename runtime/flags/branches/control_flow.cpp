// IF, ELIF, ELSE and the conditions made for them. As in eager Lua: what the batch rules out does not run.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <runtime/flags/branches/branch_checks.h>
#include <runtime/flags/branches/gradients.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>
#include <triage/control_flow.h>
#include <triage/flags.h>

#include <string>

namespace triage {
namespace control_flow {
namespace {

using at::Tensor;

/// A branch that decides some rows, with what it made.
struct Ran {
  std::string name;
  Tensor condition;
  Results results;
};

std::string name_of(size_t position, size_t count) {
  if (position + 1 == count) return "ELSE";
  return position == 0 ? "IF" : "ELIF " + std::to_string(position);
}

void check_condition(const char* construct, const Tensor& condition) {
  flags::check::hold(construct, flags::check::condition(condition, flags::check::cpp), flags::check::cpp);
}

Tensor select_leaf(const Ran& branch, const Ran& other, size_t result, const Tensor& a, const Tensor& b) {
  static const auto select = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("triage::select", "")
                                 .typed<Tensor(const Tensor&, const Tensor&, const Tensor&)>();
  if (a.is_same(b)) return a;
  const std::string what = flags::check::selectable(branch.condition, a, b, flags::check::cpp);
  if (!what.empty())
    throw InputError(flags::check::branches_differ("IF", branch.name, other.name, c10::str("result ", result + 1), what,
                                                   flags::check::same_results));
  return select.call(branch.condition, a, b);
}

void check_results(const Ran& branch) {
  for (size_t i = 0; i < branch.results.size(); ++i)
    if (!branch.results[i].defined())
      throw InputError(
          c10::str("IF: the branch ", branch.name, " returned an undefined tensor as result ", i + 1, "."));
}

/// Rows of a branch: those for which no condition before it holds, and its own does.
Tensor taken_rows(const std::vector<Ran>& before, const Tensor& own) {
  Tensor taken = own;
  for (const Ran& branch : before) {
    const Tensor left = at::logical_not(branch.condition);
    taken = taken.defined() ? at::logical_and(taken, left) : left;
  }
  return taken;
}

/// `condition`: undefined where the branch decides all that those before it leave.
Ran run_branch(std::string name, const Branch& branch, const Tensor& condition, const std::vector<Ran>& before) {
  const uint64_t start = flags::autograd::branch_start();
  Ran ran{std::move(name), condition, branch.run()};
  check_results(ran);
  if (!at::GradMode::is_enabled() || (before.empty() && !condition.defined())) return ran;
  Tensor taken;
  for (const Tensor& result : ran.results) {
    if (!result.requires_grad()) continue;
    if (!taken.defined()) taken = taken_rows(before, condition);
    flags::autograd::guard_branch(result, start, taken);
  }
  return ran;
}

bool holds(const Tensor& condition) { return condition.item<bool>(); }

/// Positions of the branches that decide the result, in order; the last is taken where no condition before it holds.
std::vector<size_t> deciding(const std::vector<Branch>& branches) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < branches.size(); ++i) {
    const Tensor& condition = branches[i].condition;
    const bool of_batch = condition.defined() && condition.dim() == 0;
    if (of_batch && !holds(condition)) continue;
    positions.push_back(i);
    if (of_batch) break;
  }
  return positions;
}

}  // namespace

void check_branch(const char* construct, const Tensor& condition, bool has_function) {
  if (std::string(construct) != "ELSE") check_condition(construct, condition);
  if (!has_function) throw InputError(c10::str(construct, ": the function is empty; pass one that can be called."));
}

Results decide(const std::vector<Branch>& branches) {
  const std::vector<size_t> positions = deciding(branches);
  std::vector<Ran> ran;
  for (size_t position : positions) {
    const Branch& branch = branches[position];
    const bool is_last = position == positions.back();
    ran.push_back(run_branch(name_of(position, branches.size()), branch, is_last ? Tensor() : branch.condition, ran));
  }
  const Ran& last = ran.back();
  Results merged = last.results;
  for (size_t i = ran.size() - 1; i-- > 0;) {
    const Ran& branch = ran[i];
    if (branch.results.size() != merged.size())
      throw InputError(flags::check::numbers_differ(branch.name, branch.results.size(), last.name, merged.size(),
                                                    flags::check::cpp));
    for (size_t result = 0; result < merged.size(); ++result)
      merged[result] = select_leaf(branch, last, result, branch.results[result], merged[result]);
  }
  return merged;
}

const Tensor& batch_condition(const char* construct, const Tensor& condition) {
  check_condition(construct, condition);
  flags::check::hold(construct, flags::check::batch_condition(condition, flags::check::cpp), flags::check::cpp);
  return condition;
}

Tensor combine_and(const Tensor& a, const Tensor& b) { return at::logical_and(a, b); }
Tensor combine_or(const Tensor& a, const Tensor& b) { return at::logical_or(a, b); }

}  // namespace control_flow

namespace {

/// Flags, or InputError on behalf of `construct`.
const at::Tensor& flags_of(const char* construct, const at::Tensor& f, const ConfigOptions& options) {
  flags::KnownForms::add(options.config);
  if (!f.defined()) throw InputError(c10::str(construct, ": `f` is not a tensor (undefined)."));
  flags::check::known(construct, f);
  flags::check::flags(construct, f);
  return f;
}

}  // namespace

at::Tensor HAS(const at::Tensor& f, const ConfigOptions& options) { return err::any_err(flags_of("HAS", f, options)); }

at::Tensor IS(Code code, const at::Tensor& f, const ConfigOptions& options) {
  if (to_int(code) < 0 || to_int(code) > 15)
    throw InputError(c10::str("IS: an error code is 0..15; got ", to_int(code), "."));
  return at::any(err::has_code(flags_of("IS", f, options), code));
}

at::Tensor NOT(const at::Tensor& condition) { return at::logical_not(control_flow::batch_condition("NOT", condition)); }

}  // namespace triage
