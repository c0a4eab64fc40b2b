#include "runtime/backends/aot/program.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <unordered_set>

#include "runtime/backends/aot/joint.h"
#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/shipped.h"
#include "runtime/backends/unmasked_rows.h"
#include "runtime/flags/branches/gradients.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/memory.h"
#include "runtime/graph/passes/aliases.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/graph/text/graph_event.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log.h"
#include "runtime/random/sequence.h"

namespace triage::aot {
namespace {

// A graph that meets more kinds of inputs, or a layout more kinds of gradients, is not worth recording again and again.
constexpr size_t most_layouts = 32, most_variants = 16;
constexpr size_t most_refusals = 256;  // that a layout keeps

void append(std::vector<int64_t>& key, const at::Tensor& tensor) {
  key.push_back(static_cast<int64_t>(tensor.scalar_type()));
  key.push_back(static_cast<int64_t>(tensor.device().type()));
  key.push_back(tensor.device().index());
  key.push_back(tensor.dim());
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
}

/// The bits of a number that the recorded graph holds fast.
int64_t number_bits(const at::Tensor& tensor) {
  if (at::isIntegralType(tensor.scalar_type(), true)) return tensor.item().toLong();
  const double number = tensor.item().toDouble();
  int64_t bits = 0;
  static_assert(sizeof(bits) == sizeof(number));
  std::memcpy(&bits, &number, sizeof(bits));
  return bits;
}

double number_of_bits(int64_t bits) {
  double number = 0;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

/// For a run beside a call, which has checked its values itself.
graph::Graph without_checks(const graph::Graph& graph) {
  graph::Graph plain = graph.clone();
  for (auto& node : plain.nodes()) node->checks = false;
  std::erase_if(plain.nodes(), [](const graph::NodePtr& node) { return graph::is_effect(node->op); });
  graph::eliminate_dead(plain);
  return plain;
}

/// Which gradients must not share memory with an earlier one and might: equal calls are merged.
std::vector<bool> own_memory(const graph::Graph& backward, const Joint& joint) {
  graph::OutputMemory memory(backward);
  std::unordered_set<const graph::Value*> seen;
  std::vector<bool> own(joint.has_gradient.size());
  size_t next = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    if (!joint.has_gradient[i]) continue;
    for (const graph::Value* root : memory.origin(backward.outputs()[next++]).roots)
      if (!seen.insert(root).second) own[i] = !joint.shares[i];
  }
  return own;
}

void log_graphs(const std::string& name, const Joint& joint, const Halves& halves) {
  using messages::Artefact, messages::DebugFile;
  graph::trace_graph(joint.graph, "forward and backward");
  graph::trace_graph(halves.forward, "forward");
  graph::trace_graph(halves.backward, "backward");
  for (const graph::Graph* graph : {&joint.graph, &halves.forward, &halves.backward})
    if (messages::wants_debug_file(DebugFile::joint_graph))
      messages::write_debug_file(DebugFile::joint_graph, graph::print(*graph), name);
  if (!messages::logs(Artefact::aot_graphs)) return;
  const auto log = [&](const char* what, const graph::Graph& graph) {
    messages::log_artefact(Artefact::aot_graphs, LogLevel::debug, fmt::format("{} of `{}`", what, name),
                           graph::print(graph), name);
  };
  log("joint graph", joint.graph);
  log("forward half", halves.forward);
  log("backward half", halves.backward);
}

/// Examples for the minifier, where it is on: for them, the forward half runs.
Tensors inputs_of_backward(const Halves& halves, const Tensors& primals, const Tensors& tangents) {
  if (messages::repro_after() != messages::ReproAfter::aot) return {};
  const at::NoGradGuard no_grad;
  Tensors made, inputs;
  compile_eager(halves.forward, primals)->run(primals, made);
  for (const size_t index : halves.saved_primals) inputs.push_back(primals[index]);
  inputs.insert(inputs.end(), made.begin() + static_cast<std::ptrdiff_t>(tangents.size()), made.end());
  for (const at::Tensor& tangent : tangents)
    if (tangent.defined()) inputs.push_back(tangent);
  return inputs;
}

}  // namespace

bool is_ordinary(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() && tensor.layout() == at::kStrided && tensor.has_storage() &&
         !tensor.is_conj() && !tensor.is_neg() && !tensor.is_inference() && !torch::autograd::isFwGradDefined(tensor);
}

std::vector<int64_t> tangents_key(const Tensors& tangents) {
  std::vector<int64_t> key;
  for (const at::Tensor& tangent : tangents) tangent.defined() ? append(key, tangent) : key.push_back(-1);
  return key;
}

const JointVariant* InputLayout::find(const std::vector<int64_t>& tangents) const {
  if (const JointVariant* last = this->last(); last && last->tangents == tangents) return last;
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& variant : variants_)
    if (variant->tangents == tangents) return variant.get();
  return nullptr;
}

