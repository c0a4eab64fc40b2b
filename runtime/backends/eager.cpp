#include "runtime/backends/eager.h"

#include <ATen/core/stack.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <optional>
#include <unordered_set>

#include "runtime/backends/deadline.h"
#include "runtime/backends/output_aliases.h"
#include "runtime/backends/plan.h"
#include "runtime/backends/thread_memory.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/profiling/profiler_spans.h"
#include "runtime/operators/untrusted.h"

// The ATen interpreter. An Executable is immutable, so any number of threads run it at once; what a run needs besides
// is kept a thread, and emptied at the end of every run, also when an operator throws.

namespace triage {
namespace {

using eager::ArgumentSlot;
using eager::EagerPlan;
using eager::PlanOutput;
using eager::PlanStep;
using eager::Register;

/// Lends this thread's workspace for one run. A run inside a run (an operator that runs a graph) gets one of its own.
class Lease {
 public:
  explicit Lease(size_t num_registers) : space_(shared().busy ? own_ : shared()) {
    space_.busy = true;
    space_.registers.resize(num_registers);
  }
  ~Lease() {
    space_.stack.clear();
    space_.registers.clear();
    space_.busy = false;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Workspace& operator*() { return space_; }

 private:
  static Workspace& shared() { return thread_memory.interpreter; }
  Workspace own_;
  Workspace& space_;
};

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

/// Bytes of the results that a run holds at once, bounded where the graph is not trusted.
class ResultBytes {
 public:
  explicit ResultBytes(const operators::Untrusted::Terms* terms) : most_(terms ? terms->bytes : 0) {}

  /// Whether `registers`, of which those from `first` on are new, hold no more than they may besides the memory of the
  /// inputs. What has died since is only looked for when all that was made would be too much.
  bool fits(const std::vector<c10::IValue>& registers, size_t first, size_t count, at::ArrayRef<at::Tensor> inputs) {
    if (most_ <= 0) return true;
    for (size_t i = first; i < first + count; ++i)
      if (registers[i].isTensor() && registers[i].toTensor().defined())
        bytes_ += static_cast<int64_t>(registers[i].toTensor().nbytes());
    if (bytes_ > most_) bytes_ = alive(registers, inputs);
    return bytes_ <= most_;
  }

 private:
  static int64_t alive(const std::vector<c10::IValue>& registers, at::ArrayRef<at::Tensor> inputs) {
    std::unordered_set<const c10::StorageImpl*> seen;
    for (const at::Tensor& input : inputs) seen.insert(storage_of(input));
    int64_t bytes = 0;
    for (const c10::IValue& value : registers) {
      if (!value.isTensor() || !value.toTensor().defined()) continue;
      const c10::StorageImpl* const storage = storage_of(value.toTensor());
      if (storage && seen.insert(storage).second) bytes += static_cast<int64_t>(storage->nbytes());
    }
    return bytes;
  }

  const int64_t most_;
  int64_t bytes_ = 0;
};

class EagerExecutable final : public Executable {
 public:
  EagerExecutable(EagerPlan plan, bool separates, bool knows_rows)
      : plan_(std::move(plan)), separates_(separates), knows_rows_(knows_rows) {}

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    if (inputs.size() != plan_.num_inputs)
      throw InputError(fmt::format("graph `{}` takes {} inputs, got {}", plan_.name, plan_.num_inputs, inputs.size()));
    outputs.reserve(plan_.outputs.size());
    if (plan_.steps.empty()) {
      for (const PlanOutput& output : plan_.outputs) outputs.push_back(passed_through(output, inputs));
      return;
    }
    std::optional<flags::KnownRows> rows;
    if (knows_rows_) rows.emplace(flags::KnownRows::Writes::none);
    Lease lease(plan_.num_registers - plan_.num_inputs);
    run_steps(inputs, *lease, call.deadline);
    for (const PlanOutput& output : plan_.outputs)
      outputs.push_back(output.from == PlanOutput::From::result ? result(output, inputs, (*lease).registers)
                                                                : passed_through(output, inputs));
  }

  size_t spared_calls() const override { return 0; }
  size_t bytes() const override { return sizeof(*this) + eager::bytes(plan_); }

