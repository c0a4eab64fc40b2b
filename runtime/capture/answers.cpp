// What calls of the script take and give: their names, whose memory it is, and what is remembered of its form.
#include "runtime/backends/output_aliases.h"
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

/// What a policy returns is the host's from now on. `kept`: the script may have stored it where it finds it in later calls.
void Compiled::separate_outputs(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, bool kept) {
  if (!options_.protect_inputs) return;
  const auto is_input = [&](const at::Tensor& output) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return output.is_same(input); });
  };
  if (kept)
    copy_lent(outputs, [&](const at::Tensor& output) { return !is_input(output); });
  else
    separate_from_inputs(inputs, outputs);
  for (const at::Tensor& output : outputs) host_memory_.add(output);
}

/// State is no part of an answer.
void Compiled::note_answer(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> results) {
  constexpr size_t most = 16;
  const auto outputs = results.slice(0, results.size() - script_->signature().state.size());
  const auto undefined = [](const at::Tensor& tensor) { return !tensor.defined(); };
  if (!options_.protect_inputs || std::any_of(outputs.begin(), outputs.end(), undefined)) return;
  const auto same_one = [](const InputShape& shape, const at::Tensor& input) {
    return shape.dtype == input.scalar_type() && shape.requires_grad == input.requires_grad() &&
           shape.device == input.device() && same_but_rows(shape.sizes, input.sizes());
  };
  const auto is_same = [&](const Answered& one) {
    return std::equal(one.inputs.begin(), one.inputs.end(), inputs.begin(), inputs.end(), same_one);
  };
  std::lock_guard<std::mutex> lock(notes_mutex_);
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

std::vector<bool> Compiled::flags_outputs() const {
  if (const Entry* newest = newest_.load(std::memory_order_acquire)) return newest->flags_outputs;
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return eager_flags_outputs_;
}

void Compiled::note_flags_outputs() {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  eager_flags_outputs_ = script_->flags_outputs();
}

std::vector<std::string> Compiled::input_names() const {
  std::vector<std::string> names = script_->signature().inputs;
  for (const auto& param : script_->signature().params) names.push_back(param.name);
  for (const auto& state : script_->signature().state) names.push_back(state.name);
  return names;
}

/// Of all that the script returns; none where its outputs have no names.
std::vector<std::string> Compiled::output_names() const {
  std::vector<std::string> names = script_->signature().outputs;
  if (names.empty()) return names;
  for (const auto& state : script_->signature().state) names.push_back("state." + state.name);
  return names;
}

}  // namespace triage::capture
