#include "runtime/diagnose/isolation/check.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/isolation/rows.h"
#include "runtime/graph/output_names.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

constexpr int64_t failures_that_tell =
    3;  // of one kind of bad sample: further rows would fail likewise, and each costs a call

/// The same batch gave other bits: calls depend on earlier ones.
struct NotRepeated {};

struct IsolationOutcome {
  Tensors outputs, later;  // of the call, and of the clean one behind it
  std::string failure, later_failure;
};

class Check {
 public:
  Check(IsolationSubject& subject, const std::vector<IsolationInput>& inputs, const IsolationOptions& options,
        bool restart)
      : subject_(subject), inputs_(inputs), options_(options) {
    found_.restarted = restart;
    looks_later_ = restart || subject.has_state();
    for (const IsolationInput& input : inputs) {
      clean_inputs_.push_back(input.tensor);
      if (input.has_samples) found_.samples = input.tensor.size(0);
    }
    choose_rows();
  }

  Isolation operator()() && {
    baseline();
    size_t all = 0, done = 0;
    for (const IsolationInput& input : inputs_) all += poisons_of(input).size() * rows_.size();
    for (size_t i = 0; i < inputs_.size(); ++i)
      for (const Poison poison : poisons_of(inputs_[i])) {
        int64_t failures = 0;
        for (const int64_t row : rows_) {
          if (options_.progress) options_.progress(done, all);
          ++done;
          if (failures < failures_that_tell) failures += try_row(i, poison, row);
        }
      }
    name_crossings();
    return std::move(found_);
  }

 private:
  static std::vector<Poison> poisons_of(const IsolationInput& input) {
    return input.has_samples ? poisons_for(input.tensor.scalar_type(), input.is_flags) : std::vector<Poison>();
  }

  /// All, or from the first to the last with the same distance.
  void choose_rows() {
    const int64_t count = std::min(options_.rows, found_.samples);
    for (int64_t i = 0; i < count; ++i) rows_.push_back(count == 1 ? 0 : i * (found_.samples - 1) / (count - 1));
    found_.rows = count;
  }

  Tensors call(const Tensors& inputs, bool next = false) {
    ++found_.calls;
    Tensors outputs = next ? subject_.call_next(inputs) : subject_.call(inputs);
    for (at::Tensor& output : outputs)
      if (output.defined()) output = output.detach().clone();
    return outputs;
  }

  IsolationOutcome outcome_of(const Tensors& inputs) {
    IsolationOutcome outcome;
    if (found_.restarted) {
      subject_.restart();
      call(clean_inputs_);  // captures
    }
    try_call(inputs, outcome.outputs, outcome.failure);
    if (looks_later_) try_call(clean_inputs_, outcome.later, outcome.later_failure, /*next=*/true);
    return outcome;
  }

  void try_call(const Tensors& inputs, Tensors& outputs, std::string& failure, bool next = false) {
    try {
      outputs = call(inputs, next);
    } catch (const std::exception& error) {
      failure = messages::message_of(error);
    }
  }

  /// The clean batch twice: what does not repeat itself cannot be compared.
  void baseline() {
    if (!found_.restarted) {
      call(clean_inputs_);
      call(clean_inputs_);  // the first may be the script, which captured the graph of the others
    }
    clean_ = outcome_of(clean_inputs_);
    const IsolationOutcome again = outcome_of(clean_inputs_);
    for (const std::string& failure : {clean_.failure, clean_.later_failure, again.failure, again.later_failure})
      if (!failure.empty()) throw PolicyError(fmt::format("isolate: the batch without a bad sample: {}", failure));
    if (!same(clean_.outputs, again.outputs) || !same(clean_.later, again.later)) {
      if (!found_.restarted) throw NotRepeated();
      throw PolicyError(
          "isolate: two calls with the same inputs and the same seed gave other results, so nothing can be said of "
          "single "
          "samples; expected the same bits");
    }
    const std::vector<bool> flags_inputs = subject_.flags_inputs();
    for (size_t i = 0; i < flags_inputs.size() && i < inputs_.size(); ++i) inputs_[i].is_flags |= flags_inputs[i];
    const std::vector<std::string> names = subject_.output_names();
    const std::vector<bool> flags = subject_.flags_outputs();
    for (size_t i = 0; i < clean_.outputs.size(); ++i) {
      const at::Tensor& output = clean_.outputs[i];
      found_.outputs.push_back({graph::output_name(names, i),
                                output,
                                output.defined() ? dim_of_samples(output, found_.samples) : std::nullopt,
                                i < flags.size() && flags[i],
                                {}});
    }
  }

