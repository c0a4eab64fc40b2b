#pragma once

/// Settings of capture, for the whole process (`triage.config` in Lua). Thread-safe.
namespace triage {

struct CompilerConfig {
  /// Operators whose result has a size that depends on values (err.take_ok, err.partition, `x[mask]`, nonzero,
  /// masked_select, ...) become nodes of the graph, with a size worked out on every run. A script that then *reads* such a
  /// size still breaks the graph: no guard could hold it. Off: the operators themselves are graph breaks.
  bool capture_dynamic_output_shape_ops = false;
  friend bool operator==(const CompilerConfig&, const CompilerConfig&) = default;
};

CompilerConfig get_compiler_config() noexcept;
/// What was captured under other settings is not used any more, and kept for when they come back.
void set_compiler_config(const CompilerConfig& config) noexcept;

}  // namespace triage