const JointVariant* InputLayout::add(std::unique_ptr<JointVariant> variant) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& known : variants_)
    if (known->tangents == variant->tangents) return known.get();
  if (variants_.size() >= most_variants) return nullptr;
  return variants_.emplace_back(std::move(variant)).get();
}

std::optional<std::string> InputLayout::refusal(const CallHistory& history, const BackwardRun& next) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = refusals_.find({history, next});
  return found == refusals_.end() ? std::nullopt : std::optional(found->second);
}

void InputLayout::note_refusal(const CallHistory& history, const BackwardRun& next, const std::string& refusal) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (refusals_.size() < most_refusals) refusals_[{history, next}] = refusal;
}

void InputLayout::make_plain(UnmaskedRows why) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!why_plain_) why_plain_ = std::move(why);
  plain_.store(true, std::memory_order_relaxed);
}

std::optional<UnmaskedRows> InputLayout::why_plain() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return why_plain_;
}

size_t InputLayout::bytes() const {
  size_t bytes = sizeof(*this);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& variant : variants_)
    bytes += sizeof(*variant) + variant->forward->bytes() + variant->backward->bytes();
  return bytes;
}

std::vector<const JointVariant*> InputLayout::variants() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<const JointVariant*> all;
  for (const auto& variant : variants_) all.push_back(variant.get());
  return all;
}

void InputLayout::finish_compiling() const {
  for (const JointVariant* variant : variants()) {
    variant->forward->finish_compiling();
    variant->backward->finish_compiling();
  }
}

LoopTiers InputLayout::loops() const {
  LoopTiers loops;
  for (const JointVariant* variant : variants()) (loops += variant->forward->loops()) += variant->backward->loops();
  return loops;
}

Program::Program(graph::Graph graph, std::vector<bool> samples, std::vector<bool> read_as_number, std::string backend,
                 Backend half, const Tensors& examples)
    : graph_(std::move(graph)),
      samples_(std::move(samples)),
      read_as_number_(std::move(read_as_number)),
      backend_(std::move(backend)),
      half_(std::move(half)),
      plain_(compile_eager(without_checks(graph_), {})),
      forward_(half_(graph_, examples)),
      logger_(messages::LogTo::current()) {
  for (const auto& node : graph_.nodes()) draws_ = draws_ || graph::draws(*node);
}

Program::~Program() = default;

std::vector<int64_t> Program::key_of(const Tensors& primals) const {
  std::vector<int64_t> key;
  key.reserve(primals.size() * 10);
  for (size_t i = 0; i < primals.size(); ++i) {
    append(key, primals[i]);
    key.push_back(primals[i].requires_grad());
    if (read_as_number_[i]) key.push_back(number_bits(primals[i]));
  }
  return key;
}

const InputLayout* Program::layout_of(const Tensors& primals) {
  std::vector<int64_t> key = key_of(primals);
  const auto known = [&]() -> const InputLayout* {
    for (const InputLayout* layout = newest_.load(std::memory_order_acquire); layout; layout = layout->next)
      if (layout->key == key) return layout;
    return nullptr;
  };
  if (const InputLayout* layout = known()) return layout;
  if (full_.load(std::memory_order_relaxed)) return nullptr;
  std::unique_ptr<InputLayout> fresh = probe(primals, key);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const InputLayout* layout = known()) return layout;
  if (layouts_.size() >= most_layouts) {
    full_.store(true, std::memory_order_relaxed);
    hand_over(
        {fmt::format("it was called with more than {} kinds of inputs (sizes, strides, numbers), so triage compiles no "
                     "further kinds",
                     most_layouts)});
    return nullptr;
  }
  fresh->next = newest_.load(std::memory_order_relaxed);
  layouts_.push_back(std::move(fresh));
  newest_.store(layouts_.back().get(), std::memory_order_release);
  return layouts_.back().get();
}