 private:
  void run_steps(at::ArrayRef<at::Tensor> inputs, Workspace& space,
                 const std::optional<Deadline::Moment>& deadline) const {
    const PlanStep* step = plan_.steps.data();
    const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
    ResultBytes bytes(terms);
    try {
      for (const PlanStep* end = step + plan_.steps.size(); step != end; ++step) {
        if (deadline) check(*deadline, *step);
        const messages::ProfilerSpan span([&] { return "node " + place(origin_of(*step)) + origin_of(*step).text; });
        for (uint32_t i = 0; i < step->num_slots; ++i) push(plan_.slots[step->first_slot + i], inputs, space);
        if (terms && asks(*step, space.stack, *terms)) hold(*step, space.stack, *terms, deadline);
        step->op.callBoxed(&space.stack);
        store(*step, space);
        if (terms && !bytes.fits(space.registers, step->first_result - plan_.num_inputs, step->num_results, inputs))
          refuse_memory(*step, terms->bytes);
      }
    } catch (const LimitError&) {
      throw;
    } catch (const Error& error) {
      if (!error.source().file.empty()) throw;  // says already where
      rethrow(*step, error.what());
    } catch (const c10::Error& error) {
      rethrow(*step, messages::message_of(error));
    } catch (const std::exception& error) {
      rethrow(*step, error.what());
    }
  }

  void check(Deadline::Moment deadline, const PlanStep& next) const {
    if (std::chrono::steady_clock::now() < deadline) return;
    const auto& origin = origin_of(next);
    const std::string before = fmt::format("`{}` in graph `{}` ran", origin.text, plan_.name);
    throw LimitError(place(origin) + out_of_time(before), origin.source);
  }

  static bool asks(const PlanStep& step, const torch::jit::Stack& stack, const operators::Untrusted::Terms& terms) {
    using operators::AskedAgain;
    if (!step.contract) return false;
    return !terms.captured || step.asked == AskedAgain::always ||
           (step.asked == AskedAgain::where_large && operators::may_be_large(stack, terms.bytes));
  }

  [[noreturn]] void refuse_memory(const PlanStep& step, int64_t most) const {
    const auto& origin = origin_of(step);
    throw LimitError(fmt::format("{}the live results of graph `{}` at `{}` exceed the budget of tensor memory ({} "
                                 "MiB); compute less at a time, or have the host raise triage::Limits",
                                 place(origin), plan_.name, origin.text, most >> 20),
                     origin.source);
  }

  /// What is not trusted calls no operator out of its contract, whatever came in.
  static void hold(const PlanStep& step, const torch::jit::Stack& stack, const operators::Untrusted::Terms& terms,
                   const std::optional<Deadline::Moment>& deadline) {
    if (const auto wrong = operators::refusal(*step.contract, step.op.schema(), stack, terms, deadline))
      throw InputError(*wrong);
  }

  const eager::StepOrigin& origin_of(const PlanStep& step) const {
    return plan_.origins[static_cast<size_t>(&step - plan_.steps.data())];
  }

  static std::string place(const eager::StepOrigin& origin) {
    return origin.source.file.empty() ? "" : fmt::format("{}:{}: ", origin.source.file, origin.source.line);
  }

  const at::Tensor& tensor_at(Register index, at::ArrayRef<at::Tensor> inputs, const Workspace& space) const {
    return index < plan_.num_inputs ? inputs[index] : space.registers[index - plan_.num_inputs].toTensor();
  }

  void push(const ArgumentSlot& slot, at::ArrayRef<at::Tensor> inputs, Workspace& space) const {
    switch (slot.from) {
      case ArgumentSlot::From::constant:
        space.stack.push_back(plan_.constants[slot.index]);
        break;
      case ArgumentSlot::From::list:
        space.stack.emplace_back(list_of(plan_.lists[slot.index], inputs, space));
        break;
      default:
        space.stack.push_back(value_of(slot, inputs, space));
        break;
    }
  }

  c10::IValue value_of(const ArgumentSlot& slot, at::ArrayRef<at::Tensor> inputs, Workspace& space) const {
    switch (slot.from) {
      case ArgumentSlot::From::take:
        return std::move(space.registers[slot.index - plan_.num_inputs]);
      case ArgumentSlot::From::read:
        return tensor_at(slot.index, inputs, space);
      case ArgumentSlot::From::number:
        return graph::read_number(tensor_at(slot.index, inputs, space), slot.kind);
      default:
        return plan_.constants[slot.index];
    }
  }

