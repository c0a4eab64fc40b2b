// Law::answers, and what is known of a policy once it was called.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/diagnose/verify/blame.h"
#include "runtime/diagnose/verify/search.h"
#include "runtime/diagnose/verify/smallest.h"
#include "runtime/diagnose/verify/trial.h"
#include "runtime/messages/debugging/verbose.h"

namespace triage::diagnose {
namespace {

class AnswersLaw : public LawTrial {
 public:
  using LawTrial::LawTrial;

  /// The batch given, twice: the first call may be the script, which captures. Then names and forms are known. Of a
  /// batch that fails, the samples that are answered; false where none is.
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

  /// Samples that make a call fail are tried no further.
  void try_answers() {
    samples_ = answered(samples_);
    if (!samples_.empty()) {
      TriedSamples more =
          answered(search_samples(subject_, inputs_, samples_, {options_.search, options_.seed, numbers_}));
      samples_.insert(samples_.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    }
    if (samples_.empty()) return;
    try_sizes();
    if (!promise(Law::answers).kept) result(Law::answers).verdict = Verdict::not_promised;
  }

  /// Of samples that are answered: a batch of some size may be read as something else.
  void try_sizes() {
    if (samples_.size() > 1) answers_one_ = answers_batch(1, "a batch of one sample fails, which larger ones do not");
    answers_batch(0, "a batch without samples fails");
    std::vector<size_t> sizes = {2, 3, 4, 5, 6, 7, 8, 9, 31, 33, 64, 65};
    for (const size_t size : scripted_sizes()) sizes.push_back(size + 1);
    for (const size_t size : sizes)
      if (!answers_batch(size, fmt::format("a batch of {} samples fails, which others do not", size))) return;
    if (subject_.has_state() && answers_one_) try_later_calls();
  }

  /// As many calls in a row as the script may count.
  void try_later_calls() {
    const auto good = std::find_if(samples_.begin(), samples_.end(), is_good);
    if (good == samples_.end()) return;
    for (const size_t count : scripted_calls()) {
      size_t call = 0;
      try {
        for (; call <= count; ++call) call == 0 ? ask({*good}) : ask_next({*good});
      } catch (const std::exception& error) {
        const auto* const own = dynamic_cast<const Error*>(&error);
        if (promise(Law::answers).kept)
          add(Law::answers, {"", fmt::format("call {} in a row fails: {}", call + 1, messages::message_of(error)),
                             good->what, 1, own ? own->source() : Source(), "", named(batch_of(*good)), 0});
        return;
      }
    }
  }

  /// Says `fails` where that is not so.
  bool answers_batch(size_t size, const std::string& fails) {
    TriedSamples samples;
    for (size_t i = 0; i < std::max<size_t>(size, 1); ++i) samples.push_back(samples_[i % samples_.size()]);
    Tensors batch = diagnose::batch_of(inputs_, samples);
    for (size_t i = 0; i < batch.size() && size == 0; ++i)
      if (inputs_[i].has_samples) batch[i] = batch[i].narrow(0, 0, 0);
    Source where;
    const std::string failure = failure_of(batch, &where);
    if (!failure.empty() && promise(Law::answers).kept)
      add(Law::answers, {"", fails + ": " + failure, samples.front().what, 1, where, "", named(batch), 0});
    return failure.empty();
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

  void note_failure_together(const TriedSample* begin, const TriedSample* end, const std::string& failure,
                             const Source& where) {
    if (!promise(Law::answers).kept) return;
    const std::string what =
        fmt::format("a batch of {} samples fails, of which each half is answered: {}", end - begin, failure);
    add(Law::answers, {"", what, begin->what, 1, where, "", named(diagnose::batch_of(inputs_, begin, end)), 0});
  }

 private:
  std::optional<bool> answers_one_given_;
};

}  // namespace

bool learn(TrialState& state) { return AnswersLaw(state).learn(); }
void try_answers(TrialState& state) { AnswersLaw(state).try_answers(); }

}  // namespace triage::diagnose
