#include "bindings/python/values.h"

#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>
#include <triage/config.h>
#include <triage/decisions.h>
#include <triage/flags.h>
#include <triage/typing.h>
#include <triage/version.h>

#include <chrono>
#include <limits>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/messages/printable.h"

namespace triage::python {

using messages::printable;  // Python takes no text that is not UTF-8, and scripts may say anything

Dict empty_dict() {
  return c10::impl::toTypedDict<std::string, c10::IValue>(
      c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get()));
}

namespace {

double seconds_since_epoch(std::chrono::system_clock::time_point when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

Dict place(const Source& source) {
  Dict dict = empty_dict();
  dict.insert("file", printable(source.file));
  dict.insert("line", int64_t{source.line});
  return dict;
}

/// A size, a name, "...", or None for any size.
c10::IValue to_value(const Dim& dim) {
  switch (dim.kind) {
    case Dim::Kind::size:
      return dim.value;
    case Dim::Kind::name:
      return dim.name;
    case Dim::Kind::rest:
      return "...";
    default:
      return {};
  }
}

c10::IValue to_value(const std::optional<TensorSpec>& spec) {
  if (!spec) return {};
  Dict dict = empty_dict();
  dict.insert("text", spec->text());
  dict.insert("flags", spec->flags);
  const bool exact = !spec->flags && spec->kind == DTypeKind::exact;
  dict.insert("dtype", exact ? c10::IValue(static_cast<int64_t>(spec->dtype)) : c10::IValue());
  c10::impl::GenericList dims(c10::AnyType::get());
  for (const Dim& dim : spec->dims) dims.push_back(to_value(dim));
  dict.insert("dims", dims);
  return dict;
}

c10::IValue to_values(const std::vector<std::optional<TensorSpec>>& specs) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& spec : specs) list.push_back(to_value(spec));
  return list;
}

Dict to_dict(const FlagCount& count) {
  Dict dict = empty_dict();
  dict.insert("location", ErrorLocation::name(count.location));
  dict.insert("code", count.code_name);
  dict.insert("severity", severity_name(count.severity));
  dict.insert("count", static_cast<int64_t>(count.count));
  return dict;
}

/// Counts by the names of an enumeration.
template <class Kind, class Count>
Dict by_name(size_t size, Count count) {
  Dict dict = empty_dict();
  for (size_t i = 0; i < size; ++i) {
    const auto kind = static_cast<Kind>(i);
    dict.insert(to_string(kind), static_cast<int64_t>(count(kind)));
  }
  return dict;
}

Dict to_dict(const CallStatistics& calls) {
  Dict dict = empty_dict();
  dict.insert("calls", static_cast<int64_t>(calls.calls()));
  dict.insert("answered", by_name<Answered>(answered_count, [&](Answered by) { return calls.answered(by); }));
  dict.insert("forms", by_name<CallForm>(call_form_count, [&](CallForm of) { return calls.form(of); }));
  dict.insert("failures", by_name<FailureKind>(failure_kind_count, [&](FailureKind kind) {
                return calls.failures[static_cast<size_t>(kind)];
              }));
  dict.insert("seconds", seconds(calls.time));
  dict.insert("latency_p50", seconds(calls.latency_quantile(0.5)));
  dict.insert("latency_p99", seconds(calls.latency_quantile(0.99)));
  dict.insert("samples", static_cast<int64_t>(calls.samples));
  dict.insert("flagged", static_cast<int64_t>(calls.flagged));
  dict.insert("repaired", static_cast<int64_t>(calls.repaired));
  dict.insert("full", static_cast<int64_t>(calls.full));
  Dict violations = empty_dict();
  for (const ViolationCount& count : calls.violations)
    violations.insert(count.output, static_cast<int64_t>(count.samples));
  dict.insert("violations", violations);
  dict.insert("uncounted", static_cast<int64_t>(calls.uncounted));
  c10::impl::GenericList flags(c10::AnyType::get());
  for (const FlagCount& count : calls.flags) flags.push_back(to_dict(count));
  dict.insert("flags", flags);
  dict.insert("recompiles", static_cast<int64_t>(calls.recompiles));
  dict.insert("graph_breaks", static_cast<int64_t>(calls.graph_breaks));
  return dict;
}

