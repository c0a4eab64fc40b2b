#include "runtime/policy/ranges/violations.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <runtime/flags/records/errors.h>
#include <triage/config.h>
#include <triage/flags.h>
#include <triage/location.h>

#include <algorithm>
#include <cstring>

#include "runtime/capture/hidden_results.h"
#include "runtime/policy/attribution/flagged.h"

namespace triage::policy {
namespace {

int64_t count_of(const at::Tensor& rows) {
  const at::Tensor mask = rows.contiguous();
  const bool* const begin = mask.data_ptr<bool>();
  const auto size = static_cast<size_t>(mask.numel());
  if (size == 0 || !std::memchr(begin, 1, size)) return 0;  // mostly so
  return std::count(begin, begin + size, true);
}

/// Whether the rows of `tensor` are the samples that `rows` tells of.
bool has_rows_of(const at::Tensor& tensor, const at::Tensor& rows) {
  return tensor.defined() && tensor.dim() > 0 && tensor.size(0) == rows.size(0) && tensor.device() == rows.device();
}

at::Tensor any_of_row(const at::Tensor& elements) { return elements.dim() > 1 ? elements.flatten(1).any(1) : elements; }

/// Whatever else the record keeps: a full one gives up its weakest entry.
at::Tensor push(const at::Tensor& f, Code code, int64_t location, const at::Tensor& rows) {
  ErrorConfig worst = get_config();
  worst.num_slots = flags::last_slot(f, worst) + 1;
  worst.accumulation = {Priority::severity, Order::last, Dedupe::unique};
  return err::push(f, code, location, {err::critical, rows, worst});
}

void flag_output(const at::Tensor& output, const at::Tensor& rows, int64_t location, at::Tensor& f) {
  at::Tensor others = rows;
  if (output.defined() && (output.is_floating_point() || output.is_complex()) && has_rows_of(output, rows)) {
    const at::Tensor nan = any_of_row(output.isnan()).logical_and(rows);
    const at::Tensor inf = any_of_row(output.isinf()).logical_and(rows);
    f = push(f, err::nan, location, nan);
    f = push(f, err::inf, location, inf);
    others = rows.logical_and(nan.logical_or(inf).logical_not());
  }
  f = push(f, err::out_of_bounds, location, others);
}

}  // namespace

at::Tensor Violations::rows() const {
  at::Tensor all;
  for (const OutputViolation& output : outputs) {
    if (!is_dense_cpu(output.rows) || (all.defined() && all.sizes() != output.rows.sizes())) return {};
    all = all.defined() ? all.logical_or(output.rows) : output.rows;
  }
  return all;
}

int64_t Violations::count() const {
  int64_t sum = 0;
  for (const OutputViolation& output : outputs) {
    if (output.count < 0) return -1;
    sum += output.count;
  }
  return sum;
}

bool Violations::read() {
  for (OutputViolation& output : outputs)
    if (output.count < 0) output.count = count_of(output.rows.cpu());
  return std::any_of(outputs.begin(), outputs.end(), [](const OutputViolation& output) { return output.count > 0; });
}

std::string Violations::text(const Signature& signature) const {
  std::string text;
  for (const OutputViolation& output : outputs) {
    if (output.count <= 0) continue;
    text += fmt::format("{}{} of {} samples of '{}' (declared {})", text.empty() ? "" : ", ", output.count,
                        output.rows.numel(), signature.outputs[output.index],
                        signature.output_ranges[output.index]->text());
  }
  return text;
}

std::unique_ptr<Violations> take_violations(const Signature& signature, std::vector<at::Tensor>& outputs) {
  std::unique_ptr<Violations> found;
  size_t mask = outputs.size() - capture::num_hidden(signature);
  for (size_t i = 0; i < signature.output_ranges.size(); ++i) {
    if (!signature.output_ranges[i]) continue;
    at::Tensor& rows = outputs[mask++];
    const int64_t count = is_dense_cpu(rows) ? count_of(rows) : -1;
    if (count == 0) continue;
    if (!found) found = std::make_unique<Violations>();
    found->outputs.push_back({i, std::move(rows), count});
  }
  capture::drop_hidden(signature, outputs);
  return found;
}

void flag(const Violations& violations, const Signature& signature, const std::vector<bool>& is_flags,
          std::vector<at::Tensor>& outputs) {
  for (const Violations::OutputViolation& violated : violations.outputs) {
    if (outputs[violated.index].dim() == 0) continue;  // it belongs to no sample
    const int64_t location = ErrorLocation::register_path("output." + signature.outputs[violated.index]);
    for (size_t i = 0; i < outputs.size() && i < is_flags.size(); ++i)
      if (is_flags[i] && outputs[i].dim() == 2 && has_rows_of(outputs[i], violated.rows))
        flag_output(outputs[violated.index], violated.rows, location, outputs[i]);
  }
}

std::optional<size_t> input_named(const Signature& signature, size_t output) {
  const auto& inputs = signature.inputs;
  const auto found = std::find(inputs.begin(), inputs.end(), signature.outputs[output]);
  return found == inputs.end() ? std::nullopt : std::optional(static_cast<size_t>(found - inputs.begin()));
}

void pass_rows_through(const Violations& violations, const Signature& signature, const std::vector<bool>& is_flags,
                       at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) {
  static const auto select = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("triage::select", "")
                                 .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  for (const Violations::OutputViolation& violated : violations.outputs)
    for (size_t i = 0; i < outputs.size() && i < signature.outputs.size(); ++i) {
      const auto input = i < is_flags.size() && is_flags[i] ? std::nullopt : input_named(signature, i);
      if (!input || !has_rows_of(outputs[i], violated.rows)) continue;
      const at::Tensor& given = inputs[*input];
      const bool fits = given.sizes() == outputs[i].sizes() && given.device() == outputs[i].device() &&
                        given.layout() == outputs[i].layout();
      if (fits) outputs[i] = select.call(violated.rows, given.to(outputs[i].scalar_type()), outputs[i]);
    }
}

}  // namespace triage::policy
