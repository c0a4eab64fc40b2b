#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/capsule.h>
#include <triage/decisions.h>
#include <triage/files.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/limits.h"
#include "bindings/cli/calls/made_call.h"
#include "bindings/cli/calls/samples.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/sample/sample.h"
#include "bindings/cli/terminal.h"
#include "runtime/files/formats.h"
#include "runtime/flags/flag_files.h"
#include "runtime/graph/output_names.h"
#include "runtime/messages/printable.h"
#include "runtime/operators/logical_bytes.h"
#include "runtime/policy/decisions/decisions.h"

namespace triage::cli {
namespace {

/// One output of a run.
struct RunOutput {
  std::string name;
  at::Tensor tensor;
  bool is_flags = false;
  std::string file;  // where it was written; empty: nowhere
};

using StateTensors = decltype(KeyState::tensors);

/// What a run was, for a person and for programs.
struct RunReport {
  std::string policy;
  std::string backend;
  std::vector<RunOutput> outputs;
  size_t graphs = 0, operations = 0, repeat = 0;
  std::vector<BreakReport> graph_breaks;
  double first_us = 0, call_us = 0;
  LoopTiers loops;              // in the timed calls
  BadSamples bad;               // none without an output of flags
  std::string decisions;        // the log of the first call; empty: none
  bool decided = false;         // it has a line
  std::vector<MadeCall> calls;  // with the inputs of the command line, one after the other; this is of the last
  StateTensors state;           // after it
  std::vector<ViolationCount> violations;  // of all these calls
  std::vector<FirstPositions> positions;   // of the last one
};

using Json = nlohmann::ordered_json;

const RunOutput* flags_of(const RunReport& report) {
  for (const RunOutput& output : report.outputs) {
    if (output.is_flags) return &output;
  }
  return nullptr;
}

/// Samples of `output` that differ from the input of the same name; -1 where the two cannot be compared.
int64_t changed_samples(const RunOutput& output, const PreparedCall& call, const std::vector<std::string>& names) {
  auto found = std::find(names.begin(), names.end(), output.name);
  if (found == names.end() || output.is_flags) return -1;
  const at::Tensor& before = call.inputs[static_cast<size_t>(found - names.begin())];
  const at::Tensor& after = output.tensor;
  if (before.sizes() != after.sizes() || before.scalar_type() != after.scalar_type() || before.dim() == 0 ||
      before.numel() == 0)
    return -1;
  at::Tensor differs = before.ne(after) & ~(before.ne(before) & after.ne(after));  // a NaN that stayed is no change
  return differs.reshape({differs.size(0), -1}).any(-1).sum().item<int64_t>();
}

/// The counts as a table: a row a location, a column a code.
void print_summary(const at::Tensor& flags, const CodeNames& codes_of_policy) {
  auto summary = flags::summary(flags, {.codes = codes_of_policy});
  if (summary.empty()) return;
  std::set<std::string> codes;
  size_t widest = 8;
  for (const auto& [location, counts] : summary) {
    widest = std::max(widest, location.size());
    for (const auto& [code, count] : counts) codes.insert(code);
  }
  std::string heading = fmt::format("           {:<{}}", "location", widest);
  for (const std::string& code : codes) heading += fmt::format("  {:>6}", code);
  say("{}\n", paint(Paint::faint, heading));
  for (const auto& [location, counts] : summary) {
    std::string row = fmt::format("           {:<{}}", location, widest);
    for (const std::string& code : codes) {
      auto found = counts.find(code);
      row += fmt::format("  {:>{}}", found == counts.end() ? "-" : std::to_string(found->second),
                         std::max<size_t>(6, code.size()));
    }
    say("{}\n", messages::one_line(row));
  }
}

void print_tensor(const char* label, const std::string& name, const at::Tensor& tensor, const std::string& note) {
  std::string line = fmt::format("  {:<8} {:<8} {:<18} {}", label, name, describe(tensor), note);
  say("{}\n", messages::one_line(line.substr(0, line.find_last_not_of(' ') + 1)));
}

std::string output_note(const RunOutput& output, const PreparedCall& call, const std::vector<std::string>& inputs) {
  std::vector<std::string> notes;
  if (output.is_flags) notes.push_back("flags");
  int64_t changed = changed_samples(output, call, inputs);
  if (changed >= 0) notes.push_back(fmt::format("{} of {} samples changed", changed, output.tensor.size(0)));
  if (!output.file.empty()) notes.push_back("written to " + output.file);
  return fmt::format("{}", fmt::join(notes, ", "));
}

/// Of a small tensor.
std::string few_values(const at::Tensor& tensor) {
  constexpr int64_t most = 8;
  if (tensor.numel() > most) return "";
  std::vector<std::string> values;
  const at::Tensor flat = tensor.to(at::kCPU, at::kDouble).flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) values.push_back(fmt::format("{:.6g}", flat[i].item<double>()));
  return fmt::format("{}", fmt::join(values, " "));
}

Json tensor_json(const std::string& name, const at::Tensor& tensor) {
  return {{"name", name}, {"dtype", dtype_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}};
}

Json flags_json(const at::Tensor& flags, const CodeNames& names) {
  Json locations = Json::object();
  int64_t errors = 0;
  for (const auto& [location, counts] : flags::summary(flags, {.codes = names})) {
    for (const auto& [code, count] : counts) {
      locations[location][code] = count;
      errors += static_cast<int64_t>(count);
    }
  }
  return {{"samples", flags.size(0)},
          {"errors", errors},
          {"summary", locations},
          {"repr", flags::repr(flags, {.codes = names})}};
}

void print_report(const RunReport& report, const PreparedCall& call) {
  const Signature signature = call.policy.signature();
  const std::vector<std::string>& names = signature.inputs;
  const size_t count = report.calls.size();
  const std::string calls = count == 1 ? "" : fmt::format(" (the last of {} calls)", count);
  say("{}{}\n", paint(Paint::heading, messages::one_line(report.policy)), calls);
  for (size_t i = 0; i < call.inputs.size(); ++i)
    print_tensor(i == 0 ? "inputs" : "", names[i], call.inputs[i], call.sources[i]);
  for (size_t i = 0; i < report.outputs.size(); ++i) {
    const RunOutput& output = report.outputs[i];
    print_tensor(i == 0 ? "outputs" : "", output.name, output.tensor, output_note(output, call, names));
  }
  for (const RunOutput& output : report.outputs) {
    if (!output.is_flags) continue;
    bool clean = flags::summary(output.tensor).empty();
    say("  {:<8} {}\n", "flags",
        paint(clean ? Paint::good : Paint::warning, flags::repr(output.tensor, {.codes = call.codes})));
    print_summary(output.tensor, call.codes);
  }
  for (const ViolationCount& count : report.violations)
    if (count.samples > 0)
      say("  {:<8} {}\n", "ranges",
          paint(Paint::warning,
                fmt::format("{} of the samples of '{}' out of its declared range", count.samples, count.output)));
  for (size_t i = 0; i < report.state.size(); ++i)
    print_tensor(i == 0 ? "state" : "", report.state[i].first, report.state[i].second,
                 few_values(report.state[i].second));
  print_samples(report.bad);
  if (count > 1) print_calls(report.calls);
  if (!report.decisions.empty())
    say("  {:<8} {}\n", "decision",
        report.decided ? "written to " + report.decisions : "none: no sample is flagged, and nothing failed");
  say("  {:<8} {} ({} ops), {} graph {}, backend {}\n", "graphs", report.graphs, report.operations,
      report.graph_breaks.size(), report.graph_breaks.size() == 1 ? "break" : "breaks", report.backend);
  if (report.loops.count() > 0) say("  {:<8} {} fused: {}\n", "loops", report.loops.count(), loops_text(report.loops));
  say("  {:<8} {:.1f} us per call (median of {} warm calls; the first took {:.1f} ms)\n", "time", report.call_us,
      report.repeat, report.first_us / 1000);
  print_breaks(report.graph_breaks);
}

Json to_json(const RunReport& report, const PreparedCall& call) {
  const Signature signature = call.policy.signature();
  const std::vector<std::string>& names = signature.inputs;
  Json inputs = Json::array(), outputs = Json::array();
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(tensor_json(names[i], call.inputs[i]));
  for (const RunOutput& output : report.outputs) {
    outputs.push_back(tensor_json(output.name, output.tensor));
    if (!output.file.empty()) outputs.back()["file"] = output.file;
  }
  Json state = Json::array();
  for (const auto& [name, tensor] : report.state) state.push_back(tensor_json(name, tensor));
  const RunOutput* flags = flags_of(report);
  Json json = {{"policy", report.policy},
               {"backend", report.backend},
               {"inputs", inputs},
               {"outputs", outputs},
               {"flags", flags ? flags_json(flags->tensor, call.codes) : Json()},
               {"bad_samples", flags ? samples_json(report.bad) : Json()},
               {"decision", report.decided ? Json(report.decisions) : Json()},
               {"graphs", report.graphs},
               {"graph_breaks", report.graph_breaks.size()},
               {"ops", report.operations},
               {"fused_loops", loops_json(report.loops)},
               {"first_us", report.first_us},
               {"call_us", report.call_us}};
  if (report.calls.size() > 1) {
    json["calls"] = report.calls.size();
    json["each_call"] = calls_json(report.calls);
  }
  if (!state.empty()) json["state"] = std::move(state);
  for (const ViolationCount& count : report.violations) json["violations"][count.output] = count.samples;
  return json;
}

BadSamples bad_samples_of(const RunReport& report, const PreparedCall& call, bool json) {
  constexpr size_t most_on_screen = 10, most_in_json = 1000;
  const RunOutput* flags = flags_of(report);
  if (!flags) return {};
  const Signature signature = call.policy.signature();
  std::vector<NamedTensor> inputs, outputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs.emplace_back(signature.inputs[i], call.inputs[i]);
  for (const RunOutput& output : report.outputs)
    if (!output.is_flags) outputs.emplace_back(output.name, output.tensor);
  return bad_samples(flags->tensor, {.codes = call.codes, .positions = report.positions}, inputs, outputs,
                     json ? most_in_json : most_on_screen);
}

using Destinations = std::vector<std::pair<std::string, std::string>>;

/// Everything about the outputs that can be said before the policy runs.
Destinations parse_outputs(const std::vector<std::string>& texts) {
  Destinations destinations;
  for (const std::string& text : texts) {
    auto [name, file] = split_assignment(text, "--output");
    check_ending(file);
    for (const auto& [earlier_name, earlier_file] : destinations) {
      auto [path, key] = split_key(file);
      auto [earlier_path, earlier_key] = split_key(earlier_file);
      if (!same_file(path, earlier_path)) continue;
      if (!key.empty() && key == earlier_key)
        throw UsageError(fmt::format("--output {} and --output {} both write to {}", earlier_name, name, file));
      if (key.empty() || earlier_key.empty()) {
        throw UsageError(
            fmt::format("--output {0} and --output {1} both write to {2}; name them as {2}:{0} and {2}:{1}",
                        earlier_name, name, path));
      }
    }
    destinations.emplace_back(name, file);
  }
  return destinations;
}

void check_output_names(const Destinations& destinations, const std::vector<std::string>& names,
                        const std::string& policy) {
  for (const auto& [name, file] : destinations) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw UsageError(fmt::format("{} has no output \"{}\"; it has {}{}", policy, name, fmt::join(names, ", "),
                                 did_you_mean(name, names)));
  }
}

