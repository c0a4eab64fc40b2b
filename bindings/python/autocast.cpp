#include "bindings/python/autocast.h"

#include <array>
#include <utility>

namespace triage::python {
namespace {

constexpr std::array<std::pair<const char*, at::DeviceType>, 2> devices = {{{"cpu", at::kCPU}, {"cuda", at::kCUDA}}};
constexpr std::array<std::pair<const char*, at::ScalarType>, 3> dtypes = {
    {{"bfloat16", at::kBFloat16}, {"float16", at::kHalf}, {"float32", at::kFloat}}};

}  // namespace

std::string autocast_text() {
  std::string text;
  for (const auto& [name, device] : devices) {
    const compat::Autocast mode = compat::autocast(device);
    for (const auto& [dtype_name, dtype] : dtypes)
      if (mode.enabled && mode.dtype == dtype) text += std::string(text.empty() ? "" : ",") + name + "=" + dtype_name;
  }
  return text;
}

AutocastScope::AutocastScope(const std::string& text) {
  if (text.empty()) return;
  before_.emplace();
  for (const auto& [name, device] : devices)
    for (const auto& [dtype_name, dtype] : dtypes)
      if (text.find(std::string(name) + "=" + dtype_name) != std::string::npos)
        compat::set_autocast(device, {true, dtype});
  at::autocast::increment_nesting();
}

}  // namespace triage::python
