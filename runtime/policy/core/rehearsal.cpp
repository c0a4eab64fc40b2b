#include "runtime/policy/core/rehearsal.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/state/state_of_call.h"
#include "runtime/policy/trials/output_types.h"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <map>

namespace triage::policy {
namespace {

using capture::SyntheticValues;
using Clock = std::chrono::steady_clock;

/// What synthetic inputs of sizes that no host sent may take together, and still be made without a second thought.
constexpr double moderate_bytes = 64 << 20, most_declared_bytes = 256 << 20;

struct Rehearsed {
  std::optional<Form> form;  // nothing: the script failed
  std::string why;           // ... saying this
  bool doubtful = false;     // ... which other values might not bring about
  bool misfits = false;      // ... for it does not give what it declares
  std::exception_ptr error;
  std::chrono::nanoseconds time{};
};

double bytes_of(const Kind& kind) {
  double bytes = 0;
  for (const auto& shape : kind) bytes += operators::logical_bytes(shape.sizes, shape.dtype);
  return bytes;
}

/// The first input that is of another type than declared.
std::optional<ValidationFailure> misfit(const std::string& policy, const Signature& signature,
                                        at::ArrayRef<at::Tensor> inputs) {
  TensorMatcher matcher(policy);
  for (size_t i = 0; i < signature.input_types.size() && i < inputs.size(); ++i)
    if (const auto& type = signature.input_types[i])
      if (auto failure = matcher.match(inputs[i], *type, {Subject::Role::input, signature.inputs[i]})) return failure;
  return std::nullopt;
}

bool fits(const Signature& signature, at::ArrayRef<at::Tensor> inputs) { return !misfit("", signature, inputs); }

/// Whether it takes all inputs that fit the types it declares.
bool has_typed_inputs(const Signature& signature) {
  const auto& types = signature.input_types;
  return types.size() == signature.inputs.size() &&
         std::all_of(types.begin(), types.end(), [](const auto& type) { return type.has_value(); });
}

/// One plain run. Budgets that run out are thrown; whatever else fails is told.
Rehearsed run_once(Script& script, at::ArrayRef<at::Tensor> inputs, const Params& params) {
  Rehearsed answer;
  const c10::InferenceMode outside(false);
  const capture::NotCaptured plain(/*nested=*/true);
  const capture::ProtectInputs protect(inputs);
  const capture::SyntheticInputs synthetic;
  try {
    const auto begin = Clock::now();
    const std::vector<at::Tensor> outputs = call_alone(script, inputs, param_tensors(script.signature(), params));
    answer.time = Clock::now() - begin;
    if (synthetic.stopped()) {  // and the script went on
      answer.doubtful = true;
      answer.why = "a function of the host would be called";
      return answer;
    }
    answer.form = form_of(outputs, script.flags_outputs());
    if (const auto failure = output_failure(script.signature(), inputs, outputs)) {
      answer.misfits = true;
      throw PolicyError(*failure, script.definition().where);
    }
  } catch (const LimitError&) {
    throw;
  } catch (const std::exception& error) {
    answer.form.reset();
    answer.why = messages::message_without_backtrace(error);
    answer.doubtful = synthetic.stopped() || synthetic.values_refused();
    answer.error = std::current_exception();
  }
  return answer;
}

/// The same kind with another size of the batch, which is the first dimension of the first input and of all that have
/// the same; nothing where there is none, or one row is so large that more of them are too much.
std::optional<Kind> with_batch(Kind kind, int64_t rows) {
  const auto has_rows = [](const auto& shape) { return !shape.sizes.empty(); };
  const auto first = std::find_if(kind.begin(), kind.end(), has_rows);
  if (first == kind.end()) return std::nullopt;
  const int64_t batch = first->sizes[0];
  if (batch == rows) return std::nullopt;
  const double most = std::max(bytes_of(kind), moderate_bytes);
  for (auto& shape : kind)
    if (has_rows(shape) && shape.sizes[0] == batch) shape.sizes[0] = rows;
  if (bytes_of(kind) > most) return std::nullopt;
  return kind;
}

class Rehearsal {
 public:
  Rehearsal(Script& before, Script& next, const PolicyVersion& live, const Params& params, const Limits& limits)
      : before_(before),
        next_(next),
        live_(live),
        params_(params),
        limits_(limits),
        declared_(declared_alike(live.signature, next.signature())),
        known_(known_of(live)) {}

  Trial::TrialBaseline run(const std::vector<Kind>& kinds) {
    for (const Kind& kind : kinds) try_kind(kind);
    return std::move(known_);
  }

