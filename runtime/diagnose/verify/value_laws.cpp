// The laws of single values: Law::finite, unchanged, stable and gradients.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "runtime/diagnose/verify/blame.h"
#include "runtime/diagnose/verify/gradients.h"
#include "runtime/diagnose/verify/smallest.h"
#include "runtime/diagnose/verify/trial.h"

namespace triage::diagnose {
namespace {

constexpr size_t most_blamed = 8;   // samples of one output and law whose operator is looked for
constexpr size_t most_alone = 512;  // samples that are batches of their own

class ValueLaws : public LawTrial {
 public:
  using LawTrial::LawTrial;

  /// A batch, and what was called before it: the next calls begin with the state that this left.
  struct Turn {
    std::vector<size_t> samples;
    std::vector<std::vector<size_t>> before = {};
  };

  /// A batch that is larger than a size that the script may compare its own with.
  void add_larger_batches(std::vector<Turn>& turns) const {
    for (const size_t size : scripted_sizes()) {
      if (size < samples_.size()) continue;
      std::vector<size_t> repeated(size + 1);
      for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = i % samples_.size();
      turns.push_back({std::move(repeated)});
    }
  }

  /// The call behind as many as the script may count.
  void add_later_calls(std::vector<Turn>& turns, const std::vector<size_t>& all, size_t good) const {
    for (const size_t count : scripted_calls())
      turns.push_back({all, std::vector<std::vector<size_t>>(count + 1, std::vector<size_t>{good})});
  }

  /// All samples together; the bad ones without a good one beside them; each alone. With state also the calls after.
  std::vector<Turn> turns() const {
    std::vector<size_t> all(samples_.size()), bad, good;
    for (size_t i = 0; i < all.size(); ++i) (is_good(samples_[all[i] = i]) ? good : bad).push_back(i);
    std::vector<Turn> turns = {{all}};
    if (!bad.empty() && !good.empty()) turns.push_back({bad});
    std::vector<size_t> alone = bad;
    alone.insert(alone.end(), good.begin(), good.end());
    alone.resize(std::min(alone.size(), most_alone));
    for (const size_t one : answers_one_ ? alone : std::vector<size_t>()) turns.push_back({{one}});
    add_larger_batches(turns);
    if (!subject_.has_state()) return turns;
    std::vector<size_t> others = all;
    std::rotate(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2), others.end());
    turns.push_back({all, {all}});
    turns.push_back({all, {others}});
    turns.push_back({all, {all, all, all}});
    if (good.empty()) return turns;
    const std::vector<size_t> same(all.size(), good.front());
    turns.push_back({same, {all}});
    turns.push_back({same, {same, same, same}});
    if (answers_one_) add_later_calls(turns, all, good.front());
    return turns;
  }

  std::optional<Answers> answers_of(const Turn& turn) {
    try {
      if (turn.before.empty()) return ask(picked(turn.samples));
      for (size_t i = 0; i < turn.before.size(); ++i)
        i == 0 ? ask(picked(turn.before[i])) : ask_next(picked(turn.before[i]));
      return ask_next(picked(turn.samples));
    } catch (const std::exception&) {  // of samples that other batches answer: not this law
      return std::nullopt;
    }
  }

  /// Of one sample alone, whatever an output holds belongs to it: a loss, the rows that were kept.
  void take_whole_outputs(Answers& answers) const {
    for (size_t output = 0; output < answers.outputs.size(); ++output) {
      at::Tensor& tensor = answers.outputs[output];
      const bool is_ranged = output < ranges_.size() && ranges_[output];
      if (answers.samples == 1 && is_ranged && tensor.defined() && !answers.has_samples(output) && tensor.numel() > 0 &&
          !answers.is_flags_output(output))
        tensor = tensor.reshape({1, -1});
    }
  }

  static constexpr std::string_view of_later_call = ", with the state that the others left)";
  static std::string in_call(size_t number) { return fmt::format(" (in call {}{}", number, of_later_call); }

  struct BrokenSample {
    size_t sample;
    std::string what;
    std::vector<size_t> batch = {};  // that showed it; empty: all of them
    size_t row = 0;                  // of it
  };

