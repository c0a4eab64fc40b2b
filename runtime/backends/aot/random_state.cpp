#include "runtime/backends/aot/random_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace triage::aot {
namespace {

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

ReplayRandom::ReplayRandom(bool needed, const at::Tensor& state) {
  if (!needed) return;
  before_ = random_state();
  if (state.defined()) set_random_state(state);
}

ReplayRandom::~ReplayRandom() {
  if (before_.defined()) set_random_state(before_);
}

}  // namespace triage::aot
