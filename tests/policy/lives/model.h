// The specification of releases in plain code: states, arrows, what a caller sees, and what survives a process. Its
// text is runtime/policy/releases/README.md.
#pragma once
#include <triage/candidate.h>
#include <triage/runtime.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// The text above in plain code, without threads, files or tensors. test_lives.cpp holds triage to it.
namespace lives {

enum class Defect : uint8_t { none, broken, other_inputs, failing_test };
/// When the function of a source fails. `overruns`: for large inputs, where the call has a deadline.
enum class Fails : uint8_t { never, above, overruns, always };
enum class ParamKind : uint8_t { none, number, integer };

/// The text of a policy. What it adds to its input names it.
struct Source {
  int adds = 0;
  Defect defect = Defect::none;
  Fails fails = Fails::never;
  ParamKind param = ParamKind::none;
  bool remembers = false;       // it adds the number of calls of this key that were answered before
  bool passes_through = false;  // its own `on_error`

  std::string text() const;
  friend bool operator==(const Source& a, const Source& b) { return a.adds == b.adds; }
};

/// One source for each policy.
using Contents = std::vector<Source>;

/// What operators have saved.
struct Disk {
  std::optional<Contents> contents;  // nothing: the file, or bundle.json, is gone
  bool complete = true;              // all files are there that bundle.json lists
};

struct Options {
  size_t trial_calls = 3, failures_to_revert = 2, keep_versions = 8;
  triage::OnError on_error = triage::OnError::raise;
  bool trials_last = false;  // longer than any life
};

struct Call {
  bool large = false, donates = false;
  bool bounded = false, late = false;  // a deadline far away; one that has passed
  std::optional<triage::OnError> on_error;
  std::optional<double> param;
  std::string key;
};

struct Answer {
  triage::Answered by = triage::Answered::failed;
  int version = 0;       // that answered; the live one if none did
  double adds = 0;       // to each element
  bool mistake = false;  // of the host: InputError
};

struct Trial {
  bool on = false;
  bool untried = false;     // it could not be tried on synthetic inputs
  bool form_known = false;  // of the answers of the version before, so that it need not be asked
  bool compares = false;    // else its time is not up yet
  bool lasts = false;
  size_t calls_left = 0, most_left = 0;

  void begin(const Options& options);
  /// A call was answered. True where it was the last one.
  bool pass();
  /// ... by a candidate: its calls end the trial whatever the time.
  void pass_beside();
};

struct Version {
  int number = 0, turn = 0;  // given at first; the order of going live for the first time
  Source source;
  Trial trial;
  bool knows_inputs = false;    // it, or the version that was live when it was loaded, has answered a call
  bool has_run = false;         // it has answered a call of its own
  bool taken_back = false;      // it was live and failed
  bool forgives_param = false;  // it lacks a param that an earlier version had
  uint64_t failures = 0, failures_in_row = 0;

  bool can_stand_in() const { return !taken_back && !trial.on && (has_run || !trial.untried); }
};
using VersionPtr = std::shared_ptr<Version>;

/// Of a candidate beside one live version.
struct Comparison {
  int live_version = 0;
  uint64_t live_calls = 0, calls = 0, failures = 0, not_comparable = 0;
};

/// Of one key: the calls that were answered, and when the last of them was.
struct KeptState {
  int calls = 0;
  uint64_t at = 0;
};
using State = std::map<std::string, KeptState>;

struct Candidate {
  VersionPtr version;
  triage::CandidateKind kind = triage::CandidateKind::shadow;
  double share = 1;
  uint64_t promote_after = 0, most_failures = 0;
  uint64_t turns = 0, restarts = 0;
  bool is_beside = false;
  std::shared_ptr<Comparison> comparison;
  triage::CandidateState state = triage::CandidateState::running;
  State own;  // of a canary

  bool takes_turn();
};

class Release;

/// One policy: its live version, those that may answer in its place, and a candidate.
class Policy {
 public:
  Policy(Release& release, size_t place) : release_(&release), place_(place) {}

  Answer call(const Call& call);
  bool set_param(double value);
  void reset_state(const std::string& key);
  /// What a host writes with save_state and reads with load_state.
  std::map<std::string, int> saved_state() const;
  void load_state(std::map<std::string, int> state);

  /// False: refused.
  bool start_candidate(const Source& source, const Candidate& as);
  bool end_candidate();
  bool promote();
  void finish_candidate(triage::CandidateState end);

  const VersionPtr& live() const { return live_.version; }
  const std::vector<VersionPtr>& versions() const { return versions_; }
  const std::optional<Candidate>& candidate() const { return candidate_; }
  /// The candidate, or the one before.
  const std::optional<Candidate>& last_candidate() const { return candidate_ ? candidate_ : ended_; }
  bool has_promotion_in_vain() const { return promotion_in_vain_; }
  std::optional<std::string> error;
  uint64_t went_live = 0, reverted = 0;

