#pragma once
#include <functional>
#include <thread>

namespace triage::messages {

/// A thread that runs `work`. Where the system gives none, throws LimitError: `task` ("to free old versions"), which
/// limit the process has met as far as it can tell, and `otherwise`, what still works without the thread.
std::thread start_thread(std::function<void()> work, const char* task, const char* otherwise);

}  // namespace triage::messages
