#include "runtime/diagnose/verify/trial.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/graph/output_names.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {

bool is_at(const Violation& violation, const Source& place) {
  return violation.source.line == place.line && violation.source.file == place.file;
}

void add_to(LawResult& law, Violation violation) {
  const auto same = std::find_if(law.violations.begin(), law.violations.end(), [&](const Violation& known) {
    return known.output == violation.output && known.op == violation.op && is_at(known, violation.source);
  });
  if (same == law.violations.end())
    law.violations.push_back(std::move(violation));
  else
    same->samples += violation.samples;
}

TrialState::TrialState(VerifySubject& of, const std::vector<IsolationInput>& batch, const LawsOptions& given)
    : subject(of), inputs(batch), options(given), ranges(of.output_ranges()), kept(of.accumulation()) {
  for (const Law law : all_laws) {
    promises.push_back({law, law != Law::gradients, {}});
    found.laws.push_back({law, LawResult::Verdict::held, {}, {}});
  }
  for (const Promise& promise : of.promises()) promises[static_cast<size_t>(promise.law)] = promise;
}

bool LawTrial::is_promised(Law law, const std::string& output) const {
  const std::vector<std::string>& outputs = promise(law).outputs;
  return outputs.empty() || std::find(outputs.begin(), outputs.end(), output) != outputs.end();
}

void LawTrial::not_tried(Law law, std::string why) {
  result(law).verdict = Verdict::not_tried;
  result(law).why = std::move(why);
}

void LawTrial::add(Law law, Violation violation) {
  result(law).verdict = Verdict::broken;
  add_to(result(law), std::move(violation));
}

void LawTrial::place(Violation& violation, const std::optional<RecordedStep>& step) {
  if (!step) return;
  violation.source = step->source;
  violation.op = step->op;
}

std::vector<std::pair<std::string, at::Tensor>> LawTrial::named(const Tensors& batch) const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (size_t i = 0; i < inputs_.size(); ++i) all.emplace_back(inputs_[i].name, batch[i]);
  return all;
}

std::string LawTrial::name_of(size_t output) const { return graph::output_name(names_, output); }

std::optional<size_t> LawTrial::input_of(size_t output) const {
  for (size_t i = 0; i < inputs_.size() && output < names_.size(); ++i)
    if (inputs_[i].name == names_[output] && inputs_[i].has_samples && !inputs_[i].is_flags) return i;
  return std::nullopt;
}

TriedSamples LawTrial::picked(const std::vector<size_t>& which) const {
  TriedSamples samples;
  for (const size_t i : which) samples.push_back(samples_[i]);
  return samples;
}

size_t LawTrial::most_rows(size_t least) const {
  constexpr size_t most_elements_of_batch = size_t{1} << 23, most = 4096;
  const size_t elements = samples_.empty() ? 0 : elements_of(samples_.front());
  return std::clamp(most_elements_of_batch / (1 + elements), least, most);
}

std::set<size_t> LawTrial::scripted(size_t first, size_t last, size_t most) const {
  std::set<size_t> found;
  for (const double number : numbers_)
    if (number == std::trunc(number) && number >= static_cast<double>(first) && number <= static_cast<double>(last) &&
        number <= static_cast<double>(most) && found.insert(static_cast<size_t>(number)).second)
      most -= static_cast<size_t>(number);
  return found;
}

Answers LawTrial::answers_of(Tensors (IsolationSubject::*call)(const Tensors&), const TriedSamples& samples) {
  ++found_.calls;
  Answers answers{(subject_.*call)(diagnose::batch_of(inputs_, samples)), names_, is_flags_,
                  static_cast<int64_t>(samples.size()), subject_.codes()};
  for (size_t i = answers.names.size(); i < answers.outputs.size(); ++i) answers.names.push_back(name_of(i));
  for (at::Tensor& output : answers.outputs)
    if (output.defined()) output = output.detach();
  return answers;
}

std::string LawTrial::failure_of(const Tensors& batch, Source* where) {
  try {
    ++found_.calls;
    subject_.call(batch);
    return {};
  } catch (const Error& error) {
    if (where) *where = error.source();
    return messages::message_of(error);
  } catch (const std::exception& error) {
    return messages::message_of(error);
  }
}

bool LawTrial::fails_at(const Source& place) {
  const std::vector<Violation>& failures = result(Law::answers).violations;
  return std::any_of(failures.begin(), failures.end(), [&](const Violation& known) { return is_at(known, place); });
}

}  // namespace triage::diagnose