  /// `how(answers, output, row, record, sample)` says how a sample breaks the law, `blame(samples, row, output)` which
  /// operator does.
  template <class How, class Blame>
  void judge(Law law, const How& how, const Blame& blame) {
    struct Broken {
      std::vector<BrokenSample> samples;
      std::vector<bool> seen;
    };
    std::map<size_t, Broken> broken;  // by output; once for each sample
    for (const Turn& turn : turns()) {
      std::optional<Answers> answers = answers_of(turn);
      if (!answers) continue;
      take_whole_outputs(*answers);
      const std::vector<Record> records = answers->records();
      for (size_t output = 0; output < answers->outputs.size(); ++output) {
        if (!answers->has_samples(output) || !is_promised(law, answers->names[output])) continue;
        Broken& found = broken[output];
        found.seen.resize(samples_.size());
        for (size_t row = 0; row < turn.samples.size(); ++row) {
          const size_t sample = turn.samples[row];
          if (found.seen[sample]) continue;
          auto what = how(*answers, output, static_cast<int64_t>(row), records[row], samples_[sample]);
          if (!what) continue;
          found.seen[sample] = true;
          found.samples.push_back(
              {sample, turn.before.empty() ? *what : *what + in_call(turn.before.size() + 1), turn.samples, row});
        }
      }
    }
    for (const auto& [output, found] : broken) {
      const auto alone = [&, of = output](const TriedSample& one) -> std::optional<std::string> {
        Answers of_one = ask({one});
        take_whole_outputs(of_one);
        if (of >= of_one.outputs.size() || !of_one.has_samples(of)) return std::nullopt;
        return how(of_one, of, 0, of_one.records().front(), one);
      };
      note(law, output, found.samples, alone,
           [&, of = output](const TriedSamples& some, size_t row) { return blame(some, row, of); });
    }
  }

  /// Samples that break a law, with how. `alone` says how one does by itself, `blame` which operator does then. Samples
  /// beside each other mostly show the same, so those that are looked at are spread over all.
  template <class Alone, class Blame>
  void note(Law law, size_t output, const std::vector<BrokenSample>& broken, const Alone& alone, const Blame& blame) {
    const size_t count = std::min(broken.size(), most_blamed);
    for (size_t i = 0; i < count; ++i) {
      const BrokenSample& one = broken[i * broken.size() / count];
      Violation violation{name_of(output), one.what, samples_[one.sample].what, i == 0 ? 1 + broken.size() - count : 1};
      look_closer(violation, one, alone, blame);
      add(law, std::move(violation));
    }
  }

  template <class Alone, class Blame>
  void look_closer(Violation& violation, const BrokenSample& broken, const Alone& alone, const Blame& blame) {
    const TriedSample& sample = samples_[broken.sample];
    const auto told = [&](const TriedSample& one) -> std::optional<std::string> {
      try {
        return alone(one);
      } catch (const std::exception&) {  // of a sample that was cut
        return std::nullopt;
      }
    };
    violation.inputs = named(batch_of(sample));
    if (!told(sample)) {
      const bool is_later = violation.what.ends_with(of_later_call);
      const size_t count = broken.batch.empty() ? samples_.size() : broken.batch.size();
      if (!is_later) violation.what += fmt::format(" (in a batch of {} samples, not alone)", count);
      if (is_later || broken.batch.empty())
        place(violation, blame({sample}, 0));
      else
        place(violation, blame(picked(broken.batch), broken.row));
      return;
    }
    const std::optional<RecordedStep> step = blame({sample}, 0);
    const auto shows = [&](const TriedSample& one) {
      if (!told(one)) return false;
      const std::optional<RecordedStep> other = blame({one}, 0);
      if (!step || !other) return !step && !other;
      return other->op == step->op && other->source.line == step->source.line;
    };
    const TriedSample least = smallest(sample, inputs_, shows);
    violation.what = told(least).value_or(violation.what);
    violation.inputs = named(batch_of(least));
    place(violation, step);
  }

  void try_finite() {
    judge(
        Law::finite,
        [this](const Answers& answers, size_t output, int64_t row, const Record& record, const TriedSample&) {
          if (output < ranges_.size() && ranges_[output])
            if (auto what = out_of_range(answers, output, row, *ranges_[output])) return what;
          return not_finite(answers, output, row, record, promise(Law::finite).only_nan, kept_);
        },
        [this](const TriedSamples& samples, size_t row, size_t output) {
          const auto range = output < ranges_.size() ? ranges_[output] : std::nullopt;
          const Recording recording = subject_.record(diagnose::batch_of(inputs_, samples));
          return samples.size() == 1 ? made_bad(recording, output, range)
                                     : made_bad(recording, output, range, static_cast<int64_t>(row));
        });
  }

  bool has_pairs() const {
    for (size_t i = 0; i < names_.size(); ++i)
      if (input_of(i)) return true;
    return false;
  }

  static constexpr const char* no_pairs = "no output has the name of an input";

