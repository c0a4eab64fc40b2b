#include "runtime/diagnose/verify/verify.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/isolation/start_batches.h"
#include "runtime/diagnose/verify/answers.h"
#include "runtime/diagnose/verify/blame.h"
#include "runtime/diagnose/verify/gradients.h"
#include "runtime/diagnose/verify/search.h"
#include "runtime/diagnose/verify/smallest.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

using Verdict = LawResult::Verdict;

constexpr size_t most_blamed = 8;   // samples of one output and law whose operator is looked for
constexpr size_t most_alone = 512;  // samples that are batches of their own
constexpr size_t samples_of_isolation = 4;

bool is_at(const Violation& violation, const Source& place) {
  return violation.source.line == place.line && violation.source.file == place.file;
}

/// One place of the script stands once.
void add_to(LawResult& law, Violation violation) {
  const auto same = std::find_if(law.violations.begin(), law.violations.end(), [&](const Violation& known) {
    return known.output == violation.output && known.op == violation.op && is_at(known, violation.source);
  });
  if (same == law.violations.end())
    law.violations.push_back(std::move(violation));
  else
    same->samples += violation.samples;
}

class Laws {
 public:
  Laws(VerifySubject& subject, const std::vector<IsolationInput>& inputs, const LawsOptions& options)
      : subject_(subject),
        inputs_(inputs),
        options_(options),
        ranges_(subject.output_ranges()),
        kept_(subject.accumulation()) {
    for (const Law law : all_laws) {
      promises_.push_back({law, law != Law::gradients, {}});
      found_.laws.push_back({law, Verdict::held, {}, {}});
    }
    for (const Promise& promise : subject.promises()) promises_[static_cast<size_t>(promise.law)] = promise;
  }

  Verification operator()() && {
    if (!learn()) return std::move(found_);
    numbers_ = subject_.numbers();
    samples_ = samples_to_try(inputs_, numbers_);
    const std::pair<Law, void (Laws::*)()> all[] = {
        {Law::answers, &Laws::try_answers},  {Law::finite, &Laws::try_finite}, {Law::unchanged, &Laws::try_unchanged},
        {Law::order, &Laws::try_order},      {Law::stable, &Laws::try_stable}, {Law::gradients, &Laws::try_gradients},
        {Law::isolated, &Laws::try_isolated}};
    for (const auto& [law, check] : all) {
      if (options_.progress) options_.progress(to_string(law));
      if (!promise(law).kept && law != Law::answers)
        result(law).verdict = Verdict::not_promised;
      else if (samples_.empty())
        not_tried(law, "each sample makes the call fail");
      else
        try_law(law, check);
    }
    found_.samples = samples_.size();
    return std::move(found_);
  }

 private:
  /// A batch of samples that are answered may fail: then that is told, and what was found is kept.
  void try_law(Law law, void (Laws::*check)()) {
    try {
      (this->*check)();
    } catch (const std::exception& error) {
      if (result(law).verdict == Verdict::held) not_tried(law, messages::message_of(error));
    }
  }

  LawResult& result(Law law) { return found_.laws[static_cast<size_t>(law)]; }
  const Promise& promise(Law law) const { return promises_[static_cast<size_t>(law)]; }
  bool is_promised(Law law, const std::string& output) const {
    const std::vector<std::string>& outputs = promise(law).outputs;
    return outputs.empty() || std::find(outputs.begin(), outputs.end(), output) != outputs.end();
  }
  void not_tried(Law law, std::string why) {
    result(law).verdict = Verdict::not_tried;
    result(law).why = std::move(why);
  }

  Tensors batch_of(const TriedSample& sample) const { return diagnose::batch_of(inputs_, &sample, &sample + 1); }

  Answers ask(const TriedSamples& samples) { return answers_of(&IsolationSubject::call, samples); }
  /// The call after the last one, with the state that this left.
  Answers ask_next(const TriedSamples& samples) { return answers_of(&IsolationSubject::call_next, samples); }

  Answers answers_of(Tensors (IsolationSubject::*call)(const Tensors&), const TriedSamples& samples) {
    ++found_.calls;
    Answers answers{(subject_.*call)(diagnose::batch_of(inputs_, samples)), names_, is_flags_,
                    static_cast<int64_t>(samples.size()), subject_.codes()};
    for (size_t i = answers.names.size(); i < answers.outputs.size(); ++i) answers.names.push_back(name_of(i));
    for (at::Tensor& output : answers.outputs)
      if (output.defined()) output = output.detach();
    return answers;
  }

