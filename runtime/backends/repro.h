#pragma once
#include <triage/backend.h>

#include <string>

namespace triage {

/// The backend `name` as captures call it; a graph that it fails on becomes a program for the minifier, which is then started
/// (runtime/messages/repro_settings.h), and the log says where both are. Off, it costs a load for each compilation.
Backend with_repro(Backend backend, const std::string& name, CompilerMode compiler);

/// The same for what compiles graphs that come out of a joint graph (compile_joint), or graphs without gradients in their place.
/// `name`: the backend that compiles such a graph when it gets it by itself.
Backend with_repro_of_half(Backend half, const std::string& name, CompilerMode compiler);

}  // namespace triage
