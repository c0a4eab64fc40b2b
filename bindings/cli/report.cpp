#include "bindings/cli/report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>
#include <triage/flags.h>

#include <algorithm>
#include <map>
#include <set>

#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

const Result* flags_of(const Report& report) {
  for (const Result& output : report.outputs) {
    if (output.is_flags) return &output;
  }
  return nullptr;
}

/// Samples of `output` that differ from the input of the same name; -1 where the two cannot be compared.
int64_t changed_samples(const Result& output, const Call& call, const std::vector<std::string>& names) {
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
void print_summary(const at::Tensor& flags) {
  auto summary = flags::summary(flags);
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
    say("{}\n", row);
  }
}

void print_tensor(const char* label, const std::string& name, const at::Tensor& tensor, const std::string& note) {
  std::string line = fmt::format("  {:<8} {:<8} {:<18} {}", label, name, describe(tensor), note);
  say("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

std::string output_note(const Result& output, const Call& call, const std::vector<std::string>& inputs) {
  std::vector<std::string> notes;
  if (output.is_flags) notes.push_back("flags");
  int64_t changed = changed_samples(output, call, inputs);
  if (changed >= 0) notes.push_back(fmt::format("{} of {} samples changed", changed, output.tensor.size(0)));
  if (!output.file.empty()) notes.push_back("written to " + output.file);
  return fmt::format("{}", fmt::join(notes, ", "));
}

Json tensor_json(const std::string& name, const at::Tensor& tensor) {
  return {{"name", name}, {"dtype", dtype_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}};
}

Json flags_json(const at::Tensor& flags) {
  Json locations = Json::object();
  int64_t errors = 0;
  for (const auto& [location, counts] : flags::summary(flags)) {
    for (const auto& [code, count] : counts) {
      locations[location][code] = count;
      errors += static_cast<int64_t>(count);
    }
  }
  return {{"samples", flags.size(0)}, {"errors", errors}, {"summary", locations}, {"repr", flags::repr(flags)}};
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  std::string shape = tensor.dim() == 0 ? "0-dim" : fmt::format("{}", fmt::join(tensor.sizes(), "x"));
  std::string device = tensor.is_cpu() ? "" : " " + tensor.device().str();
  return fmt::format("{} {}{}", dtype_name(tensor.scalar_type()), shape, device);
}

void print_report(const Report& report, const Call& call) {
  std::vector<std::string> names = call.policy.signature().inputs;
  say("{}\n", paint(Paint::heading, report.policy));
  for (size_t i = 0; i < call.inputs.size(); ++i)
    print_tensor(i == 0 ? "inputs" : "", names[i], call.inputs[i], call.sources[i]);
  for (size_t i = 0; i < report.outputs.size(); ++i) {
    const Result& output = report.outputs[i];
    print_tensor(i == 0 ? "outputs" : "", output.name, output.tensor, output_note(output, call, names));
  }
  for (const Result& output : report.outputs) {
    if (!output.is_flags) continue;
    bool clean = flags::summary(output.tensor).empty();
    say("  {:<8} {}\n", "flags", paint(clean ? Paint::good : Paint::warning, flags::repr(output.tensor)));
    print_summary(output.tensor);
  }
  say("  {:<8} {} ({} ops), {} graph {}, backend {}\n", "graphs", report.graphs, report.operations,
      report.graph_breaks.size(), report.graph_breaks.size() == 1 ? "break" : "breaks", report.backend);
  say("  {:<8} {:.1f} us a call (median of {} warm calls; the first took {:.1f} ms)\n", "time", report.call_us,
      report.repeat, report.first_us / 1000);
  print_breaks(report.graph_breaks);
}

nlohmann::ordered_json to_json(const Report& report, const Call& call) {
  std::vector<std::string> names = call.policy.signature().inputs;
  Json inputs = Json::array(), outputs = Json::array();
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(tensor_json(names[i], call.inputs[i]));
  for (const Result& output : report.outputs) {
    outputs.push_back(tensor_json(output.name, output.tensor));
    if (!output.file.empty()) outputs.back()["file"] = output.file;
  }
  const Result* flags = flags_of(report);
  return {{"policy", report.policy},
          {"backend", report.backend},
          {"inputs", inputs},
          {"outputs", outputs},
          {"flags", flags ? flags_json(flags->tensor) : Json()},
          {"graphs", report.graphs},
          {"graph_breaks", report.graph_breaks.size()},
          {"ops", report.operations},
          {"call_us", report.call_us}};
}

}  // namespace triage::cli
