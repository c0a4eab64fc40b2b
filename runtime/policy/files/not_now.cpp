#include "runtime/policy/files/not_now.h"

#include <cerrno>
#include <new>
#include <system_error>

namespace triage::policy {

bool is_passing(int code) {
  switch (code) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EAGAIN:
    case EINTR:
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

bool is_passing(const std::exception& error) {
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return is_passing(system->code().value());
  return dynamic_cast<const NotNow*>(&error) || dynamic_cast<const std::bad_alloc*>(&error);
}

}  // namespace triage::policy
