#pragma once
#include "runtime/policy/host/change_log.h"
#include "runtime/policy/releases/history.h"
#include "runtime/policy/releases/origin.h"
#include "runtime/policy/releases/release.h"
#include "runtime/policy/releases/reloads.h"
#include "runtime/policy/releases/restart.h"

#include <triage/runtime.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triage::policy {

/// A policy of which another version goes live, and what the decision log says of it.
struct Switch {
  PolicyCore* policy;
  std::shared_ptr<PolicyVersion> version;
  bool first_time;
  PolicyEvent event;
};
using Switches = std::vector<Switch>;

/// Which release of a policy, or of the policies of a bundle, is live. It owns these policies: whoever has a handle of
/// one has one of all.
///
/// Two kinds of changes meet here. A *reload* (Reloads) takes up what is on the disk, one at a time: it reads, loads,
/// tries and compiles without a lock, however long that takes, and exchanges what is live at its end. A *decision*
/// (rollback, pin, promote, a release that fails its calls) exchanges what is live at once. One of the host overtakes a
/// reload that is running: that one stops at its next check, and changes nothing.
///
/// Locks are taken in this order: that of the reload, `mutex()`, the mutexes of the lines of the policies in the order
/// of their names.
class Releases : public std::enable_shared_from_this<Releases> {
  /// The mutexes of the lines of all policies, in the order of their names.
  class MembersLock {
   public:
    explicit MembersLock(const Members& members) {
      for (const auto& [name, member] : members) locks_.emplace_back(member->line().mutex());
    }

   private:
    std::vector<std::unique_lock<std::mutex>> locks_;
  };

 public:
  struct ReleaseParts {  // that differ between a policy that stands alone and a bundle
    Members members;
    std::unique_ptr<ReleaseOrigin> origin;
    std::unique_ptr<ReleaseHistory> history;
  };
  using MakeParts = std::function<ReleaseParts(Releases&)>;
  /// `what`: "policy" or "bundle". `path` is as the user gave it; `file`, whose changes are taken up, is absolute, or
  /// empty. Loads the first release and makes it known to the Runtime. When the last handle goes, the reclaimer
  /// destroys it. Throws Error.
  static std::shared_ptr<Releases> open(std::shared_ptr<RuntimeCore> runtime, const char* what, std::string path,
                                        std::filesystem::path file, const MakeParts& parts);
  Releases(const Releases&) = delete;
  Releases& operator=(const Releases&) = delete;

  const std::filesystem::path& file() const noexcept { return file_; }
  const ChangeLog& log() const noexcept { return log_; }
  RuntimeCore& runtime() const noexcept { return *runtime_; }
  bool is_bundle() const noexcept { return log_.what() == std::string_view("bundle"); }
  ReleaseOrigin& origin() const noexcept { return *origin_; }
  Reloads& reloads() noexcept { return reloads_; }
  Restart& restart() noexcept { return restart_; }

  /// Handles of all, by name.
  std::map<std::string, std::shared_ptr<PolicyCore>> policies();
  /// Null where there is none of this name.
  PolicyCore* find(const std::string& name) const;
  std::shared_ptr<Release> live() const { return copy_of(live_); }
  bool pinned() const { return copy_of(pinned_); }
  std::optional<LoadFailure> last_error() const { return copy_of(last_error_); }
  struct View {
    const ReleaseHistory& history;
    const Release& live;
    const Members& members;
    bool pinned;
  };
  /// Calls `look(const View&)` under the mutexes.
  template <class Look>
  auto look_at(Look&& look) const {
    const std::lock_guard lock(mutex_);
    const MembersLock members(members_);
    return look(View{*history_, *live_, members_, pinned_});
  }

  // Decisions of the host:
  void rollback(int number, bool pin);
  /// What is on the disk is followed again, at once.
  Reloads::Change unpin();
  /// Throws InputError where there is no candidate, or a version is pinned.
  void promote(PolicyCore& policy);
  /// By a rule of `candidate`. Where it cannot be, because a version is pinned, it stays a candidate.
  void promote_by_rule(PolicyCore& policy, const std::shared_ptr<Candidate>& candidate);

