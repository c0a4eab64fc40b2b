#include "tests/fuzz/operators/call.h"

#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/fenced_allocator.h"
#include "tests/fuzz/operators/memory_of_arguments.h"
#include "tests/fuzz/operators/shared_memory.h"

#include <ATen/ATen.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <string>
#include <type_traits>

#include "runtime/compat/autocast.h"

namespace triage::fuzz {
namespace {

constexpr int64_t budget_bytes = 64 << 20;  // of one call: what policies have by default
constexpr int64_t budget_nanoseconds = 1'000'000'000;
constexpr int64_t slack_bytes = 1 << 20;            // scratch of threads, the grid of bytes that allocators give
constexpr int64_t slack_resident = 96 << 20;        // kernels that a library loads or makes on its first call
constexpr int64_t slack_nanoseconds = 300'000'000;  // a first call, a machine that is busy
constexpr int64_t most_compared = 4 << 20;          // elements of results

/// What tells two outcomes of one call apart. Of many elements the first count: comparing may not take longer than the
/// call.
class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const auto* next = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) value_ = (value_ ^ next[i]) * 0x100000001b3ull;
  }
  void add(const std::string& text) { add(text.data(), text.size()); }
  template <typename T, std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>, int> = 0>
  void add(T number) {
    add(&number, sizeof number);
  }

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return add(0);
    add(tensor.scalar_type());
    for (const int64_t size : tensor.sizes()) add(size);
    if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.numel() > elements_left_) return;
    elements_left_ -= tensor.numel();
    const at::Tensor plain = tensor.detach().resolve_conj().resolve_neg().contiguous();
    if (plain.data_ptr()) add(plain.data_ptr(), plain.nbytes());  // a gradient of zeros has no memory
  }

  void add(const c10::IValue& value) {
    if (value.isTensor()) return add(value.toTensor());
    if (value.isDouble()) return add(value.toDouble());
    if (value.isInt()) return add(value.toInt());
    if (value.isBool()) return add(value.toBool());
    if (value.isString()) return add(value.toStringRef());
    if (!value.isList()) return;
    for (const c10::IValue& item : value.toListRef()) add(item);
    add(value.toListRef().size());
  }

  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
  int64_t elements_left_ = most_compared;
};

int64_t resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

void visit_results(const torch::jit::Stack& results, const std::function<void(const at::Tensor&)>& visit) {
  for (const c10::IValue& value : results) {
    if (value.isTensor() && value.toTensor().defined()) visit(value.toTensor());
    if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector())
        if (tensor.defined()) visit(tensor);
  }
}

/// A view that reaches beyond its memory is one of somebody else's.
std::string results_beyond_memory(const torch::jit::Stack& results) {
  std::string fault;
  visit_results(results, [&](const at::Tensor& tensor) {
    if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
      fault = "gives a tensor that is not a CPU tensor with strides";
      return;
    }
    if (tensor.numel() == 0) return;
    __int128 last = tensor.storage_offset();
    for (int64_t i = 0; i < tensor.dim(); ++i) last += static_cast<__int128>(tensor.size(i) - 1) * tensor.stride(i);
    if ((last + 1) * static_cast<__int128>(tensor.element_size()) > static_cast<__int128>(tensor.storage().nbytes()))
      fault = "stray memory: a result reaches beyond its storage";
  });
  return fault;
}

/// A few calls ask for gradients, of some of their inputs.
bool ask_for_gradients(const c10::FunctionSchema& schema, torch::jit::Stack& arguments, Random& random) {
  if (!random.percent(8)) return false;
  bool any = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined() || argument.alias_info() || random.percent(30))
      continue;
    const at::Tensor tensor = arguments[i].toTensor();
    if (!at::isFloatingType(tensor.scalar_type()) || tensor.unsafeGetTensorImpl()->is_wrapped_number()) continue;
    arguments[i] = tensor.detach().set_requires_grad(true);
    any = true;
  }
  return any;
}

/// Gradients of all that has them, with the results' own values as what comes in.
void run_backward(Digest& digest, const torch::jit::Stack& arguments, const torch::jit::Stack& results) {
  std::vector<at::Tensor> outputs, gradients;
  int64_t left = most_compared;
  visit_results(results, [&](const at::Tensor& tensor) {
    if (!tensor.requires_grad() || !at::isFloatingType(tensor.scalar_type()) || tensor.numel() > left) return;
    left -= tensor.numel();
    outputs.push_back(tensor);
    gradients.push_back(tensor.detach().clone());
  });
  if (outputs.empty()) return;
  torch::autograd::backward(outputs, gradients);
  for (const c10::IValue& value : arguments)
    if (value.isTensor() && value.toTensor().defined()) digest.add(value.toTensor().grad());
}

std::string bytes_text(int64_t bytes) {
  return bytes == std::numeric_limits<int64_t>::max() ? "unbounded" : std::to_string(bytes) + " bytes";
}

