#pragma once
#include "runtime/capsule/capsule.h"
#include "runtime/messages/logs/log.h"

#include <triage/decisions.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace triage::policy {

/// A capsule that is made, and not yet a file: the thread of the decision log writes it.
struct UnsavedCapsule {
  UnsavedCapsule(capsule::Json facts, capsule::SavedTensors tensors, std::shared_ptr<std::atomic<uint64_t>> waiting);
  ~UnsavedCapsule();
  UnsavedCapsule(const UnsavedCapsule&) = delete;
  UnsavedCapsule& operator=(const UnsavedCapsule&) = delete;

  capsule::Json facts;
  capsule::SavedTensors tensors;
  const std::shared_ptr<std::atomic<uint64_t>> waiting;  // bytes of all that are not yet files
};

/// The capsules of a decision log: at most so many, and at most as many bytes that wait as one capsule may have.
/// Thread-safe.
class DecisionCapsules {
 public:
  DecisionCapsules(const DecisionLogOptions& options, messages::Logger logger);
  /// Whether calls are to be recorded. One load.
  bool open() const noexcept { return made_.load(std::memory_order_relaxed) < most_; }
  bool bad_rows() const noexcept { return bad_rows_; }
  /// Null where there are enough of them, or too much waits.
  std::unique_ptr<UnsavedCapsule> make(capsule::Json facts, capsule::SavedTensors tensors);
  /// The path of the file; empty where it could not be written, which is told once.
  std::string save(UnsavedCapsule& capsule) noexcept;
  void cannot(const std::string& why) noexcept;

 private:
  const std::filesystem::path folder_;
  const size_t most_;
  const bool bad_rows_;
  const messages::Logger logger_;
  const std::shared_ptr<std::atomic<uint64_t>> waiting_ = std::make_shared<std::atomic<uint64_t>>(0);
  std::atomic<size_t> made_{0}, number_{0};
  std::atomic<bool> told_{false};
};

/// The capsule of one call, which may ask several versions: that of the first failure, else that of the last answer.
struct NamedCapsule {
  std::string file;  // written, or about to be by whoever asked for it; empty: see `unsaved`
  std::unique_ptr<UnsavedCapsule> unsaved;
  bool of_failure = false;

  void name(std::string path, bool failure) {
    if (!of_failure) *this = {std::move(path), nullptr, failure};
  }
  void keep(std::unique_ptr<UnsavedCapsule> made, bool failure) {
    if (!of_failure) *this = {"", std::move(made), failure};
  }
};

}  // namespace triage::policy