  /// The batch given, twice: the first call may be the script, which captures. Then names and forms are known. Of a batch that
  /// fails, the samples that are answered; false where none is.
  bool learn() {
    samples_ = samples_to_try(inputs_, {});
    if (samples_.empty())
      throw InputError("verify: expected an input with the batch as its first dimension, got none with a sample");
    std::erase_if(samples_, [](const TriedSample& sample) { return !sample.is_given; });
    refuse_misfit(samples_);
    samples_ = answered(samples_);
    found_.samples = samples_.size();
    if (samples_.empty()) {
      for (const Law law : all_laws)
        if (law != Law::answers) not_tried(law, "each sample makes the call fail");
      return false;
    }
    ++found_.calls;
    subject_.call(diagnose::batch_of(inputs_, samples_));
    names_ = subject_.output_names();
    is_flags_ = subject_.flags_outputs();
    const std::vector<bool> flags = subject_.flags_inputs();
    for (size_t i = 0; i < flags.size() && i < inputs_.size(); ++i) inputs_[i].is_flags |= flags[i];
    return true;
  }

  /// A batch that does not fit the declaration is no batch of the policy.
  void refuse_misfit(const TriedSamples& samples) {
    try {
      ++found_.calls;
      subject_.call(diagnose::batch_of(inputs_, samples));
    } catch (const InputError&) {
      throw;
    } catch (const std::exception&) {  // which samples fail, is found out
    }
  }

  void add(Law law, Violation violation) {
    result(law).verdict = Verdict::broken;
    add_to(result(law), std::move(violation));
  }

  std::vector<std::pair<std::string, at::Tensor>> named(const Tensors& batch) const {
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (size_t i = 0; i < inputs_.size(); ++i) all.emplace_back(inputs_[i].name, batch[i]);
    return all;
  }

  static void place(Violation& violation, const std::optional<Step>& step) {
    if (!step) return;
    violation.source = step->source;
    violation.op = step->op;
  }

  // answers