/// Writes all files or none. Several outputs with keys go into one file as a dict. Beside flags stand the names of what
/// they tell of.
void write_outputs(const Destinations& destinations, std::vector<RunOutput>& outputs, const CodeNames& codes) {
  struct Content {
    c10::IValue value;
    std::vector<std::pair<std::string, at::Tensor>> flags;
  };
  std::map<std::string, Content> contents;
  for (const auto& [name, file] : destinations) {
    auto output = std::find_if(outputs.begin(), outputs.end(),
                               [&, &wanted = name](const RunOutput& result) { return result.name == wanted; });
    output->file = file;
    auto [path, key] = split_key(file);
    Content& content = contents[path];
    if (output->is_flags) content.flags.emplace_back(key, output->tensor);
    if (key.empty()) {
      content.value = output->tensor;
      continue;
    }
    if (content.value.isNone()) content.value = c10::impl::GenericDict(c10::StringType::get(), c10::AnyType::get());
    content.value.toGenericDict().insert(key, output->tensor);
  }
  std::vector<files::SavedFile> files;
  for (const auto& [path, content] : contents)
    files.push_back(
        {path, content.value, content.flags.empty() ? "" : flags::note_of(content.flags, {.codes = codes})});
  files::save(files);
}

/// Who counts the NaNs of an expanded tensor, or writes it, needs the memory of all its elements.
void check_output_sizes(const std::vector<RunOutput>& outputs, size_t most) {
  for (const RunOutput& output : outputs)
    if (const double bytes = operators::logical_bytes(output.tensor); most > 0 && bytes > static_cast<double>(most))
      throw Error(
          fmt::format("the output \"{}\" is a tensor of {:.0f} MiB (an expanded tensor counts in full); the limit of "
                      "this program is {} MiB; return a smaller tensor",
                      output.name, bytes / (1 << 20), most >> 20));
}

