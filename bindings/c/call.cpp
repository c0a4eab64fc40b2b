// Calls of policies, and their params.
#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/tensors.h"
#include "bindings/c/thread_context.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <triage/runtime.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triage::c {
namespace {

/// Reports on the call when it ends, also by an exception.
class RunInfoReporter {
 public:
  explicit RunInfoReporter(TriageRunInfo* to) : to_(to) {
    if (to_) check_size(*to_, "options->info");
  }
  RunInfoReporter(const RunInfoReporter&) = delete;
  RunInfoReporter& operator=(const RunInfoReporter&) = delete;
  ~RunInfoReporter() {
    if (!to_ || !begun_) return;
    const RunInfo& info = context.info;
    TriageRunInfo told{};
    told.version = info.version;
    told.answered = static_cast<int32_t>(info.answered);
    told.form = static_cast<int32_t>(info.form);
    copy_hash(told.hash, info.hash);
    told.time_ns = info.time.count();
    told.flagged = info.flagged;
    told.repaired = info.repaired;
    told.failure = info.failure.c_str();
    fill(*to_, told);
  }
  RunInfo* begin() {
    begun_ = true;
    return to_ ? &context.info : nullptr;
  }

 private:
  TriageRunInfo* to_;
  bool begun_ = false;
};

ParamValue value_of(const TriageParam& param, at::Tensor tensor) {
  switch (param.kind) {
    case TRIAGE_PARAM_NUMBER:
      return param.number;
    case TRIAGE_PARAM_INTEGER:
      return param.integer;
    case TRIAGE_PARAM_BOOL:
      if (param.integer != 0 && param.integer != 1)
        throw Misuse(fmt::format("param `{}`: `integer` is {}, but the kind is TRIAGE_PARAM_BOOL; pass 0 or 1",
                                 param.name, param.integer));
      return param.integer == 1;
    case TRIAGE_PARAM_NUMBERS: {
      const auto [first, end] = range(param.numbers, param.count, "numbers");
      return std::vector<double>(first, end);
    }
    case TRIAGE_PARAM_INTEGERS: {
      const auto [first, end] = range(param.integers, param.count, "integers");
      return std::vector<int64_t>(first, end);
    }
    case TRIAGE_PARAM_TENSOR:
      return tensor;
    default:
      throw Misuse(
          fmt::format("param `{}`: `kind` is {}; pass one of TRIAGE_PARAM_NUMBER (0) to TRIAGE_PARAM_TENSOR (5)",
                      param.name, param.kind));
  }
}

/// Params of the host; their tensors are taken over at once.
class TakenParams {
 public:
  TakenParams(const TriageParam* params, size_t count) : params_(params), count_(params ? count : 0) {
    for (size_t i = 0; i < count_; ++i)
      if (params[i].kind == TRIAGE_PARAM_TENSOR) taken_.add(params[i].tensor);
  }
  Params values() {
    Params values;
    auto tensor = taken_.tensors().begin();
    for (const TriageParam *param = params_, *end = params_ + count_; param != end; ++param) {
      std::string name(text(param->name, "name of a param"));
      const bool is_tensor = param->kind == TRIAGE_PARAM_TENSOR;
      values.emplace_back(std::move(name), value_of(*param, is_tensor ? *tensor++ : at::Tensor()));
    }
    return values;
  }
  /// As ReceivedTensors: a policy that keeps a borrowed tensor gets a copy.
  void give_back() { taken_.give_back(); }

