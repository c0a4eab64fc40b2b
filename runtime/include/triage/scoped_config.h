#pragma once
#include <triage/config.h>

namespace triage {

/// Sets the global configuration to `config`, and restores the previous one in the destructor. The configuration is
/// process-wide: scopes of several threads must not overlap; pass operations a config of their own instead. Throws
/// ConfigError, and changes nothing, if `config` is not valid.
class ScopedConfig {
 public:
  explicit ScopedConfig(const ErrorConfig& config) : previous_(get_config()) { set_config(config); }
  ~ScopedConfig() { set_config(previous_); }
  ScopedConfig(const ScopedConfig&) = delete;
  ScopedConfig& operator=(const ScopedConfig&) = delete;

 private:
  ErrorConfig previous_;
};

}  // namespace triage
