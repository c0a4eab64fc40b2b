#include "bindings/cli/commands/isolate/isolate_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/terminal.h"

namespace triage::cli {
namespace {

using diagnose::Crossing;
using diagnose::IsolationInput;
using diagnose::IsolationLeak;
using diagnose::OutputIsolation;
using diagnose::Poison;
using Json = nlohmann::ordered_json;

constexpr size_t rows_shown = 8, rows_listed = 1000;

std::vector<Poison> poisons_of(const IsolationInput& input) {
  return input.has_samples ? diagnose::poisons_for(input.tensor.scalar_type(), input.is_flags) : std::vector<Poison>();
}

std::string numbers(const std::vector<int64_t>& rows) {
  const size_t shown = std::min(rows.size(), rows_shown);
  return fmt::format("{}{}", fmt::join(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < rows.size() ? ", ..." : "");
}

/// What a bad sample did, without what it was made bad with.
std::string text_of(const IsolationLeak& leak, int64_t tried) {
  const std::string share = fmt::format("{} of {} samples{}", leak.rows, tried, leak.later ? ", in the next call" : "");
  if (!leak.how.empty()) return fmt::format("{}: sample {}: {}", share, leak.row, leak.how);
  if (leak.hurt.empty()) return fmt::format("{}: sample {} changes what all samples share", share, leak.row);
  return fmt::format("{}: sample {} changes {} {}: {}", share, leak.row, leak.hurt.size(),
                     leak.hurt.size() == 1 ? "other" : "others", numbers(leak.hurt));
}

/// Bad values that did the same are one line.
std::vector<std::string> leak_lines(const OutputIsolation& output, int64_t tried) {
  std::vector<std::pair<std::string, std::vector<std::string>>> lines;
  for (const IsolationLeak& leak : output.leaks) {
    const std::string what = fmt::format(" in {}, {}", leak.input, text_of(leak, tried));
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& known) { return known.first == what; });
    if (line == lines.end()) line = lines.insert(lines.end(), {what, {}});
    line->second.push_back(diagnose::poison_text(leak.poison, leak.dtype));
  }
  std::vector<std::string> texts;
  for (const auto& [what, values] : lines) texts.push_back(fmt::format("{}{}", fmt::join(values, ", "), what));
  return texts;
}

/// What the inputs of all batches were made bad with, each line once.
void print_inputs(const std::vector<CheckedBatch>& batches) {
  std::vector<std::string> lines;
  for (const CheckedBatch& batch : batches)
    for (const IsolationInput& input : batch.inputs) {
      std::vector<std::string> texts;
      for (const Poison poison : poisons_of(input))
        texts.push_back(diagnose::poison_text(poison, input.tensor.scalar_type()));
      const std::string with = !texts.empty()      ? fmt::format("made bad with {}", fmt::join(texts, ", "))
                               : input.has_samples ? "as it is, because its dtype has no bad values"
                                                   : "as it is, because it has no samples of the batch in dim 0";
      std::string line = fmt::format("input {} ({}): {}", input.name,
                                     input.is_flags ? "flags" : dtype_name(input.tensor.scalar_type()), with);
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(std::move(line));
    }
  for (const std::string& line : lines) say("  {}\n", line);
}

void print_output(const OutputIsolation& output, int64_t tried) {
  const std::string form = output.clean.defined() ? describe(output.clean) : "nothing";
  const std::string along = output.dim && *output.dim > 0 ? fmt::format(", samples in dim {}", *output.dim) : "";
  say("    {} ({}{}): {}\n", output.name, form, along,
      output.leaks.empty() ? paint(Paint::good, "isolated") : paint(Paint::error, "NOT isolated"));
  for (const std::string& line : leak_lines(output, tried)) say("      {}\n", line);
}

void print_crossing(const Crossing& crossing) {
  const std::string where =
      fmt::format("into {}, from {}", fmt::join(crossing.outputs, ", "), fmt::join(crossing.poisons, ", "));
  if (!crossing.step) {
    say("    no operator can be named: {}\n        {}\n", crossing.why_unnamed, where);
    return;
  }
  const diagnose::RecordedStep& step = *crossing.step;
  std::string place = step.location;
  if (!step.source.file.empty())
    place += fmt::format("{}{}:{}", place.empty() ? "" : "  ", step.source.file, step.source.line);
  say("    first operator that lets it through: {}{}\n", paint(Paint::error, step.op),
      place.empty() ? "" : "  " + place);
  if (!step.text.empty()) say("        {}\n", step.text);
  say("        {}\n", where);
}

void print_batch(const CheckedBatch& batch) {
  const diagnose::Isolation& found = batch.found;
  say("  {}: {}; {} of {} samples made bad in turn, {} calls\n",
      found.ok() ? paint(Paint::good, "isolated") : paint(Paint::error, "NOT isolated"), batch.from, found.rows,
      found.samples, found.calls);
  if (found.restarted)
    say("    a call depends on calls before it, so the script was loaded anew for each comparison\n");
  if (found.ok()) return;
  for (const OutputIsolation& output : found.outputs) print_output(output, found.rows);
  for (const Crossing& crossing : found.crossings) print_crossing(crossing);
}

Json leak_json(const IsolationLeak& leak) {
  std::vector<int64_t> listed = leak.hurt;
  if (listed.size() > rows_listed) listed.resize(rows_listed);
  return {{"input", leak.input},
          {"poison", diagnose::poison_name(leak.poison)},
          {"value", diagnose::poison_text(leak.poison, leak.dtype)},
          {"later", leak.later},
          {"rows", leak.rows},
          {"row", leak.row},
          {"changed", leak.hurt.size()},
          {"changed_rows", listed},
          {"how", leak.how.empty() ? Json() : Json(leak.how)}};
}

Json tensor_json(const std::string& name, const at::Tensor& tensor) {
  Json json = {{"name", name}, {"dtype", nullptr}, {"shape", nullptr}};
  if (tensor.defined()) json["dtype"] = dtype_name(tensor.scalar_type()), json["shape"] = tensor.sizes().vec();
  return json;
}

Json crossing_json(const Crossing& crossing) {
  Json json = {{"operator", nullptr}, {"text", nullptr}, {"location", nullptr}, {"file", nullptr}, {"line", nullptr}};
  if (crossing.step) {
    const diagnose::RecordedStep& step = *crossing.step;
    json["operator"] = step.op;
    if (!step.text.empty()) json["text"] = step.text;
    if (!step.location.empty()) json["location"] = step.location;
    if (!step.source.file.empty()) json["file"] = step.source.file, json["line"] = step.source.line;
  }
  json["why_unnamed"] = crossing.step ? Json() : Json(crossing.why_unnamed);
  json["outputs"] = crossing.outputs;
  json["by"] = crossing.poisons;
  return json;
}

Json batch_json(const CheckedBatch& batch) {
  const diagnose::Isolation& found = batch.found;
  Json json = {{"from", batch.from}, {"ok", found.ok()},     {"samples", found.samples},
               {"rows", found.rows}, {"calls", found.calls}, {"restarted", found.restarted}};
  json["inputs"] = Json::array(), json["outputs"] = Json::array(), json["operators"] = Json::array();
  for (const IsolationInput& input : batch.inputs) {
    Json one = tensor_json(input.name, input.tensor);
    one["poisons"] = Json::array();
    for (const Poison poison : poisons_of(input)) one["poisons"].push_back(diagnose::poison_name(poison));
    json["inputs"].push_back(std::move(one));
  }
  for (const OutputIsolation& output : found.outputs) {
    Json one = tensor_json(output.name, output.clean);
    one["isolated"] = output.leaks.empty();
    one["dim"] = output.dim ? Json(*output.dim) : Json();
    one["leaks"] = Json::array();
    for (const IsolationLeak& leak : output.leaks) one["leaks"].push_back(leak_json(leak));
    json["outputs"].push_back(std::move(one));
  }
  for (const Crossing& crossing : found.crossings) json["operators"].push_back(crossing_json(crossing));
  return json;
}

}  // namespace

bool IsolationReport::ok() const {
  return std::all_of(batches.begin(), batches.end(), [](const CheckedBatch& batch) { return batch.found.ok(); });
}

void print(const IsolationReport& report) {
  say("{}{}\n", paint(Paint::heading, report.name), report.backend.empty() ? "" : ", backend " + report.backend);
  print_inputs(report.batches);
  for (const CheckedBatch& batch : report.batches) print_batch(batch);
  for (const std::string& text : report.left_out) say("  left out: {}\n", text);
  if (!report.ok() && !report.operators_are_from.empty()) say("  {}\n", report.operators_are_from);
}

Json to_json(const IsolationReport& report) {
  Json json = {{report.kind, report.name}, {"ok", report.ok()}};
  json["backend"] = report.backend.empty() ? Json() : Json(report.backend);
  json["operators_are_from"] = report.operators_are_from.empty() ? Json() : Json(report.operators_are_from);
  json["batches"] = Json::array();
  for (const CheckedBatch& batch : report.batches) json["batches"].push_back(batch_json(batch));
  json["left_out"] = report.left_out;
  return json;
}

}  // namespace triage::cli
