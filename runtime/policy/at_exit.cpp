#include "runtime/policy/at_exit.h"

#include <list>
#include <mutex>
#include <utility>

#include "runtime/messages/fork_safe_mutex.h"
#include "runtime/policy/process.h"

namespace triage::policy {
namespace {

using Stop = std::function<void()>;

struct StopEntry {
  std::weak_ptr<const Stop> stop;
  Process process = {};  // a forked child inherits those of its parent, and adds its own
};

/// Made when the first thread starts, so after the statics of the libraries, and destroyed before them.
class Stops {
 public:
  ~Stops() {
    for (const StopEntry& entry : taken())
      if (const auto stop = entry.process.is_another() ? nullptr : entry.stop.lock()) (*stop)();
  }
  std::shared_ptr<const Stop> add(Stop stop) {
    auto shared = std::make_shared<const Stop>(std::move(stop));
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const StopEntry& one) { return one.stop.expired(); });
    all_.push_back({shared});
    return shared;
  }

 private:
  std::list<StopEntry> taken() {
    const std::lock_guard lock(mutex_);
    return std::move(all_);
  }
  messages::ForkSafeMutex mutex_;
  std::list<StopEntry> all_;
};

Stops& stops() {
  static Stops stops;
  return stops;
}

}  // namespace

std::shared_ptr<const void> at_exit(std::function<void()> stop) { return stops().add(std::move(stop)); }

}  // namespace triage::policy
