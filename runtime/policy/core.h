#pragma once
#include "runtime/messages/logs/log.h"
#include "runtime/policy/attribution/flags_trace.h"
#include "runtime/policy/calls/answer.h"
#include "runtime/policy/candidates/candidate.h"
#include "runtime/policy/candidates/thread.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/reloadable.h"
#include "runtime/policy/state/state_store.h"
#include "runtime/policy/trials/known_sources.h"
#include "runtime/policy/versions/epochs.h"
#include "runtime/policy/versions/reclaimer.h"
#include "runtime/policy/versions/version.h"
#include "runtime/random/sequence.h"

#include <triage/runtime.h>

#include <atomic>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace triage::policy {

/// What the policies of a Runtime share. Lives as long as the Runtime, any of its policies, or any Watch.
class RuntimeCore : public std::enable_shared_from_this<RuntimeCore> {
 public:
  explicit RuntimeCore(RuntimeOptions options);
  ~RuntimeCore();

  const RuntimeOptions& options() const noexcept { return options_; }
  const messages::Logger& logger() const noexcept { return logger_; }
  Reclaimer& reclaimer() noexcept { return reclaimer_; }
  CandidateThread& candidate_thread() noexcept { return candidate_thread_; }
  const LastGood& last_good() const noexcept { return last_good_; }
  const KeptChoices& choices() const noexcept { return choices_; }

  void define(HostFunction function);
  void define(HostTensor tensor);
  /// Loads `contents` under budget and makes a version of it; it is not live yet. With `files`, the source reads those,
  /// and what it reads becomes its contents. Throws LoadError, LimitError, InputError.
  std::shared_ptr<PolicyVersion> load_version(Contents contents, const std::string& path,
                                              std::shared_ptr<random::Sequence> random,
                                              PolicyFiles* files = nullptr) const;
  /// In an interpreter of its own. `silent`: it prints nothing.
  std::unique_ptr<Script> load_script(const Contents& contents, const std::string& path, bool silent = false) const;
  /// Tells every Watch to look at what its policies have to say.
  void wake_watches() const;
  ScriptOptions script_options(const std::string& path) const;

  /// Makes the handle's shared pointer: when the last handle goes, the reclaimer destroys the policy.
  std::shared_ptr<PolicyCore> adopt(std::unique_ptr<PolicyCore> core);
  std::vector<std::shared_ptr<PolicyCore>> policies() const;
  void add_policies(std::list<std::weak_ptr<PolicyCore>> cores) noexcept;
  void add_watch(const std::shared_ptr<WatchCore>& watch);
  std::shared_ptr<BundleCore> adopt(std::unique_ptr<BundleCore> core);
  std::vector<std::shared_ptr<BundleCore>> bundles() const;

 private:
  void undefine(const std::string& name);

  messages::Logger logger_;  // first: what follows may log
  RuntimeOptions options_;
  LastGood last_good_;
  KeptChoices choices_;
  mutable std::mutex mutex_;  // what follows
  std::vector<HostFunction> host_functions_;
  std::vector<HostTensor> host_tensors_;
  std::list<std::weak_ptr<PolicyCore>> policies_;
  std::vector<std::weak_ptr<WatchCore>> watches_;
  std::vector<std::weak_ptr<BundleCore>> bundles_;
  CandidateThread candidate_thread_;
  Reclaimer reclaimer_;  // last: it stops before the rest goes
};

struct ShadowCall;

/// A source that is to become a version, and where it comes from.
struct NewSource {
  std::string source;
  std::string path;            // for messages
  std::filesystem::path file;  // in whose folder it may read; empty: it may not
  bool on_disk = false;        // `file` holds the source
  bool followed = false;       // it is the policy's own: changes of what it reads are changes of the policy
  std::shared_ptr<const Files> given = {};  // of a bundle: read in the place of the disk
};

/// One policy: its live version, which calls read without a lock, and all that changes it.
class PolicyCore : public Reloadable {
 public:
  /// `path` is as the user gave it; `file` is empty for a policy that does not live in a file. A `bundle` owns this.
  PolicyCore(std::shared_ptr<RuntimeCore> runtime, std::string path, std::filesystem::path file,
             BundleCore* bundle = nullptr);
  ~PolicyCore() override;

  /// The first version, of `text`, or of the file where that is nothing. What was pinned or rolled back to before a restart
  /// comes first. Of a file that is missing or broken, the last good bytes are taken, if a cache holds them.
  void load_first(std::optional<std::string> text);