  static bool same(const Tensors& a, const Tensors& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const at::Tensor& one, const at::Tensor& other) {
      return same_kind(one, other) && (!one.defined() || same_bits(one, other));
    });
  }

  Tensors with_poison(size_t input, Poison poison, int64_t row) const {
    Tensors inputs = clean_inputs_;
    inputs[input] = poisoned(inputs[input], row, poison);
    return inputs;
  }

  /// Returns whether the call failed.
  bool try_row(size_t input, Poison poison, int64_t row) {
    const Tensors inputs = with_poison(input, poison, row);
    IsolationOutcome outcome = outcome_of(inputs);
    // The first call of its kind may be answered by a script that captures a graph, with other roundings.
    if (!found_.restarted && outcome.failure.empty() && leaks(outcome.outputs, clean_.outputs, row))
      outcome = outcome_of(inputs);
    compare(outcome.outputs, outcome.failure, clean_.outputs, input, poison, row, false);
    if (looks_later_) compare(outcome.later, outcome.later_failure, clean_.later, input, poison, row, true);
    if (!found_.restarted) expect_clean_answer();
    return !outcome.failure.empty();
  }

  void expect_clean_answer() {
    IsolationOutcome after;
    try_call(clean_inputs_, after.outputs, after.failure);
    if (!after.failure.empty() || !same(after.outputs, clean_.outputs)) throw NotRepeated();
  }

  OutputChange change(const Tensors& given, const Tensors& clean, size_t output, int64_t row) const {
    if (given.size() != clean.size())
      return {Spread::others, {}, fmt::format("{} outputs became {}", clean.size(), given.size())};
    return change_of(clean[output], given[output], found_.samples, row, found_.outputs[output].is_flags);
  }
  bool leaks(const Tensors& given, const Tensors& clean, int64_t row) const {
    for (size_t i = 0; i < clean.size(); ++i)
      if (change(given, clean, i, row).spread == Spread::others) return true;
    return false;
  }
  void compare(const Tensors& given, const std::string& failure, const Tensors& clean, size_t input, Poison poison,
               int64_t row, bool later) {
    for (size_t i = 0; i < clean.size(); ++i) {
      if (!failure.empty()) {
        note(found_.outputs[i], input, poison, later, row, {}, failure);
        continue;
      }
      const OutputChange changed = change(given, clean, i, row);
      if (changed.spread == Spread::others)
        note(found_.outputs[i], input, poison, later, row, changed.rows, changed.form);
    }
  }

  void note(OutputIsolation& output, size_t input, Poison poison, bool later, int64_t row,
            const std::vector<int64_t>& hurt, const std::string& how) {
    const IsolationInput& from = inputs_[input];
    auto leak = std::find_if(output.leaks.begin(), output.leaks.end(), [&](const IsolationLeak& known) {
      return known.input == from.name && known.poison == poison && known.later == later;
    });
    if (leak == output.leaks.end()) {
      output.leaks.push_back({from.name, from.tensor.scalar_type(), poison, later, 0, row, row, hurt, how});
      leak = output.leaks.end() - 1;
    }
    ++leak->rows;
    leak->last = row;
  }

  // Which operators

  void name_crossings() {
    std::optional<Recording> clean;
    for (size_t i = 0; i < found_.outputs.size(); ++i)
      for (const IsolationLeak& leak : found_.outputs[i].leaks) {
        if (leak.poison == Poison::one_nan && has_leak(found_.outputs[i], leak, Poison::nan)) continue;
        Crossing crossing;
        if (!clean) clean = fresh_recording(clean_inputs_);
        if (leak.later)
          name_later(crossing, *clean, leak);
        else
          name(crossing, *clean, i, leak);
        add(std::move(crossing), found_.outputs[i].name, leak);
      }
  }

  /// A whole sample of NaN says more than one NaN, which may lie where something else is looked for.
  static bool has_leak(const OutputIsolation& output, const IsolationLeak& like, Poison poison) {
    return std::any_of(output.leaks.begin(), output.leaks.end(), [&](const IsolationLeak& leak) {
      return leak.input == like.input && leak.poison == poison && leak.later == like.later;
    });
  }

  Recording fresh_recording(const Tensors& inputs) {
    if (found_.restarted) subject_.restart();
    return subject_.record(inputs);
  }

  size_t input_of(const IsolationLeak& leak) const {
    return static_cast<size_t>(
        std::find_if(inputs_.begin(), inputs_.end(), [&](const auto& one) { return one.name == leak.input; }) -
        inputs_.begin());
  }

  /// The operator through which the bad sample reached what the next call begins with.
  void name_later(Crossing& crossing, const Recording& clean, const IsolationLeak& leak) {
    const Recording bad = fresh_recording(with_poison(input_of(leak), leak.poison, leak.row));
    for (size_t i = found_.outputs.size(); i < clean.outputs.size() && !crossing.step; ++i)
      if (const auto step = first_crossing(clean, bad, found_.samples, leak.row, i)) crossing.step = clean.steps[*step];
    if (!crossing.step)
      crossing.why_unnamed = looks_later_ && !found_.restarted
                                 ? "the state carries values of the bad sample to the next call"
                                 : "the script keeps values of the bad sample for its next call";
  }

  void name(Crossing& crossing, const Recording& clean, size_t output, const IsolationLeak& leak) {
    const size_t input = input_of(leak);
    const Recording bad = fresh_recording(with_poison(input, leak.poison, leak.row));
    auto step = first_crossing(clean, bad, found_.samples, leak.row, output);
    if (leak.last != leak.row) {  // samples at the ends have neighbours on one side only
      const Recording other = fresh_recording(with_poison(input, leak.poison, leak.last));
      const auto other_step = first_crossing(clean, other, found_.samples, leak.last, output);
      if (other_step && (!step || *other_step < *step)) step = other_step;
    }
    if (step)
      crossing.step = clean.steps[*step];
    else if (!clean.complete || !bad.complete)
      crossing.why_unnamed = "the values between its operators exceed 2 GiB; try fewer samples";
    else if (!bad.failure.empty())
      crossing.why_unnamed = "the script raised the error itself";
    else
      crossing.why_unnamed =
          "each operator by itself keeps the samples apart; look at what the backend computes in one part, or at "
          "values "
          "that the script reads";
  }

  void add(Crossing crossing, const std::string& output, const IsolationLeak& leak) {
    const auto key = [](const Crossing& one) {
      return one.step ? fmt::format("{} {}:{} {} {}", one.step->op, one.step->source.file, one.step->source.line,
                                    one.step->location, one.step->text)
                      : one.why_unnamed;
    };
    auto known = std::find_if(found_.crossings.begin(), found_.crossings.end(),
                              [&](const Crossing& one) { return key(one) == key(crossing); });
    if (known == found_.crossings.end()) {
      found_.crossings.push_back(std::move(crossing));
      known = found_.crossings.end() - 1;
    }
    const auto add_once = [](std::vector<std::string>& to, const std::string& text) {
      if (std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
    };
    add_once(known->outputs, output);
    add_once(known->poisons, fmt::format("{} in {}", poison_text(leak.poison, leak.dtype), leak.input));
  }

  IsolationSubject& subject_;
  std::vector<IsolationInput> inputs_;
  const IsolationOptions& options_;
  Tensors clean_inputs_;
  std::vector<int64_t> rows_;
  IsolationOutcome clean_;
  bool looks_later_;  // what a call leaves for the next one is compared, too
  Isolation found_;
};

void check_inputs(const std::vector<IsolationInput>& inputs) {
  const auto has_samples = [](const IsolationInput& input) {
    return input.has_samples && !poisons_for(input.tensor.scalar_type(), input.is_flags).empty();
  };
  const auto first = std::find_if(inputs.begin(), inputs.end(), has_samples);
  if (first == inputs.end())
    throw InputError("isolate: expected an input with the batch as its first dimension, got none");
  if (first->tensor.size(0) < 2)
    throw InputError(
        fmt::format("isolate: expected a batch of at least 2 samples, because a bad one is compared with "
                    "its neighbours; input \"{}\" has {}",
                    first->name, first->tensor.size(0)));
}

}  // namespace

bool Isolation::ok() const {
  return std::all_of(outputs.begin(), outputs.end(),
                     [](const OutputIsolation& output) { return output.leaks.empty(); });
}

Isolation check_isolation(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                          const IsolationOptions& options) {
  check_inputs(inputs);
  try {
    return Check(subject, inputs, options, /*restart=*/false)();
  } catch (const NotRepeated&) {
    return Check(subject, inputs, options, /*restart=*/true)();
  }
}

}  // namespace triage::diagnose
