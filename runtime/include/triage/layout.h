#pragma once
#include <cstdint>

/// The layout of a flags tensor, and how errors accumulate in it.
///
/// A flags tensor is `(N, num_words)`: one record per sample, `num_slots` slots of 16 bits per record, slot 0 in the
/// lowest bits of word 0. A slot is one error: its location, its code, its severity.
///
///     bit  15 ........ 6  5 .... 2  1 0
///          location (10)  code (4)  severity (2)
///
/// A slot of severity 0 is empty; an all-zero record is a sample without errors. Words are int64 or float64 (four slots
/// per word) or int32 or float32 (two). Float carriers hold the same bits, reinterpreted: never do arithmetic on flags.
/// The layout is TorchGuard's, bit for bit.
namespace triage {

/// A field of a slot is (slot >> ..._SHIFT) & ..._MASK.
inline constexpr int64_t SLOT_BITS = 16;
inline constexpr int64_t SLOT_MASK = 0xFFFF;
inline constexpr int64_t SLOTS_PER_WORD =
    4;  ///< of the 64-bit carriers; see ErrorConfig::slots_per_word for the others
inline constexpr int64_t SEVERITY_SHIFT = 0;
inline constexpr int64_t SEVERITY_BITS = 2;
inline constexpr int64_t SEVERITY_MASK = 0x3;
inline constexpr int64_t CODE_SHIFT = 2;
inline constexpr int64_t CODE_BITS = 4;
inline constexpr int64_t CODE_MASK = 0xF;
inline constexpr int64_t LOCATION_SHIFT = 6;
inline constexpr int64_t LOCATION_BITS = 10;
inline constexpr int64_t LOCATION_MASK = 0x3FF;

/// The bits of a field at their position in the slot.
inline constexpr int64_t CODE_IN_SLOT = CODE_MASK << CODE_SHIFT;
inline constexpr int64_t LOCATION_IN_SLOT = LOCATION_MASK << LOCATION_SHIFT;

inline constexpr int64_t MAX_SLOTS = 32768;

/// The overflow record, if ErrorConfig::track_overflow is on. The last of a record's `num_slots` slots then holds no
/// error but the number of dropped errors; errors go into the slots before it, under the accumulation policy:
///
///  - An error is dropped if it gets no slot or loses its slot because those slots are full: a rejected new error, an
///    entry that a stronger one replaces (by rank), or an entry that falls out at the end (newest first). A duplicate
///    is not dropped.
///  - Before the first drop the last slot is empty. After it the code is UNKNOWN, the location bits are the number of
///    dropped errors, 1..MAX_DROPPED (saturating), and the severity is their maximum.
///  - merge(a, b) pushes b's entries, slot 0 first, and then adds b's number (if its last slot is UNKNOWN; it pushes
///    any other entry there) to a's.
///  - An entry that is in the last slot because the flags were made without tracking stays until something is dropped,
///    and then counts as dropped itself.
///
/// Every query sees the overflow record as one entry: `max_severity` and `has_critical` include the dropped errors.
inline constexpr int64_t MAX_DROPPED = 1023;
/// The bit of an operator's `policy` that enables it.
inline constexpr int64_t TRACK_OVERFLOW = 1 << 5;

/// The kind of error. The upper two bits of a code are its Domain. Codes 4, 8 and 12 have no meaning of their own: a
/// host or a policy may use them for its own errors, as `code_from(4)` (config.h). They print as `CODE_4`, `CODE_8` and
/// `CODE_12`, or by the names that the policy gives them (CodeNames).
enum class Code : int64_t {
  ok = 0,
  nan = 1,
  inf = 2,
  overflow = 3,
  out_of_bounds = 5,
  oob = out_of_bounds,
  negative_idx = 6,
  empty_input = 7,
  zero_output = 9,
  constant_output = 10,
  saturated = 11,
  fallback_value = 13,
  value_clamped = 14,
  unknown = 15,
};
/// How severe it is.
enum class Severity : int64_t { ok = 0, warn = 1, error = 2, critical = 3 };
/// The group of a code.
enum class Domain : int64_t { numeric = 0, index = 1, quality = 2, runtime = 3 };

/// The number in a slot. `code_from`, `severity_from` and `domain_from` (config.h) convert back.
constexpr int64_t to_int(Code code) noexcept { return static_cast<int64_t>(code); }
constexpr int64_t to_int(Severity severity) noexcept { return static_cast<int64_t>(severity); }
constexpr int64_t to_int(Domain domain) noexcept { return static_cast<int64_t>(domain); }
constexpr Domain domain_of(Code code) noexcept { return static_cast<Domain>(to_int(code) >> 2); }

/// Codes and severities under their Lua names: `err.NAN`, `err.CRITICAL`. Lower case, because `NAN` and `OVERFLOW` are
/// macros of C headers.
namespace err {
using enum Code;
inline constexpr Severity warn = Severity::warn;
inline constexpr Severity error = Severity::error;
inline constexpr Severity critical = Severity::critical;
}  // namespace err

/// Which entries a full record keeps: by order of arrival, or by rank of severity or of location id.
enum class Priority : uint8_t { chrono = 0, severity = 1, location = 2 };
/// CHRONO: `first` keeps the oldest (the root cause), `last` the newest, newest in slot 0. By rank: `first` keeps the
/// lowest, `last` the highest; among equals the older stays.
enum class Order : uint8_t { first = 0, last = 1 };
/// When a new error is a duplicate of an entry. A duplicate replaces the entry only if it is strictly worse.
enum class Dedupe : uint8_t { none = 0, code = 1, location = 2, unique = 3 };

struct AccumulationConfig {
  Priority priority = Priority::chrono;
  Order order = Order::first;
  Dedupe dedupe = Dedupe::unique;
  friend bool operator==(const AccumulationConfig&, const AccumulationConfig&) = default;

  /// For dispatcher operators: priority | order << 2 | dedupe << 3 (ErrorConfig::policy includes track_overflow).
  int64_t packed() const noexcept {
    return static_cast<int64_t>(priority) | static_cast<int64_t>(order) << 2 | static_cast<int64_t>(dedupe) << 3;
  }
};

}  // namespace triage
