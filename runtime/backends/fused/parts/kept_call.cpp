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
#include "runtime/operators/contract.h"

namespace triage::fused {
namespace {

using graph::Node;
using graph::Value;

constexpr size_t most_bytes = 4 << 20;  // of the results of a call

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

bool is_param(const graph::Input& input) {
  return input.kind == graph::InputKind::param && is_number(input.value) && input.value->meta->device.is_cpu();
}

/// An operator of LibTorch or of triage that computes: those of others may remember what nobody sees.
bool computes(const Node& node) {
  const auto& name = node.op.operator_name();
  return graph::is_assertion(node) || graph::size_read(node) ||
         (graph::computes_only(node.op) && operators::find_contract(name.name, name.overload_name));
}

/// With what their memory has besides.
size_t bytes_of(const std::vector<at::Tensor>& results) {
  size_t bytes = 0;
  for (const at::Tensor& result : results) bytes += result.storage().nbytes();
  return bytes;
}

}  // namespace

bool KeptCall::takes(const FusionGroup& part) {
  const graph::Graph& graph = part.graph;
  return graph.constants().empty() &&
         std::all_of(graph.inputs().begin(), graph.inputs().end(),
                     [&](const auto& input) { return is_param(input) || is_read_for_sizes(graph, input.value); }) &&
         std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) { return computes(*node); }) &&
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [](const Value* output) { return !is_number(output); });
}

KeptCall::KeptCall(const FusionGroup& part) : interpreter_(compile_eager_as_it_is(part.graph)) {
  const auto& inputs = part.graph.inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_param(inputs[i])) {
      params_.push_back(i);
      continue;
    }
    for (const auto& node : part.graph.nodes())
      if (reads_size_alone(*node, inputs[i].value)) sizes_.emplace_back(i, graph::size_read(*node)->dim);
  }
}

KeptCall::~KeptCall() {
  for (auto& slot : slots_) delete slot.load();
}

/// False where the results might be others for the same params.
bool KeptCall::read_key(at::ArrayRef<at::Tensor> inputs, Key& key) const {
  if (compat::autocast(c10::kCPU).enabled) return false;
  key.push_back(c10::InferenceMode::is_enabled());
  for (const size_t at : params_) {
    const at::Tensor& number = inputs[at];
    if (!number.defined() || !number.device().is_cpu() || number.dim() != 0 || number.requires_grad() ||
        static_cast<size_t>(number.element_size()) > sizeof(int64_t) || number.is_neg() || number.is_conj() ||
        number._is_zerotensor())
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

KeptCall::CachedResults* KeptCall::take(const Key& key) const {
  for (auto& slot : slots_) {
    CachedResults* const kept = slot.exchange(nullptr, std::memory_order_acquire);
    if (!kept) continue;
    if (kept->key == key) return kept;
    put_back(kept);
  }
  return nullptr;
}

/// Where all slots are taken, one of them is given up.
void KeptCall::put_back(CachedResults* kept) const {
  for (auto& slot : slots_) {
    CachedResults* none = nullptr;
    if (slot.compare_exchange_strong(none, kept, std::memory_order_release)) return;
  }
  delete slots_[oldest_.fetch_add(1) % slots_.size()].exchange(kept, std::memory_order_acq_rel);
}

void KeptCall::run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const {
  check_deadline(call.deadline);
  Key key;
  if (!read_key(inputs, key)) return interpreter_->run(inputs, outputs, call);
  if (CachedResults* const kept = take(key)) {
    outputs.insert(outputs.end(), kept->results.begin(), kept->results.end());
    return put_back(kept);
  }
  interpreter_->run(inputs, outputs, call);
  const bool may_change = std::any_of(outputs.begin(), outputs.end(), [&](const at::Tensor& output) {
    return !output.defined() || output.requires_grad() || shares_memory(output, inputs);
  });
  if (!may_change && bytes_of(outputs) <= most_bytes) put_back(new CachedResults{std::move(key), outputs});
}

}  // namespace triage::fused
