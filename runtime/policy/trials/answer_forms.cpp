#include "runtime/policy/trials/answer_forms.h"

#include <algorithm>
#include <utility>

#include "runtime/compat/autocast.h"

namespace triage::policy {
namespace {

uint64_t modes_of_thread() {
  return compat::autocast_state() << 8 | static_cast<uint64_t>(c10::typeMetaToScalarType(at::get_default_dtype()));
}

/// LibTorch treats sizes 0 and 1 in ways of their own (squeeze, broadcasting), as captured graphs do.
int64_t rows_kind(int64_t rows) { return std::min<int64_t>(rows, 2); }

bool same_kind(const std::vector<capture::InputShape>& known, at::ArrayRef<at::Tensor> inputs, bool any_sizes) {
  const auto same = [any_sizes](const capture::InputShape& shape, const at::Tensor& input) {
    if (shape.dtype != input.scalar_type() || static_cast<int64_t>(shape.sizes.size()) != input.dim() ||
        shape.device.type() != input.device().type())
      return false;
    if (any_sizes || shape.sizes.empty()) return true;
    return rows_kind(shape.sizes[0]) == rows_kind(input.size(0)) && capture::same_but_rows(shape.sizes, input.sizes());
  };
  return std::equal(known.begin(), known.end(), inputs.begin(), inputs.end(), same);
}

/// All but sizes, and whether it is flags. The host may choose the dtype of flags for each call.
bool same_types(const Form& form, const AnswerForms::AnswerOutputs& outputs) {
  if (form.size() != outputs.tensors.size()) return false;
  for (size_t i = 0; i < form.size(); ++i) {
    const OutputForm& known = form[i];
    const at::Tensor& output = outputs.tensors[i];
    const bool stay_flags = known.is_flags && outputs.are_flags(i);
    const bool same_dtype = stay_flags || known.dtype == output.scalar_type();
    const bool same_rank = static_cast<int64_t>(known.sizes.size()) == output.dim();
    if (known.device != output.device().type() || !(outputs.is_declared(i) || (same_dtype && same_rank))) return false;
  }
  return true;
}

/// Which outputs are flags is known of a version's newest graph, or of its script's last call, which may be another
/// one.
bool same_flags(const Form& form, const AnswerForms::AnswerOutputs& outputs) {
  for (size_t i = 0; i < form.size(); ++i)
    if (form[i].is_flags != outputs.are_flags(i)) return false;
  return true;
}

int64_t batch_of(at::ArrayRef<at::Tensor> inputs) {
  for (const at::Tensor& input : inputs)
    if (input.dim() > 0) return input.size(0);
  return -1;
}

int64_t batch_of(const std::vector<capture::InputShape>& inputs) {
  for (const capture::InputShape& input : inputs)
    if (!input.sizes.empty()) return input.sizes[0];
  return -1;
}

/// Of outputs with the same types: calls `differs(output, dimension)` for each size that is neither as it was nor that
/// of the batch.
template <class Differs>
void compare_sizes(const Form& form, const AnswerForms::AnswerOutputs& outputs, int64_t batch_then, int64_t batch_now,
                   const Differs& differs) {
  for (size_t i = 0; i < form.size(); ++i) {
    if (form[i].is_flags || outputs.is_declared(i)) continue;  // the host chooses how wide flags are
    for (size_t dim = 1; dim < form[i].sizes.size(); ++dim) {
      const int64_t then = form[i].sizes[dim], now = outputs.tensors[i].sizes()[dim];
      if (then != now && !(then == batch_then && now == batch_now)) differs(i, dim);
    }
  }
}

constexpr size_t most_kinds = 64, most_forms = 8;

}  // namespace

bool AnswerForms::AnswerOutputs::defined() const noexcept {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.defined(); });
}

bool AnswerForms::AnswerOutputs::is_declared(size_t output) const noexcept {
  return output < signature.output_types.size() && signature.output_types[output];
}

/// With mutex_ held.
AnswerForms::Kinds::iterator AnswerForms::find(at::ArrayRef<at::Tensor> inputs, bool any_sizes) {
  const uint64_t modes = modes_of_thread();
  const auto found = std::find_if(kinds_.begin(), kinds_.end(), [&](const OfKind& kind) {
    return kind.modes == modes && same_kind(kind.inputs, inputs, any_sizes);
  });
  if (found != kinds_.end() && found != kinds_.begin()) kinds_.splice(kinds_.begin(), kinds_, found);
  return found;
}

/// With mutex_ held.
void AnswerForms::add(at::ArrayRef<at::Tensor> inputs, Form form) {
  kinds_.push_front({capture::shape_of(inputs), modes_of_thread(), {std::move(form)}, {}});
  if (kinds_.size() > most_kinds) kinds_.pop_back();
}

AnswerForms::Seen AnswerForms::look(at::ArrayRef<at::Tensor> inputs, const AnswerOutputs& outputs) {
  const std::lock_guard lock(mutex_);
  const auto kind = find(inputs, /*any_sizes=*/false);
  const auto alike = [&](const Form& form) { return same_types(form, outputs); };
  if (kind == kinds_.end()) {
    const auto other = find(inputs, /*any_sizes=*/true);
    if (other != kinds_.end() && std::none_of(other->forms.begin(), other->forms.end(), alike)) return Seen::unlike;
    add(inputs, form_of(outputs.tensors, outputs.is_flags));
    return Seen::fits;
  }
  Seen seen = Seen::other;
  for (const Form& form : kind->forms) {
    if (!alike(form)) continue;
    bool same = same_flags(form, outputs);
    compare_sizes(form, outputs, batch_of(kind->inputs), batch_of(inputs), [&](size_t output, size_t dim) {
      same = same && kind->open.count({output, dim});
    });
    if (same) return Seen::fits;
    seen = Seen::unsure;
  }
  return seen;
}

void AnswerForms::accept(at::ArrayRef<at::Tensor> inputs, const AnswerOutputs& outputs) {
  const std::lock_guard lock(mutex_);
  const auto kind = find(inputs, /*any_sizes=*/false);
  if (kind == kinds_.end()) return add(inputs, form_of(outputs.tensors, outputs.is_flags));
  for (const Form& form : kind->forms) {
    if (!same_types(form, outputs) || !same_flags(form, outputs)) continue;
    compare_sizes(form, outputs, batch_of(kind->inputs), batch_of(inputs),
                  [&](size_t output, size_t dim) { kind->open.emplace(output, dim); });
    return;
  }
  if (kind->forms.size() == most_forms) kind->forms.erase(kind->forms.begin());
  kind->forms.push_back(form_of(outputs.tensors, outputs.is_flags));
}

std::optional<Form> AnswerForms::known(at::ArrayRef<at::Tensor> inputs) const {
  const std::lock_guard lock(mutex_);
  for (const bool any_sizes : {false, true})
    for (const OfKind& kind : kinds_)
      if (same_kind(kind.inputs, inputs, any_sizes)) return kind.forms.front();
  return std::nullopt;
}

void AnswerForms::inherit(const AnswerForms& before) {
  Kinds kinds;
  {
    const std::lock_guard lock(before.mutex_);
    kinds = before.kinds_;
  }
  const std::lock_guard lock(mutex_);
  kinds_.swap(kinds);
}

void AnswerForms::forget() {
  const std::lock_guard lock(mutex_);
  kinds_.clear();
}

}  // namespace triage::policy
