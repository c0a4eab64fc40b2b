#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

/// A device for which nothing of triage is registered, so that operations on flags run as composites there: the one
/// that TRIAGE_TEST_DEVICE names ("cuda"), else one that stands in for a GPU. The memory of that one is the host's, and
/// it runs each operator of LibTorch by itself with the kernel for the CPU. Tests of it show which calls are made and
/// that none waits for the device; they say nothing about time.
namespace triage::test {

extern const c10::Device OTHER_DEVICE;
/// Whether it is a real one: its arithmetic rounds in its own way.
bool is_real_device();
/// Whether autograd runs there. Its engine asks every kind of device that LibTorch was built for how many there are,
/// and CUDA without a driver throws. Where not, says that what asks is left out.
bool has_autograd();

/// A copy there, with these strides.
at::Tensor to_other(const at::Tensor& tensor);
/// The same values on the host; of the device that stands in, the same memory.
at::Tensor from_other(const at::Tensor& tensor);

/// What ran on this thread.
struct Calls {
  std::vector<std::string> made;   // operators of LibTorch that operators of triage called themselves
  std::vector<std::string> waits;  // calls whose results the host has to wait for, and copies between devices
};
Calls calls_of(const std::function<void()>& run);
std::string listed(const std::vector<std::string>& names);

}  // namespace triage::test
