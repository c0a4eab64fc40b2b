#pragma once
#include <functional>
#include <memory>

namespace triage::policy {

/// `stop` is called where the process exits, if what is returned is still there: a host may call `exit` and leave its
/// Runtime, whose threads would then run scripts while the statics that these use are destroyed. It is not called in a
/// forked child, which has none of these threads.
[[nodiscard]] std::shared_ptr<const void> at_exit(std::function<void()> stop);

}  // namespace triage::policy
