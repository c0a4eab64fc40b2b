#include "runtime/capture/compiled.h"

#include "runtime/backends/deadline.h"
#include "runtime/capture/branch_guard.h"
#include "runtime/capture/recorder.h"

#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <triage/config.h>
#include <triage/error.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace triage::capture {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<InputShape> shape_of(at::ArrayRef<at::Tensor> inputs) {
  std::vector<InputShape> shape;
  for (const auto& input : inputs)
    shape.push_back({input.sizes().vec(), input.scalar_type(), input.device(), input.requires_grad()});
  return shape;
}

at::ArrayRef<at::Tensor> without_params(at::ArrayRef<at::Tensor> all, size_t num_params) {
  return all.slice(0, all.size() - num_params);
}

/// An output that is not an input itself must not share memory with one.
void separate_from_inputs(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) {
  for (auto& output : outputs) {
    if (!output.defined() || !output.has_storage()) continue;
    bool is_input = false, shares = false;
    for (const auto& input : inputs) {
      is_input |= output.is_same(input);
      shares |= input.has_storage() && output.is_alias_of(input);
    }
    if (shares && !is_input) output = output.clone();
  }
}

/// Nor with what the graph holds: the host may write to what it is given.
void separate_from_constants(const graph::Graph& graph, std::vector<at::Tensor>& outputs) {
  for (auto& output : outputs)
    for (const auto& constant : graph.constants())
      if (output.defined() && output.has_storage() && output.is_alias_of(constant.tensor)) {
        output = output.clone();
        break;
      }
}

}  // namespace

Compiled::Compiled(std::shared_ptr<Script> script, Options options)
    : script_(std::move(script)),
      options_(std::move(options)),
      backend_(options_.compile_with ? options_.compile_with : find_backend(options_.backend)) {}

Compiled::~Compiled() = default;

/// The right to run the script, for the time of this object. A thread that has it already would wait for itself (the script
/// called a function of the host, which called the policy); a deadline may pass while others have it.
class Compiled::Turn {
 public:
  Turn(Compiled& compiled, const Deadline& deadline) : compiled_(compiled) {
    if (std::find(running.begin(), running.end(), &compiled) != running.end())
      throw PolicyError(
          "policy '" + compiled.script_->name() +
          "' was called while it runs, on the same thread (by a function of the host that it calls?); a policy "
          "cannot call itself");
    if (!deadline)
      compiled.mutex_.lock();
    else if (!compiled.mutex_.try_lock_until(*deadline))
      throw LimitError("the deadline of the call passed while another call was running the script of policy '" +
                       compiled.script_->name() + "'");
    running.push_back(&compiled);
  }
  ~Turn() {
    running.pop_back();
    compiled_.mutex_.unlock();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  inline static thread_local std::vector<const Compiled*> running;
  Compiled& compiled_;
};

void Compiled::execute(const Entry& entry, at::ArrayRef<at::Tensor> all, size_t num_params, const Deadline& deadline,
                       std::vector<at::Tensor>& outputs) {
  std::optional<triage::Deadline> scope;
  if (deadline) scope.emplace(*deadline);
  if (!entry.script_handles_errors) return entry.executable->run(all, outputs);
  try {
    return entry.executable->run(all, outputs);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception&) {
    outputs.clear();
  }
  const Turn turn(*this, deadline);
  run_script(all, num_params, deadline, outputs);
}

/// What a script writes to its own variables while nothing is recorded, no guard sees: graphs of before may be wrong then, and
/// are not used again, whether or not the script comes to its end.
class Compiled::RetireIfWritten {
 public:
  explicit RetireIfWritten(Compiled& compiled) : compiled_(compiled), before_(compiled.script_->writes()) {}
  ~RetireIfWritten() {
    if (armed_ && compiled_.script_->writes() != before_) compiled_.newest_.store(nullptr, std::memory_order_release);
  }
  void dismiss() noexcept { armed_ = false; }
  RetireIfWritten(const RetireIfWritten&) = delete;
  RetireIfWritten& operator=(const RetireIfWritten&) = delete;

