// What calls of the script take and give: their names, and what is remembered of its form.
#include "runtime/capture/compiled.h"

#include <algorithm>

namespace triage::capture {

bool same_but_rows(at::IntArrayRef a, at::IntArrayRef b) {
  return a.size() == b.size() && (a.empty() || a.slice(1) == b.slice(1));
}

namespace {

void note_other_sizes(Compiled::Answered& answered, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> outputs) {
  int64_t batch = -1;
  for (const at::Tensor& input : inputs)
    if (batch < 0 && input.dim() > 0) batch = input.size(0);
  for (size_t i = 0; i < std::min(outputs.size(), answered.outputs.size()); ++i) {
    const auto& sizes = answered.outputs[i].sizes;
    if (outputs[i].dim() != static_cast<int64_t>(sizes.size())) continue;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      const std::pair place(i, dim);
      if (outputs[i].sizes()[dim] != answered.size_for(batch, sizes[dim]) &&
          std::find(answered.other_sizes.begin(), answered.other_sizes.end(), place) == answered.other_sizes.end())
        answered.other_sizes.push_back(place);
    }
  }
}

}  // namespace

/// State and hidden results are no part of an answer.
void Compiled::note_answer(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) {
  constexpr size_t most = 16;
  std::lock_guard<std::mutex> lock(notes_mutex_);
  eager_flags_outputs_ = script_->flags_outputs();
  const auto outputs = results.slice(0, results.size() - behind_outputs(script_->signature()));
  const auto undefined = [](const at::Tensor& tensor) { return !tensor.defined(); };
  if (!options_.protect_inputs || std::any_of(outputs.begin(), outputs.end(), undefined)) return;
  const auto same_one = [](const InputShape& shape, const at::Tensor& input) {
    return shape.dtype == input.scalar_type() && shape.requires_grad == input.requires_grad() &&
           shape.device == input.device() && same_but_rows(shape.sizes, input.sizes());
  };
  const auto is_same = [&](const Answered& one) {
    return std::equal(one.inputs.begin(), one.inputs.end(), inputs.begin(), inputs.end(), same_one);
  };
  const auto known = std::find_if(answered_.begin(), answered_.end(), is_same);
  if (known != answered_.end())
    note_other_sizes(*known, inputs, outputs);
  else if (answered_.size() < most)
    answered_.push_back({shape_of(inputs), shape_of(outputs), eager_flags_outputs_, {}});
}

int64_t Compiled::Answered::batch() const noexcept {
  for (const InputShape& input : inputs)
    if (!input.sizes.empty()) return input.sizes[0];
  return -1;
}

std::vector<Compiled::Answered> Compiled::answered_by_script() const {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return answered_;
}

std::vector<std::vector<InputShape>> Compiled::shapes_in_use() const {
  std::vector<std::vector<InputShape>> shapes;
  const auto add = [&](const std::vector<InputShape>& shape) {
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  };
  for (const CacheEntry* entry : entries()) add(entry->shape);
  std::lock_guard<std::mutex> lock(notes_mutex_);
  for (const Answered& one : answered_) add(one.inputs);
  return shapes;
}

std::vector<bool> Compiled::flags_outputs() const {
  if (const CacheEntry* newest = cache_.newest()) return newest->flags_outputs;
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return eager_flags_outputs_;
}

std::vector<std::string> input_names(const Signature& signature) {
  std::vector<std::string> names = signature.inputs;
  for (const auto& param : signature.params) names.push_back(param.name);
  for (const auto& state : signature.state) names.push_back(state.name);
  return names;
}

}  // namespace triage::capture