  // Of calls:
  /// `asked.version` of `policy` has failed, and `asked.before` answered in its place: an earlier release is live
  /// again, unless another change came first.
  void go_back(PolicyCore& policy, const Lineup& asked, const std::exception& error);
  /// A call with these inputs was answered by `asked.version`, which is on trial.
  void pass_trial(PolicyCore& policy, const Lineup& asked, at::ArrayRef<at::Tensor> inputs);

  // For a Watch, each once:
  /// In a call the live release failed, and another is live.
  struct Reversal {
    int number;  // of the one that is live again
    LoadFailure failure;
  };
  std::optional<Reversal> take_reversal();

  // For Reloads and Restart:
  std::mutex& mutex() const noexcept { return mutex_; }  // short, of which release is live
  /// How many there were of the host: another number means that a reload was overtaken.
  uint64_t decisions() const noexcept { return decisions_.load(std::memory_order_acquire); }
  std::string last_decision() const { return copy_of(last_decision_); }
  /// `chosen`: why it is live in the place of what is on the disk. `is_kept`: it is what was kept for this start.
  void begin_with(Prepared& first, std::optional<VersionChoice> chosen, bool is_kept);
  /// Makes it live where `beside` is still live; false where it is not. Throws Error where there were more than so
  /// many `decisions`. `by`: PolicyEvent::by.
  bool go_live(Prepared& next, const std::shared_ptr<Release>& beside, std::optional<uint64_t> decisions,
               const char* by);
  /// True where this is news: not what was noted last.
  bool note_failure(const std::string& message, const Source& source);
  /// True where there was one.
  bool clear_failure();
  // With mutex():
  std::optional<LoadFailure>& last_error_locked() noexcept { return last_error_; }
  const Release& live_locked() const noexcept { return *live_; }
  /// With the mutexes of the policies, too. True where there was one.
  bool forget_failures() noexcept;
  void count_refusal();

 private:
  /// What is to be live in each policy.
  struct StagedExchange {
    std::vector<std::pair<PolicyCore*, VersionLine::Staged>> staged;
    Switches switches;
  };

  Releases(std::shared_ptr<RuntimeCore> runtime, const char* what, std::string path, std::filesystem::path file);
  Switches put_live(Prepared& next, const std::function<std::shared_ptr<const VersionChoice>()>& choose);
  void report_live(const Release& release, Switches switches, const char* by);
  StagedExchange stage(const Release& release, const Members& added);
  Switches exchange(StagedExchange changes, const std::shared_ptr<Release>& release) noexcept;
  void decide(std::string what) noexcept;
  void promote(PolicyCore& policy, const std::shared_ptr<Candidate>& candidate, const std::string& reason,
               bool by_host);
  template <class Member>
  Member copy_of(const Member& member) const {
    const std::lock_guard lock(mutex_);
    return member;
  }

  const std::shared_ptr<RuntimeCore> runtime_;
  const std::filesystem::path file_;
  ChangeLog log_;
  Reloads reloads_;
  Restart restart_;
  std::unique_ptr<ReleaseOrigin> origin_;

  mutable std::mutex mutex_;  // what follows
  Members members_;           // grows only
  std::unique_ptr<ReleaseHistory> history_;
  std::shared_ptr<Release> live_;
  bool pinned_ = false;
  std::optional<LoadFailure> last_error_;
  std::optional<Reversal> reversal_;
  std::atomic<uint64_t> decisions_{0};
  std::string last_decision_;
};

/// In the decision log: an event that leaves the live release as it is.
void note_event(const Releases& releases, PolicyEvent event) noexcept;

/// "version 3", of a bundle with its label; "source 0123456789abcdef", or the label.
std::string shown(const Release& release);
std::string identity(const Release& release);

}  // namespace triage::policy
