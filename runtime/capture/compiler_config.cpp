#include <triage/compiler_config.h>

#include <atomic>

namespace triage {
namespace {

std::atomic<bool> dynamic_output_shapes{false};

}  // namespace

CompilerConfig get_compiler_config() noexcept { return {dynamic_output_shapes.load(std::memory_order_relaxed)}; }

void set_compiler_config(const CompilerConfig& config) noexcept {
  dynamic_output_shapes.store(config.capture_dynamic_output_shape_ops, std::memory_order_relaxed);
}

}  // namespace triage