 private:
  friend class Release;
  struct Live {
    VersionPtr version;
    VersionPtr last_good;  // for OnError::last_good
    VersionPtr before;     // answers where `version` fails: on trial, or too often in a row
  };

  // How a call is answered:
  bool is_mistake(const Version& version, const Call& call) const;
  static bool answers(const Version& version, const Call& call, bool bounded);
  double value(const Version& version, const Call& call, int calls) const;
  Answer answer_live(const Call& call);
  Answer answered(triage::Answered by, const VersionPtr& version, const Call& call, int calls);
  int calls_of(const std::string& key) const;
  Answer recover(const Call& call);
  Answer answer_beside(const Call& call);
  Answer answer_as_canary(const Call& call);
  void ask_for_form(Version& version, const VersionPtr& before, const Call& call);
  void pass_trial();
  void judge_canary();
  // How a version comes in:
  VersionPtr successor(const Source& source, std::string& why);
  std::string broken_contract(const Version& next) const;
  void begin_with(const VersionPtr& first);
  void go_live(const VersionPtr& version);
  void publish(const VersionPtr& version);
  VersionPtr find_last_good(const Version& version) const;
  VersionPtr find_stand_in(const Version& version, const Live& previous) const;
  void put_beside(const VersionPtr& version, const Live& previous);
  void drop_state();

  Release* release_;
  size_t place_;
  Live live_;
  std::vector<VersionPtr> versions_;  // kept, by number
  std::optional<double> param_;       // set by the host
  bool param_lasts_ = false, had_param_ = false;
  std::map<int, bool> known_;  // sources that were live and not taken back; whether their trial is over
  State state_;                // by key
  uint64_t clock_ = 0;         // of KeptState::at
  int next_number_ = 1;
  std::optional<Candidate> candidate_, ended_;
  bool promotion_in_vain_ = false;
};

enum class ChosenBy : uint8_t { pin, rollback, trial, failure };

/// Why another version is live than the one on the disk.
struct Choice {
  ChosenBy by = ChosenBy::rollback;
  Contents live;
  std::optional<Contents> on_disk;  // then

  bool retries(const Contents& contents) const { return by == ChosenBy::trial && on_disk == contents; }
};

/// What RuntimeOptions::cache_dir holds.
struct Kept {
  std::optional<Choice> choice;
  std::optional<Contents> good;
};

/// A version of a bundle.
struct Whole {
  int number = 0;
  std::vector<VersionPtr> parts;

  bool on_trial() const;
  bool taken_back() const;
  bool is_untried() const;
};
using WholePtr = std::shared_ptr<Whole>;

/// A policy that stands alone, or the policies of a bundle, which change together.
class Release {
 public:
  Release(const Options& options, bool is_bundle, Contents first);

  /// A Runtime loads it. False: it cannot be loaded.
  bool start();
  /// A Watch looks at the disk.
  void look() { follow(/*retry=*/false); }
  void reload() { follow(/*retry=*/true); }
  bool return_to(int number, bool pin);
  void unpin();
  bool replace(const Source& source);

  Disk disk;
  Kept kept;
  std::vector<Policy> policies;
  std::optional<std::string> error;  // last_error of a bundle
  bool pinned = false;

  bool is_bundle() const { return is_bundle_; }
  const Options& options() const { return options_; }
  const std::vector<WholePtr>& wholes() const { return wholes_; }
  const WholePtr& live() const { return live_; }
  /// The numbers that `return_to` may go back to.
  std::vector<int> numbers() const;

 private:
  friend class Policy;
  void follow(bool retry);
  void look_while_pinned();
  void note_gone(bool retry);
  bool take_up(bool retry);
  void refuse(const std::string& why, bool is_news);
  std::string bring(const Contents& contents);
  std::string bring_alone(const Source& source);
  std::string bring_all(const Contents& contents);
  void exchange(const WholePtr& whole);
  void drop_oldest(std::vector<WholePtr>& wholes) const;
  bool take_back(Policy& policy, const VersionPtr& answered);
  bool take_back_alone(Policy& policy, const VersionPtr& before);
  bool take_back_all(Policy& policy, const VersionPtr& answered);
  WholePtr find_before(const Policy& policy, const VersionPtr& answered) const;
  void end_trial();
  void keep_source();
  void choose(const std::optional<Contents>& live, ChosenBy by = ChosenBy::rollback);
  std::optional<Contents> start_with();
  Contents live_contents() const;
  static Contents contents_of(const Whole& whole);
  std::string why_incomplete() const;
  bool note_error(const std::string& message);
  void clear_error();
  std::optional<std::string>& own_error() { return is_bundle_ ? error : policies[0].error; }

  const Options options_;
  const bool is_bundle_;
  const size_t count_;

  std::optional<Contents> seen_;  // on the disk, at the last look
  bool deleted_ = false, refused_ = false, incomplete_ = false;
  std::optional<Choice> choice_;
  int kept_number_ = 0;
  // Of a bundle:
  std::vector<WholePtr> wholes_;
  WholePtr live_, was_live_;
  int next_number_ = 1;
};

}  // namespace lives
