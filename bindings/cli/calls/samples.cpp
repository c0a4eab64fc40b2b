#include "bindings/cli/calls/samples.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type();
}

/// Null where none or several are meant.
const NamedTensor* input_of(const NamedTensor& output, const std::vector<NamedTensor>& inputs) {
  const NamedTensor* found = nullptr;
  for (const NamedTensor& input : inputs) {
    if (!same_kind(input.second, output.second)) continue;
    if (input.first == output.first) return &input;
    if (found) return nullptr;
    found = &input;
  }
  return found;
}

SampleOutput compare(const NamedTensor& output, const NamedTensor& input, int64_t sample) {
  const at::Tensor before = input.second[sample], after = output.second[sample];
  const at::Tensor stayed_nan = before.ne(before) & after.ne(after);
  return {output.first, input.first, (before.ne(after) & ~stayed_nan).sum().item<int64_t>(), after.numel(),
          after.isfinite().logical_not().sum().item<int64_t>()};
}

std::string errors_text(const BadSample& sample) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < sample.errors.size(); ++i) {
    const flags::UnpackedError& error = sample.errors[i];
    const bool last_here = i + 1 == sample.errors.size() || sample.errors[i + 1].location_name != error.location_name;
    const std::string position = error.position.empty() ? "" : " at " + position_text(error.position);
    texts.push_back(error.code_name + (last_here || !position.empty() ? " @ " + error.location_name : "") + position);
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string outputs_text(const BadSample& sample) {
  std::vector<std::string> texts;
  for (const SampleOutput& output : sample.outputs)
    texts.push_back(fmt::format("{}: {} of {} values changed{}", output.output, output.changed, output.values,
                                output.not_finite ? fmt::format(", {} not finite", output.not_finite) : ""));
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

BadSamples bad_samples(const at::Tensor& flags, const InspectOptions& options, const std::vector<NamedTensor>& inputs,
                       const std::vector<NamedTensor>& outputs, size_t most) {
  BadSamples samples;
  int64_t last = -1;
  for (const flags::TableRow& row : flags::to_table(flags, options)) {
    if (row.sample != last && ++samples.count <= most) samples.listed.push_back({row.sample, {}, {}});
    last = row.sample;
    if (samples.count <= most) samples.listed.back().errors.push_back(row.error);
  }
  const int64_t rows = flags.size(0);
  for (const NamedTensor& output : outputs) {
    const NamedTensor* const input = input_of(output, inputs);
    if (!input || output.second.dim() == 0 || output.second.size(0) != rows) continue;
    for (BadSample& sample : samples.listed) sample.outputs.push_back(compare(output, *input, sample.sample));
  }
  return samples;
}

void print_samples(const BadSamples& samples) {
  size_t widest = 0;
  for (const BadSample& sample : samples.listed) widest = std::max(widest, errors_text(sample).size());
  for (size_t i = 0; i < samples.listed.size(); ++i) {
    const BadSample& sample = samples.listed[i];
    const std::string line = fmt::format("  {:<8} {:<6} {:<{}}  {}", i == 0 ? "bad" : "", sample.sample,
                                         errors_text(sample), widest, outputs_text(sample));
    say("{}\n", messages::one_line(line.substr(0, line.find_last_not_of(' ') + 1)));
  }
  if (samples.count > samples.listed.size())
    say("           {}\n", paint(Paint::faint, fmt::format("and {} more bad samples; --json lists up to 1000",
                                                           samples.count - samples.listed.size())));
}

Json samples_json(const BadSamples& samples) {
  Json list = Json::array();
  for (const BadSample& sample : samples.listed) {
    Json errors = Json::array(), outputs = Json::array();
    for (const flags::UnpackedError& error : sample.errors) {
      errors.push_back(
          {{"code", error.code_name}, {"location", error.location_name}, {"severity", error.severity_name}});
      if (!error.position.empty()) errors.back()["position"] = error.position;
    }
    for (const SampleOutput& output : sample.outputs)
      outputs.push_back({{"name", output.output},
                         {"input", output.input},
                         {"changed", output.changed},
                         {"values", output.values},
                         {"not_finite", output.not_finite}});
    list.push_back({{"sample", sample.sample}, {"errors", errors}, {"outputs", outputs}});
  }
  return {{"count", samples.count}, {"listed", list}};
}

}  // namespace triage::cli