c10::IValue to_value(const std::optional<c10::Scalar>& number) { return number ? c10::IValue(*number) : c10::IValue(); }

c10::IValue to_value(const std::optional<LoadFailure>& failure) {
  if (!failure) return {};
  Dict error = place(failure->source);
  error.insert("message", printable(failure->message));
  error.insert("when", seconds_since_epoch(failure->when));
  return error;
}

/// What versions of policies and of bundles have in common.
template <class Version>
Dict standing_of(const Version& version) {
  Dict dict = empty_dict();
  dict.insert("number", int64_t{version.number});
  dict.insert("since", seconds_since_epoch(version.since));
  dict.insert("live", version.live);
  dict.insert("pinned", version.pinned);
  dict.insert("on_trial", version.on_trial);
  dict.insert("taken_back", version.taken_back);
  dict.insert("last_error", to_value(version.last_error));
  return dict;
}

/// What a param allows: min and max may be None, values empty, and help "".
Dict range_of(const Param& param) {
  Dict dict = empty_dict();
  dict.insert("min", to_value(param.min));
  dict.insert("max", to_value(param.max));
  dict.insert("finite", param.finite);
  c10::impl::GenericList values(c10::AnyType::get());
  for (const c10::Scalar& value : param.values) values.push_back(c10::IValue(value));
  dict.insert("values", values);
  dict.insert("help", printable(param.help));
  return dict;
}

[[noreturn]] void wrong_type(const std::string& name, const char* expected, const c10::IValue& value) {
  throw InputError(c10::str("`", name, "` is ", expected, "; got ", value.tagKind(), "."));
}

/// Takes named options out of a dictionary, and then knows which are left.
class OptionsReader {
 public:
  explicit OptionsReader(const Dict& values) : values_(values) {}

  /// A view refers to the text in the dictionary.
  template <class Text, std::enable_if_t<std::is_convertible_v<const std::string&, Text>, int> = 0>
  void take(const char* name, Text& into) {
    if (const auto value = found(name)) {
      if (!value->isString()) wrong_type(name, "a text", *value);
      into = Text(value->toStringRef());
    }
  }
  void take(const char* name, bool& into) {
    if (const auto value = found(name)) {
      if (!value->isBool()) wrong_type(name, "True or False", *value);
      into = value->toBool();
    }
  }
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  void take(const char* name, Integer& into) {
    if (const auto value = found(name)) {
      if (!value->isInt() || value->toInt() < 0) wrong_type(name, "a whole number of 0 or more", *value);
      into = static_cast<Integer>(value->toInt());
    }
  }
  void take(const char* name, double& into) {
    if (const auto value = found(name)) {
      if (!value->isDouble() && !value->isInt()) wrong_type(name, "a number", *value);
      into = value->isInt() ? static_cast<double>(value->toInt()) : value->toDouble();
    }
  }
  void take(const char* name, std::vector<std::string>& into) {
    if (const auto value = found(name)) {
      if (!value->isList()) wrong_type(name, "a list of texts", *value);
      for (const c10::IValue& one : value->toListRef()) {
        if (!one.isString()) wrong_type(name, "a list of texts", one);
        into.push_back(one.toStringRef());
      }
    }
  }
  void take(const char* name, OnError& into) {
    choose(name, {OnError::raise, OnError::pass_through, OnError::last_good}, into);
  }
  void take(const char* name, ReloadGate& into) {
    choose(name, {ReloadGate::warn, ReloadGate::refuse, ReloadGate::shadow}, into);
  }