/// What the call cost, beside what was promised.
std::string excess(const FencedAllocator& memory, int64_t byte_bound, int64_t resident_growth, uint64_t took,
                   int64_t time_bound) {
  const auto asked = static_cast<int64_t>(std::min<uint64_t>(memory.highest(), INT64_MAX));
  if (asked - slack_bytes > byte_bound)
    return "allocation: asked for " + bytes_text(asked) + ", the contract says at most " + bytes_text(byte_bound);
  if (!sanitized && resident_growth - slack_resident > byte_bound)
    return "allocation: the process grew by " + bytes_text(resident_growth) + ", the contract says at most " +
           bytes_text(byte_bound);
  if (!sanitized && static_cast<int64_t>(took) - slack_nanoseconds > time_bound)
    return "time: took " + std::to_string(took / 1000) + " us, the contract says at most " +
           std::to_string(time_bound / 1000);
  return "";
}

uint64_t hash_of(CallId id, int64_t attempt) {
  return Random(id.seed ^ Random(static_cast<uint64_t>(id.index) * 64 + static_cast<uint64_t>(attempt)).next()).next();
}

/// Some calls of operators that autocast knows are made, and checked, under autocast.
class SomeAutocast {
 public:
  SomeAutocast(const Target& target, CallId id) {
    if (compat::autocast_casts(target.op, c10::kCPU) && Random(hash_of(id, 62)).percent(25))
      compat::set_autocast(c10::kCPU, {true, at::kBFloat16});
  }
  ~SomeAutocast() { at::autocast::clear_cache(); }
  SomeAutocast(const SomeAutocast&) = delete;
  SomeAutocast& operator=(const SomeAutocast&) = delete;

 private:
  compat::RestoreAutocast restore_;
};

}  // namespace

uint64_t cpu_nanoseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

torch::jit::Stack arguments_of(const Target& target, CallId id, std::optional<std::string>& violation) {
  const SomeAutocast autocast(target, id);
  constexpr int64_t attempts = 8;
  torch::jit::Stack arguments;
  const int64_t tries = id.index % 5 == 0 ? 1 : attempts;
  for (int64_t i = 0; i < tries; ++i) {
    Random random(hash_of(id, i));
    const Reach reach = random.percent(8) ? Reach::vast : Reach::ordinary;
    arguments = make_arguments(target.op.schema(), random, reach);
    violation = target.violation(arguments);
    if (!violation) break;
  }
  return arguments;
}

CallResult make_call(const Target& target, CallId id) {
  const SomeAutocast autocast(target, id);
  CallResult result;
  std::optional<std::string> violation;
  torch::jit::Stack arguments = arguments_of(target, id, violation);
  if (violation) {
    result.outcome = Outcome::outside;
    result.text = *violation;
    if (violation->empty()) result.fault = "a violation without words";
    return result;
  }
  const int64_t byte_bound = target.allocation_bound(arguments), time_bound = target.time_bound(arguments);
  if (byte_bound > budget_bytes || time_bound > budget_nanoseconds)
    return result.outcome = Outcome::beyond_budget, result;

  Random random(hash_of(id, 63));
  const bool gradients = ask_for_gradients(target.op.schema(), arguments, random);
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(id.seed + static_cast<uint64_t>(id.index));
  FencedAllocator& memory = FencedAllocator::install();
  const MemoryOfArguments before(target.op.schema(), arguments);
  torch::jit::Stack stack = arguments;
  const int64_t resident = resident_bytes();
  memory.begin();
  const uint64_t start = cpu_nanoseconds(CLOCK_THREAD_CPUTIME_ID);
  try {
    target.op.callBoxed(stack);
    result.outcome = Outcome::succeeded;
  } catch (const c10::Error& error) {
    result.outcome = Outcome::threw;
    result.text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    result.outcome = Outcome::threw;
    result.text = error.what();
  } catch (...) {
    result.outcome = Outcome::threw;
    result.fault = "threw something that is no std::exception";
  }
  result.nanoseconds = cpu_nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start;
  if (result.fault.empty())
    result.fault = excess(memory, byte_bound, resident_bytes() - resident, result.nanoseconds, time_bound);
  Digest digest;
  digest.add(result.outcome);
  digest.add(result.text);
  if (result.outcome == Outcome::succeeded) {
    if (result.fault.empty()) result.fault = results_beyond_memory(stack);
    if (result.fault.empty()) result.fault = untold_sharing(target.op, arguments, stack);
    if (result.fault.empty())
      for (const c10::IValue& value : stack) digest.add(value);
  }
  if (result.fault.empty()) result.fault = before.undeclared_change();
  if (gradients && result.outcome == Outcome::succeeded && result.fault.empty()) {
    try {
      run_backward(digest, arguments, stack);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      digest.add(text.substr(0, text.find('\n')));
    }
  }
  result.digest = digest.value();
  stack.clear();
  arguments.clear();
  if (result.fault.empty() && memory.damaged())
    result.fault = "stray write: bytes beside a block of memory were changed";
  return result;
}

}  // namespace triage::fuzz
