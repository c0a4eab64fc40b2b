// Runtimes, their policies and watches, logs and metrics.
#include "bindings/c/decisions.h"
#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/options.h"

#include <triage/runtime.h>
#include <triage/version.h>

#include <cstdlib>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace triage::c {
namespace {

/// Null: no log of its own.
Log log_of(TriageLog log, void* user) {
  if (!log) return {};
  return [log, user](const LogRecord& record) {
    std::vector<std::string> names;
    for (const LogField& field : record.fields) names.emplace_back(field.name);
    std::vector<TriageLogField> fields;
    for (size_t i = 0; i < names.size(); ++i) fields.push_back({names[i].c_str(), record.fields[i].value.c_str()});
    const std::string text(record.text);
    const TriageLogRecord given = {static_cast<int32_t>(record.level), text.c_str(), fields.data(), fields.size()};
    const InCallback inside;
    log(&given, user);
  };
}

ReloadGate gate(int32_t given, ReloadGate otherwise, const char* name) {
  const int32_t chosen = choice(given, 4, name);
  return chosen == 0 ? otherwise : static_cast<ReloadGate>(chosen - 1);
}

RuntimeOptions runtime_options(const TriageRuntimeOptions* options) {
  const TriageRuntimeOptions given = options_of(options, "options");
  RuntimeOptions result;
  result.log = log_of(given.log, given.log_user);
  if (given.print)
    result.print = [print = given.print, user = given.print_user](const std::string& text) {
      const InCallback inside;
      print(text.c_str(), user);
    };
  result.cache_dir = text_or(given.cache_dir, "");
  if (given.backend) result.backend = given.backend;
  if (given.compiler != 0) throw Misuse("options->compiler: " + text_if_gone("compiler"));
  if (given.kernels || given.kernel_count != 0) throw Misuse("options->kernels: " + text_if_gone("kernels"));
  if (const int32_t on_error = choice(given.on_error, 4, "options->on_error"))
    result.on_error = static_cast<OnError>(on_error - 1);
  result.trusted = choice(given.trusted, 2, "options->trusted");
  result.fullgraph = choice(given.fullgraph, 2, "options->fullgraph");
  result.masked_rows = choice<MaskedRows>(given.masked_rows, 2, "options->masked_rows");
  result.count_flags = !choice(given.skip_flag_counts, 2, "options->skip_flag_counts");
  result.keep_versions = positive(given.keep_versions, result.keep_versions, "keep_versions");
  result.trial_calls = number(given.trial_calls, result.trial_calls, "trial_calls");
  result.trial_seconds = number(given.trial_seconds, result.trial_seconds, "trial_seconds");
  result.reload_latency_ratio = number(given.reload_latency_ratio, result.reload_latency_ratio, "reload_latency_ratio");
  result.on_slow_reload = gate(given.on_slow_reload, result.on_slow_reload, "options->on_slow_reload");
  result.on_new_graph_breaks =
      gate(given.on_new_graph_breaks, result.on_new_graph_breaks, "options->on_new_graph_breaks");
  result.failures_to_revert = number(given.failures_to_revert, result.failures_to_revert, "failures_to_revert");
  result.state_keys = positive(given.state_keys, result.state_keys, "state_keys");
  result.state_age = std::chrono::seconds(not_negative(given.state_age_seconds, "state_age_seconds"));
  Limits& limits = result.limits;
  limits.instructions = number(given.max_instructions, limits.instructions, "max_instructions");
  limits.seconds = number(given.max_seconds, limits.seconds, "max_seconds");
  limits.script_bytes = number(given.max_script_bytes, limits.script_bytes, "max_script_bytes");
  limits.tensor_bytes = number(given.max_tensor_bytes, limits.tensor_bytes, "max_tensor_bytes");
  if (given.decisions) result.decisions = decision_log(*given.decisions, result.log);
  return result;
}

WatchOptions watch_options(const TriageWatchOptions* options) {
  const TriageWatchOptions given = options_of(options, "options");
  WatchOptions result;
  if (const int64_t debounce = not_negative(given.debounce_ms, "debounce_ms"))
    result.debounce = std::chrono::milliseconds(debounce);
  result.poll_interval = std::chrono::milliseconds(not_negative(given.poll_ms, "poll_ms"));
  if (!given.on_event) return result;
  // No InCallback: the watching thread holds nothing then, and may free all.
  result.on_event = [on_event = given.on_event, user = given.user](const WatchEvent& event) {
    const TriageWatchEvent told = {static_cast<int32_t>(event.kind),
                                   event.version,
                                   to_string(event.kind),
                                   event.path.c_str(),
                                   event.message.c_str(),
                                   event.source.file.c_str(),
                                   event.source.line};
    on_event(&told, user);
  };
  return result;
}

}  // namespace

void end_threads_at_exit() {
  std::atexit([] {
    guarded("exit", [] {
      wait_until_destroyed();
      Pool<TriageWatch>::get().release_all();
      Pool<TriageRuntime>::get().release_all();
    });
  });
}

TriageStatus set_log(TriageLog log, void* user) {
  return guarded("set_log", [&] { triage::set_log(log_of(log, user)); });
}

TriageStatus create_runtime(const TriageRuntimeOptions* options, TriageRuntime** runtime) {
  return create("create_runtime", runtime, [&] {
    RuntimeOptions given = runtime_options(options);
    auto decisions = given.decisions;
    return RuntimeOfHost{Runtime(std::move(given)), std::move(decisions)};
  });
}

TriageStatus free_runtime(TriageRuntime* runtime) { return release("free_runtime", runtime); }

TriageStatus load_file(TriageRuntime* runtime, const char* path, TriagePolicy** policy) {
  return create("load_file", policy, [&] { return HandleUse(runtime)->load(text(path, "path")); });
}

TriageStatus load_source(TriageRuntime* runtime, const char* source, size_t length, const char* name,
                         TriagePolicy** policy) {
  return create("load_source", policy, [&] {
    const HandleUse loader(runtime);
    return loader->load_source({text(source, "source").data(), length}, std::string(text_or(name, "policy.lua")));
  });
}

TriageStatus free_policy(TriagePolicy* policy) { return release("free_policy", policy); }

TriageStatus watch(TriageRuntime* runtime, const char* folder, const TriageWatchOptions* options, TriageWatch** watch) {
  return create("watch", watch,
                [&] { return HandleUse(runtime)->watch(text(folder, "folder"), watch_options(options)); });
}

TriageStatus rescan(TriageWatch* watch) {
  return guarded("rescan", [&] { HandleUse(watch)->rescan(); });
}

TriageStatus free_watch(TriageWatch* watch) { return release("free_watch", watch); }

TriageStatus metrics_text(TriageRuntime* runtime, char** text) {
  return guarded("metrics_text", [&] {
    char*& place = required(text, "text", "the address of a pointer");
    place = nullptr;
    const std::string metrics = triage::metrics_text(*HandleUse(runtime));
    auto* copy = static_cast<char*>(std::malloc(metrics.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, metrics.c_str(), metrics.size() + 1);
    place = copy;
  });
}

}  // namespace triage::c