  std::vector<at::Tensor> run(at::ArrayRef<at::Tensor> inputs, const RunOptions& options);
  /// Runs the live version once and throws what it throws, whatever `on_error` says.
  void prepare(at::ArrayRef<at::Tensor> inputs, const RunOptions& options);
  void set_param(const std::string& name, ParamValue value);
  void manual_seed(uint64_t seed) { random_->reseed(seed); }

  /// Takes up the file as it is now. `retry`: also a source that was refused before.
  FileChange follow_file(bool retry);
  Reload replace(std::string source);
  PolicyState state() const;
  void set_state(const PolicyState& state);
  /// Without a key, of all.
  void reset_state(std::optional<std::string_view> key);
  StateCounts state_counts() const { return state_.counts(); }
  void save_state(const std::filesystem::path& file) const;
  void load_state(const std::filesystem::path& file);
  /// What of the state the version that went live last could not take; nothing where it took all, or this was asked before.
  std::string take_state_note();
  void rollback(int number, bool pin);
  void unpin();

  bool is_in_bundle() const noexcept { return bundle_; }
  /// Throws InputError where it is in a bundle, and so does not change by itself. `what`: "rollback".
  void check_alone(const char* what) const;

  VersionInfo version() const;
  std::vector<VersionInfo> versions() const;
  int newest_number() const;  // live or not
  PolicyStatistics statistics() const;
  /// Names of what was read, or looked for, when the file was last taken up: a change of it is a change of the policy.
  std::vector<std::string> files_read() const;
  /// What the file, and those that it reads, hold now, in a few bytes; empty: what the last look saw.
  std::string news() const;

  /// `self`: this.
  VersionInfo start_shadow(const std::shared_ptr<PolicyCore>& self, NewSource source, const ShadowOptions& options);
  VersionInfo start_canary(const std::shared_ptr<PolicyCore>& self, NewSource source, const CanaryOptions& options);
  std::optional<CandidateReport> candidate() const;
  void promote_candidate();
  /// On the candidate thread: where it cannot be, because a version is pinned, it stays a candidate.
  void promote_by_rule(const std::shared_ptr<Candidate>& candidate);
  CandidateReport end_candidate();
  /// The Runtime is about to go: no thread looks after a candidate any more.
  void forget_candidate() noexcept;
  /// A candidate that came to its end, once for each.
  struct CandidateEnd {
    CandidateState state;
    int live_version;
    std::string reason;
    Source source;
  };
  std::vector<CandidateEnd> take_candidate_ends();
  /// Runs the candidate on a call that was answered, and compares. On the candidate thread.
  static void run_in_shadow(ShadowCall& call, const Limits& limits);

  /// Calls `look(const PolicyVersion&)` with the live version, which is not freed meanwhile.
  template <class Look>
  auto with_live(Look&& look) const {
    Epochs::Reading reading(*epochs_);
    return look(*live_.load(std::memory_order_seq_cst)->version);
  }

 private:
  friend class BundleCore;
  struct Beside;
  using Versions = std::vector<std::shared_ptr<PolicyVersion>>;
  /// All that one call needs, replaced as a whole. Immutable.
  struct Live {
    std::shared_ptr<PolicyVersion> version;
    std::vector<at::Tensor> params;
    std::shared_ptr<PolicyVersion>
        last_good;  // for OnError::last_good: the latest earlier one that has run; may be null
    std::vector<at::Tensor> last_good_params;
    std::shared_ptr<PolicyVersion>
        before;  // what answers where `version` fails (trial, failures_to_revert); may be null
    std::vector<at::Tensor> before_params;
    std::shared_ptr<const Beside> beside;  // mostly null
    bool has_state = false;                // one of the versions has
  };
  /// A candidate beside the live version that it is compared with.
  struct Beside {
    std::shared_ptr<Candidate> candidate;
    std::shared_ptr<Comparison> comparison;
    Live as_live;  // the candidate, and the live version as the one before it
  };
  /// What a version counts. It outlives the version, whose calls may end after it was replaced.
  struct CountedVersion {
    int number;
    std::string hash;
    std::shared_ptr<const Counters> counters;
    std::shared_ptr<const capture::CompileCounts> compile_counts;
    CallStatistics read() const;
  };
  struct Retired {
    std::unique_ptr<const Live> live;
    std::vector<std::shared_ptr<PolicyVersion>> versions;
  };
  struct ParamNames {
    std::set<std::string> lasting;  // those that every version so far has had
    std::set<std::string> former;   // those that any version has had
  };

