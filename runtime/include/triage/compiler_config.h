#pragma once
#include <triage/api.h>

#include <cstdint>
#include <string>

/// Settings of capture, for the whole process (`triage.config` and `triage.set_stance` in Lua). Thread-safe.
namespace triage {

struct CompilerConfig {
  /// Operators whose result has a size that depends on values (err.take_ok, err.partition, `x[mask]`, nonzero,
  /// masked_select, ...) become nodes of the graph, which computes their sizes on every run. A script that *reads* such
  /// a size still breaks the graph: no guard could check it. Off: the operators themselves are graph breaks.
  bool capture_dynamic_output_shape_ops = false;
  /// `x:item()` in captured code is a number that the graph recomputes on every run. Off: it is a graph break.
  bool capture_scalar_outputs = false;
  /// When a function has reached its limit, another graph is an error instead of a run of the script.
  bool fail_on_recompile_limit_hit = false;
  /// Graphs of one function with the same variables and plain arguments; beyond the limit the script runs calls that no
  /// graph fits.
  int64_t recompile_limit = 8;
  /// All graphs of one compiled function.
  int64_t accumulated_recompile_limit = 256;
  friend bool operator==(const CompilerConfig&, const CompilerConfig&) = default;
};

TRIAGE_API CompilerConfig get_compiler_config() noexcept;
/// Graphs captured under other settings stay cached, unused until those settings are active again.
TRIAGE_API void set_compiler_config(const CompilerConfig& config) noexcept;

/// Whether a call uses cached graphs, and whether it may capture. As torch.compiler.set_stance.
enum class Stance : uint8_t {
  default_stance,      ///< captures if no graph fits
  force_eager,         ///< the script runs on every call
  eager_on_recompile,  ///< uses a graph that fits, else runs the script
  fail_on_recompile,   ///< uses a graph that fits; a new one is an error
  eager_then_compile,  ///< runs the script on the first call of each function; later calls capture
};
TRIAGE_API Stance get_stance() noexcept;
TRIAGE_API void set_stance(Stance stance) noexcept;
/// "default", "force_eager", ...; throws ConfigError that lists them.
TRIAGE_API Stance stance_from(const std::string& name);
TRIAGE_API const char* stance_name(Stance stance) noexcept;

}  // namespace triage