 private:
  const TriageParam* params_;
  size_t count_;
  ReceivedTensors taken_{"tensor of a param"};
};

/// Work on the stream of the host, if it names one.
void use_stream(void* stream, at::ArrayRef<at::Tensor> inputs, c10::OptionalStreamGuard& guard) {
  if (!stream) return;
  const auto* on_device =
      std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& input) { return input.is_cuda(); });
  if (on_device == inputs.end()) throw Misuse("`options->stream` is set, but no input is on a CUDA device; pass null");
  const at::Device device = on_device->device();
  // The handle of a stream is the id that c10::cuda::getStreamFromExternal gives it; that function is in a library that
  // only a LibTorch with CUDA has. 1 is cudaStreamLegacy, the default stream.
  const auto id = reinterpret_cast<c10::StreamId>(stream);
  guard.reset_stream(id == 1 ? c10::Stream(c10::Stream::DEFAULT, device)
                             : c10::Stream(c10::Stream::UNSAFE, device, id));
}

/// Nothing for 0, and for what is beyond the end of the clock.
std::optional<std::chrono::steady_clock::time_point> deadline_in(std::chrono::nanoseconds timeout) {
  const auto now = std::chrono::steady_clock::now();
  if (timeout.count() == 0 || timeout > std::chrono::steady_clock::time_point::max() - now) return std::nullopt;
  return now + timeout;
}

/// The options of one call, and the report on it.
class CApiCall {
 public:
  explicit CApiCall(const TriageRunOptions* options)
      : given_(options_of(options, "options")), params_(given_.params, given_.param_count), report_(given_.info) {}
  CApiCall(const CApiCall&) = delete;
  CApiCall& operator=(const CApiCall&) = delete;
  ~CApiCall() { context.stream = outer_stream_; }

  /// Calls `run(tensors, options)` with what the host passed as C++ takes it; then the memory of the host is its own
  /// again.
  template <class Run>
  auto with(ReceivedTensors& inputs, const Run& run) {
    try {
      auto results = call(inputs.tensors(), run);
      give_back(inputs);
      return results;
    } catch (...) {
      give_back(inputs);
      throw;
    }
  }

 private:
  template <class Run>
  auto call(at::ArrayRef<at::Tensor> tensors, const Run& run) {
    RunOptions options = options_for_cpp();
    const at::NoGradGuard no_grad;  // nothing here can ask for a gradient
    use_stream(given_.stream, tensors, on_stream_);
    context.stream = given_.stream;
    options.info = report_.begin();
    return run(tensors, options);
  }
  void give_back(ReceivedTensors& inputs) {
    inputs.give_back();
    params_.give_back();
  }
  RunOptions options_for_cpp() {
    RunOptions options;
    range(given_.params, given_.param_count, "options->params");
    if (given_.param_count > 0) options.params = params_.values();
    const auto [donate, donate_end] = range(given_.donate, given_.donate_count, "options->donate");
    options.donate.assign(donate, donate_end);
    if (given_.timeout_ns < 0)
      throw Misuse(fmt::format("`options->timeout_ns` is {}; pass 0 (never) or more", given_.timeout_ns));
    options.deadline = deadline_in(std::chrono::nanoseconds(given_.timeout_ns));
    if (const int32_t on_error = choice(given_.on_error, 4, "options->on_error"))
      options.on_error = static_cast<OnError>(on_error - 1);
    options.decision_id = text_or(given_.decision_id, "");
    options.trace_id = text_or(given_.trace_id, "");
    options.state_key = text_or(given_.state_key, "");
    const auto [ids, ids_end] = range(given_.sample_ids, given_.sample_id_count, "options->sample_ids");
    for (auto id = ids; id != ids_end; ++id) sample_ids_.emplace_back(text(*id, "options->sample_ids[i]"));
    options.sample_ids = sample_ids_;
    return options;
  }

  TriageRunOptions given_;
  TakenParams params_;
  std::vector<std::string> sample_ids_;
  RunInfoReporter report_;
  c10::OptionalStreamGuard on_stream_;   // until all that reads the inputs is enqueued
  void* outer_stream_ = context.stream;  // of the call that a callback, which makes this one, belongs to
};

ReceivedTensors taken(DLManagedTensor* const* inputs, size_t count) {
  ReceivedTensors taken("input");
  if (inputs)
    for (size_t i = 0; i < count; ++i) taken.add(inputs[i]);
  return taken;
}