 private:
  Compiled& compiled_;
  uint64_t before_;
  bool armed_ = true;
};

const Entry* Compiled::find(at::ArrayRef<at::Tensor> all) const noexcept {
  for (const Entry* entry = newest_.load(std::memory_order_acquire); entry; entry = entry->next)
    if (entry->guards.hold(all)) return entry;
  return nullptr;
}

void Compiled::run(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params, Deadline deadline,
                   std::vector<at::Tensor>& outputs) {
  if (params.empty()) {
    if (const Entry* entry = find(inputs)) return execute(*entry, inputs, 0, deadline, outputs);
    return miss(inputs, 0, deadline, outputs);
  }
  c10::SmallVector<at::Tensor, 8> all(inputs.begin(), inputs.end());
  all.append(params.begin(), params.end());
  if (const Entry* entry = find(all)) return execute(*entry, all, params.size(), deadline, outputs);
  miss(all, params.size(), deadline, outputs);
}

void Compiled::miss(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                    std::vector<at::Tensor>& outputs) {
  std::optional<Turn> turn(std::in_place, *this, deadline);
  if (const Entry* entry = find(all)) {  // another thread captured it meanwhile
    turn.reset();
    return execute(*entry, all, num_params, deadline, outputs);
  }
  if (broken_.load(std::memory_order_relaxed)) return run_script(all, num_params, deadline, outputs);
  if (entries_.size() >= options_.recompile_limit) {
    if (!limit_reported_ && options_.warn)
      options_.warn("policy '" + script_->name() + "' reached the limit of " +
                    std::to_string(options_.recompile_limit) +
                    " captured graphs; other calls now run the script. Last reason: " +
                    entries_.back()->guards.failure(all, input_names()) +
                    ". Hint: a size that the script reads is specialised; pass numbers as params, keep sizes in tensor "
                    "operations.");
    limit_reported_ = true;
    return run_script(all, num_params, deadline, outputs);
  }
  capture(all, num_params, deadline, outputs);
}

void Compiled::run_script(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                          std::vector<at::Tensor>& outputs) {
  auto inputs = without_params(all, num_params);
  check_signature(inputs);
  std::optional<ProtectInputs> protect;
  if (options_.protect_inputs) protect.emplace(inputs);
  const RetireIfWritten retire(*this);
  outputs = script_->call(inputs, all.slice(inputs.size()), deadline);
  note_flags_outputs();
  separate_from_inputs(inputs, outputs);
}

void Compiled::capture(at::ArrayRef<at::Tensor> all, size_t num_params, Deadline deadline,
                       std::vector<at::Tensor>& outputs) {
  if (!entries_.empty()) report_recompile(all);
  auto start = Clock::now();
  std::vector<std::string> names = input_names();
  Guards guards = Guards::of(all);
  const OutsideBranches anew;
  Recorder recorder(script_->name(), options_.fullgraph);
  std::vector<at::Tensor> traced;
  size_t num_inputs = all.size() - num_params;
  for (size_t i = 0; i < all.size(); ++i)
    traced.push_back(recorder.add_input(i < names.size() ? names[i] : "in" + std::to_string(i),
                                        i < num_inputs ? graph::InputKind::tensor : graph::InputKind::param, all[i]));
  at::ArrayRef<at::Tensor> given(traced);
  RetireIfWritten retire(*this);  // unless all of it is recorded
  recorder.rely_on(check_signature(given.slice(0, num_inputs)));
  std::vector<at::Tensor> results;
  try {
    std::optional<ProtectInputs> protect;
    if (options_.protect_inputs) protect.emplace(without_params(all, num_params));
    results = script_->call(given.slice(0, num_inputs), given.slice(num_inputs), deadline);
  } catch (const GraphBreakError&) {
    throw;
  } catch (const std::exception&) {
    if (options_.fullgraph && recorder.broken())
      throw *recorder.broken();  // the script turned the break into another error
    throw;
  }
  note_flags_outputs();
  recorder.check_caught_errors();
  if (recorder.broken()) {
    if (options_.fullgraph) throw *recorder.broken();
    const std::string broken = recorder.broken()->what();
    {
      std::lock_guard<std::mutex> lock(notes_mutex_);
      graph_breaks_.push_back(broken);
    }
    broken_.store(true, std::memory_order_relaxed);
    if (options_.warn) options_.warn("policy '" + script_->name() + "' runs as a script on every call: " + broken);
  }

  outputs = results;
  for (auto& output : outputs)
    for (size_t i = 0; i < num_inputs; ++i)
      if (output.is_same(traced[i])) output = all[i];  // returned untouched: the host's own tensor
  separate_from_inputs(without_params(all, num_params), outputs);
  if (recorder.broken()) return;
  retire.dismiss();

  auto entry = std::make_unique<Entry>();
  Recorder::Result captured = recorder.finish(results, script_->signature().outputs);
  if (options_.protect_inputs) separate_from_constants(captured.graph, outputs);
  graph::clean(captured.graph);
  entry->capture_seconds = seconds_since(start);
  start = Clock::now();
  for (const graph::Value* output : captured.graph.outputs()) entry->flags_outputs.push_back(output->is_flags);
  entry->graph = std::make_shared<const graph::Graph>(std::move(captured.graph));
  entry->executable = compile(*entry->graph, {all.begin(), all.end()});
  entry->compile_seconds = seconds_since(start);
  if (entry->executable->answers_capture()) {
    std::vector<at::Tensor> answer;
    entry->executable->run(all, answer);
    outputs = std::move(answer);
  }
  entry->script_handles_errors = recorder.has_protected_calls();
  guards.add_variables(*entry->graph);
  for (const auto& size : captured.sizes) guards.sizes.push_back({size.input, size.dim, size.size});
  for (const auto& same : captured.same_sizes)
    guards.same_sizes.push_back({same.input, same.dim, same.other, same.other_dim});
  entry->guards = std::move(guards);
  entry->shape = shape_of(without_params(all, num_params));
  entry->next = newest_.load(std::memory_order_relaxed);
  entries_.push_back(std::move(entry));
  newest_.store(entries_.back().get(), std::memory_order_release);
}

/// A backend that fails is no reason to fail the call: the interpreter can run every graph.
std::unique_ptr<Executable> Compiled::compile(const graph::Graph& graph,
                                              const std::vector<at::Tensor>& examples) const {
  try {
    return backend_(graph, examples);
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    if (options_.fullgraph || options_.fail_on_backend_error) throw;
    if (options_.warn)
      options_.warn("'" + script_->name() + "' runs with the eager backend, since its own cannot compile graph `" +
                    graph.name() + "`: " + error.what());
  }
  return find_backend("eager")(graph, examples);
}

/// What the declared types of the inputs ask of their sizes. Flags last: where they disagree with data, they are malformed.
std::vector<SizeFact> Compiled::check_signature(at::ArrayRef<at::Tensor> inputs) {
  const Signature& signature = script_->signature();
  TensorMatcher matcher("policy '" + script_->name() + "'");
  for (const bool flags : {false, true}) {
    for (size_t i = 0; i < signature.input_types.size() && i < inputs.size(); ++i) {
      const auto& type = signature.input_types[i];
      if (!type || type->flags != flags) continue;
      auto failure = matcher.match(inputs[i], *type, {Subject::Role::input, signature.inputs[i]});
      if (!failure) continue;
      if (failure->kind != ValidationKind::validation || get_config().strict_validation)
        throw_validation(std::move(*failure));
      if (!std::exchange(flags_reported_, true) && options_.warn)
        options_.warn(failure->message + " (with strict_validation this is an error)");
    }
  }
  return matcher.facts();
}

void Compiled::report_recompile(at::ArrayRef<at::Tensor> all) const {
  if (!options_.inform) return;
  std::string text = "Recompiling function " + script_->name() + "\n  triggered by the following guard failure(s):";
  for (size_t i = 0; i < entries_.size(); ++i)
    text += "\n  - 0/" + std::to_string(i) + ": " + entries_[i]->guards.failure(all, input_names());
  options_.inform(text);
}

void Compiled::prepare(const std::vector<InputShape>& shape, at::ArrayRef<at::Tensor> params) {
  std::vector<at::Tensor> all;
  for (const auto& input : shape)
    all.push_back(at::ones(input.sizes, at::TensorOptions(input.dtype).device(input.device))
                      .set_requires_grad(input.requires_grad));
  all.insert(all.end(), params.begin(), params.end());
  {
    const Turn turn(*this, std::nullopt);
    if (!find(all) && !broken_ && entries_.size() < options_.recompile_limit) {
      const c10::InferenceMode outside(false);
      const MadeUpInputs made_up;
      try {
        std::vector<at::Tensor> outputs;
        capture(all, params.size(), std::nullopt, outputs);
      } catch (const std::exception&) {
        if (!made_up.stopped()) throw;  // else the first real call finds out
      }
    }
  }
  finish_compiling(all);
}

void Compiled::finish_compiling(at::ArrayRef<at::Tensor> all) const {
  if (const Entry* entry = find(all)) entry->executable->finish_compiling();
}

// None of these takes the mutex of the script: a reload asks them while a call may be inside the script for long.
std::vector<const Entry*> Compiled::entries() const {
  std::vector<const Entry*> entries;
  for (const Entry* entry = newest_.load(std::memory_order_acquire); entry; entry = entry->next)
    entries.push_back(entry);
  std::reverse(entries.begin(), entries.end());
  return entries;
}

std::vector<std::string> Compiled::graph_breaks() const {
  std::lock_guard<std::mutex> lock(notes_mutex_);
  return graph_breaks_;
}

std::vector<std::vector<InputShape>> Compiled::shapes_in_use() const {
  std::vector<std::vector<InputShape>> shapes;
  for (const Entry* entry : entries()) shapes.push_back(entry->shape);
  return shapes;
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
  return names;
}

}  // namespace triage::capture
