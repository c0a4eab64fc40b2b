#include <runtime/flags/forms.h>
#include <triage/config.h>

#include "runtime/location/resets.h"
#include "runtime/messages/fork_safe_mutex.h"

#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <tuple>

namespace triage {
namespace {

template <size_t n>
const std::string& name_in(const std::array<std::string, n>& names, const char* what, int64_t value) {
  if (value < 0 || value >= static_cast<int64_t>(n)) {
    throw ConfigError(std::string("There is no ") + what + " " + std::to_string(value) + "; they are 0.." +
                      std::to_string(n - 1) + ".");
  }
  return names[static_cast<size_t>(value)];
}

[[noreturn]] void refuse(const char* field, const std::string& value, const char* allowed) {
  throw ConfigError(std::string("ErrorConfig.") + field + " must be " + allowed + "; got " + value + ".");
}

struct ErrorConfigLess {
  static auto fields(const ErrorConfig& c) {
    return std::tuple(c.flag_dtype, c.num_slots, c.accumulation.packed(), c.default_severity, c.track_overflow,
                      c.strict_validation, c.use_transposed_layout, c.transpose_threshold);
  }
  bool operator()(const ErrorConfig& a, const ErrorConfig& b) const { return fields(a) < fields(b); }
};

// Configurations that were ever set are kept, each once, so that readers need no lock, their references stay valid, and
// what depends on one (a captured graph) knows it again by its address.
struct Global {
  messages::ForkSafeMutex mutex;
  std::set<ErrorConfig, ErrorConfigLess> seen{ErrorConfig{}};
  std::atomic<const ErrorConfig*> current{&*seen.begin()};
  std::atomic<uint64_t> epoch{1};
};

Global& global() {
  static auto* instance = new Global;
  return *instance;
}
[[maybe_unused]] const Global& made_at_start = global();  // whoever asks later may not fail

}  // namespace

const std::string& code_name(Code code) {
  static const auto& names = *new std::array<std::string, 16>{"OK",
                                                              "NAN",
                                                              "INF",
                                                              "OVERFLOW",
                                                              "CODE_4",
                                                              "OUT_OF_BOUNDS",
                                                              "NEGATIVE_IDX",
                                                              "EMPTY_INPUT",
                                                              "CODE_8",
                                                              "ZERO_OUTPUT",
                                                              "CONSTANT_OUTPUT",
                                                              "SATURATED",
                                                              "CODE_12",
                                                              "FALLBACK_VALUE",
                                                              "VALUE_CLAMPED",
                                                              "UNKNOWN"};
  return name_in(names, "error code", to_int(code));
}

const std::string& code_name(Code code, const CodeNames& names) {
  for (const CodeName& one : names)
    if (one.code == code) return one.name;
  return code_name(code);
}

const std::string& severity_name(Severity severity) {
  static const auto& names = *new std::array<std::string, 4>{"OK", "WARN", "ERROR", "CRITICAL"};
  return name_in(names, "severity", to_int(severity));
}

const std::string& domain_name(Domain domain) {
  static const auto& names = *new std::array<std::string, 4>{"NUMERIC", "INDEX", "QUALITY", "RUNTIME"};
  return name_in(names, "error domain", to_int(domain));
}

Code code_from(int64_t number) {
  const auto code = static_cast<Code>(number);
  return code_name(code), code;  // throws if there is none
}

Severity severity_from(int64_t number) {
  const auto severity = static_cast<Severity>(number);
  return severity_name(severity), severity;
}

Domain domain_from(int64_t number) {
  const auto domain = static_cast<Domain>(number);
  return domain_name(domain), domain;
}

Severity default_severity(Code code) {
  switch (code) {
    case err::ok:
      return Severity::ok;
    case err::nan:
    case err::inf:
      return err::critical;
    case err::overflow:
    case err::out_of_bounds:
    case err::negative_idx:
    case err::empty_input:
      return err::error;
    default:
      return err::warn;
  }
}

void ErrorConfig::validate() const {
  using c10::ScalarType;
  if (flag_dtype != ScalarType::Long && flag_dtype != ScalarType::Int && flag_dtype != ScalarType::Float &&
      flag_dtype != ScalarType::Double) {
    refuse("flag_dtype", c10::toString(flag_dtype), "int64, int32, float32 or float64");
  }
  if (num_slots < 1 || num_slots > MAX_SLOTS) refuse("num_slots", std::to_string(num_slots), "1..32768");
  if (static_cast<int>(accumulation.priority) > 2) {
    refuse("accumulation.priority", std::to_string(static_cast<int>(accumulation.priority)),
           "CHRONO, SEVERITY or LOCATION");
  }
  if (static_cast<int>(accumulation.order) > 1) {
    refuse("accumulation.order", std::to_string(static_cast<int>(accumulation.order)), "FIRST or LAST");
  }
  if (static_cast<int>(accumulation.dedupe) > 3) {
    refuse("accumulation.dedupe", std::to_string(static_cast<int>(accumulation.dedupe)),
           "NONE, CODE, LOCATION or UNIQUE");
  }
  if (track_overflow && num_slots < 2) {
    refuse("num_slots", std::to_string(num_slots),
           "2 or more with track_overflow (its last slot counts the errors that were dropped)");
  }
  if (default_severity < err::warn || default_severity > err::critical) {
    refuse("default_severity", std::to_string(to_int(default_severity)), "WARN (1), ERROR (2) or CRITICAL (3)");
  }
  if (transpose_threshold < 0) refuse("transpose_threshold", std::to_string(transpose_threshold), "0 or more");
}

const ErrorConfig& get_config() noexcept { return *global().current.load(std::memory_order_acquire); }

void set_config(const ErrorConfig& config) {
  config.validate();
  flags::KnownForms::add(config.flag_dtype, config.num_words());
  auto& g = global();
  std::lock_guard lock(g.mutex);
  if (*g.current.load(std::memory_order_relaxed) == config) return;
  g.current.store(&*g.seen.insert(config).first, std::memory_order_release);
  g.epoch.fetch_add(1, std::memory_order_acq_rel);
}

// Both only grow, so that their sum stays only where neither moved.
uint64_t config_epoch() noexcept { return global().epoch.load(std::memory_order_acquire) + location_resets(); }

}  // namespace triage