namespace {

/// Which of `leaves` gradients of `outputs` go to.
std::vector<bool> reached_from(const Tensors& outputs, const Tensors& leaves) {
  std::unordered_set<const torch::autograd::Node*> seen;
  std::vector<const torch::autograd::Node*> open;
  const auto visit = [&](const torch::autograd::Node* node) {
    if (node && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& output : outputs)
    if (output.requires_grad()) visit(torch::autograd::impl::gradient_edge(output).function.get());
  while (!open.empty()) {
    const torch::autograd::Node* const node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<bool> reached;
  for (const at::Tensor& leaf : leaves)
    reached.push_back(leaf.requires_grad() && seen.count(torch::autograd::impl::grad_accumulator(leaf).get()) != 0);
  return reached;
}

}  // namespace

/// Which outputs have gradients shows when autograd records the graph.
std::unique_ptr<InputLayout> Program::probe(const Tensors& primals, std::vector<int64_t> key) const {
  const c10::AutoGradMode record(true);
  const random::Replay draws_again(draws_);
  const flags::autograd::OfAllBranches for_all_values;
  const Tensors leaves = as_leaves(primals);
  Tensors outputs;
  plain_->run(leaves, outputs, {Deadline::current()});
  auto layout = std::make_unique<InputLayout>();
  layout->reached = reached_from(outputs, leaves);
  layout->key = std::move(key);
  for (const at::Tensor& output : outputs) {
    layout->differentiable.push_back(output.requires_grad());
    layout->outputs.push_back({output.scalar_type(), output.sizes().vec(), output.device()});
    layout->any_differentiable |= output.requires_grad();
  }
  for (size_t i = 0; layout->any_differentiable && i < outputs.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (share_memory(outputs[i], outputs[j])) {
        layout->make_plain({"two of its outputs share memory", graph_.outputs()[i]->producer->source});
        hand_over(*layout->why_plain());
      }
  return layout;
}

const JointVariant* Program::record(const InputLayout& layout, const Tensors& primals, const Tensors& tangents) const {
  const messages::LogTo log_to(logger_);
  try {
    const messages::DebugScope debug_scope(graph_.name(), messages::DebugScope::Of::known_graph);
    std::optional<messages::CompilationStep> step(std::in_place, 2, "joint graph", graph_.name(),
                                                  "joint graph of `" + graph_.name() + "`");
    Joint joint = record_joint(graph_, primals, tangents);
    joint.samples = samples_;
    mask_rows(joint);
    std::optional<UnmaskedRows> unmasked;
    if (auto leak = find_leak(joint, primals)) {
      unmasked = UnmaskedRows{std::move(leak->what), std::move(leak->source)};
      tell_unmasked(*unmasked);
    }
    Halves halves = partition(joint, folds_constants(backend_));
    if (messages::logs(messages::Artefact::capture))
      step->note(fmt::format("{} operations forward, {} backward", halves.forward.nodes().size(),
                             halves.backward.nodes().size()));
    step.reset();
    log_graphs(graph_.name(), joint, halves);
    auto variant = std::make_unique<JointVariant>();
    variant->unmasked = std::move(unmasked);
    variant->tangents = tangents_key(tangents);
    variant->forward = half_(halves.forward, primals);
    variant->backward = half_(halves.backward, inputs_of_backward(halves, primals, tangents));
    variant->saved_primals = std::move(halves.saved_primals);
    variant->output_of_saved = std::move(halves.output_of_saved);
    variant->own_memory = own_memory(halves.backward, joint);
    variant->has_gradient = std::move(joint.has_gradient);
    if (const JointVariant* added = layout.add(std::move(variant))) return added;
    hand_over({fmt::format("its outputs got more than {} kinds of gradients", most_variants)});
  } catch (const LimitError&) {
    throw;
  } catch (const MaskedRowsRequired&) {
    throw;
  } catch (const std::exception& error) {
    const auto* ours = dynamic_cast<const Error*>(&error);
    const UnmaskedRows why{messages::message_with_hint(error), ours ? ours->source() : Source()};
    fail(why);  // where that is an error, each call raises it again
    layout.make_plain(why);
  }
  return nullptr;
}

std::optional<UnmaskedRows> Program::unmasked_rows(const InputLayout& layout, const Tensors& primals) const {
  if (!layout.any_differentiable) return std::nullopt;
  Tensors tangents;
  for (size_t i = 0; i < layout.outputs.size(); ++i) {
    const graph::TensorMeta& meta = layout.outputs[i];
    tangents.push_back(layout.differentiable[i]
                           ? at::ones(meta.sizes, at::TensorOptions(meta.dtype).device(meta.device))
                           : at::Tensor());
  }
  const JointVariant* variant = layout.is_plain() ? nullptr : layout.find(tangents_key(tangents));
  if (!variant && !layout.is_plain()) {
    const random::Replay draws_again(draws_);
    variant = record(layout, primals, tangents);
  }
  if (variant) return variant->unmasked;
  if (auto why = layout.why_plain()) return why;
  return UnmaskedRows{fmt::format("its outputs got more than {} kinds of gradients", most_variants)};
}

size_t Program::bytes() {
  size_t bytes = sizeof(*this) + graph::bytes(graph_) + plain_->bytes() + forward_->bytes();
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& layout : layouts_) bytes += layout->bytes();
  return bytes;
}

Tensors Program::differentiate(const Tensors& primals, const Tensors& tangents, bool create_graph) const {
  const c10::AutoGradMode record(true);
  Tensors given, ends, outputs, roots, come_in;
  for (const at::Tensor& primal : primals) {
    given.push_back(primal.requires_grad() ? at::alias(primal) : primal);
    if (primal.requires_grad()) ends.push_back(given.back());
  }
  plain_->run(given, outputs, {Deadline::current()});
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!tangents[i].defined() || !outputs[i].requires_grad()) continue;  // of a branch without gradients
    roots.push_back(outputs[i]);
    come_in.push_back(tangents[i]);
  }
  if (roots.empty()) return Tensors(primals.size());
  const Tensors found = torch::autograd::grad(roots, ends, come_in, create_graph, create_graph, /*allow_unused=*/true);
  Tensors gradients(primals.size());
  size_t next = 0;
  for (size_t i = 0; i < primals.size(); ++i)
    if (primals[i].requires_grad()) gradients[i] = found[next++];
  return gradients;
}