  Answer new_answer() const;
  void find_answer(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer);
  void find_answer_with_state(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                              Answer& answer);
  void ask_live(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer);
  OnError on_error(const PolicyVersion& version, const RunOptions& options) const;
  void answer_or_note(const Live& live, std::chrono::steady_clock::time_point begin, at::ArrayRef<at::Tensor> inputs,
                      const RunOptions& options, const RunOptions& mine, Answer& answer);
  static void check_inputs(const PolicyVersion& version, at::ArrayRef<at::Tensor> inputs, const RunOptions& options);
  using CallBegin = std::chrono::steady_clock::time_point;
  std::optional<Counters::Flagged> answer_live(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs,
                                               const RunOptions& options, Answer& answer);
  /// How many samples were flagged, where that was counted.
  std::optional<Counters::Flagged> note_call(const PolicyVersion& called, std::chrono::steady_clock::time_point begin,
                                             at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                             Answer& answer) noexcept;
  // Calls while there is a candidate (candidates/calls.cpp):
  void answer_beside(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                     Answer& answer);
  void answer_as_canary(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                        Answer& answer);
  void ask_canary(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer);
  void answer_for_canary(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                         Answer& answer, const std::exception& error);
  void answer_and_shadow(const Live& live, CallBegin begin, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                         Answer& answer);
  void blame_canary(const Beside& beside, const std::exception& error) noexcept;
  void judge_canary(const Beside& beside) noexcept;
  void apply_rules(const Beside& beside);
  void hand_to_shadow(const std::shared_ptr<ShadowCall>& call, std::chrono::nanoseconds time, const Live& live,
                      at::ArrayRef<at::Tensor> inputs, const RunOptions& options, const Answer& answer);
  // ... and what begins and ends one (candidates/lifecycle.cpp):
  std::shared_ptr<Candidate> running_candidate() const;
  std::shared_ptr<PolicyVersion> make_candidate(NewSource source);
  VersionInfo start_candidate(const std::shared_ptr<Candidate>& candidate);
  std::shared_ptr<const Beside> make_beside(const std::shared_ptr<PolicyVersion>& live, const Params& params,
                                            const Live* previous);
  void promote(const std::shared_ptr<Candidate>& candidate, const std::string& reason);
  CandidateReport finish_candidate(const std::shared_ptr<Candidate>& candidate, const std::string& reason,
                                   const Source& source);
  std::optional<CandidateReport> end_as(CandidateState end, const std::shared_ptr<Candidate>& candidate,
                                        const std::string& reason, const Source& source);
  void post_end(const std::shared_ptr<Candidate>& candidate, const CandidateReport& report);
  void forget_promoted() noexcept;
  void tell_reverted(const std::shared_ptr<Candidate>& candidate, const std::string& reason, const Source& source);
  void revert_candidate(const Beside& beside, const std::string& reason, const Source& source);
  void note_use(const RunOptions& options) noexcept;
  std::vector<size_t> donated() const;
  static void note_answered(PolicyVersion& version) noexcept;
  friend std::vector<at::Tensor> replayed(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                                          const RunOptions& options, const KeptState& state);
  static void run_unrecorded(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                             const std::vector<at::Tensor>& params, const RunOptions& options, Answer& answer);
  static void run_version(PolicyVersion& version, at::ArrayRef<at::Tensor> inputs,
                          const std::vector<at::Tensor>& params, const RunOptions& options, Answer& answer);
  void recover(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer);
  void run_on_trial(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer);
  bool check_form(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                  const Answer& given) const;
  void hold_to_form(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                    const Answer& given) const;
  void promote(const Live& live, at::ArrayRef<at::Tensor> inputs);
  bool answer_from_before(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options, Answer& answer,
                          const std::exception& error);
  void go_back(const Live& live, const std::exception& error);
  void report_failure(PolicyVersion& version, const std::exception& error) const;
  void log(LogLevel level, const std::string& text, const std::string& error = {}, int version = 0) const override;

  /// A version that is about to go live: all that may fail is done.
  struct Staged {
    std::unique_ptr<Live> next;
    Versions kept;
    Params params;
    std::shared_ptr<Retired> retired;
    Reclaimer::Garbage garbage;  // it
    // Of a version that goes live for the first time:
    KnownSources::Noted known;
    std::optional<ParamNames> param_names;
  };