 private:
  void try_kind(const Kind& kind) {
    Rehearsed old, now;
    SyntheticValues chosen = SyntheticValues::ones;
    for (const SyntheticValues values : {SyntheticValues::ones, SyntheticValues::zeros, SyntheticValues::identity}) {
      const auto inputs = inputs_of(kind, values);
      old = answer_before(inputs);
      now = answer_of_next(inputs);
      chosen = values;
      if (now.form || (!now.doubtful && old.form)) break;
    }
    if (!now.form) {
      if (!now.doubtful && old.form) refuse_failure(now);
      if (known_.untried.empty()) known_.reason = now.why;
      known_.untried.push_back(kind);
      return;
    }
    if (old.form) {
      note_time(kind, chosen, old.time);
      try_values(kind, *old.form);
      compare(*old.form, *now.form, kind);
      known_.forms.emplace_back(kind, *old.form);
    }
    for (const int64_t rows : {1, 2, 3, 33}) try_batch(kind, chosen, rows);
  }

  /// Sound and bad rows. What fails on them tells nothing: who knows whether such are ever sent.
  void try_values(const Kind& kind, const Form& usual) {
    const auto inputs = inputs_of(kind, SyntheticValues::mixed);
    const Rehearsed old = answer_before(inputs);
    if (old.form) add_open_sizes(known_.open, usual, *old.form);
    const Rehearsed now = answer_of_next(inputs);
    if (old.form && now.form) compare(*old.form, *now.form, kind);
  }

  void try_batch(const Kind& kind, SyntheticValues values, int64_t rows) {
    const auto other = with_batch(kind, rows);
    if (!other) return;
    const auto inputs = inputs_of(*other, values);
    if (!fits(live_.signature, inputs) || !fits(next_.signature(), inputs)) return;
    const Rehearsed old = answer_before(inputs);
    if (!old.form) return;
    const Rehearsed now =
        has_typed_inputs(next_.signature()) ? answer_of_next(inputs) : run_once(next_, inputs, params_);
    if (now.form) compare(*old.form, *now.form, *other);
  }

  /// What it declares of its outputs it must keep, whatever the version before does.
  Rehearsed answer_of_next(at::ArrayRef<at::Tensor> inputs) {
    Rehearsed answer = run_once(next_, inputs, params_);
    if (answer.misfits && !answer.doubtful) refuse_failure(answer);
    return answer;
  }

  Rehearsed answer_before(at::ArrayRef<at::Tensor> inputs) {
    try {
      return run_once(before_, inputs, params_);
    } catch (const LimitError&) {
      return {};
    }
  }

  /// A graph is quicker than its script, and is what answers.
  void note_time(const Kind& kind, SyntheticValues values, std::chrono::nanoseconds of_script) {
    std::vector<at::Tensor> all = inputs_of(kind, values), outputs;
    for (at::Tensor& value : with_first_state(live_.signature, all, param_tensors(live_.signature, params_)))
      all.push_back(std::move(value));
    auto time = of_script;
    const OnSyntheticValues held(live_, limits_);
    const auto begin = Clock::now();
    try {
      if (live_.compiled.run_graph(all, outputs)) time = Clock::now() - begin;
    } catch (const std::exception&) {  // on values that nobody sent
    }
    known_.time_before = std::max(known_.time_before.value_or(time), time);
  }

  void compare(const Form& old, const Form& now, const Kind& kind) const {
    const std::string change = difference(old, now, known_.open, live_.signature.outputs, declared_);
    if (change.empty()) return;
    throw_contract(next_.definition().where, live_, change + fmt::format(" for inputs of sizes {}", sizes_text(kind)));
  }

  [[noreturn]] void refuse_failure(const Rehearsed& answer) const {
    try {
      std::rethrow_exception(answer.error);
    } catch (const Error& error) {
      const Source where = error.source().file.empty() ? next_.definition().where : error.source();
      throw LoadError(error.what(), where, error.traceback());
    } catch (const std::exception& error) {
      throw LoadError(messages::message_without_backtrace(error), next_.definition().where);
    }
  }

