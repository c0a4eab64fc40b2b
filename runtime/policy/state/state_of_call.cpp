#include "runtime/policy/state/state_of_call.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/capture/hidden_results.h"
#include "runtime/memory/overlap.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/typing/first_state.h"

namespace triage::policy {
namespace {

c10::Device device_of(at::ArrayRef<at::Tensor> inputs) {
  return inputs.empty() ? c10::Device(c10::kCPU) : inputs[0].device();
}

/// Of any batch.
const at::Tensor* find(const KeptState& state, const StateSpec& spec) {
  if (!state) return nullptr;
  const auto found = std::find_if(state->begin(), state->end(),
                                  [&](const auto& kept) { return kept.first == spec.name && fits(spec, kept.second); });
  return found == state->end() ? nullptr : &found->second;
}

std::string misfit(const StateSpec& spec, const at::Tensor& tensor, int64_t batch) {
  return fmt::format(
      "`run` returned the state '{0}' as {1} of shape [{2}], and it is declared as {3}{4}; return it in that dtype and "
      "shape, or change its declaration",
      spec.name, c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "), spec.type.text(),
      has_batch(spec) ? fmt::format(" in a batch of {}", batch) : "");
}

}  // namespace

bool fits(const StateSpec& spec, const at::Tensor& tensor, int64_t batch) {
  const auto& dims = spec.type.dims;
  const auto is_size = [&](const Dim& dim, int64_t size) { return size == size_for(dim, batch); };
  return tensor.scalar_type() == spec.type.dtype && tensor.layout() == c10::kStrided &&
         std::equal(dims.begin(), dims.end(), tensor.sizes().begin(), tensor.sizes().end(), is_size);
}

bool fits(const StateSpec& spec, const at::Tensor& tensor) {
  return fits(spec, tensor, tensor.dim() > 0 ? tensor.size(0) : 0);
}

const StateSpec* find_spec(const Signature& signature, const std::string& name) {
  const auto& state = signature.state;
  const auto found = std::find_if(state.begin(), state.end(), [&](const StateSpec& spec) { return spec.name == name; });
  return found == state.end() ? nullptr : &*found;
}

bool takes(const Signature& signature, const std::string& name, const at::Tensor& tensor) {
  const StateSpec* const spec = find_spec(signature, name);
  return spec && fits(*spec, tensor);
}

at::Tensor as_kept(const at::Tensor& tensor) {
  const c10::InferenceMode outside(false);
  const bool is_dense = tensor.is_contiguous() && tensor.storage().nbytes() == tensor.nbytes();
  if (tensor.is_inference() || !is_dense) return tensor.detach().clone(at::MemoryFormat::Contiguous);
  return tensor.requires_grad() ? tensor.detach() : tensor;
}

void check_state_bytes(const Signature& signature, int64_t batch, int64_t most) {
  double bytes = 0;  // which does not overflow
  for (const StateSpec& spec : signature.state) {
    double of_one = static_cast<double>(c10::elementSize(spec.type.dtype));
    for (const int64_t size : sizes_for(spec, batch)) of_one *= static_cast<double>(size);
    bytes += of_one;
  }
  if (most > 0 && bytes > static_cast<double>(most))
    throw LimitError(fmt::format(
        "the declared state takes {:.0f} MiB in a batch of {}, and the limit is {} MiB (Limits::tensor_bytes); "
        "declare smaller shapes",
        bytes / (1 << 20), batch, most >> 20));
}

void begin_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs, StateOfCall& state, int64_t most) {
  const int64_t batch = rows_of(inputs);
  const c10::Device device = device_of(inputs);
  check_state_bytes(signature, batch, most);
  state.begin_again();
  for (const StateSpec& spec : signature.state) {
    const at::Tensor* const kept = find(state.before, spec);
    const bool usable = kept && fits(spec, *kept, batch);
    if (kept && !usable) state.other_batch = true;
    state.given.push_back(usable ? *kept : first_state(spec, batch, device));
    if (state.given.back().device() != device) {
      const c10::InferenceMode outside(false);
      state.given.back() = state.given.back().to(device);
    }
  }
}

std::optional<std::string> state_failure(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                         at::ArrayRef<at::Tensor> state) {
  const int64_t batch = rows_of(inputs);
  for (size_t i = 0; i < state.size(); ++i) {
    const StateSpec& spec = signature.state[i];
    if (!state[i].defined()) return fmt::format("`run` returned an undefined tensor as the state '{}'", spec.name);
    if (!fits(spec, state[i], batch)) return misfit(spec, state[i], batch);
  }
  return std::nullopt;
}

std::optional<std::string> take_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs, StateOfCall& state,
                                      std::vector<at::Tensor>& outputs) {
  const auto first = outputs.end() - static_cast<ptrdiff_t>(signature.state.size());
  state.after.assign(std::make_move_iterator(first), std::make_move_iterator(outputs.end()));
  outputs.erase(first, outputs.end());
  if (auto failure = state_failure(signature, inputs, state.after)) return failure;
  for (at::Tensor& tensor : state.after) {
    const bool lent = shares_memory(tensor, inputs) || shares_memory(tensor, outputs);
    tensor = as_kept(lent ? tensor.detach().clone() : tensor);
  }
  for (at::Tensor& output : outputs)
    if (shares_memory(output, state.given)) output = output.clone();
  return std::nullopt;
}

std::vector<at::Tensor> with_first_state(const Signature& signature, int64_t batch, c10::Device device,
                                         std::vector<at::Tensor> params) {
  check_state_bytes(signature, batch, most_state_bytes);
  for (const StateSpec& spec : signature.state) params.push_back(first_state(spec, batch, device));
  return params;
}

std::vector<at::Tensor> with_first_state(const Signature& signature, at::ArrayRef<at::Tensor> inputs,
                                         std::vector<at::Tensor> params) {
  return with_first_state(signature, rows_of(inputs), device_of(inputs), std::move(params));
}

std::vector<at::Tensor> call_alone(Script& script, at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor> params) {
  const Signature& signature = script.signature();
  std::vector<at::Tensor> outputs =
      script.call(inputs, with_first_state(signature, inputs, std::move(params)), std::nullopt);
  capture::drop_hidden(signature, outputs);
  StateOfCall state;
  if (const auto failure = take_state(signature, inputs, state, outputs))
    throw PolicyError(*failure, script.definition().where);
  return outputs;
}

}  // namespace triage::policy
