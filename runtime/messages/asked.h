#pragma once
#include <cstdlib>
#include <exception>
#include <string>

namespace triage::messages {

/// Of the environment; empty where it is not set.
inline std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// What `ask` returns of settings of the process, which are read from the environment where they are first asked for.
/// `otherwise` where there is no memory for that: the next question tries again.
template <class Ask, class Answer>
Answer asked(const Ask& ask, Answer otherwise) noexcept {
  try {
    return ask();
  } catch (const std::exception&) {
    return otherwise;
  }
}

}  // namespace triage::messages
