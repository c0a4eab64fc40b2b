#pragma once
#include "runtime/messages/logs/log.h"
#include "runtime/policy/candidates/thread.h"
#include "runtime/policy/files/kept_files.h"
#include "runtime/policy/files/kept_sources.h"
#include "runtime/policy/files/policy_files.h"
#include "runtime/policy/versions/reclaimer.h"
#include "runtime/policy/versions/version.h"
#include "runtime/random/sequence.h"

#include <triage/runtime.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace triage::policy {

class Releases;

/// Looks again at what policies have to say: a Watch.
class Watcher {
 public:
  /// Without waiting for it. Any thread.
  virtual void look_again() = 0;

 protected:
  ~Watcher() = default;
};

/// What the policies of a Runtime share. Lives as long as the Runtime, any of its policies, or any Watch. Thread-safe.
class RuntimeCore : public std::enable_shared_from_this<RuntimeCore> {
 public:
  explicit RuntimeCore(RuntimeOptions options);
  ~RuntimeCore();

  const RuntimeOptions& options() const noexcept { return options_; }
  const messages::Logger& logger() const noexcept { return logger_; }
  Reclaimer& reclaimer() noexcept { return reclaimer_; }
  CandidateThread& candidate_thread() noexcept { return candidate_thread_; }
  const KeptTexts& last_good() const noexcept { return last_good_; }
  const KeptChoices& choices() const noexcept { return choices_; }
  const KeptSources& sources() const noexcept { return sources_; }

  void define(HostFunction function);
  void define(HostTensor tensor);
  /// Loads `contents` under budget and makes a version of it; it is not live yet. With `files`, the source reads those,
  /// and what it reads becomes its contents. Throws LoadError, LimitError, InputError.
  std::shared_ptr<PolicyVersion> load_version(Contents contents, const std::string& path,
                                              std::shared_ptr<random::Sequence> random,
                                              PolicyFiles* files = nullptr) const;
  /// In an interpreter of its own. `silent`: it prints nothing.
  std::unique_ptr<Script> load_script(const Contents& contents, const std::string& path, bool silent = false) const;

  void add(const std::shared_ptr<Releases>& releases);
  /// Those that hosts have handles of, in the order of loading.
  std::vector<std::shared_ptr<Releases>> releases() const;
  void add(const std::shared_ptr<Watcher>& watcher);
  void wake_watchers() const;

 private:
  ScriptOptions script_options(const std::string& path) const;
  using Definitions = std::pair<std::vector<HostFunction>, std::vector<HostTensor>>;
  Definitions undefine(const std::string& name);

  messages::Logger logger_;  // first: what follows may log
  RuntimeOptions options_;
  KeptTexts last_good_;
  KeptChoices choices_;
  KeptSources sources_;
  mutable std::mutex mutex_;  // what follows
  std::vector<HostFunction> host_functions_;
  std::vector<HostTensor> host_tensors_;
  std::vector<std::weak_ptr<Releases>> releases_;
  std::vector<std::weak_ptr<Watcher>> watchers_;
  CandidateThread candidate_thread_;
  Reclaimer reclaimer_;  // last: it stops before the rest goes
};

/// Throws InputError for a tensor without memory: a script may compute with it while it is loaded.
void check_memory(const HostTensor& given);

}  // namespace triage::policy
