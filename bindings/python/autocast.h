#pragma once
#include <ATen/autocast_mode.h>

#include <string>
#include <vector>

/// The autocast of a thread as an argument of an operator: a compiled program runs where no autocast is on, and calls
/// the policy with that of the line which it was made of.
namespace triage::python {

/// "cpu=BFloat16,cuda=Half"; empty where none is on.
std::string autocast_text();

/// While alive, the autocast that the text says.
class AutocastScope {
 public:
  explicit AutocastScope(const std::string& text);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  struct Before {
    at::DeviceType device;
    bool enabled;
    at::ScalarType dtype;
  };
  std::vector<Before> before_;
};

}  // namespace triage::python
