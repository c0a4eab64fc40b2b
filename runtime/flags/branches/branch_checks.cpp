#include <ATen/ExpandUtils.h>
#include <runtime/flags/forms.h>

#include <algorithm>
#include <vector>

#include <c10/util/StringUtil.h>
#include <runtime/flags/branches/branch_checks.h>
#include <triage/config.h>
#include <triage/error.h>

namespace triage::flags::check {

const Language cpp = {[](const at::Tensor& tensor) {
                        return tensor.defined() ? c10::str(tensor.scalar_type(), " of shape ", tensor.sizes())
                                                : "an undefined tensor";
                      },
                      "mask.flatten(1).any(1)",
                      ".to(z.scalar_type())",
                      "x.sum(-1, true)",
                      ".unsqueeze(0)",
                      "::where)",
                      "tensors",
                      "."};

std::string condition(const at::Tensor& condition, const Language& language) {
  if (!condition.defined()) return condition_expected + language.describe(condition);
  if (condition.scalar_type() != at::kBool)
    return condition_expected + language.describe(condition) + "; compare it with something, as in x > 0";
  return "";
}

std::string batch_condition(const at::Tensor& condition, const Language& language) {
  if (condition.dim() == 0) return "";
  return "expected a condition of shape (), got " + language.describe(condition) +
         "; combine per-sample masks with & | ~";
}

std::string selectable(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b,
                       const Language& language) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() || a.device() != b.device()) {
    const std::string what = language.describe(a) + " against " + language.describe(b);
    return a.device() == b.device() ? what : what + " (on " + a.device().str() + " and " + b.device().str() + ")";
  }
  if (condition.dim() == 1 && (a.dim() == 0 || a.size(0) != condition.size(0)))
    return language.describe(a) + " does not have one row per sample of the condition, which is " +
           language.describe(condition) +
           "; return tensors with the batch in front, or use a condition of shape (). A mask over the last dimension "
           "needs one more in front: mask" +
           language.unsqueeze;
  return "";
}

namespace {

/// Of floats, too much data has the form of some flags: only that of the configuration in force counts, and flags have
/// no gradient.
bool looks_like_flags(const at::Tensor& tensor) {
  if (!has_known_form(tensor) || tensor.requires_grad()) return false;
  const ErrorConfig& config = get_config();
  return !tensor.is_floating_point() ||
         (tensor.scalar_type() == config.flag_dtype && tensor.size(1) == config.num_words());
}

}  // namespace

std::string flags_by_element(const at::Tensor& condition, const at::Tensor& flags, const Language& language) {
  return language.describe(flags) + " is flags, which belong to samples, and the condition " +
         language.describe(condition) + " selects per element; reduce it to a mask of samples, as in " +
         language.reduce + " (for data that only looks like flags, use torch" + language.where;
}

std::string selectable_elements(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b,
                                const Language& language) {
  std::vector<int64_t> sizes;
  int64_t rank = 0;
  for (const at::Tensor* branch : {&a, &b}) {
    if (!branch->defined()) continue;
    if (condition.dim() > 0 && looks_like_flags(*branch)) return flags_by_element(condition, *branch, language);
    const std::string what = language.describe(*branch);
    if (branch->device() != condition.device() && branch->dim() > 0)
      return what + " is on " + branch->device().str() + ", and the condition on " + condition.device().str();
    if (!at::are_expandable(sizes, branch->sizes())) return language.describe(a) + " against " + language.describe(b);
    sizes = at::infer_size(sizes, branch->sizes());
    rank = std::max(rank, branch->dim());
    if (!at::are_expandable(sizes, condition.sizes()))
      return what + " does not broadcast with the condition, which is " + language.describe(condition) +
             "; dimensions are counted from the last one, as in torch" + language.where;
  }
  if (rank > 0 && rank < condition.dim())
    return "the condition " + language.describe(condition) + " has more dimensions than the results, which have " +
           std::to_string(rank) + "; give these as many, or reduce the condition, as in " + language.reduce;
  return "";
}

std::string branches_differ(const std::string& construct, const std::string& branch, const std::string& other,
                            const std::string& leaf, const std::string& what, const std::string& rule) {
  return construct + ": the branches " + branch + " and " + other + " differ in " + leaf + ": " + what + ". " + rule;
}

std::string numbers_differ(const std::string& construct, const std::string& branch, size_t number,
                           const std::string& other, size_t other_number, const Language& language) {
  return construct + ": the branch " + branch + " returns " + std::to_string(number) + " " + language.results +
         " and " + other + " returns " + std::to_string(other_number) + "; every branch must return the same number" +
         language.end;
}

std::string fitting(const at::Tensor& z, const at::Tensor& made, const Language& language) {
  const auto returned = [&] { return "`fn` returned " + language.describe(made) + " for " + language.describe(z); };
  if (made.scalar_type() != z.scalar_type()) return returned() + "; convert its result with " + language.convert;
  if (made.sizes() == z.sizes() || at::is_expandable_to(made.sizes(), z.sizes())) return "";
  return returned() + "; expected the same shape, or one that broadcasts to it (" + language.keep_dim + ")";
}

void hold(const std::string& who, const std::string& complaint, const Language& language) {
  if (!complaint.empty()) throw InputError(who + ": " + complaint + language.end);
}

}  // namespace triage::flags::check
