#pragma once
#include <c10/core/ScalarType.h>
#include <triage/api.h>
#include <triage/error.h>
#include <triage/layout.h>

#include <cstdint>
#include <string>
#include <vector>

/// The configuration of flags, and the names of codes, severities and domains (layout.h).
namespace triage {

/// `NAN`, `OUT_OF_BOUNDS`, ..., `CODE_4`. Throws ConfigError outside 0..15.
TRIAGE_API const std::string& code_name(Code code);
/// What a policy calls one of the codes 4, 8 and 12, which have no meaning of their own: `codes = {MISSING = 4}`.
struct CodeName {
  Code code;
  std::string name;
  friend bool operator==(const CodeName&, const CodeName&) = default;
};
/// In the order of codes, each code and each name once.
using CodeNames = std::vector<CodeName>;
/// The name that `names` has for it, else `code_name(code)`. Throws ConfigError outside 0..15.
TRIAGE_API const std::string& code_name(Code code, const CodeNames& names);
/// `OK WARN ERROR CRITICAL`. Throws ConfigError outside 0..3.
TRIAGE_API const std::string& severity_name(Severity severity);
/// `NUMERIC INDEX QUALITY RUNTIME`. Throws ConfigError outside 0..3.
TRIAGE_API const std::string& domain_name(Domain domain);
/// The inverse of `to_int`. Throw ConfigError for a number outside 0..15 (codes) or 0..3.
TRIAGE_API Code code_from(int64_t number);
TRIAGE_API Severity severity_from(int64_t number);
TRIAGE_API Domain domain_from(int64_t number);
/// The severity of a code when none is given: CRITICAL for NAN and INF; ERROR for OVERFLOW, OUT_OF_BOUNDS, NEGATIVE_IDX
/// and EMPTY_INPUT; OK for OK; WARN for all others.
TRIAGE_API Severity default_severity(Code code);

struct TRIAGE_API ErrorConfig {
  c10::ScalarType flag_dtype = c10::ScalarType::Long;  ///< Long, Int, Float or Double
  int64_t num_slots = 16;                              ///< errors kept a sample, 1..32768
  AccumulationConfig accumulation = {};
  Severity default_severity = err::error;  ///< of codes given as a tensor; not Severity::ok
  /// The last slot counts dropped errors (layout.h, MAX_DROPPED). Needs two slots or more. Off: dropped without a
  /// trace.
  bool track_overflow = false;
  bool strict_validation = false;       ///< a malformed flags tensor raises instead of warning
  bool use_transposed_layout = false;   ///< TorchGuard's; changes neither results nor memory (docs/performance.md)
  int64_t transpose_threshold = 10000;  ///< the threshold of should_transpose
  friend bool operator==(const ErrorConfig&, const ErrorConfig&) = default;

  int64_t slots_per_word() const noexcept { return word_bits() / SLOT_BITS; }
  int64_t num_words() const noexcept { return (num_slots + slots_per_word() - 1) / slots_per_word(); }
  int64_t word_bits() const noexcept {
    return flag_dtype == c10::ScalarType::Int || flag_dtype == c10::ScalarType::Float ? 32 : 64;
  }
  /// The `policy` argument of operators: how errors accumulate, and whether dropped ones are counted.
  int64_t policy() const noexcept { return accumulation.packed() | (track_overflow ? TRACK_OVERFLOW : 0); }
  bool should_transpose(int64_t samples) const noexcept {
    return use_transposed_layout && samples > transpose_threshold;
  }
  /// Throws ConfigError that names the field, its value and the allowed values. Changes nothing.
  void validate() const;
};

/// The global configuration: the default of every operation. Lock-free; the reference stays valid for the life of the
/// process and never changes (another `set_config` makes `get_config` return another object).
TRIAGE_API const ErrorConfig& get_config() noexcept;
/// Validates, then replaces the global configuration. Thread-safe. Throws ConfigError and changes nothing if `config`
/// is not valid.
TRIAGE_API void set_config(const ErrorConfig& config);
/// Grows with every change of the global configuration: compare it to detect a change.
TRIAGE_API uint64_t config_epoch() noexcept;

}  // namespace triage
