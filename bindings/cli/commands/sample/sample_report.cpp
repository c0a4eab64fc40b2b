#include "bindings/cli/commands/sample/sample_report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>
#include <triage/flags.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;
using lua::LineOfSample;
using lua::SampleByLine;
using lua::ValueOfSample;

constexpr int64_t most_on_screen = 6, most_in_json = 64;

// Numbers

bool can_be_read(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized();
}

struct Extremes {
  at::Tensor least, most;  // of what is finite; undefined where nothing is
  int64_t nan = 0, inf = 0;
};

/// Complex numbers count as their parts.
Extremes extremes_of(const at::Tensor& tensor) {
  at::Tensor numbers = tensor.detach().cpu();
  if (numbers.is_complex()) numbers = at::view_as_real(numbers.resolve_conj());
  numbers = numbers.flatten();
  Extremes found;
  if (numbers.is_floating_point()) {
    numbers = numbers.to(at::kDouble);
    found.nan = numbers.isnan().sum().item<int64_t>();
    found.inf = numbers.isinf().sum().item<int64_t>();
    numbers = numbers.masked_select(numbers.isfinite());
  }
  if (numbers.numel() > 0) found.least = numbers.min(), found.most = numbers.max();
  return found;
}

std::string element_text(const at::Tensor& element) {
  if (element.is_complex())
    return fmt::format("{:.5g}{:+.5g}i", at::real(element).item<double>(), at::imag(element).item<double>());
  if (element.scalar_type() == at::kBool) return element.item<bool>() ? "true" : "false";
  if (!element.is_floating_point()) return fmt::format("{}", element.item<int64_t>());
  const double value = element.item<double>();
  return std::isnan(value) ? "nan" : fmt::format("{:.5g}", value);  // one NaN is like another
}

std::string first_elements(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().flatten();
  std::vector<std::string> texts;
  for (int64_t i = 0; i < std::min(flat.numel(), most_on_screen); ++i) texts.push_back(element_text(flat[i]));
  if (flat.numel() > most_on_screen) texts.emplace_back("...");
  return fmt::format("{}", fmt::join(texts, " "));
}

