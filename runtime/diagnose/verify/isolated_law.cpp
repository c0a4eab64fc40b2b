// Law::isolated.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/isolation/start_batches.h"
#include "runtime/diagnose/verify/blame.h"
#include "runtime/diagnose/verify/smallest.h"
#include "runtime/diagnose/verify/trial.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

constexpr size_t samples_of_isolation = 4;

class IsolatedLaw : public LawTrial {
 public:
  using LawTrial::LawTrial;

  void try_isolated() {
    TriedSamples good;
    for (const TriedSample& sample : samples_)
      if (sample.is_given && is_good(sample) && good.size() < samples_of_isolation) good.push_back(sample);
    if (good.empty()) return not_tried(Law::isolated, "no sample of the batch is without NaN and Inf");
    for (size_t i = 0; good.size() < samples_of_isolation; ++i) good.push_back(TriedSample(good[i]));
    std::vector<IsolationInput> inputs = inputs_;
    const Tensors batch = diagnose::batch_of(inputs_, good);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].tensor = batch[i];
    for (const StartBatch& start : start_batches(inputs)) {
      for (size_t i = 0; i < inputs.size(); ++i) inputs[i].tensor = start.tensors[i];
      try {
        note_isolation(check_isolation(subject_, inputs, {}), inputs);
      } catch (const std::exception& error) {
        if (result(Law::isolated).verdict == Verdict::held) not_tried(Law::isolated, messages::message_of(error));
      }
    }
    if (result(Law::isolated).verdict != Verdict::broken) try_bad_neighbours();
  }

  static constexpr size_t neighbours = 12;        // of the batch that tried samples are put into
  static constexpr size_t most_neighbours = 256;  // that are tried

  /// Samples that the policy calls bad, put among good ones: these keep their answers, in the next call too.
  void try_bad_neighbours() {
    std::vector<size_t> good, bad;
    const std::vector<Record> records = ask(samples_).records();
    for (size_t i = 0; i < samples_.size(); ++i)
      (is_good(samples_[i]) && records[i].empty() && samples_[i].is_given ? good : bad).push_back(i);
    std::erase_if(bad, [&](size_t i) { return !is_bad_neighbour(samples_[i], records[i]); });
    if (good.empty() || bad.empty()) return;
    for (size_t i = 0; good.size() < neighbours; ++i) good.push_back(good[i]);
    good.resize(neighbours);
    const std::vector<Answers> clean = calls_with(good, good), again = calls_with(good, good);
    for (const size_t output : outputs_with_samples(clean[0]))
      if (!other_rows(clean[0], again[0], output, {}).empty())
        return;  // not the same bits twice: check_isolation says so
    for (const size_t one : spread(bad, most_neighbours))
      for (const size_t row : {size_t{0}, neighbours / 2}) {
        std::vector<size_t> batch = good;
        batch[row] = one;
        compare_neighbours(clean, good, batch, {row},
                           samples_[one].what + fmt::format(", in place {} of the batch,", row));
      }
    for (const size_t one : spread(bad, 8)) {
      std::vector<size_t> batch(neighbours, one);
      batch[1] = good[1];
      std::set<size_t> rows;
      for (size_t row = 0; row < neighbours; ++row)
        if (row != 1) rows.insert(row);
      compare_neighbours(clean, good, batch, rows, samples_[one].what + ", in all places of the batch but 1,");
    }
    if (result(Law::isolated).verdict != Verdict::broken) try_all_victims(good, bad);
  }

  /// At most so many, from the first on, at equal distances.
  static std::vector<size_t> spread(const std::vector<size_t>& all, size_t most) {
    std::vector<size_t> some;
    const size_t count = std::min(all.size(), most);
    for (size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
    return some;
  }

  /// Each finite sample between two bad ones, in one batch: what changes it may be a condition of its own.
  void try_all_victims(const std::vector<size_t>& good, const std::vector<size_t>& bad) {
    std::vector<size_t> finite, clean;
    for (size_t i = 0; i < samples_.size(); ++i)
      if (is_good(samples_[i])) finite.push_back(i);
    for (const size_t victim : spread(finite, std::min(most_neighbours, most_rows(16) / 2))) {
      clean.push_back(good[clean.size() / 2 % good.size()]);
      clean.push_back(victim);
    }
    const auto answers = answered_calls(clean, clean);
    if (!answers) return;
    for (const size_t one : spread(bad, 6)) {
      std::vector<size_t> batch = clean;
      for (const size_t row : even_rows(batch)) batch[row] = one;
      const std::vector<Hurt> found = hurt_by(batch, *answers, clean, even_rows(batch));
      if (!found.empty()) return show_victim(clean, batch, found.front().row);
    }
  }

  static std::set<size_t> even_rows(const std::vector<size_t>& batch) {
    std::set<size_t> rows;
    for (size_t row = 0; row < batch.size(); row += 2) rows.insert(row);
    return rows;
  }

  /// With as few of the others as show it: halves of those around it.
  void show_victim(std::vector<size_t> clean, std::vector<size_t> batch, size_t victim) {
    for (size_t around = 2; around < clean.size(); around *= 2) {
      const size_t begin = victim < around ? 0 : (victim - around) / 2 * 2,
                   end = std::min(clean.size(), victim + around);
      const auto part = [&](const std::vector<size_t>& of) {
        return std::vector<size_t>(of.begin() + static_cast<std::ptrdiff_t>(begin),
                                   of.begin() + static_cast<std::ptrdiff_t>(end));
      };
      const std::vector<size_t> few = part(clean), with_bad = part(batch);
      const auto answers = answered_calls(few, few);
      if (!answers || hurt_by(with_bad, *answers, few, even_rows(few)).empty()) continue;
      clean = few;
      batch = with_bad;
      break;
    }
    compare_neighbours(calls_with(clean, clean), clean, batch, even_rows(batch),
                       samples_[batch.front()].what + ", in each second place of the batch,");
  }

  /// NaN, Inf, what has an entry in its record, and whatever stands in inputs without floats.
  bool is_bad_neighbour(const TriedSample& sample, const Record& record) const {
    if (sample.is_given && is_good(sample) && record.empty()) return false;
    if (!is_good(sample) || !record.empty()) return true;
    const auto first = std::find_if(samples_.begin(), samples_.end(), [](const auto& one) { return one.is_given; });
    for (size_t i = 0; i < sample.rows.size(); ++i) {
      const at::Tensor& row = sample.rows[i];
      if (row.defined() && !row.is_floating_point() && !row.is_complex() && first != samples_.end() &&
          !at::equal(row, first->rows[i]))
        return true;
    }
    return false;
  }

  static constexpr const char* calls_text[] = {"in its call", "in the same call once more", "in the next call",
                                               "in the call after the next"};

  /// Where a state may carry something: twice, and the two calls after that.
  std::vector<Answers> calls_with(const std::vector<size_t>& batch, const std::vector<size_t>& next) {
    std::vector<Answers> answers = {ask(picked(batch))};
    if (subject_.has_state())
      for (const auto* later : {&batch, &next, &next}) answers.push_back(ask_next(picked(*later)));
    return answers;
  }

  static std::vector<size_t> outputs_with_samples(const Answers& answers) {
    std::vector<size_t> outputs;
    for (size_t i = 0; i < answers.outputs.size(); ++i) {
      const at::Tensor& output = answers.outputs[i];
      if (output.defined() && output.dim() > 0 && output.size(0) == answers.samples) outputs.push_back(i);
    }
    return outputs;
  }

  /// The rows with other bits, but for `rows`.
  static std::vector<size_t> other_rows(const Answers& one, const Answers& other, size_t output,
                                        const std::set<size_t>& rows) {
    const at::Tensor &a = one.outputs.at(output), &b = other.outputs.at(output);
    std::vector<size_t> found;
    if (!same_kind(a, b)) return found;
    const at::Tensor differs = differing(a, b).reshape({a.size(0), -1}).any(1);
    for (int64_t row = 0; row < a.size(0); ++row)
      if (!rows.count(static_cast<size_t>(row)) && differs[row].item<bool>()) found.push_back(static_cast<size_t>(row));
    return found;
  }

  /// Nothing where one fails: of samples that another batch answers, Law::answers tells.
  std::optional<std::vector<Answers>> answered_calls(const std::vector<size_t>& batch,
                                                     const std::vector<size_t>& next) {
    try {
      return calls_with(batch, next);
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  /// The first row of an output of one call that has other bits.
  struct Hurt {
    size_t call, output, row;
  };
  /// By `batch` in the place of what gave `clean`, with `next` in later calls, but for `rows`: a sample's own state is
  /// its own.
  std::vector<Hurt> hurt_by(const std::vector<size_t>& batch, const std::vector<Answers>& clean,
                            const std::vector<size_t>& next, const std::set<size_t>& rows) {
    std::vector<Hurt> found;
    const auto got = answered_calls(batch, next);
    for (size_t call = 0; got && call < got->size(); ++call)
      for (const size_t output : outputs_with_samples(clean[call])) {
        if (!is_promised(Law::isolated, clean[call].names[output])) continue;
        const auto hurt = other_rows(clean[call], (*got)[call], output, rows);
        if (!hurt.empty()) found.push_back({call, output, hurt.front()});
      }
    return found;
  }

  void compare_neighbours(const std::vector<Answers>& clean, const std::vector<size_t>& good,
                          const std::vector<size_t>& batch, const std::set<size_t>& rows, const std::string& what) {
    for (const auto& [call, output, row] : hurt_by(batch, clean, good, rows)) {
      Violation violation{clean[call].names[output],
                          fmt::format("{} changes sample {}, {}", what, row, calls_text[call]), what, 1};
      violation.row = static_cast<int64_t>(*rows.begin());
      const Tensors shown = diagnose::batch_of(inputs_, picked(batch));
      violation.inputs = named(shown);
      const Recording before = subject_.record(diagnose::batch_of(inputs_, picked(good)));
      const Recording after = subject_.record(shown);
      const auto hurt_row = static_cast<int64_t>(row), count = static_cast<int64_t>(batch.size());
      place(violation, call == 0 ? first_other({before, count, hurt_row}, {after, count, hurt_row})
                                 : crossing_to_state(before, after, count, violation.row));
      add(Law::isolated, std::move(violation));
    }
  }

  /// The operator through which sample `row` reached what the next call begins with.
  std::optional<RecordedStep> crossing_to_state(const Recording& before, const Recording& after, int64_t samples,
                                                int64_t row) {
    for (size_t output = names_.size(); output < before.outputs.size(); ++output)
      if (const auto step = first_crossing(before, after, samples, row, output)) return before.steps[*step];
    return std::nullopt;
  }

  void note_isolation(const Isolation& isolation, const std::vector<IsolationInput>& inputs) {
    found_.calls += isolation.calls;
    for (const Crossing& crossing : isolation.crossings) {
      if (crossing.step && fails_at(crossing.step->source)) continue;  // a call that fails is told of once
      Violation violation;
      violation.output = fmt::format("{}", fmt::join(crossing.outputs, ", "));
      violation.sample = crossing.poisons.front();
      for (const OutputIsolation& output : isolation.outputs)
        for (const IsolationLeak& leak : output.leaks)
          if (violation.inputs.empty() && output.name == crossing.outputs.front()) {
            describe(violation, leak, inputs);
            if (leak.how.empty() && !leak.hurt.empty()) show_least(violation, leak, output.name, inputs);
          }
      place(violation, crossing.step);
      if (!crossing.step) violation.what += ": " + crossing.why_unnamed;
      const std::vector<std::string>& only = promise(Law::isolated).outputs;
      const bool counts =
          only.empty() || std::any_of(crossing.outputs.begin(), crossing.outputs.end(),
                                      [&](const auto& name) { return is_promised(Law::isolated, name); });
      if (counts) add(Law::isolated, std::move(violation));
    }
  }

  /// The samples that another one in place of `row` changes. `samples`: a batch, and behind it that other one.
  std::vector<size_t> changed_rows(const TriedSamples& samples, size_t row, size_t output, bool later) {
    const TriedSamples clean(samples.begin(), samples.end() - 1), bad = with_last_at(samples, row);
    try {
      const Answers before = later ? (ask(clean), ask_next(clean)) : ask(clean);
      const Answers after = later ? (ask(bad), ask_next(clean)) : ask(bad);
      const std::vector<size_t> outputs = outputs_with_samples(before);
      if (std::find(outputs.begin(), outputs.end(), output) == outputs.end()) return {};
      return other_rows(before, after, output, later ? std::set<size_t>() : std::set<size_t>{row});
    } catch (const std::exception&) {  // of samples that were cut
      return {};
    }
  }

  static TriedSamples with_last_at(const TriedSamples& samples, size_t row) {
    TriedSamples batch(samples.begin(), samples.end() - 1);
    batch[row] = samples.back();
    return batch;
  }

  /// The samples of a batch, and behind them the bad one of the leak.
  static TriedSamples with_bad_one(const std::vector<IsolationInput>& inputs, const IsolationLeak& leak) {
    const auto own = std::find_if(inputs.begin(), inputs.end(), [](const auto& input) { return input.has_samples; });
    const int64_t count = own->tensor.size(0);
    TriedSamples all(static_cast<size_t>(count) + 1, TriedSample{"", Tensors(inputs.size())});
    for (size_t i = 0; i < inputs.size(); ++i) {
      const at::Tensor& clean = inputs[i].tensor;
      if (!inputs[i].has_samples) continue;
      for (int64_t row = 0; row < count; ++row) all[static_cast<size_t>(row)].rows[i] = clean.narrow(0, row, 1);
      const at::Tensor bad = inputs[i].name == leak.input ? poisoned(clean, leak.row, leak.poison) : clean;
      all.back().rows[i] = bad.narrow(0, leak.row, 1);
    }
    return all;
  }

  /// With as few samples, and of these as few values, as show the leak.
  void show_least(Violation& violation, const IsolationLeak& leak, const std::string& name,
                  const std::vector<IsolationInput>& inputs) {
    const auto output = static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    const auto which = static_cast<size_t>(leak.row);
    const TriedSamples all = with_bad_one(inputs, leak);
    const auto picked_of = [&](std::vector<size_t> batch) {
      batch.push_back(all.size() - 1);
      TriedSamples some;
      for (const size_t i : batch) some.push_back(all[i]);
      return some;
    };
    const auto shows = [&](const std::vector<size_t>& batch) {
      return !changed_rows(picked_of(batch), place_of(which, batch), output, leak.later).empty();
    };
    std::vector<size_t> batch(all.size() - 1);
    std::iota(batch.begin(), batch.end(), size_t{0});
    if (!shows(batch)) return;
    batch = fewest(std::move(batch), which, shows);
    const size_t row = place_of(which, batch);
    const auto still_shows = [&](const TriedSamples& some) {
      return !changed_rows(some, row, output, leak.later).empty();
    };
    const TriedSamples least = smallest(picked_of(batch), inputs_, still_shows, /*kept=*/1);  // the bad one stays bad
    violation.row = static_cast<int64_t>(row);
    violation.what = leak_text(leak, violation.row, changed_rows(least, row, output, leak.later).size());
    violation.inputs = named(diagnose::batch_of(inputs_, with_last_at(least, row)));
  }

  static std::string leak_text(const IsolationLeak& leak, int64_t row, size_t hurt) {
    return fmt::format("{} as sample {} changes {} other samples, {}", poison_text(leak.poison, leak.dtype), row, hurt,
                       call_text(leak));
  }

  static const char* call_text(const IsolationLeak& leak) {
    return leak.later ? "in the next call, which has the batch without it" : "in its call";
  }

  static void describe(Violation& violation, const IsolationLeak& leak, const std::vector<IsolationInput>& inputs) {
    const std::string call = call_text(leak);
    violation.samples = static_cast<size_t>(leak.rows);
    violation.row = leak.row;
    if (!leak.how.empty())
      violation.what =
          fmt::format("{} as sample {}, {}: {}", poison_text(leak.poison, leak.dtype), leak.row, call, leak.how);
    else if (leak.hurt.empty())
      violation.what = fmt::format("{} as sample {} changes what all samples share, {}",
                                   poison_text(leak.poison, leak.dtype), leak.row, call);
    else
      violation.what = leak_text(leak, leak.row, leak.hurt.size());
    for (const IsolationInput& input : inputs)
      violation.inputs.emplace_back(
          input.name, input.name == leak.input ? poisoned(input.tensor, leak.row, leak.poison) : input.tensor);
  }
};

}  // namespace

void try_isolated(TrialState& state) { IsolatedLaw(state).try_isolated(); }

}  // namespace triage::diagnose