  void nothing_else(const char* known) const {
    for (const auto& entry : values_) {
      bool taken = false;
      for (const std::string& name : taken_) taken = taken || entry.key() == name;
      if (taken) continue;
      if (const std::string gone = text_if_gone(entry.key()); !gone.empty()) throw InputError(gone);
      throw InputError(c10::str("There is no option `", entry.key(), "`. There are: ", known, "."));
    }
  }

 private:
  template <class Choice>
  void choose(const char* name, const std::array<Choice, 3>& choices, Choice& into) {
    std::string text = to_string(into);
    take(name, text);
    for (const Choice each : choices) {
      if (text == to_string(each)) {
        into = each;
        return;
      }
    }
    throw InputError(c10::str("`", name, "` is \"", to_string(choices[0]), "\", \"", to_string(choices[1]), "\" or \"",
                              to_string(choices[2]), "\"; got \"", text, "\"."));
  }
  std::optional<c10::IValue> found(const char* name) {
    taken_.emplace_back(name);
    const auto entry = values_.find(name);
    if (entry == values_.end()) return {};
    return entry->value();
  }

  const Dict& values_;
  std::vector<std::string> taken_;
};

template <class Class>
bool is(const std::exception& error) {
  return dynamic_cast<const Class*>(&error) != nullptr;
}

const char* class_name(const std::exception& error) {
  if (is<LoadError>(error)) return "LoadError";
  if (is<PolicyError>(error)) return "PolicyError";
  if (is<ValidationError>(error)) return "ValidationError";
  if (is<InputError>(error)) return "InputError";
  if (is<GraphBreakError>(error)) return "GraphBreakError";
  if (is<LimitError>(error)) return "LimitError";
  if (is<FileError>(error)) return "FileError";
  if (is<ConfigError>(error)) return "ConfigError";
  return "Error";
}

}  // namespace

Dict to_dict(const Signature& signature) {
  Dict dict = empty_dict();
  dict.insert("inputs", signature.inputs);
  dict.insert("outputs", signature.outputs);
  Dict params = empty_dict();
  for (const Param& param : signature.params) params.insert(param.name, param.value);
  dict.insert("params", params);
  Dict ranges = empty_dict();
  for (const Param& param : signature.params) ranges.insert(param.name, range_of(param));
  dict.insert("param_ranges", ranges);
  dict.insert("input_types", to_values(signature.input_types));
  dict.insert("output_types", to_values(signature.output_types));
  Dict output_ranges = empty_dict();
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) output_ranges.insert(signature.outputs[i], signature.output_ranges[i]->text());
  dict.insert("output_ranges", output_ranges);
  std::vector<std::string> state;
  for (const StateSpec& spec : signature.state) state.push_back(spec.name);
  dict.insert("state", state);
  Dict codes = empty_dict();
  for (const CodeName& one : signature.codes) codes.insert(one.name, to_int(one.code));
  dict.insert("codes", codes);
  return dict;
}

Dict to_dict(const VersionInfo& version) {
  Dict dict = standing_of(version);
  dict.insert("hash", version.hash);
  dict.insert("path", version.path);
  dict.insert("failures", static_cast<int64_t>(version.failures));
  return dict;
}

Dict to_dict(const BundleVersion& version) {
  Dict dict = standing_of(version), policies = empty_dict();
  dict.insert("version", version.version);
  dict.insert("sha256", version.sha256);
  for (const auto& [name, number] : version.policies) policies.insert(name, int64_t{number});
  dict.insert("policies", policies);
  return dict;
}

Dict to_dict(const CandidateReport& report) {
  Dict dict = empty_dict();
  dict.insert("json", report.json());
  dict.insert("text", printable(report.text()));
  return dict;
}

Dict to_dict(const PolicyStatistics& statistics) {
  Dict dict = to_dict(statistics.total);
  c10::impl::GenericList versions(c10::AnyType::get());
  for (const auto& version : statistics.versions) {
    Dict of_version = to_dict(version.calls);
    of_version.insert("number", int64_t{version.number});
    of_version.insert("hash", version.hash);
    versions.push_back(of_version);
  }
  dict.insert("versions", versions);
  dict.insert("reloads", static_cast<int64_t>(statistics.reloads));
  dict.insert("refused", static_cast<int64_t>(statistics.refused));
  dict.insert("reverted", static_cast<int64_t>(statistics.reverted));
  return dict;
}

