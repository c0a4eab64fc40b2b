#include "runtime/backends/fused/gpu/accelerator.h"

#include <ATen/Context.h>

#include <array>
#include <atomic>

namespace triage::fused {
namespace {

using Slots = std::array<std::atomic<const Accelerator*>, c10::COMPILE_TIME_MAX_DEVICE_TYPES>;
Slots& given() {
  static Slots slots{};
  return slots;
}

}  // namespace

const Accelerator* accelerator_of(c10::DeviceType type) {
  if (const Accelerator* const own = given()[static_cast<size_t>(type)].load(std::memory_order_acquire)) return own;
  return type == c10::kCUDA && at::hasCUDA() ? cuda_accelerator() : nullptr;
}

void set_accelerator(c10::DeviceType type, const Accelerator* accelerator) {
  given()[static_cast<size_t>(type)].store(accelerator, std::memory_order_release);
}

}  // namespace triage::fused
