#pragma once
#include <cstdint>
#include <string>

/// Settings of capture, for the whole process (`triage.config` and `triage.set_stance` in Lua). Thread-safe.
namespace triage {

struct CompilerConfig {
  /// Operators whose result has a size that depends on values (err.take_ok, err.partition, `x[mask]`, nonzero,
  /// masked_select, ...) become nodes of the graph, with a size worked out on every run. A script that then *reads* such a
  /// size still breaks the graph: no guard could hold it. Off: the operators themselves are graph breaks.
  bool capture_dynamic_output_shape_ops = false;
  /// `x:item()` in captured code is a number that the graph finds out again in every run. Off: it is a graph break.
  bool capture_scalar_outputs = false;
  /// Where a function reached its limit of graphs, another one is an error instead of a run of the script.
  bool fail_on_recompile_limit_hit = false;
  /// Graphs of one function with the same variables and plain arguments; beyond it the script runs on calls that no graph fits.
  int64_t recompile_limit = 8;
  /// Graphs of one compiled function in all.
  int64_t accumulated_recompile_limit = 256;
  friend bool operator==(const CompilerConfig&, const CompilerConfig&) = default;
};

CompilerConfig get_compiler_config() noexcept;
/// What was captured under other settings is not used any more, and kept for when they come back.
void set_compiler_config(const CompilerConfig& config) noexcept;

/// What a call does that finds no graph, or one. After torch.compiler.set_stance.
enum class Stance : uint8_t {
  default_stance,      ///< captures where no graph fits
  force_eager,         ///< the script runs on every call
  eager_on_recompile,  ///< graphs that fit are used, else the script runs
  fail_on_recompile,   ///< graphs that fit are used, another one is an error
  eager_then_compile,  ///< the script runs on the first call of each function, later ones capture
};
Stance get_stance() noexcept;
void set_stance(Stance stance) noexcept;
/// "default", "force_eager", ...; throws ConfigError that lists them.
Stance stance_from(const std::string& name);
const char* stance_name(Stance stance) noexcept;

}  // namespace triage
