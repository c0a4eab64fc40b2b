#pragma once
#include <triage/backend.h>

#include <string>

namespace triage {

/// How lines begin in the header of what `triage minify` writes: the failure, and the operators that are left.
constexpr const char *repro_failure = "It fails: ", *repro_operators = "What is left: ";

/// The backend `name` as captures call it; a graph that it fails on becomes a program for the minifier, which is then
/// started (runtime/messages/debugging/repro_settings.h), and the log says where both are. Off, it costs a load for
/// each compilation.
Backend with_repro(Backend backend, const std::string& name);

/// The same for what compiles graphs that come out of a joint graph (compile_joint), or graphs without gradients in
/// their place. `name`: the backend that compiles such a graph when it gets it by itself.
Backend with_repro_of_half(Backend half, const std::string& name);

}  // namespace triage