/// Of several elements: "min -1, max 2, 1 NaN", "3 of 4 true".
std::string extremes_text(const at::Tensor& tensor) {
  if (tensor.numel() < 2) return "";
  if (tensor.scalar_type() == at::kBool)
    return fmt::format("{} of {} true", tensor.sum().item<int64_t>(), tensor.numel());
  const Extremes found = extremes_of(tensor);
  std::vector<std::string> texts;
  if (found.least.defined())
    texts.push_back(fmt::format("min {}, max {}", element_text(found.least), element_text(found.most)));
  if (found.nan > 0) texts.push_back(fmt::format("{} NaN", found.nan));
  if (found.inf > 0) texts.push_back(fmt::format("{} Inf", found.inf));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Flags

std::vector<flags::UnpackedError> entries_of(const ValueOfSample& value) {
  return flags::unpack(value.tensor, 0, {.codes = value.codes});
}

bool has_record(const ValueOfSample& value) { return value.is_flags && value.has_samples && value.tensor.defined(); }

std::string record_text(const ValueOfSample& value) {
  std::vector<std::string> texts;
  for (const flags::UnpackedError& error : entries_of(value))
    texts.push_back(fmt::format("{} @ {} ({})", error.code_name, error.location_name, error.severity_name));
  return texts.empty() ? "clean" : fmt::format("{}", fmt::join(texts, ", "));
}

// For people

std::string form_of(const at::Tensor& tensor) {
  return fmt::format("{} [{}]", dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

/// "far = aten::gt"
std::string label_of(const ValueOfSample& value) {
  const std::string op = value.op.substr(0, value.op.find('.'));
  if (value.name.empty()) return op.empty() ? "(no name)" : op;
  return op.empty() ? value.name : value.name + " = " + op;
}

std::string text_of(const ValueOfSample& value) {
  if (!value.tensor.defined()) return "not kept";
  if (!can_be_read(value.tensor)) return form_of(value.tensor) + ": not shown, because it is not dense";
  if (has_record(value)) return "flags: " + record_text(value);
  const std::string extremes = extremes_text(value.tensor);
  return fmt::format("{}: {}{}{}", form_of(value.tensor), first_elements(value.tensor), extremes.empty() ? "" : "  ",
                     extremes) +
         (value.has_samples ? "" : "  (the same for all samples)");
}

void print_values(const std::vector<ValueOfSample>& values, size_t width) {
  for (const ValueOfSample& value : values)
    say("    {}\n", messages::one_line(fmt::format("{:<{}}  {}", label_of(value), width, text_of(value))));
}

// For programs

Json number_json(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

Json element_json(const at::Tensor& element) {
  if (element.is_complex())
    return {number_json(at::real(element).item<double>()), number_json(at::imag(element).item<double>())};
  if (element.scalar_type() == at::kBool) return element.item<bool>();
  if (!element.is_floating_point()) return element.item<int64_t>();
  return number_json(element.item<double>());
}

Json value_json(const ValueOfSample& value) {
  Json json = {{"name", value.name.empty() ? Json() : Json(value.name)},
               {"operator", value.op.empty() ? Json() : Json(value.op)},
               {"has_samples", value.has_samples}};
  if (!value.tensor.defined()) return json;
  json["dtype"] = dtype_name(value.tensor.scalar_type());
  json["shape"] = value.tensor.sizes().vec();
  if (has_record(value)) {
    json["flags"] = Json::array();
    for (const flags::UnpackedError& error : entries_of(value))
      json["flags"].push_back(
          {{"code", error.code_name}, {"location", error.location_name}, {"severity", error.severity_name}});
    return json;
  }
  if (!can_be_read(value.tensor)) return json;
  const at::Tensor flat = value.tensor.detach().flatten();
  json["values"] = Json::array();
  for (int64_t i = 0; i < std::min(flat.numel(), most_in_json); ++i) json["values"].push_back(element_json(flat[i]));
  const Extremes found = extremes_of(value.tensor);
  json["min"] = found.least.defined() ? element_json(found.least) : Json();
  json["max"] = found.most.defined() ? element_json(found.most) : Json();
  json["nan"] = found.nan;
  json["inf"] = found.inf;
  return json;
}

Json values_json(const std::vector<ValueOfSample>& values) {
  Json list = Json::array();
  for (const ValueOfSample& value : values) list.push_back(value_json(value));
  return list;
}

Json line_json(const LineOfSample& line) {
  return {
      {"file", line.where.file}, {"line", line.where.line}, {"text", line.text}, {"values", values_json(line.values)}};
}

}  // namespace

void check_samples(const std::vector<int64_t>& samples, const lua::CallByLine& call, const std::string& policy) {
  if (!call.samples())
    throw UsageError(
        fmt::format("--sample: {} was given no batch: no input has samples as its first dimension", policy));
  const int64_t count = *call.samples();
  for (const int64_t sample : samples)
    if (sample < 0 || sample >= count)
      throw UsageError(fmt::format("--sample {}: the batch of {} has {}", sample, policy,
                                   count == 0   ? "no samples"
                                   : count == 1 ? "1 sample, number 0"
                                                : fmt::format("{} samples, numbered from 0 to {}", count, count - 1)));
}

void print_sample(const std::string& policy, const SampleByLine& sample) {
  size_t width = 0;
  const auto widen = [&](const std::vector<ValueOfSample>& values) {
    for (const ValueOfSample& value : values) width = std::max(width, label_of(value).size());
  };
  widen(sample.given), widen(sample.outputs);
  for (const LineOfSample& line : sample.lines) widen(line.values);
  say("{}, sample {} of {}\n", paint(Paint::heading, messages::one_line(policy)), sample.sample, sample.samples);
  print_values(sample.given, width);
  for (const LineOfSample& line : sample.lines) {
    say("{}:{}  {}\n", line.where.file, line.where.line, paint(Paint::faint, line.text));
    print_values(line.values, width);
  }
  if (sample.outputs.empty()) return;
  say("outputs\n");
  print_values(sample.outputs, width);
}

void print_end(const lua::CallByLine& call) {
  if (!call.complete()) say("the call made more tensors than are kept: of the later ones there are no values\n");
  if (!call.failure().empty()) say("{}: {}\n", paint(Paint::error, "the call failed here"), call.failure());
}

Json samples_by_line_json(const lua::CallByLine& call, const std::vector<int64_t>& samples) {
  Json list = Json::array();
  for (const int64_t index : samples) {
    const SampleByLine sample = call.sample(index);
    Json lines = Json::array();
    for (const LineOfSample& line : sample.lines) lines.push_back(line_json(line));
    list.push_back({{"sample", sample.sample},
                    {"of", sample.samples},
                    {"given", values_json(sample.given)},
                    {"lines", lines},
                    {"outputs", values_json(sample.outputs)}});
  }
  return list;
}

}  // namespace triage::cli