  c10::impl::GenericList list_of(const eager::List& list, at::ArrayRef<at::Tensor> inputs, Workspace& space) const {
    c10::impl::GenericList items(list.element);
    items.reserve(list.items.size());
    for (const ArgumentSlot& item : list.items) items.push_back(value_of(item, inputs, space));
    return items;
  }

  void store(const PlanStep& step, Workspace& space) const {
    c10::IValue* results = space.registers.data() + (step.first_result - plan_.num_inputs);
    if (step.returns_list) {
      store_flattened(step, space.stack, results);
    } else {
      for (uint32_t i = 0; i < step.num_results; ++i) results[i] = std::move(space.stack[i]);
    }
    space.stack.clear();
    for (uint32_t i = 0; i < step.num_unused; ++i)
      space.registers[plan_.unused[step.first_unused + i] - plan_.num_inputs] = c10::IValue();
  }

  static void store_flattened(const PlanStep& step, const torch::jit::Stack& stack, c10::IValue* results) {
    size_t count = 0;
    auto take = [&](const c10::IValue& value) {
      if (count++ < step.num_results) results[count - 1] = value;
    };
    for (const c10::IValue& value : stack) {
      if (!value.isList()) {
        take(value);
      } else {
        for (const c10::IValue& item : value.toListRef()) take(item);
      }
    }
    if (count != step.num_results)
      throw InputError(
          fmt::format("it returned {} tensors, but the graph was captured with {}; the number depends on the sizes of "
                      "the inputs, which must be those of the capture",
                      count, step.num_results));
  }

  at::Tensor passed_through(const PlanOutput& output, at::ArrayRef<at::Tensor> inputs) const {
    if (output.from == PlanOutput::From::input) return inputs[output.index];
    const at::Tensor& constant = plan_.constants[output.index].toTensor();
    return separates_ ? own_copy(constant) : constant;
  }

  at::Tensor result(const PlanOutput& output, at::ArrayRef<at::Tensor> inputs,
                    std::vector<c10::IValue>& registers) const {
    c10::IValue& from = registers[output.index - plan_.num_inputs];
    at::Tensor tensor = output.last ? std::move(from).toTensor() : from.toTensor();
    return separates_ && is_lent(tensor, inputs) ? own_copy(tensor) : tensor;
  }

  /// Schemas do not tell all aliases (`type_as`, `reshape`, `dropout` without training), so memory is compared.
  bool is_lent(const at::Tensor& tensor, at::ArrayRef<at::Tensor> inputs) const {
    return shares_memory(tensor, inputs) || shares_memory(tensor, plan_.tensors);
  }

  [[noreturn]] void rethrow(const PlanStep& step, const std::string& message) const {
    const auto& origin = origin_of(step);
    if (step.op.schema().name() == graph::kAssert && !message.empty())  // it says what was asserted
      throw PolicyError(place(origin) + message, origin.source);
    throw PolicyError(fmt::format("{}`{}` in graph `{}` failed: {}", place(origin), origin.text, plan_.name, message),
                      origin.source);
  }

  EagerPlan plan_;
  bool separates_;   // outputs from inputs and constants
  bool knows_rows_;  // composites may be called
};

/// Whether operations on flags may run as composites, and no call writes to what they made.
bool calls_composites(const graph::Graph& graph) {
  bool any = false;
  for (const auto& node : graph.nodes()) {
    if (graph::writes(node->op)) return false;
    if (node->op.operator_name().name.rfind("triage::", 0) != 0) continue;
    for (const graph::Value* result : node->results) any |= !result->meta || !result->meta->device.is_cpu();
  }
  return any;
}

std::unique_ptr<Executable> interpreter_of(const graph::Graph& graph, bool separates) {
  graph::verify(graph);  // kernels trust their arguments: a wrong constant would be undefined behaviour
  return std::make_unique<EagerExecutable>(eager::plan_of(graph), separates, calls_composites(graph));
}

}  // namespace

std::unique_ptr<Executable> compile_eager(const graph::Graph& graph, const std::vector<at::Tensor>& examples) {
  return interpreter_of(graph, true);
}

bool is_eager(const Backend& backend) {
  const auto* const function = backend.target<decltype(&compile_eager)>();
  return function && *function == &compile_eager;
}

std::unique_ptr<Executable> compile_eager_as_it_is(const graph::Graph& graph) { return interpreter_of(graph, false); }

}  // namespace triage
