#pragma once
#include <triage/runtime.h>

#include <memory>
#include <string>

#include "runtime/policy/decisions/decision_line.h"
#include "runtime/policy/host/runtime_core.h"

namespace triage::policy {

/// Says in the log of the host what happens to a policy or a bundle; to a policy also in the trace. What changes them
/// is told in the decision log, too. Thread-safe, but for set_name.
class ChangeLog {
 public:
  /// `what`: "policy" or "bundle". `path` is as the user gave it.
  ChangeLog(std::shared_ptr<RuntimeCore> runtime, const char* what, std::string path)
      : runtime_(std::move(runtime)), what_(what), path_(std::move(path)) {}

  const char* what() const noexcept { return what_; }
  const std::string& path() const noexcept { return path_; }
  /// As its source says; empty until the first version is loaded.
  const std::string& name() const noexcept { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// "policy 'repair'"; with the path until the name is known.
  std::string title() const;
  /// `text` behind the title, with the fields `what` and `path`, and those of `error` and `version` that there are.
  void write(LogLevel level, const std::string& text, const std::string& error = {}, int version = 0) const;

  /// Whether there is a decision log that takes events.
  bool notes() const noexcept;
  /// A line of it, with the names of this policy or bundle.
  void note(PolicyEvent event) const;
  /// The file that keeps the source of `version` of this policy, for such a line; empty where none does.
  std::string keep_source(const PolicyVersion& version) const;

 private:
  const std::shared_ptr<RuntimeCore> runtime_;
  const char* const what_;
  const std::string path_;
  std::string name_;
};

}  // namespace triage::policy