  std::string failure_of(const Tensors& batch, Source* where = nullptr) {
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

  /// Samples that make a call fail are tried no further.
  void try_answers() {
    samples_ = answered(samples_);
    if (!samples_.empty()) {
      TriedSamples more =
          answered(search_for_sides(subject_, inputs_, samples_, {options_.search, options_.seed, numbers_}));
      samples_.insert(samples_.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    }
    if (samples_.size() > 1) try_batch_of_one();
    if (!promise(Law::answers).kept) result(Law::answers).verdict = Verdict::not_promised;
  }

  /// Each sample was answered in a batch of more.
  void try_batch_of_one() {
    Source where;
    const std::string failure = failure_of(batch_of(samples_.front()), &where);
    answers_one_ = failure.empty();
    if (answers_one_ || !promise(Law::answers).kept) return;
    Violation violation{"",
                        "a batch of one sample fails, which larger ones do not: " + failure,
                        samples_.front().what,
                        1,
                        where,
                        "",
                        named(batch_of(samples_.front())),
                        0};
    add(Law::answers, std::move(violation));
  }

  TriedSamples answered(const TriedSamples& samples) {
    TriedSamples result;
    keep_answered(samples.data(), samples.data() + samples.size(), result);
    return result;
  }

  void keep_answered(const TriedSample* begin, const TriedSample* end, TriedSamples& answered) {
    if (begin == end) return;
    Source where;
    const std::string failure = failure_of(diagnose::batch_of(inputs_, begin, end), &where);
    if (failure.empty()) {
      answered.insert(answered.end(), begin, end);
    } else if (end - begin == 1) {
      note_failure(*begin, failure, where);
    } else {
      const TriedSample* const middle = begin + (end - begin) / 2;
      const size_t before = answered.size();
      keep_answered(begin, middle, answered);
      keep_answered(middle, end, answered);
      if (answered.size() - before == static_cast<size_t>(end - begin))
        note_failure_together(begin, end, failure, where);
    }
  }

  void note_failure(const TriedSample& sample, const std::string& failure, const Source& where) {
    if (!promise(Law::answers).kept) return;
    const auto fails = [&](const TriedSample& other) {
      Source there;
      return !failure_of(batch_of(other), &there).empty() && there.line == where.line && there.file == where.file;
    };
    const TriedSample least = fails_at(where) ? sample : smallest(sample, inputs_, fails);
    Violation violation{"", "the call fails: " + failure, sample.what, 1, where, "", named(batch_of(least)), 0};
    if (const auto step = raised(subject_.record(batch_of(least)))) violation.op = step->op;
    const auto of_samples = [](const IsolationInput& input) { return input.has_samples && !input.is_flags; };
    if (std::count_if(inputs_.begin(), inputs_.end(), of_samples) > 1 && !answers_one_given())
      violation.what +=
          "; the batch that it is of is answered: if all samples share one of the inputs, name that with --shared, or "
          "declare its type, without the dim of the batch";
    add(Law::answers, std::move(violation));
  }

  /// Whether a sample of the batch given, which is answered, is answered alone.
  bool answers_one_given() {
    const auto given = std::find_if(samples_.begin(), samples_.end(), [](const auto& one) { return one.is_given; });
    if (!answers_one_given_) answers_one_given_ = given == samples_.end() || failure_of(batch_of(*given)).empty();
    return *answers_one_given_;
  }

  bool fails_at(const Source& place) {
    const std::vector<Violation>& failures = result(Law::answers).violations;
    return std::any_of(failures.begin(), failures.end(), [&](const Violation& known) { return is_at(known, place); });
  }

  void note_failure_together(const TriedSample* begin, const TriedSample* end, const std::string& failure,
                             const Source& where) {
    if (!promise(Law::answers).kept) return;
    const std::string what =
        fmt::format("a batch of {} samples fails, of which each half is answered: {}", end - begin, failure);
    add(Law::answers, {"", what, begin->what, 1, where, "", named(diagnose::batch_of(inputs_, begin, end)), 0});
  }

  // finite, unchanged

  /// A batch, and what was called before it: the next calls begin with the state that this left.
  struct Turn {
    std::vector<size_t> samples;
    std::vector<std::vector<size_t>> before = {};
  };

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
          !(output < is_flags_.size() && is_flags_[output]))
        tensor = tensor.reshape({1, -1});
    }
  }

  /// `how(answers, output, row, record, sample)` says how a sample breaks the law, `blame(sample, output)` which operator does.
  template <class How, class Blame>
  void judge(Law law, const How& how, const Blame& blame) {
    struct Broken {
      std::vector<std::pair<size_t, std::string>> samples;
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
          found.samples.emplace_back(sample, turn.before.empty() ? *what : *what + " (in a later call)");
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
      note(law, output, found.samples, alone, [&, of = output](const TriedSample& one) { return blame(one, of); });
    }
  }

  /// Samples that break a law, with how. `alone` says how one does by itself, `blame` which operator does then. Samples beside each
  /// other mostly show the same, so those that are looked at are spread over all.
  template <class Alone, class Blame>
  void note(Law law, size_t output, const std::vector<std::pair<size_t, std::string>>& broken, const Alone& alone,
            const Blame& blame) {
    const size_t count = std::min(broken.size(), most_blamed);
    for (size_t i = 0; i < count; ++i) {
      const auto& [sample, what] = broken[i * broken.size() / count];
      Violation violation{name_of(output), what, samples_[sample].what, i == 0 ? 1 + broken.size() - count : 1};
      look_closer(violation, samples_[sample], alone, blame);
      add(law, std::move(violation));
    }
  }

  template <class Alone, class Blame>
  void look_closer(Violation& violation, const TriedSample& sample, const Alone& alone, const Blame& blame) {
    const auto told = [&](const TriedSample& one) -> std::optional<std::string> {
      try {
        return alone(one);
      } catch (const std::exception&) {  // of a sample that was cut
        return std::nullopt;
      }
    };
    violation.inputs = named(batch_of(sample));
    if (!told(sample)) {
      const bool is_later = violation.what.ends_with(" (in a later call)");
      if (!is_later) violation.what += fmt::format(" (in a batch of {} samples, not alone)", samples_.size());
      place(violation, blame(sample));
      return;
    }
    const std::optional<Step> step = blame(sample);
    const auto shows = [&](const TriedSample& one) {
      if (!told(one)) return false;
      const std::optional<Step> other = blame(one);
      if (!step || !other) return !step && !other;
      return other->op == step->op && other->source.line == step->source.line;
    };
    const TriedSample least = smallest(sample, inputs_, shows);
    violation.what = told(least).value_or(violation.what);
    violation.inputs = named(batch_of(least));
    place(violation, step);
  }

  std::string name_of(size_t output) const {
    return output < names_.size() ? names_[output] : fmt::format("out{}", output);
  }

  void try_finite() {
    judge(
        Law::finite,
        [this](const Answers& answers, size_t output, int64_t row, const Record& record, const TriedSample&) {
          if (output < ranges_.size() && ranges_[output])
            if (auto what = out_of_range(answers, output, row, *ranges_[output])) return what;
          return not_finite(answers, output, row, record, promise(Law::finite).only_nan, kept_);
        },
        [this](const TriedSample& sample, size_t output) {
          const auto range = output < ranges_.size() ? ranges_[output] : std::nullopt;
          return made_bad(subject_.record(batch_of(sample)), output, range);
        });
  }

  /// The input of an output's name.
  std::optional<size_t> input_of(size_t output) const {
    for (size_t i = 0; i < inputs_.size() && output < names_.size(); ++i)
      if (inputs_[i].name == names_[output] && inputs_[i].has_samples && !inputs_[i].is_flags) return i;
    return std::nullopt;
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
        [this](const TriedSample& sample, size_t output) { return changed_by(sample, output); });
  }

  std::optional<Step> changed_by(const TriedSample& sample, size_t output) {
    return changed(subject_.record(batch_of(sample)), output, sample.rows[*input_of(output)]);
  }

  // order

  void try_order() {
    const Answers together = ask(samples_);
    if (!together.gives_flags()) return not_tried(Law::order, "the policy gives no flags");
    const std::vector<Record> records = together.records();
    std::vector<size_t> order(samples_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937_64 random(options_.seed);
    for (const size_t size : {samples_.size(), size_t{1}, size_t{2}, size_t{31}, size_t{33}}) {
      if (size == 1 && !answers_one_) continue;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
      for (size_t begin = 0; begin < order.size(); begin += size) {
        const std::vector<size_t> part(
            order.begin() + static_cast<std::ptrdiff_t>(begin),
            order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, order.size())));
        if (!compare_records(part, records)) return;
      }
    }
  }

  TriedSamples picked(const std::vector<size_t>& which) const {
    TriedSamples samples;
    for (const size_t i : which) samples.push_back(samples_[i]);
    return samples;
  }

  /// False: enough was found.
  bool compare_records(const std::vector<size_t>& part, const std::vector<Record>& expected) {
    const std::vector<Record> got = ask(picked(part)).records();
    for (size_t i = 0; i < part.size(); ++i)
      if (got[i] != expected[part[i]]) {
        note_other_record(part, i, got[i], expected[part[i]]);
        return false;
      }
    return true;
  }

  static std::string shown(const Record& record) { return record.empty() ? "clean" : diagnose::text_of(record); }

  Record record_of(const TriedSamples& batch, size_t row) { return ask(batch).records()[row]; }

  /// With as few other samples as show it.
  void note_other_record(const std::vector<size_t>& part, size_t place_in_part, const Record& got,
                         const Record& expected) {
    const size_t which = part[place_in_part];
    Violation violation{"", "", samples_[which].what, 1};
    const Record by_itself = record_of(picked({which}), 0);
    std::vector<size_t> batch = part;
    if (got == by_itself) {  // then the batch of all is the one that shows it
      batch.resize(samples_.size());
      std::iota(batch.begin(), batch.end(), size_t{0});
    }
    const auto row_in = [&](const std::vector<size_t>& some) {
      return static_cast<size_t>(std::find(some.begin(), some.end(), which) - some.begin());
    };
    batch = fewest(std::move(batch), which,
                   [&](const std::vector<size_t>& some) { return record_of(picked(some), row_in(some)) != by_itself; });
    const size_t row = row_in(batch);
    const TriedSamples least = smallest(picked(batch), inputs_, [&](const TriedSamples& some) {
      try {
        return record_of(some, row) != record_of({some[row]}, 0);
      } catch (const std::exception&) {  // of samples that were cut
        return false;
      }
    });
    const Record alone = record_of({least[row]}, 0), beside = record_of(least, row);
    violation.row = static_cast<int64_t>(row);
    violation.what =
        alone == beside
            ? fmt::format("the record of one sample is {} in a batch of {}, and {} in a batch of {}", shown(expected),
                          samples_.size(), shown(got), part.size())
            : fmt::format("the record of a sample is {} alone, and {} as sample {} {}", shown(alone), shown(beside),
                          row,
                          least.size() == 2 ? "beside another one" : fmt::format("of a batch of {}", least.size()));
    const Tensors together = diagnose::batch_of(inputs_, least);
    const Recording one = subject_.record(batch_of(least[row])), other = subject_.record(together);
    place(violation, first_other({one, 1, 0}, {other, static_cast<int64_t>(least.size()), violation.row}));
    violation.inputs = named(together);
    add(Law::order, std::move(violation));
  }

  // stable

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
      std::vector<std::pair<size_t, std::string>> broken;
      for (size_t row = 0; row < own.size(); ++row)
        if (auto what = how(second.outputs[output].narrow(0, static_cast<int64_t>(row), 1), own[row].rows[*input]))
          broken.emplace_back(row, std::move(*what));
      note(
          Law::stable, output, broken,
          [&](const TriedSample& one) {
            const TriedSamples given = own_outputs({one});
            return how(ask(given).outputs[output], given[0].rows[*input]);
          },
          [&](const TriedSample& one) { return changed_by(own_outputs({one})[0], output); });
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

  // gradients

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
    look_closer(violation, samples_[row], alone,
                [&](const TriedSample& one) { return broke_gradient(subject_, inputs_, batch_of(one)); });
    add(Law::gradients, std::move(violation));
  }

  // isolated

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
    const std::vector<Answers> clean = two_calls(good, good), again = two_calls(good, good);
    for (const size_t output : outputs_with_samples(clean[0]))
      if (other_row(clean[0], again[0], output, {})) return;  // not the same bits twice: check_isolation says so
    for (size_t i = 0; i < std::min(bad.size(), most_neighbours); ++i)
      for (const size_t row : {size_t{0}, neighbours / 2}) {
        std::vector<size_t> batch = good;
        batch[row] = bad[i * bad.size() / std::min(bad.size(), most_neighbours)];
        compare_neighbours(clean, good, batch, {row}, samples_[batch[row]].what + fmt::format(" as sample {}", row));
      }
    for (size_t i = 0; i < std::min<size_t>(bad.size(), 8); ++i) {
      const size_t one = bad[i * bad.size() / std::min<size_t>(bad.size(), 8)];
      std::vector<size_t> batch(neighbours, one);
      batch[1] = good[1];
      std::set<size_t> rows;
      for (size_t row = 0; row < neighbours; ++row)
        if (row != 1) rows.insert(row);
      compare_neighbours(clean, good, batch, rows, samples_[one].what + " as all samples but sample 1");
    }
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

  std::vector<Answers> two_calls(const std::vector<size_t>& batch, const std::vector<size_t>& next) {
    std::vector<Answers> answers = {ask(picked(batch))};
    if (subject_.has_state()) answers.push_back(ask_next(picked(next)));
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

  /// The first row with other bits, but for `rows`.
  static std::optional<size_t> other_row(const Answers& one, const Answers& other, size_t output,
                                         const std::set<size_t>& rows) {
    const at::Tensor &a = one.outputs[output], &b = other.outputs[output];
    if (!same_kind(a, b)) return std::nullopt;
    const at::Tensor differs = differing(a, b).reshape({a.size(0), -1}).any(1);
    for (int64_t row = 0; row < a.size(0); ++row)
      if (!rows.count(static_cast<size_t>(row)) && differs[row].item<bool>()) return static_cast<size_t>(row);
    return std::nullopt;
  }

  void compare_neighbours(const std::vector<Answers>& clean, const std::vector<size_t>& good,
                          const std::vector<size_t>& batch, const std::set<size_t>& rows, const std::string& what) {
    std::vector<Answers> got;
    try {
      got = two_calls(batch, good);
    } catch (const std::exception&) {  // of samples that another batch answers: told by Law::answers
      return;
    }
    for (size_t call = 0; call < got.size(); ++call)
      for (const size_t output : outputs_with_samples(clean[call])) {
        if (!is_promised(Law::isolated, clean[call].names[output])) continue;
        const auto hurt = other_row(clean[call], got[call], output, call == 0 ? rows : std::set<size_t>());
        if (!hurt || (call == 1 && rows.count(*hurt))) continue;
        Violation violation{
            clean[call].names[output],
            fmt::format("{} changes sample {}, {}", what, *hurt, call == 0 ? "in its call" : "in the next call"), what,
            1};
        violation.row = static_cast<int64_t>(*rows.begin());
        const Tensors shown = diagnose::batch_of(inputs_, picked(batch));
        violation.inputs = named(shown);
        const auto row = static_cast<int64_t>(*hurt), count = static_cast<int64_t>(batch.size());
        if (call == 0)
          place(violation, first_other({subject_.record(diagnose::batch_of(inputs_, picked(good))), count, row},
                                       {subject_.record(shown), count, row}));
        add(Law::isolated, std::move(violation));
      }
  }

  void note_isolation(const Isolation& isolation, const std::vector<IsolationInput>& inputs) {
    found_.calls += isolation.calls;
    for (const Crossing& crossing : isolation.crossings) {
      if (crossing.step && fails_at(crossing.step->source)) continue;  // a call that fails is told of once
      Violation violation;
      violation.output = fmt::format("{}", fmt::join(crossing.outputs, ", "));
      violation.sample = crossing.poisons.front();
      for (const OutputIsolation& output : isolation.outputs)
        for (const Leak& leak : output.leaks)
          if (violation.inputs.empty() && output.name == crossing.outputs.front()) describe(violation, leak, inputs);
      place(violation, crossing.step);
      if (!crossing.step) violation.what += ": " + crossing.why_unnamed;
      const std::vector<std::string>& only = promise(Law::isolated).outputs;
      const bool counts =
          only.empty() || std::any_of(crossing.outputs.begin(), crossing.outputs.end(),
                                      [&](const auto& name) { return is_promised(Law::isolated, name); });
      if (counts) add(Law::isolated, std::move(violation));
    }
  }

  static void describe(Violation& violation, const Leak& leak, const std::vector<IsolationInput>& inputs) {
    const std::string call = leak.later ? "in the next call, which has the batch without it" : "in its call";
    violation.samples = static_cast<size_t>(leak.rows);
    violation.row = leak.row;
    if (!leak.how.empty())
      violation.what =
          fmt::format("{} as sample {}, {}: {}", poison_text(leak.poison, leak.dtype), leak.row, call, leak.how);
    else if (leak.hurt.empty())
      violation.what = fmt::format("{} as sample {} changes what all samples share, {}",
                                   poison_text(leak.poison, leak.dtype), leak.row, call);
    else
      violation.what = fmt::format("{} as sample {} changes {} other samples, {}", poison_text(leak.poison, leak.dtype),
                                   leak.row, leak.hurt.size(), call);
    for (const IsolationInput& input : inputs)
      violation.inputs.emplace_back(
          input.name, input.name == leak.input ? poisoned(input.tensor, leak.row, leak.poison) : input.tensor);
  }

  VerifySubject& subject_;
  std::vector<IsolationInput> inputs_;
  const LawsOptions& options_;
  std::vector<double> numbers_;
  const std::vector<std::optional<OutputRange>> ranges_;  // of the outputs
  const AccumulationConfig kept_;
  std::vector<Promise> promises_;
  TriedSamples samples_;
  std::vector<std::string> names_;
  std::vector<bool> is_flags_;
  bool answers_one_ = true;  // a batch of one sample
  std::optional<bool> answers_one_given_;
  Verification found_;
};

}  // namespace

Verification check_laws(VerifySubject& subject, const std::vector<IsolationInput>& inputs, const LawsOptions& options) {
  return Laws(subject, inputs, options)();
}

void merge(Verification& all, Verification one) {
  all.samples += one.samples;
  all.calls += one.calls;
  if (all.laws.empty()) {
    all.laws = std::move(one.laws);
    return;
  }
  for (size_t i = 0; i < all.laws.size(); ++i) {
    LawResult &known = all.laws[i], &more = one.laws[i];
    if (more.verdict == Verdict::broken || known.verdict == Verdict::not_tried) {
      known.verdict = known.verdict == Verdict::broken ? Verdict::broken : more.verdict;
      if (known.verdict != Verdict::not_tried) known.why.clear();
    }
    for (Violation& violation : more.violations) add_to(known, std::move(violation));
  }
}

}  // namespace triage::diagnose
