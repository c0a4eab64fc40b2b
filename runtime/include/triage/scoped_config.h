#pragma once
#include <triage/config.h>

namespace triage {

/// The global configuration is `config` while this lives, and then again what it was. The configuration is the process's:
/// scopes of several threads must not overlap; give operations a config of their own instead. Throws ConfigError, and
/// changes nothing, where `config` is not valid.
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