  FileChange follow_disk(bool retry) override;
  FileChange take_up(std::string source, bool retry, bool of_file);
  FileChange refuse(const std::exception& error, bool of_file);
  std::shared_ptr<PolicyVersion> load_whole(NewSource source);
  bool is_as_seen(const std::string& source, const std::optional<Contents>& seen) const;
  void see(std::optional<Contents> contents);
  std::optional<std::string> source_now() const;
  std::shared_ptr<PolicyVersion> load_kept(const Contents& contents);
  std::shared_ptr<PolicyVersion> load_chosen();
  void retry_after_restart();
  void tell_choice(const Choice& choice, const PolicyVersion& version) const;
  std::shared_ptr<PolicyVersion> load_current(std::optional<std::string> text);
  void choose(const std::shared_ptr<PolicyVersion>& version, ChosenBy by = ChosenBy::rollback);
  bool is_retried(const PolicyVersion& version) const;
  std::shared_ptr<const Choice> choice_after_failure(const PolicyVersion& before, const std::string& reason) const;
  bool see_disk();
  std::shared_ptr<PolicyVersion> make_first(NewSource source, bool with_tests);
  void begin_with(const PolicyVersion& version);
  std::shared_ptr<PolicyVersion> make_successor(NewSource source);
  void check_outputs(Script& script) const;
  void make_ready(std::shared_ptr<PolicyVersion>& next);
  void capture_ahead(std::shared_ptr<PolicyVersion>& next, const Params& params, const Trial::Known& known,
                     bool was_live) const;
  void go_live(const std::shared_ptr<PolicyVersion>& version);
  ParamNames param_names_with(const PolicyVersion& version) const;
  void tell_live(const PolicyVersion& version);
  void tell_params(const PolicyVersion& version) const;
  void drop_unfitting_state();
  void tell_state(const PolicyVersion& version);
  void tell_other_batch(int64_t rows);
  void tell_dropped_keys();
  StateOfKeys fitting_state() const;
  void keep_source();
  // With mutex_ held:
  void publish(const std::shared_ptr<PolicyVersion>& version, Params params);
  Staged stage(const std::shared_ptr<PolicyVersion>& version, Params params);
  void commit(Staged staged) noexcept;
  Staged stage_new(const std::shared_ptr<PolicyVersion>& version);
  void note_went_live(const PolicyVersion& version) noexcept;
  std::shared_ptr<PolicyVersion> find_last_good(const PolicyVersion& version, const Versions& kept,
                                                const Live* previous) const;
  std::shared_ptr<PolicyVersion> find_stand_in(const PolicyVersion& version, const Versions& kept,
                                               const Live* previous) const;
  std::shared_ptr<PolicyVersion> find_kept(int number) const;
  void give_number(PolicyVersion& version);
  void forget_unused_counts() const;
  void count_refusal() override;
  std::shared_ptr<PolicyVersion> live_version() const;

  BundleCore* const bundle_;                        // it owns this; null: the policy stands alone
  const std::shared_ptr<random::Sequence> random_;  // of all versions: a reload goes on with it

  FlagsTrace flags_trace_;
  StateStore state_;
  std::atomic<uint64_t> other_batches_{0}, dropped_told_{0};

  const std::shared_ptr<Epochs> epochs_ = std::make_shared<Epochs>();
  std::atomic<const Live*> live_{nullptr};
  std::atomic<uint64_t> donated_{0};                           // which of the first 64 inputs some call has donated
  std::atomic<bool> grad_mode_{true}, inference_mode_{false};  // of the thread that called last

  // Under changing_:
  std::atomic<bool> deleted_ = false;  // the file was gone when last looked at; any thread may read it
  ParamNames param_names_;

  // Under mutex_, as replacing live_ is:
  Versions versions_;  // kept for rollback, oldest first; the live one is among them
  Params params_;      // set by the host for all calls
  std::string state_note_;
  KnownSources known_sources_;
  mutable std::vector<CountedVersion> counted_;  // those that still count, oldest first
  mutable CallStatistics gone_;                  // of those that do not
  uint64_t refused_sources_ = 0, reverted_ = 0, went_live_ = 0;
  std::optional<Contents> seen_;  // those last looked at, taken over or not; replaced by who holds changing_
  int next_number_ = 1, newest_live_ = 0;
  std::shared_ptr<Candidate> candidate_;
  std::shared_ptr<Comparison> comparison_;      // of it
  std::optional<CandidateReport> last_report_;  // of the candidate before
  std::vector<CandidateEnd> candidate_ends_;    // that no Watch has told yet
  uint64_t candidates_ = 0, promoted_ = 0, candidates_reverted_ = 0;
};

}  // namespace triage::policy