Dict to_dict(const WatchEvent& event) {
  Dict dict = place(event.source);
  dict.insert("kind", std::string(to_string(event.kind)));
  dict.insert("path", event.path);
  dict.insert("version", int64_t{event.version});
  dict.insert("message", printable(event.message));
  return dict;
}

Dict to_dict(const RunInfo& info) {
  Dict dict = empty_dict();
  dict.insert("version", int64_t{info.version});
  dict.insert("hash", info.hash);
  dict.insert("answered", std::string(to_string(info.answered)));
  dict.insert("form", std::string(to_string(info.form)));
  dict.insert("seconds", seconds(info.time));
  dict.insert("flagged", info.flagged);
  dict.insert("repaired", info.repaired);
  dict.insert("violations", info.violations);
  dict.insert("failure", printable(info.failure));
  c10::Dict<std::string, at::Tensor> positions;
  for (const FirstPositions& first : info.positions) positions.insert(first.location, first.at);
  dict.insert("positions", positions);
  return dict;
}

Dict to_dict(const flags::TableRow& row) {
  Dict dict = empty_dict();
  dict.insert("sample", row.sample);
  dict.insert("slot", row.slot);
  dict.insert("severity", to_int(row.error.severity));
  dict.insert("code", to_int(row.error.code));
  dict.insert("location", row.error.location);
  dict.insert("severity_name", row.error.severity_name);
  dict.insert("code_name", row.error.code_name);
  dict.insert("location_name", row.error.location_name);
  return dict;
}

ParamValue param_from(const std::string& name, const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isIntList()) return value.toIntVector();
  if (value.isDoubleList()) return value.toDoubleVector();
  wrong_type(name, "a number, a boolean, a list of numbers or a tensor", value);
}

Params params_from(const Dict& values) {
  Params params;
  for (const auto& entry : values) params.emplace_back(entry.key(), param_from(entry.key(), entry.value()));
  return params;
}

RuntimeOptions runtime_options_from(const Dict& values) {
  OptionsReader options(values);
  RuntimeOptions result;
  std::string masked_rows = masked_rows_name(result.masked_rows);
  std::string cache_dir;
  options.take("backend", result.backend);
  options.take("on_error", result.on_error);
  options.take("fullgraph", result.fullgraph);
  options.take("masked_rows", masked_rows);
  options.take("trusted", result.trusted);
  options.take("cache_dir", cache_dir);
  options.take("keep_versions", result.keep_versions);
  options.take("trial_calls", result.trial_calls);
  options.take("trial_seconds", result.trial_seconds);
  options.take("failures_to_revert", result.failures_to_revert);
  options.take("reload_latency_ratio", result.reload_latency_ratio);
  options.take("on_slow_reload", result.on_slow_reload);
  options.take("on_new_graph_breaks", result.on_new_graph_breaks);
  options.take("state_keys", result.state_keys);
  int64_t state_age = 0;
  options.take("state_age", state_age);
  result.state_age = std::chrono::seconds(state_age);
  options.take("seed", result.seed);
  options.take("count_flags", result.count_flags);
  DecisionLogOptions decisions;
  std::string decision_log, capsule_dir;
  options.take("decision_log", decision_log);
  options.take("decisions_at_once", decisions.at_once);  // of a child process, whose parent has the log too
  options.take("decisions_clean_share", decisions.clean_share);
  options.take("decisions_drop", decisions.drop);
  options.take("decisions_mask", decisions.mask);
  options.take("decisions_mask_key", decisions.mask_key);
  options.take("decisions_capsules", capsule_dir);
  options.take("decisions_max_capsules", decisions.max_capsules);
  options.take("decisions_capsule_bad_rows", decisions.capsule_bad_rows);
  options.take("decisions_events", decisions.events);
  options.take("decisions_max_file_bytes", decisions.max_file_bytes);
  options.take("decisions_max_files", decisions.max_files);
  options.take("decisions_queue_records", decisions.queue_records);
  options.take("decisions_max_samples", decisions.max_samples);
  options.take("instructions", result.limits.instructions);
  options.take("seconds", result.limits.seconds);
  options.take("script_bytes", result.limits.script_bytes);
  options.take("tensor_bytes", result.limits.tensor_bytes);
  options.nothing_else(
      "backend, on_error, fullgraph, masked_rows, trusted, cache_dir, keep_versions, trial_calls, "
      "trial_seconds, failures_to_revert, reload_latency_ratio, on_slow_reload, on_new_graph_breaks, state_keys, "
      "state_age, seed, "
      "count_flags, decision_log, limits, instructions, seconds, script_bytes, tensor_bytes");
  result.masked_rows = masked_rows_from(masked_rows);
  result.cache_dir = cache_dir;
  if (!decision_log.empty()) {
    decisions.file = decision_log;
    decisions.capsule_dir = capsule_dir;
    if (decisions.at_once) decisions.max_file_bytes = std::numeric_limits<uint64_t>::max();  // the parent rotates it
    result.decisions = std::make_shared<DecisionLog>(std::move(decisions));
  }
  return result;
}

