#include "runtime/backends/fused/parts/kept_call.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/compat/autocast.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/memory/overlap.h"

namespace triage::fused {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t most_bytes = 16 << 20;  // of the results of a call

/// Whether `value` is an input of `node` for its size alone.
bool reads_size_alone(const Node& node, const Value* value) {
  const auto read = graph::size_read(node);
  return read && read->of == value;
}

bool is_read_for_sizes(const graph::Graph& part, const Value* input) {
  return std::all_of(part.nodes().begin(), part.nodes().end(), [&](const auto& node) {
    bool uses = false;
    graph::for_each_use(*node, [&](const Value* value) { uses |= value == input; });
    return !uses || reads_size_alone(*node, input);
  });
}

bool is_number_of_the_host(const Value* input) { return is_number(input) && input->meta->device.is_cpu(); }

bool is_large(const std::vector<at::Tensor>& results) {
  size_t bytes = 0;
  for (const at::Tensor& result : results) bytes += result.storage().nbytes();
  return bytes > most_bytes;
}

}  // namespace

bool KeptCall::takes(const FusionGroup& part) {
  const graph::Graph& graph = part.graph;
  const auto inputs = graph.inputs();
  return std::all_of(inputs.begin(), inputs.end(),
                     [&](const auto& input) {
                       return is_number_of_the_host(input.value) || is_read_for_sizes(graph, input.value);
                     }) &&
         std::all_of(graph.nodes().begin(), graph.nodes().end(),
                     [](const auto& node) { return graph::computes_only(node->op) || graph::is_assertion(*node); }) &&
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [](const Value* output) { return !is_number(output); });
}

KeptCall::KeptCall(const FusionGroup& part) : interpreter_(compile_eager_as_it_is(part.graph)) {
  const auto inputs = part.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_number_of_the_host(inputs[i].value)) {
      numbers_.push_back(i);
      continue;
    }
    for (const auto& node : part.graph.nodes())
      if (reads_size_alone(*node, inputs[i].value)) sizes_.emplace_back(i, graph::size_read(*node)->dim);
  }
}

KeptCall::~KeptCall() {
  for (auto& slot : slots_) delete slot.load();
}

/// False where the results might be others for the same numbers.
bool KeptCall::read_key(at::ArrayRef<at::Tensor> inputs, Key& key) const {
  if (compat::autocast(c10::kCPU).enabled) return false;
  key.push_back(c10::InferenceMode::is_enabled());
  for (const size_t at : numbers_) {
    const at::Tensor& number = inputs[at];
    if (!number.defined() || !number.device().is_cpu() || number.dim() != 0 || number.requires_grad() ||
        static_cast<size_t>(number.element_size()) > sizeof(int64_t) || number.is_neg() || number.is_conj())
      return false;
    int64_t bits = 0;
    std::memcpy(&bits, number.data_ptr(), static_cast<size_t>(number.element_size()));
    key.push_back(static_cast<int64_t>(number.scalar_type()));
    key.push_back(bits);
  }
  for (const auto& [at, dim] : sizes_) {
    if (!inputs[at].defined() || dim >= inputs[at].dim() || dim < -inputs[at].dim()) return false;
    key.push_back(inputs[at].size(dim));
  }
  return true;
}

KeptCall::Kept* KeptCall::take(const Key& key) const {
  for (auto& slot : slots_) {
    Kept* const kept = slot.exchange(nullptr, std::memory_order_acquire);
    if (!kept) continue;
    if (kept->key == key) return kept;
    put_back(kept);
  }
  return nullptr;
}

/// Where all slots are taken, the first one's is given up.
void KeptCall::put_back(Kept* kept) const {
  for (auto& slot : slots_) {
    Kept* none = nullptr;
    if (slot.compare_exchange_strong(none, kept, std::memory_order_release)) return;
  }
  delete slots_[0].exchange(kept, std::memory_order_acq_rel);
}

void KeptCall::run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const {
  check_deadline(call.deadline);
  Key key;
  if (!read_key(inputs, key)) return interpreter_->run(inputs, outputs, call);
  if (Kept* const kept = take(key)) {
    outputs.insert(outputs.end(), kept->results.begin(), kept->results.end());
    return put_back(kept);
  }
  interpreter_->run(inputs, outputs, call);
  const bool may_change = std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
    return !output.defined() || output.requires_grad() || shares_memory(output, inputs);
  });
  if (!may_change && !is_large(outputs)) put_back(new Kept{std::move(key), outputs});
}

}  // namespace triage::fused
