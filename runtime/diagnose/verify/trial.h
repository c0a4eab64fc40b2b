#pragma once
#include <triage/config.h>
#include <triage/verify.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/diagnose/isolation/recording.h"
#include "runtime/diagnose/verify/answers.h"
#include "runtime/diagnose/verify/samples.h"
#include "runtime/diagnose/verify/verify.h"

/// What all laws share while they are tried with the samples of one batch.
namespace triage::diagnose {

struct TrialState {
  TrialState(VerifySubject& subject, const std::vector<IsolationInput>& inputs, const LawsOptions& options);

  VerifySubject& subject;
  std::vector<IsolationInput> inputs;
  const LawsOptions& options;
  std::vector<double> numbers;
  const std::vector<std::optional<OutputRange>> ranges;  // of the outputs
  const AccumulationConfig kept;
  std::vector<Promise> promises;
  TriedSamples samples;
  std::vector<std::string> names;  // of the outputs
  std::vector<bool> is_flags;
  bool answers_one = true;  // a batch of one sample
  Verification found;
};

/// One place of the script stands once.
void add_to(LawResult& law, Violation violation);
bool is_at(const Violation& violation, const Source& place);

/// What each law does with that.
class LawTrial {
 public:
  explicit LawTrial(TrialState& state)
      : state_(state),
        subject_(state.subject),
        inputs_(state.inputs),
        options_(state.options),
        numbers_(state.numbers),
        ranges_(state.ranges),
        kept_(state.kept),
        samples_(state.samples),
        names_(state.names),
        is_flags_(state.is_flags),
        answers_one_(state.answers_one),
        found_(state.found) {}

  LawResult& result(Law law) { return found_.laws[static_cast<size_t>(law)]; }
  const Promise& promise(Law law) const { return state_.promises[static_cast<size_t>(law)]; }
  bool is_promised(Law law, const std::string& output) const;
  void not_tried(Law law, std::string why);

 protected:
  using Verdict = LawResult::Verdict;

  void add(Law law, Violation violation);
  static void place(Violation& violation, const std::optional<RecordedStep>& step);
  std::vector<std::pair<std::string, at::Tensor>> named(const Tensors& batch) const;
  std::string name_of(size_t output) const;
  /// The input of an output's name.
  std::optional<size_t> input_of(size_t output) const;

  Tensors batch_of(const TriedSample& sample) const { return diagnose::batch_of(inputs_, &sample, &sample + 1); }
  TriedSamples picked(const std::vector<size_t>& which) const;
  Answers ask(const TriedSamples& samples) { return answers_of(&IsolationSubject::call, samples); }
  /// The call after the last one, with the state that this left.
  Answers ask_next(const TriedSamples& samples) { return answers_of(&IsolationSubject::call_next, samples); }
  /// So many samples of one batch hold so many elements as one may; at least `least`.
  size_t most_rows(size_t least) const;
  /// Integers of the script from `first` on that are not over `last`; their sum is at most `most`. The script may
  /// compare sizes of batches with them, or counts of calls.
  std::set<size_t> scripted(size_t first, size_t last, size_t most) const;
  /// Larger than those, which a batch may be.
  std::set<size_t> scripted_sizes() const { return scripted(66, most_rows(0), most_rows(0)); }
  std::set<size_t> scripted_calls() const { return scripted(4, 512, 1024); }

  /// Empty: it is answered.
  std::string failure_of(const Tensors& batch, Source* where = nullptr);
  bool fails_at(const Source& place);

  TrialState& state_;
  VerifySubject& subject_;
  std::vector<IsolationInput>& inputs_;
  const LawsOptions& options_;
  std::vector<double>& numbers_;
  const std::vector<std::optional<OutputRange>>& ranges_;
  const AccumulationConfig& kept_;
  TriedSamples& samples_;
  std::vector<std::string>& names_;
  std::vector<bool>& is_flags_;
  bool& answers_one_;
  Verification& found_;

 private:
  Answers answers_of(Tensors (IsolationSubject::*call)(const Tensors&), const TriedSamples& samples);
};

/// The batch given, twice: the first call may be the script, which captures. Then names and forms are known. Of a batch
/// that fails, the samples that are answered; false where none is. Throws InputError for a batch that does not fit the
/// declaration.
bool learn(TrialState& state);

/// Each tries one law.
void try_answers(TrialState& state);
void try_finite(TrialState& state);
void try_unchanged(TrialState& state);
void try_stable(TrialState& state);
void try_gradients(TrialState& state);
void try_order(TrialState& state);
void try_isolated(TrialState& state);

}  // namespace triage::diagnose
