#pragma once
#include <functional>
#include <string>

/// What may end the process, in another one.
namespace triage::lua::testing {

struct Ended {
  std::string text;   // what `work` returned
  std::string death;  // how the process ended otherwise: a signal, an exit status, too much processor time
  std::string stage;  // what `work` said last
};

/// Where `work` says what it is at, for the report of a death.
using Say = std::function<void(const std::string&)>;

Ended in_fork(const std::function<std::string(const Say&)>& work, double processor_seconds);

}  // namespace triage::lua::testing
