#include "runtime/messages/debugging/replay_settings.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <sstream>

#include "runtime/messages/asked.h"
#include "runtime/messages/fork_safe_mutex.h"

namespace triage::messages {
namespace {

struct ReplaySettings {
  std::atomic<bool> on{false};
  ForkSafeMutex mutex;  // what follows
  std::string folder = variable("TRIAGE_REPLAY_RECORD"), mask = variable("TRIAGE_REPLAY_MASK");

  ReplaySettings() {
    if (folder == "0") folder.clear();
    if (folder == "1") folder = "triage_capsules";
    on = !folder.empty();
  }
};

ReplaySettings& replay() {  // never destroyed: calls fail until the process ends
  static ReplaySettings& instance = *new ReplaySettings;
  return instance;
}

}  // namespace

bool replay_record_on() noexcept {
  return asked([] { return replay().on.load(std::memory_order_relaxed); }, false);
}

std::string replay_dir() {
  const std::lock_guard lock(replay().mutex);
  return replay().folder;
}

void set_replay_dir(const std::string& folder) {
  const std::lock_guard lock(replay().mutex);
  replay().folder = folder;
  replay().on = !folder.empty();
}

std::string replay_mask() {
  const std::lock_guard lock(replay().mutex);
  return replay().mask;
}

std::vector<std::string> replay_masked() {
  std::istringstream words(replay_mask());
  std::vector<std::string> names;
  for (std::string name; std::getline(words, name, ',');)
    if (!name.empty()) names.push_back(name);
  return names;
}

void set_replay_mask(const std::string& names) {
  const std::lock_guard lock(replay().mutex);
  replay().mask = names;
}

}  // namespace triage::messages
