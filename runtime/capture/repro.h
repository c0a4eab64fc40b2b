#pragma once
#include <triage/backend.h>

#include "runtime/capture/logs.h"

namespace triage::capture {

/// The backend; a graph that it fails on becomes a program for the minifier, which is then started
/// (runtime/messages/repro_settings.h), and the log says where both are. Off, it costs a load for each compilation.
Backend with_repro(Backend backend, BackendChoice choice);

}  // namespace triage::capture
