#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>
#include <triage/graph.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "bindings/cli/command.h"
#include "bindings/cli/report.h"
#include "bindings/cli/terminal.h"
#include "runtime/operators/logical_bytes.h"

namespace triage::cli {
namespace {

struct Options {
  CallOptions call;
  std::vector<std::string> outputs;  // NAME=FILE
  int repeat = 10;
  bool json = false;
};

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

/// Writes all files or none. Several outputs with keys go into one file as a dict.
void write_outputs(const Destinations& destinations, std::vector<Result>& outputs) {
  std::vector<std::pair<std::string, c10::IValue>> files;
  std::map<std::string, c10::impl::GenericDict> dicts;
  for (const auto& [name, file] : destinations) {
    auto output = std::find_if(outputs.begin(), outputs.end(),
                               [&, &wanted = name](const Result& result) { return result.name == wanted; });
    output->file = file;
    auto [path, key] = split_key(file);
    if (key.empty()) {
      files.emplace_back(path, output->tensor);
      continue;
    }
    auto dict = dicts.try_emplace(path, c10::StringType::get(), c10::AnyType::get()).first;
    dict->second.insert(key, output->tensor);
  }
  for (const auto& [path, dict] : dicts) files.emplace_back(path, dict);
  save_files(files);
}

/// Who counts the NaNs of an expanded tensor, or writes it, needs the memory of all its elements.
void check_output_sizes(const std::vector<Result>& outputs) {
  const size_t most = Limits().tensor_bytes;
  for (const Result& output : outputs)
    if (const double bytes = operators::logical_bytes(output.tensor); bytes > static_cast<double>(most))
      throw Error(
          fmt::format("the output \"{}\" is a tensor of {:.0f} MiB, expanded or not: more than the {} MiB that this "
                      "program reports or writes; return a smaller one",
                      output.name, bytes / (1 << 20), most >> 20));
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

double median_call(const Call& call, int repeat) {
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

int run(const Options& options) {
  Destinations destinations = parse_outputs(options.outputs);
  Call call = prepare_call(options.call, options.json);
  std::vector<std::string> declared = call.policy.signature().outputs;
  if (!declared.empty()) check_output_names(destinations, declared, options.call.policy);

  Report report;
  report.policy = call.policy.name();
  report.backend = options.call.backend;
  report.repeat = static_cast<size_t>(options.repeat);
  // What the inputs were is compared with what came out: a policy never writes to them, unless they were donated.
  auto start = std::chrono::steady_clock::now();
  std::vector<at::Tensor> tensors = call.policy.run(call.inputs, call.options);
  report.first_us = microseconds_since(start);
  if (!call.policy.graphs().empty()) {  // what production will run, not the script that was recorded
    call.policy.prepare(call.inputs, call.options);
    tensors = call.policy.run(call.inputs, call.options);
  }
  std::vector<std::string> names = call.policy.signature().outputs;
  check_output_names(destinations, names, options.call.policy);
  std::vector<bool> is_flags = call.policy.flags_outputs();
  for (size_t i = 0; i < tensors.size(); ++i) {
    report.outputs.push_back(
        {i < names.size() ? names[i] : fmt::format("out{}", i), tensors[i], i < is_flags.size() && is_flags[i], ""});
  }
  check_output_sizes(report.outputs);
  write_outputs(destinations, report.outputs);
  {
    Progress progress;
    progress.show(fmt::format("timing {} calls ...", options.repeat));
    report.call_us = median_call(call, options.repeat);
  }
  for (const CapturedGraph& captured : graphs_of(call.policy)) {
    ++report.graphs;
    report.operations += captured.graph->nodes().size();
  }
  report.graph_breaks = call.policy.breaks();
  if (options.json)
    print_json(to_json(report, call));
  else
    print_report(report, call);
  return 0;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "Run a policy on tensors, and print what was flagged and repaired");
  add_call_options(*command, options->call);
  command
      ->add_option("--output,-o", options->outputs,
                   "write an output: .pt, .npy or .safetensors; FILE:KEY puts several into one file")
      ->type_name("NAME=FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--repeat", options->repeat, "how many warm calls the time is the median of")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  command->add_flag("--json", options->json, "print one JSON object");
  add_kernels_option(*command, options->call);
  command->callback([options, command, &action] {
    const bool chosen = command->count("--backend") > 0;
    action = [options, chosen] {
      if (!options->call.kernels.empty()) {
        if (chosen && options->call.backend != "fused")
          throw UsageError(fmt::format("--kernels are for --backend fused, not {}", options->call.backend));
        options->call.backend = "fused";
      }
      return run(*options);
    };
  });
}

}  // namespace triage::cli