std::shared_ptr<DecisionLog> decision_log(const RunCommand& options) {
  if (options.decisions.empty()) return nullptr;
  check_destination("--decisions", options.decisions, options.call.policy);
  DecisionLogOptions log;
  log.file = options.decisions;
  log.events = false;  // the line of the call is what is asked for
  return std::make_shared<DecisionLog>(std::move(log));
}

/// The log is of the first call; what is run to be timed is no decision.
void finish_decisions(DecisionLog& log, RunReport& report, const std::string& file) {
  policy::DecisionQueue::of(log).stop_noting();
  log.flush();
  if (log.counts().failed > 0) throw FileError(fmt::format("the decision could not be written to \"{}\"", file));
  report.decisions = file;
  report.decided = log.counts().written > 0;
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// Of the one key that this program uses.
StateTensors state_of(const Policy& policy) {
  const PolicyState state = policy.state();
  return state.empty() ? StateTensors() : state.front().tensors;
}

/// The calls before the last one, whose inputs the call then has.
std::vector<MadeCall> make_earlier_calls(PreparedCall& call, const RunCommand& options,
                                         const std::vector<std::vector<std::string>>& inputs) {
  std::vector<MadeCall> calls;
  for (size_t i = 1; i < inputs.size(); ++i) {
    const CallWatch watch(call);
    calls.push_back(watch.finish(call.policy.run(call.inputs, call.options)));
    read_inputs(call, options.call, inputs[i]);
  }
  return calls;
}

double median_call(const PreparedCall& call, int repeat) {
  call.policy.prepare(call.inputs, call.options);  // the best code there will be
  std::vector<double> times;
  for (int i = 0; i < repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    call.policy.run(call.inputs, call.options);
    times.push_back(microseconds_since(start));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace

int run(const RunCommand& options) {
  if (!options.compare.empty()) return compare(options);
  if (!options.samples.empty()) return run_sample(options);
  if (!options.capsule.empty()) {
    check_ending(options.capsule);
    check_destination("--capsule", options.capsule, options.call.policy);
  }
  if (!options.state.empty()) {
    check_ending(options.state);
    check_destination("--state", options.state, options.call.policy);
  }
  Destinations destinations = parse_outputs(options.outputs);
  const std::shared_ptr<DecisionLog> log = decision_log(options);
  const std::vector<std::vector<std::string>> inputs = inputs_of_calls(options.call.inputs);
  CallOptions first = options.call;
  first.inputs = inputs.front();
  PreparedCall call = prepare_call(first, options.json, log);
  if (!options.state.empty() && std::filesystem::exists(options.state)) call.policy.load_state(options.state);
  std::vector<std::string> declared = call.policy.signature().outputs;
  if (!declared.empty()) check_output_names(destinations, declared, options.call.policy);

  RunReport report;
  report.policy = call.policy.name();
  report.backend = options.call.backend;
  report.repeat = static_cast<size_t>(options.repeat);
  report.calls = make_earlier_calls(call, options, inputs);
  const PolicyState before = call.policy.state();
  // What the inputs were is compared with what came out: a policy never writes to them, unless they were donated.
  const CallWatch watch(call);
  RunInfo info;
  call.options.info = &info;
  auto start = std::chrono::steady_clock::now();
  std::vector<at::Tensor> tensors =
      options.capsule.empty() ? call.policy.run(call.inputs, call.options)
                              : record(call.policy, call.inputs, {options.capsule, options.bad_rows}, call.options);
  report.first_us = microseconds_since(start);
  report.calls.push_back(watch.finish(tensors));
  report.violations = call.policy.statistics().total.violations;
  if (log) finish_decisions(*log, report, options.decisions);
  if (!call.policy.graphs().empty()) {  // what production will run, not the script that was recorded
    call.policy.prepare(call.inputs, call.options);
    call.policy.set_state(before);
    tensors = call.policy.run(call.inputs, call.options);
  }
  call.options.info = nullptr;
  report.positions = std::move(info.positions);
  report.state = state_of(call.policy);
  if (!options.state.empty()) call.policy.save_state(options.state);
  std::vector<std::string> names = call.policy.signature().outputs;
  check_output_names(destinations, names, options.call.policy);
  std::vector<bool> is_flags = call.policy.flags_outputs();
  for (size_t i = 0; i < tensors.size(); ++i) {
    report.outputs.push_back({graph::output_name(names, i), tensors[i], i < is_flags.size() && is_flags[i], ""});
  }
  check_output_sizes(report.outputs, parse_limits(options.call.limits).tensor_bytes);
  write_outputs(destinations, report.outputs, call.codes);
  {
    Progress progress;
    progress.show(fmt::format("timing {} calls ...", options.repeat));
    report.call_us = median_call(call, options.repeat);
  }
  for (const CapturedGraph& captured : graphs_of(call.policy)) {
    ++report.graphs;
    report.operations += captured.graph->nodes().size();
  }
  report.bad = bad_samples_of(report, call, options.json);
  report.graph_breaks = call.policy.breaks();
  report.loops = call.policy.cache().loops;
  if (options.json)
    print_json(to_json(report, call));
  else
    print_report(report, call);
  return 0;
}

}  // namespace triage::cli
