#pragma once
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceType.h>
#include <torch/version.h>

#include <cstdint>

/// Autocast of this thread, by device type. LibTorch 1.13 has a pair of functions for each device, current ones take
/// the device.
namespace triage::compat {

struct Autocast {
  bool enabled;
  at::ScalarType dtype;
};

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
inline Autocast autocast(c10::DeviceType device) {
  return {at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
}
inline void set_autocast(c10::DeviceType device, Autocast mode) {
  at::autocast::set_autocast_enabled(device, mode.enabled);
  at::autocast::set_autocast_dtype(device, mode.dtype);
}
#else
inline Autocast autocast(c10::DeviceType device) {
  if (device == c10::kCPU) return {at::autocast::is_cpu_enabled(), at::autocast::get_autocast_cpu_dtype()};
  return {at::autocast::is_enabled(), at::autocast::get_autocast_gpu_dtype()};
}
inline void set_autocast(c10::DeviceType device, Autocast mode) {
  if (device == c10::kCPU) {
    at::autocast::set_cpu_enabled(mode.enabled);
    at::autocast::set_autocast_cpu_dtype(mode.dtype);
  } else {
    at::autocast::set_enabled(mode.enabled);
    at::autocast::set_autocast_gpu_dtype(mode.dtype);
  }
}
#endif

/// Whether autocast, where it is on, gives the kernels of `op` on this device other dtypes than the caller's: all float
/// arguments that are no float64 become of one dtype, or of one that is as wide as the widest of them.
inline bool autocast_casts(const c10::OperatorHandle& op, c10::DeviceType device) {
  const bool cpu = device == c10::kCPU;
  if (!cpu && device != c10::kCUDA) return false;
  return op.hasKernelForDispatchKey(cpu ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA);
}

/// CPU's and CUDA's as one number: what a captured graph was recorded under.
inline uint64_t autocast_state() {
  uint64_t state = 0;
  for (c10::DeviceType device : {c10::kCPU, c10::kCUDA}) {
    const Autocast mode = autocast(device);
    state = state << 9 | (mode.enabled ? 0x100 | static_cast<uint64_t>(mode.dtype) : 0);
  }
  return state;
}

/// Autocast of this thread as it is when this is made.
class AutocastNow {
 public:
  void restore() const {
    compat::set_autocast(c10::kCPU, cpu_);
    compat::set_autocast(c10::kCUDA, cuda_);
    if (nesting() == nesting_) return;
    for (int depth = nesting(); depth > nesting_; --depth) at::autocast::decrement_nesting();
    at::autocast::clear_cache();
  }

 private:
  static int nesting() {
    at::autocast::increment_nesting();
    return at::autocast::decrement_nesting();
  }
  Autocast cpu_ = autocast(c10::kCPU), cuda_ = autocast(c10::kCUDA);
  int nesting_ = nesting();
};

/// Puts autocast of this thread back to what it was, whatever a script leaves behind.
class RestoreAutocast {
 public:
  RestoreAutocast() = default;
  ~RestoreAutocast() { before_.restore(); }
  RestoreAutocast(const RestoreAutocast&) = delete;
  RestoreAutocast& operator=(const RestoreAutocast&) = delete;

 private:
  AutocastNow before_;
};

}  // namespace triage::compat