std::string Program::refusal(const InputLayout& layout, const Tensors& primals, const CallHistory& history,
                             const BackwardRun& next) const {
  const c10::AutoGradMode record(true);
  const random::Replay draws_again(draws_);
  const flags::autograd::OfAllBranches for_all_values;
  Tensors given, outputs;
  for (const at::Tensor& primal : primals)
    given.push_back(primal.requires_grad() ? primal.detach().requires_grad_() : primal.detach());
  plain_->run(given, outputs, {Deadline::current()});
  const auto run = [&](const BackwardRun& backward) {
    Tensors roots, tangents, ends;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!backward.outputs[i]) continue;
      roots.push_back(outputs[i]);
      tangents.push_back(at::ones_like(outputs[i]));
    }
    for (size_t i = 0; i < given.size(); ++i)
      if (backward.primals[i]) ends.push_back(given[i]);
    torch::autograd::grad(roots, ends, tangents, /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
  };
  std::string refusal;
  try {
    for (const BackwardRun& backward : history.released) run(backward);
    for (size_t i = 0; i < history.written.size(); ++i)
      if (history.written[i])
        torch::autograd::impl::bump_version(i < given.size() ? given[i] : outputs[i - given.size()]);
    run(next);
  } catch (const c10::Error& error) {
    refusal = error.what_without_backtrace();
  }
  layout.note_refusal(history, next, refusal);
  return refusal;
}

at::Tensor Program::blank(const InputLayout& layout, size_t primal) const {
  const int64_t* at = layout.key.data();
  for (size_t i = 0;; ++i) {  // as key_of writes it
    const auto type = static_cast<at::ScalarType>(*at++);
    const auto device_type = static_cast<c10::DeviceType>(*at++);
    const c10::Device device(device_type, static_cast<c10::DeviceIndex>(*at++));
    const auto dim = static_cast<size_t>(*at++);
    const at::IntArrayRef sizes(at, dim), strides(at + dim, dim);
    at += 2 * dim;
    const bool requires_grad = *at++ != 0;
    const int64_t bits = read_as_number_[i] ? *at++ : 0;
    if (i < primal) continue;
    const at::Tensor made = at::empty_strided(sizes, strides, at::dtype(type).device(device));
    at::isIntegralType(type, true) ? made.fill_(bits) : made.fill_(number_of_bits(bits));
    return made.set_requires_grad(requires_grad);
  }
}

void Program::finish_compiling() {
  forward_->finish_compiling();
  for (const InputLayout* layout = newest_.load(std::memory_order_acquire); layout; layout = layout->next)
    layout->finish_compiling();
}

LoopTiers Program::loops() {
  LoopTiers loops = forward_->loops();
  for (const InputLayout* layout = newest_.load(std::memory_order_acquire); layout; layout = layout->next)
    loops += layout->loops();
  return loops;
}

void Program::fail(const UnmaskedRows& why) const {
  if (strict_ && !required_)
    throw GraphError(
        fmt::format("`{}` cannot compile the gradients of graph `{}`: {}", backend_, graph_.name(), with_place(why)),
        why.where);
  hand_over(why);
}

bool Program::is_news(const UnmaskedRows& why) const {
  if (required_) refuse_unmasked_rows("graph `" + graph_.name() + "`", why);
  return !said_.exchange(true);
}

void Program::hand_over(const UnmaskedRows& why) const {
  if (is_news(why)) logger_.write(LogLevel::warn, left_to_eager_text(graph_.name(), backend_, why));
}

void Program::tell_unmasked(const UnmaskedRows& why) const {
  if (!is_news(why)) return;
  logger_.write(LogLevel::warn, fmt::format("graph `{}`: values of rows that the function masks may reach gradients, "
                                            "because {}",
                                            graph_.name(), with_place(why)));
}

}  // namespace triage::aot
