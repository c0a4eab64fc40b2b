#include "runtime/policy/at_exit.h"

#include <unistd.h>

#include <list>
#include <mutex>
#include <utility>

namespace triage::policy {
namespace {

using Stop = std::function<void()>;

/// Made when the first thread starts, so after the statics of the libraries, and destroyed before them.
class Stops {
 public:
  ~Stops() {
    if (::getpid() != process_) return;
    for (const auto& weak : taken())
      if (const auto stop = weak.lock()) (*stop)();
  }
  std::shared_ptr<const Stop> add(Stop stop) {
    auto shared = std::make_shared<const Stop>(std::move(stop));
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const auto& one) { return one.expired(); });
    all_.push_back(shared);
    return shared;
  }

 private:
  std::list<std::weak_ptr<const Stop>> taken() {
    const std::lock_guard lock(mutex_);
    return std::move(all_);
  }
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::list<std::weak_ptr<const Stop>> all_;
};

}  // namespace

std::shared_ptr<const void> at_exit(std::function<void()> stop) {
  static Stops stops;
  return stops.add(std::move(stop));
}

}  // namespace triage::policy