  Script& before_;
  Script& next_;
  const PolicyVersion& live_;
  const Params& params_;
  const Limits& limits_;
  const std::vector<bool> declared_;
  Trial::TrialBaseline known_;
};

/// Inputs of the declared types; nothing where those leave open what to make.
std::optional<Kind> kind_of_types(const Signature& signature) {
  constexpr int64_t batch = 4;
  if (signature.input_types.size() != signature.inputs.size()) return std::nullopt;
  std::map<std::string, int64_t> sizes;
  Kind inputs;
  for (const auto& type : signature.input_types) {
    if (!type || type->flags || type->kind == DTypeKind::any) return std::nullopt;
    const at::ScalarType dtype = type->kind == DTypeKind::floating  ? at::kFloat
                                 : type->kind == DTypeKind::integer ? at::kLong
                                                                    : type->dtype;
    capture::InputShape shape{{}, dtype, type->device.value_or(at::kCPU), type->requires_grad.value_or(false)};
    for (const Dim& dim : type->dims) {
      if (dim.kind == Dim::Kind::size)
        shape.sizes.push_back(dim.value);
      else if (dim.kind == Dim::Kind::name)
        shape.sizes.push_back(sizes.emplace(dim.name, batch + static_cast<int64_t>(sizes.size())).first->second);
      else
        return std::nullopt;
    }
    inputs.push_back(std::move(shape));
  }
  return inputs;
}

}  // namespace

OnSyntheticValues::OnSyntheticValues(const PolicyVersion& version, const Limits& limits)
    : graphs_(version.held_to()), deadline_(Deadline::in(limits.seconds)) {}

std::vector<at::Tensor> inputs_of(const Kind& kind, SyntheticValues values) {
  std::vector<at::Tensor> inputs;
  for (const auto& shape : kind) inputs.push_back(capture::synthetic(shape, values));
  return inputs;
}

std::string sizes_text(const Kind& kind) {
  std::vector<std::string> inputs;
  for (const auto& shape : kind) inputs.push_back(fmt::format("[{}]", fmt::join(shape.sizes, ", ")));
  return fmt::format("{}", fmt::join(inputs, ", "));
}

bool run_alone(Script& script, at::ArrayRef<at::Tensor> inputs, const Params& params) {
  return run_once(script, inputs, params).form.has_value();
}

Trial::TrialBaseline known_of(const PolicyVersion& live) {
  constexpr size_t most_shown = 32;
  Trial::TrialBaseline known;
  known.shown = live.compiled.answered_by_script();
  for (auto& earlier : live.trial.shown()) {  // where it has not been called yet
    const auto same = [&](const auto& one) { return one.inputs == earlier.inputs; };
    if (std::none_of(known.shown.begin(), known.shown.end(), same) && known.shown.size() < most_shown)
      known.shown.push_back(std::move(earlier));
  }
  return known;
}

Trial::TrialBaseline rehearse(Script& before, Script& next, const PolicyVersion& live, const std::vector<Kind>& kinds,
                              const Params& params, const Limits& limits) {
  return Rehearsal(before, next, live, params, limits).run(kinds);
}

std::optional<std::string> check_declared_outputs(Script& script, const Limits& limits) {
  if (!declares_outputs(script.signature())) return std::nullopt;
  const auto kind = kind_of_types(script.signature());
  if (!kind) return std::nullopt;
  const double most = limits.tensor_bytes ? std::min(static_cast<double>(limits.tensor_bytes), most_declared_bytes)
                                          : most_declared_bytes;
  if (const double bytes = bytes_of(*kind); bytes > most)
    return fmt::format(
        "inputs of the declared sizes take {:.0f} MiB, more than the {:.0f} MiB that synthetic inputs may take",
        bytes / (1 << 20), most / (1 << 20));
  std::vector<at::Tensor> inputs;
  try {
    inputs = inputs_of(*kind, SyntheticValues::ones);
  } catch (const std::exception& error) {  // of a device or a dtype that is not to be had here
    return "inputs of the declared types cannot be made: " + messages::message_without_backtrace(error);
  }
  if (const Rehearsed answer = run_once(script, inputs, {}); answer.misfits)
    throw LoadError(answer.why, script.definition().where);
  return std::nullopt;
}

std::vector<TensorMetadata> outputs_for(const PolicyCore& policy, const std::vector<TensorMetadata>& inputs) {
  const std::shared_ptr<PolicyVersion> live = policy.line().live();
  const Params params = [&] {
    const std::lock_guard lock(policy.line().mutex());
    return policy.line().params();
  }();
  Kind kind;
  for (const TensorMetadata& input : inputs) kind.push_back({input.sizes, input.dtype, input.device, false});
  if (kind.size() != live->signature.inputs.size())
    throw InputError(fmt::format("policy '{}' takes {} inputs ({}), got {}", live->name, live->signature.inputs.size(),
                                 fmt::join(live->signature.inputs, ", "), kind.size()));
  const messages::LogTo log_to(policy.runtime().logger());
  const auto script = policy.runtime().load_script(live->contents, live->path, /*silent=*/true);
  Rehearsed answer;
  for (const SyntheticValues values : {SyntheticValues::ones, SyntheticValues::zeros, SyntheticValues::identity}) {
    const std::vector<at::Tensor> made = inputs_of(kind, values);
    if (auto failure = misfit(live->name, live->signature, made)) throw_validation(*std::move(failure));
    answer = run_once(*script, made, params);
    if (answer.form) break;
  }
  if (!answer.form && answer.error) std::rethrow_exception(answer.error);
  if (!answer.form)
    throw PolicyError(
        fmt::format("policy '{}': what it returns cannot be known without a call: {}", live->name, answer.why),
        live->defined_at);
  OpenSizes open;
  const std::vector<at::Tensor> mixed = inputs_of(kind, SyntheticValues::mixed);
  if (const Rehearsed other = run_once(*script, mixed, params); other.form)
    add_open_sizes(open, *answer.form, *other.form);
  std::vector<TensorMetadata> outputs;
  for (const OutputForm& form : *answer.form) {
    const size_t output = outputs.size();
    outputs.push_back({form.dtype, form.sizes, c10::Device(form.device), form.is_flags});
    for (size_t dim = 0; dim < form.sizes.size(); ++dim)
      if (open.count({output, dim})) outputs.back().sizes[dim] = -1;
  }
  return outputs;
}

}  // namespace triage::policy
