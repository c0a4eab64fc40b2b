#include <triage/compiler_config.h>
#include <triage/error.h>

#include <array>
#include <atomic>

namespace triage {
namespace {

std::atomic<bool> dynamic_output_shapes{false}, scalar_outputs{false}, fail_on_limit{false};
std::atomic<int64_t> limit{CompilerConfig{}.recompile_limit}, accumulated{CompilerConfig{}.accumulated_recompile_limit};
std::atomic<Stance> stance{Stance::default_stance};

constexpr std::array names = {"default", "force_eager", "eager_on_recompile", "fail_on_recompile",
                              "eager_then_compile"};

}  // namespace

CompilerConfig get_compiler_config() noexcept {
  CompilerConfig config;
  config.capture_dynamic_output_shape_ops = dynamic_output_shapes.load(std::memory_order_relaxed);
  config.capture_scalar_outputs = scalar_outputs.load(std::memory_order_relaxed);
  config.fail_on_recompile_limit_hit = fail_on_limit.load(std::memory_order_relaxed);
  config.recompile_limit = limit.load(std::memory_order_relaxed);
  config.accumulated_recompile_limit = accumulated.load(std::memory_order_relaxed);
  return config;
}

void set_compiler_config(const CompilerConfig& config) noexcept {
  dynamic_output_shapes.store(config.capture_dynamic_output_shape_ops, std::memory_order_relaxed);
  scalar_outputs.store(config.capture_scalar_outputs, std::memory_order_relaxed);
  fail_on_limit.store(config.fail_on_recompile_limit_hit, std::memory_order_relaxed);
  limit.store(config.recompile_limit, std::memory_order_relaxed);
  accumulated.store(config.accumulated_recompile_limit, std::memory_order_relaxed);
}

Stance get_stance() noexcept { return stance.load(std::memory_order_relaxed); }
void set_stance(Stance now) noexcept { stance.store(now, std::memory_order_relaxed); }
const char* stance_name(Stance which) noexcept { return names.at(static_cast<size_t>(which)); }

Stance stance_from(const std::string& name) {
  std::string known;
  for (size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) return static_cast<Stance>(i);
    known += (i ? ", " : "") + std::string(names[i]);
  }
  throw ConfigError("there is no stance '" + name + "'; there are " + known);
}

}  // namespace triage
