#include "runtime/policy/capsules/decision_capsule.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace triage::policy {

UnsavedCapsule::UnsavedCapsule(capsule::Json facts, capsule::SavedTensors tensors,
                               std::shared_ptr<std::atomic<uint64_t>> waiting)
    : facts(std::move(facts)), tensors(std::move(tensors)), waiting(std::move(waiting)) {
  *this->waiting += this->tensors.bytes();
}

UnsavedCapsule::~UnsavedCapsule() { *waiting -= tensors.bytes(); }

DecisionCapsules::DecisionCapsules(const DecisionLogOptions& options, messages::Logger logger)
    : folder_(options.capsule_dir),
      most_(options.capsule_dir.empty() ? 0 : options.max_capsules),
      bad_rows_(options.capsule_bad_rows),
      logger_(std::move(logger)) {}

std::unique_ptr<UnsavedCapsule> DecisionCapsules::make(capsule::Json facts, capsule::SavedTensors tensors) {
  if (*waiting_ + tensors.bytes() > capsule::most_bytes) {
    cannot(
        fmt::format("its tensors, and those of capsules that wait, have more than {} MiB", capsule::most_bytes >> 20));
    return nullptr;
  }
  if (made_.fetch_add(1, std::memory_order_relaxed) >= most_) return nullptr;
  facts["why"] = "it is in the decision log";
  return std::make_unique<UnsavedCapsule>(std::move(facts), std::move(tensors), waiting_);
}

std::string DecisionCapsules::save(UnsavedCapsule& capsule) noexcept {
  try {
    if (!std::filesystem::exists(folder_)) {
      if (folder_.has_parent_path()) std::filesystem::create_directories(folder_.parent_path());
      ::mkdir(folder_.c_str(), S_IRWXU);  // inputs are the business of nobody else
    }
    // No name of a policy: a rule of the log may hide it.
    std::string path = (folder_ / fmt::format("decision-pid_{}-{}.pt", ::getpid(), ++number_)).string();
    capsule::save(path, std::move(capsule.facts), capsule.tensors);
    ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
    return path;
  } catch (const std::exception& error) {
    cannot(error.what());
    return {};
  }
}

void DecisionCapsules::cannot(const std::string& why) noexcept {
  if (told_.exchange(true)) return;
  try {
    logger_.write(LogLevel::warn, fmt::format("a decision has no capsule: {}; later ones are not told", why));
  } catch (const std::exception&) {  // no memory for the record
  }
}

}  // namespace triage::policy
