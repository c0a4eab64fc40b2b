#pragma once
#include <c10/core/ScalarType.h>
#include <triage/error.h>

#include <cstdint>
#include <string>

/// What a flags tensor is made of, and how errors accumulate in it.
///
/// A flags tensor is `(N, num_words)`: one record a sample, `num_slots` slots of 16 bits a record, slot 0 in the lowest bits
/// of word 0. A slot is one error: where it happened, what it was, how bad it was.
///
///     bit  15 ........ 6  5 .... 2  1 0
///          location (10)  code (4)  severity (2)
///
/// A slot of severity 0 is empty; an all-zero record is a sample without errors. The words are carried by int64 or float64
/// (four slots a word) or int32 or float32 (two). Float carriers hold the same bits, reinterpreted: never do arithmetic on
/// flags. Bit for bit this is the layout of TorchGuard.
namespace triage {

inline constexpr int64_t SLOT_BITS = 16;
inline constexpr int64_t SLOT_MASK = 0xFFFF;
inline constexpr int64_t SLOTS_PER_WORD =
    4;  ///< of the 64-bit carriers; see ErrorConfig::slots_per_word for the others
inline constexpr int64_t SEVERITY_SHIFT = 0;
inline constexpr int64_t SEVERITY_BITS = 2;
inline constexpr int64_t SEVERITY_MASK = 0x3;
inline constexpr int64_t CODE_SHIFT = 2;
inline constexpr int64_t CODE_BITS = 4;
inline constexpr int64_t CODE_MASK = 0xF << CODE_SHIFT;
inline constexpr int64_t LOCATION_SHIFT = 6;
inline constexpr int64_t LOCATION_BITS = 10;
inline constexpr int64_t LOCATION_MASK = 0x3FF << LOCATION_SHIFT;

inline constexpr int64_t MAX_SLOTS = 32768;

/// The codes and severities. Lower case, because `NAN` and `OVERFLOW` are macros of C headers; in Lua they are
/// `err.NAN`, `err.CRITICAL` and so on. Codes 4, 8 and 12 have no meaning of their own and print as `CODE_4` ....
namespace err {
inline constexpr int64_t ok = 0;
inline constexpr int64_t nan = 1;
inline constexpr int64_t inf = 2;
inline constexpr int64_t overflow = 3;
inline constexpr int64_t out_of_bounds = 5;
inline constexpr int64_t oob = out_of_bounds;
inline constexpr int64_t negative_idx = 6;
inline constexpr int64_t empty_input = 7;
inline constexpr int64_t zero_output = 9;
inline constexpr int64_t constant_output = 10;
inline constexpr int64_t saturated = 11;
inline constexpr int64_t fallback_value = 13;
inline constexpr int64_t value_clamped = 14;
inline constexpr int64_t unknown = 15;

inline constexpr int64_t warn = 1;
inline constexpr int64_t error = 2;
inline constexpr int64_t critical = 3;
}  // namespace err

/// The upper two bits of a code.
namespace domain {
inline constexpr int64_t numeric = 0;
inline constexpr int64_t index = 1;
inline constexpr int64_t quality = 2;
inline constexpr int64_t runtime = 3;
}  // namespace domain

/// `NAN`, `OUT_OF_BOUNDS`, ..., `CODE_4`. Throws ConfigError outside 0..15.
const std::string& code_name(int64_t code);
/// `OK WARN ERROR CRITICAL`. Throws ConfigError outside 0..3.
const std::string& severity_name(int64_t severity);
/// `NUMERIC INDEX QUALITY RUNTIME`. Throws ConfigError outside 0..3.
const std::string& domain_name(int64_t domain);
/// The severity that a code brings along when none is given: CRITICAL for NAN and INF; ERROR for OVERFLOW, OUT_OF_BOUNDS,
/// NEGATIVE_IDX and EMPTY_INPUT; OK for OK; WARN for all others.
int64_t default_severity(int64_t code);

/// Which entries stay when a record is full: the order of arrival, or a rank by severity or by location id.
enum class Priority : uint8_t { chrono = 0, severity = 1, location = 2 };
/// CHRONO: `first` keeps the oldest (the root cause), `last` the newest, newest in slot 0. By rank: `first` keeps the
/// lowest, `last` the highest; of equals the older stays.
enum class Order : uint8_t { first = 0, last = 1 };
/// When a newcomer counts as a duplicate of an entry. A duplicate takes the entry's place only if it is strictly worse.
enum class Dedupe : uint8_t { none = 0, code = 1, location = 2, unique = 3 };

struct AccumulationConfig {
  Priority priority = Priority::chrono;
  Order order = Order::first;
  Dedupe dedupe = Dedupe::unique;
  friend bool operator==(const AccumulationConfig&, const AccumulationConfig&) = default;

  /// As the operators of the dispatcher take it: priority | order << 2 | dedupe << 3.
  int64_t packed() const noexcept {
    return static_cast<int64_t>(priority) | static_cast<int64_t>(order) << 2 | static_cast<int64_t>(dedupe) << 3;
  }
};

struct ErrorConfig {
  c10::ScalarType flag_dtype = c10::ScalarType::Long;  ///< Long, Int, Float or Double
  int64_t num_slots = 16;                              ///< errors kept a sample, 1..32768
  AccumulationConfig accumulation = {};
  int64_t default_severity = err::error;  ///< of codes given as a tensor; 1..3
  bool strict_validation = false;         ///< a malformed flags tensor raises instead of warning
  bool use_transposed_layout = false;     ///< TorchGuard's; changes neither results nor memory (docs/performance.md)
  int64_t transpose_threshold = 10000;    ///< what should_transpose compares with
  friend bool operator==(const ErrorConfig&, const ErrorConfig&) = default;

  int64_t slots_per_word() const noexcept { return word_bits() / SLOT_BITS; }
  int64_t num_words() const noexcept { return (num_slots + slots_per_word() - 1) / slots_per_word(); }
  int64_t word_bits() const noexcept {
    return flag_dtype == c10::ScalarType::Int || flag_dtype == c10::ScalarType::Float ? 32 : 64;
  }
  bool should_transpose(int64_t samples) const noexcept {
    return use_transposed_layout && samples > transpose_threshold;
  }
  /// Throws ConfigError that names the field, its value and what it may be.
  void validate() const;
};

/// The global configuration: what every operation uses that is given none. Lock-free; the reference stays valid for the
/// life of the process and never changes (another `set_config` makes `get_config` return another object).
const ErrorConfig& get_config() noexcept;
/// Validates, then replaces the global configuration. Thread-safe. Throws ConfigError and changes nothing if `config` is not valid.
void set_config(const ErrorConfig& config);
/// Grows whenever the global configuration changes: what depended on it compares this number.
uint64_t config_epoch() noexcept;

}  // namespace triage
