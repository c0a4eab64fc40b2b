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
    if (!at::autocast::is_autocast_enabled(device)) continue;
    for (const auto& [dtype_name, dtype] : dtypes)
      if (at::autocast::get_autocast_dtype(device) == dtype)
        text += std::string(text.empty() ? "" : ",") + name + "=" + dtype_name;
  }
  return text;
}

AutocastScope::AutocastScope(const std::string& text) {
  if (text.empty()) return;
  for (const auto& [name, device] : devices) {
    const size_t place = text.find(std::string(name) + "=");
    if (place == std::string::npos) continue;
    before_.push_back({device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
    at::autocast::set_autocast_enabled(device, true);
    for (const auto& [dtype_name, dtype] : dtypes)
      if (text.compare(place + std::string(name).size() + 1, std::string(dtype_name).size(), dtype_name) == 0)
        at::autocast::set_autocast_dtype(device, dtype);
  }
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (before_.empty()) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  for (const Before& before : before_) {
    at::autocast::set_autocast_enabled(before.device, before.enabled);
    at::autocast::set_autocast_dtype(before.device, before.dtype);
  }
}

}  // namespace triage::python