ShadowOptions shadow_options_from(const Dict& values) {
  OptionsReader options(values);
  ShadowOptions result;
  options.take("share", result.share);
  options.take("queue", result.queue);
  options.take("queue_bytes", result.queue_bytes);
  options.take("tolerance", result.tolerance);
  options.take("examples", result.examples);
  options.nothing_else("share, queue, queue_bytes, tolerance, examples");
  return result;
}

CanaryOptions canary_options_from(const Dict& values) {
  OptionsReader options(values);
  CanaryOptions result;
  options.take("share", result.share);
  options.take("promote_after", result.promote_after);
  options.take("failures", result.revert_if.failures);
  options.take("flagged_ratio", result.revert_if.flagged_ratio);
  options.take("p99_ratio", result.revert_if.p99_ratio);
  options.take("min_calls", result.min_calls);
  options.take("min_samples", result.min_samples);
  options.nothing_else("share, promote_after, failures, flagged_ratio, p99_ratio, min_calls, min_samples");
  return result;
}

RunOptions run_options_from(const Dict& values, std::vector<std::string>& sample_ids) {
  OptionsReader options(values);
  RunOptions result;
  OnError on_error = OnError::raise;
  double deadline = 0;
  options.take("on_error", on_error);
  options.take("deadline", deadline);
  options.take("decision_id", result.decision_id);
  options.take("trace_id", result.trace_id);
  options.take("state_key", result.state_key);
  options.take("sample_ids", sample_ids);
  result.sample_ids = sample_ids;
  options.nothing_else("on_error, deadline, decision_id, trace_id, state_key, sample_ids");
  if (values.contains("on_error")) result.on_error = on_error;
  if (values.contains("deadline")) {
    if (!(deadline > 0)) throw InputError("`deadline` is the time for the call, in seconds above 0.");
    constexpr double longest = 1e8;  // three years: more is no deadline
    if (deadline <= longest)
      result.deadline = std::chrono::steady_clock::now() +
                        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(deadline));
  }
  return result;
}

void throw_to_python(const std::exception& error) {
  const auto* of_triage = dynamic_cast<const Error*>(&error);
  const Source source = of_triage ? of_triage->source() : Source{};
  const std::string traceback = of_triage ? of_triage->traceback() : "";
  throw std::runtime_error(c10::str("\x1ftriage\x1f", class_name(error), "\x1f", printable(source.file), "\x1f",
                                    source.line, "\x1f", printable(traceback), "\x1f", printable(error.what())));
}

}  // namespace triage::python