/// Sets outputs[i] to tensors[i]: all of them, or none if it throws.
void give_all(std::vector<at::Tensor>& tensors, DLManagedTensor** outputs) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    try {
      outputs[i] = give(std::move(tensors[i]), "output", i);
    } catch (...) {
      while (i-- > 0) {
        outputs[i]->deleter(outputs[i]);
        outputs[i] = nullptr;
      }
      throw;
    }
  }
}

}  // namespace

TriageStatus run(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                 const TriageRunOptions* options, DLManagedTensor** outputs, size_t* output_count) {
  return guarded("run", [&] {
    ReceivedTensors tensors = taken(inputs, input_count);
    size_t& count =
        required(output_count, "output_count", "the address of the number of outputs that there is room for");
    const size_t room = std::exchange(count, 0);
    if (room > 0) std::fill_n(&required(outputs, "outputs", "an array, or 0 as its room"), room, nullptr);
    CApiCall call(options);
    const HandleUse callee(policy);
    range(inputs, input_count, "inputs");
    std::vector<at::Tensor> results = call.with(
        tensors, [&](at::ArrayRef<at::Tensor> batch, const RunOptions& given) { return callee->run(batch, given); });
    if (results.size() > room) {
      count = results.size();
      throw Misuse(fmt::format("policy {} returns {} outputs, but `outputs` has room for {}; make room for all of them",
                               callee->name(), count, room));
    }
    give_all(results, outputs);
    count = results.size();
  });
}

TriageStatus run_named(TriagePolicy* policy, const TriageNamedTensor* inputs, size_t input_count,
                       const TriageRunOptions* options, TriageNamedTensor* outputs, size_t output_count) {
  return guarded("run_named", [&] {
    ReceivedTensors tensors("input");
    for (size_t i = 0; inputs && i < input_count; ++i) tensors.add(inputs[i].tensor);
    range(outputs, output_count, "outputs");
    for (size_t i = 0; i < output_count; ++i) outputs[i].tensor = nullptr;
    CApiCall call(options);
    const HandleUse callee(policy);
    range(inputs, input_count, "inputs");
    const Outputs results = call.with(tensors, [&](at::ArrayRef<at::Tensor> batch, const RunOptions& given) {
      Policy::NamedTensors named;
      for (size_t i = 0; i < batch.size(); ++i) named.emplace_back(text(inputs[i].name, "inputs[i].name"), batch[i]);
      return callee->run_named(named, given);
    });
    std::vector<at::Tensor> wanted;
    for (size_t i = 0; i < output_count; ++i) wanted.push_back(results[text(outputs[i].name, "outputs[i].name")]);
    std::vector<DLManagedTensor*> given(output_count);
    give_all(wanted, given.data());
    for (size_t i = 0; i < output_count; ++i) outputs[i].tensor = given[i];
  });
}

TriageStatus prepare(TriagePolicy* policy, DLManagedTensor* const* inputs, size_t input_count,
                     const TriageRunOptions* options) {
  return guarded("prepare", [&] {
    ReceivedTensors tensors = taken(inputs, input_count);
    CApiCall call(options);
    const HandleUse callee(policy);
    range(inputs, input_count, "inputs");
    call.with(tensors, [&](at::ArrayRef<at::Tensor> batch, const RunOptions& given) {
      callee->prepare(batch, given);
      return true;
    });
  });
}

TriageStatus set_param(TriagePolicy* policy, const TriageParam* param) {
  return guarded("set_param", [&] {
    TakenParams params(param, 1);
    const HandleUse changed(policy);
    required(param, "param", "a TriageParam");
    for (auto& [name, value] : params.values()) changed->set_param(name, std::move(value));
    params.give_back();
  });
}

TriageStatus manual_seed(TriagePolicy* policy, uint64_t seed) {
  return guarded("manual_seed", [&] { HandleUse(policy)->manual_seed(seed); });
}

}  // namespace triage::c