  void try_unchanged() {
    if (!has_pairs()) return not_tried(Law::unchanged, no_pairs);
    judge(
        Law::unchanged,
        [this](const Answers& answers, size_t output, int64_t row, const Record& record,
               const TriedSample& sample) -> std::optional<std::string> {
          const auto input = input_of(output);
          if (!input || !record.empty()) return std::nullopt;
          const at::Tensor own = answers.outputs[output].narrow(0, row, 1);
          const int64_t count = changed_values(own, sample.rows[*input]);
          if (count == 0) return std::nullopt;
          return fmt::format("changes {} of {} values of a sample whose record is clean", count, own.numel());
        },
        [this](const TriedSamples& samples, size_t row, size_t output) { return changed_by(samples[row], output); });
  }

  std::optional<RecordedStep> changed_by(const TriedSample& sample, size_t output) {
    return changed(subject_.record(batch_of(sample)), output, sample.rows[*input_of(output)]);
  }

  void try_stable() {
    if (!has_pairs()) return not_tried(Law::stable, no_pairs);
    const TriedSamples own = own_outputs(samples_);
    const Answers second = ask(own);
    for (size_t output = 0; output < second.outputs.size(); ++output) {
      const auto input = input_of(output);
      if (!input || !second.has_samples(output) || !is_promised(Law::stable, name_of(output))) continue;
      const auto how = [&](const at::Tensor& got, const at::Tensor& given) -> std::optional<std::string> {
        const int64_t count = changed_values(got, given);
        if (count == 0) return std::nullopt;
        return fmt::format("{}: a second call, with the outputs of the first, changes {} of {} values", name_of(output),
                           count, got.numel());
      };
      std::vector<BrokenSample> broken;
      for (size_t row = 0; row < own.size(); ++row)
        if (auto what = how(second.outputs[output].narrow(0, static_cast<int64_t>(row), 1), own[row].rows[*input]))
          broken.push_back({row, std::move(*what)});
      note(
          Law::stable, output, broken,
          [&](const TriedSample& one) {
            const TriedSamples given = own_outputs({one});
            return how(ask(given).outputs[output], given[0].rows[*input]);
          },
          [&](const TriedSamples& some, size_t row) { return changed_by(own_outputs(some)[row], output); });
    }
  }

  /// What the policy makes of samples, as samples.
  TriedSamples own_outputs(TriedSamples samples) {
    const Answers answers = ask(samples);
    for (size_t row = 0; row < samples.size(); ++row)
      for (size_t output = 0; output < answers.outputs.size(); ++output)
        if (const auto input = input_of(output); input && answers.has_samples(output))
          samples[row].rows[*input] = answers.outputs[output]
                                          .narrow(0, static_cast<int64_t>(row), 1)
                                          .to(samples[row].rows[*input].scalar_type());
    return samples;
  }

  void try_gradients() {
    std::string why_not;
    ++found_.calls;
    const Tensors gradients = gradients_of(subject_, inputs_, diagnose::batch_of(inputs_, samples_), why_not);
    if (!why_not.empty()) return not_tried(Law::gradients, why_not);
    for (size_t input = 0; input < gradients.size(); ++input) {
      if (!gradients[input].defined()) continue;
      const at::Tensor is_good = at::isfinite(gradients[input]).reshape({gradients[input].size(0), -1}).all(1);
      const at::Tensor rows = is_good.logical_not().nonzero().flatten();
      if (rows.numel() > 0) note_gradient(input, rows);
    }
  }

  void note_gradient(size_t input, const at::Tensor& rows) {
    const auto row = static_cast<size_t>(rows[0].item<int64_t>());
    Violation violation{"", "", samples_[row].what, static_cast<size_t>(rows.numel())};
    const std::string what = fmt::format("the gradient of {} has NaN or Inf in {} of {} samples", inputs_[input].name,
                                         rows.numel(), samples_.size());
    violation.what = what;
    const auto alone = [&](const TriedSample& one) -> std::optional<std::string> {
      std::string none;
      ++found_.calls;
      const at::Tensor gradient = gradients_of(subject_, inputs_, batch_of(one), none)[input];
      if (!gradient.defined() || at::isfinite(gradient).all().item<bool>()) return std::nullopt;
      return what;
    };
    look_closer(violation, {row, what}, alone, [&](const TriedSamples& some, size_t) {
      return broke_gradient(subject_, inputs_, diagnose::batch_of(inputs_, some));
    });
    add(Law::gradients, std::move(violation));
  }
};

}  // namespace

void try_finite(TrialState& state) { ValueLaws(state).try_finite(); }
void try_unchanged(TrialState& state) { ValueLaws(state).try_unchanged(); }
void try_stable(TrialState& state) { ValueLaws(state).try_stable(); }
void try_gradients(TrialState& state) { ValueLaws(state).try_gradients(); }

}  // namespace triage::diagnose
