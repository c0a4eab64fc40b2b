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

#include <optional>
#include <string>

namespace triage {
namespace control_flow {
namespace {

using at::Tensor;

/// A branch that decides some rows, with what it made.
struct ExecutedBranch {
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

/// Between which branches of what is selected.
struct BranchConstruct {
  const char* construct;
  bool by_element;
};

Tensor select_leaf(const BranchConstruct& site, const ExecutedBranch& branch, const ExecutedBranch& other,
                   size_t result, const Tensor& a, const Tensor& b) {
  static const auto select = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("triage::select", "")
                                 .typed<Tensor(const Tensor&, const Tensor&, const Tensor&)>();
  if (a.is_same(b)) return a;
  const std::string what = site.by_element
                               ? flags::check::selectable_elements(branch.condition, a, b, flags::check::cpp)
                               : flags::check::selectable(branch.condition, a, b, flags::check::cpp);
  if (!what.empty())
    throw InputError(flags::check::branches_differ(site.construct, branch.name, other.name,
                                                   c10::str("result ", result + 1), what, flags::check::same_results));
  return site.by_element ? at::where(branch.condition, a, b) : select.call(branch.condition, a, b);
}

/// The results of `branch` where its condition holds, else `merged`, those of the branches behind it.
Results merge(const BranchConstruct& site, const ExecutedBranch& branch, const ExecutedBranch& last, Results merged) {
  if (branch.results.size() != merged.size())
    throw InputError(flags::check::numbers_differ(site.construct, branch.name, branch.results.size(), last.name,
                                                  merged.size(), flags::check::cpp));
  for (size_t result = 0; result < merged.size(); ++result)
    merged[result] = select_leaf(site, branch, last, result, branch.results[result], merged[result]);
  return merged;
}

void check_results(const char* construct, const ExecutedBranch& branch) {
  for (size_t i = 0; i < branch.results.size(); ++i)
    if (!branch.results[i].defined())
      throw InputError(
          c10::str(construct, ": the branch ", branch.name, " returned an undefined tensor as result ", i + 1, "."));
}

/// Rows and elements of a branch: those for which no condition before it holds, and its own does.
flags::elements::BranchMasks taken_by(const std::vector<ExecutedBranch>& before, const Tensor& own) {
  flags::elements::BranchMasks taken;
  const auto add = [&](const Tensor& condition) {
    if (!flags::elements::is_mask(condition)) {
      taken.rows = taken.rows.defined() ? at::logical_and(taken.rows, condition) : condition;
      return;
    }
    for (Tensor& mask : taken.elements)
      if (mask.sizes() == condition.sizes()) return void(mask = at::logical_and(mask, condition));
    taken.elements.push_back(condition);
  };
  if (own.defined()) add(own);
  for (const ExecutedBranch& branch : before) add(at::logical_not(branch.condition));
  return taken;
}

/// `condition`: undefined where the branch decides all that those before it leave.
ExecutedBranch run_branch(const char* construct, std::string name, const std::function<Results()>& run,
                          const Tensor& condition, const std::vector<ExecutedBranch>& before) {
  const uint64_t start = flags::autograd::branch_start();
  ExecutedBranch ran{std::move(name), condition, run()};
  check_results(construct, ran);
  if (!at::GradMode::is_enabled() || (before.empty() && !condition.defined())) return ran;
  std::optional<flags::elements::BranchMasks> taken;
  for (const Tensor& result : ran.results) {
    if (!result.requires_grad()) continue;
    if (!taken) taken = taken_by(before, condition);
    flags::autograd::guard_branch(result, start, *taken);
  }
  return ran;
}

/// A number beside a tensor, where samples are selected: of the tensor's form.
void fill_numbers(Results& a, Results& b) {
  const auto is_number = [](const Tensor& tensor) { return tensor.unsafeGetTensorImpl()->is_wrapped_number(); };
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (is_number(a[i]) && !is_number(b[i])) a[i] = at::full_like(b[i], a[i].item());
    if (is_number(b[i]) && !is_number(a[i])) b[i] = at::full_like(a[i], b[i].item());
  }
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
  std::vector<ExecutedBranch> ran;
  for (size_t position : positions) {
    const Branch& branch = branches[position];
    const bool is_last = position == positions.back();
    ran.push_back(
        run_branch("IF", name_of(position, branches.size()), branch.run, is_last ? Tensor() : branch.condition, ran));
  }
  const ExecutedBranch& last = ran.back();
  Results merged = last.results;
  for (size_t i = ran.size() - 1; i-- > 0;) {
    const BranchConstruct site{"IF", flags::elements::is_mask(ran[i].condition)};
    merged = merge(site, ran[i], last, std::move(merged));
  }
  return merged;
}

Results choose(const Tensor& condition, const std::function<Results()>& a, const std::function<Results()>& b) {
  check_condition("WHERE", condition);
  // A condition of shape () has one element for all of the results.
  const BranchConstruct site{"WHERE", condition.dim() != 1};
  std::vector<ExecutedBranch> ran;
  ran.push_back(run_branch("WHERE", "a", a, condition.dim() == 0 ? at::reshape(condition, {1, 1}) : condition, ran));
  ExecutedBranch other = run_branch("WHERE", "b", b, {}, ran);
  ran.front().condition = condition;
  if (!site.by_element) fill_numbers(ran.front().results, other.results);
  return merge(site, ran.front(), other, other.results);
}

Tensor number(const c10::Scalar& value) {
  Tensor wrapped = at::scalar_tensor(value, at::TensorOptions(value.type()));
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  return wrapped;
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
