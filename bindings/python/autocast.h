#pragma once
#include <optional>
#include <string>

#include "runtime/compat/autocast.h"

/// The autocast of a thread as an argument of an operator: a compiled program runs where no autocast is on, and calls
/// the policy with that of the line which it was made of.
namespace triage::python {

/// "cpu=bfloat16,cuda=float16"; empty where none is on.
std::string autocast_text();

/// While alive, the autocast that the text says.
class AutocastScope {
 public:
  explicit AutocastScope(const std::string& text);
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  std::optional<compat::RestoreAutocast> before_;
};

}  // namespace triage::python
