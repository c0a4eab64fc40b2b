#pragma once
#include <cstdint>

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

/// The bits of a field where they lie.
inline constexpr int64_t CODE_IN_SLOT = CODE_MASK << CODE_SHIFT;
inline constexpr int64_t LOCATION_IN_SLOT = LOCATION_MASK << LOCATION_SHIFT;

inline constexpr int64_t MAX_SLOTS = 32768;

/// The overflow record, where ErrorConfig::track_overflow is on. The last of a record's `num_slots` slots then holds no error
/// but says how many the record had no room for; errors go into the slots before it, under the accumulation policy as ever:
///
///  - Dropped is what finds no place or loses it because those slots are full: a newcomer that is not taken, an entry that
///    a stronger one replaces (by rank) or that falls out at the end (newest first). A duplicate is not dropped: it is known.
///  - While nothing was dropped the last slot is empty. Then it is code UNKNOWN; its location bits are the number of errors
///    dropped, 1..MAX_DROPPED, where it stops; its severity is that of the worst of them.
///  - merge(a, b) pushes b's entries, slot 0 first, and then adds b's number (if its last slot is UNKNOWN; any other entry
///    there is pushed) to a's.
///  - An entry that is in the last slot because the flags were made without tracking stays until something is dropped, and
///    then counts as dropped itself.
///
/// All questions see the overflow record as one entry: `max_severity` and `has_critical` hold for the dropped errors too.
inline constexpr int64_t MAX_DROPPED = 1023;
/// The bit of an operator's `policy` that asks for it.
inline constexpr int64_t TRACK_OVERFLOW = 1 << 5;

/// What went wrong. Codes 4, 8 and 12 have no meaning of their own and print as `CODE_4` .... The upper two bits of a
/// code are its Domain.
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
/// How bad it is.
enum class Severity : int64_t { ok = 0, warn = 1, error = 2, critical = 3 };
/// What kind of error it is.
enum class Domain : int64_t { numeric = 0, index = 1, quality = 2, runtime = 3 };

/// The number that stands in a slot.
constexpr int64_t to_int(Code code) noexcept { return static_cast<int64_t>(code); }
constexpr int64_t to_int(Severity severity) noexcept { return static_cast<int64_t>(severity); }
constexpr Domain domain_of(Code code) noexcept { return static_cast<Domain>(to_int(code) >> 2); }

/// Codes and severities as Lua has them: `err.NAN`, `err.CRITICAL`. Lower case, because `NAN` and `OVERFLOW` are macros of
/// C headers.
namespace err {
using enum Code;
inline constexpr Severity warn = Severity::warn;
inline constexpr Severity error = Severity::error;
inline constexpr Severity critical = Severity::critical;
}  // namespace err

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

  /// For the operators of the dispatcher: priority | order << 2 | dedupe << 3 (ErrorConfig::policy is all of it).
  int64_t packed() const noexcept {
    return static_cast<int64_t>(priority) | static_cast<int64_t>(order) << 2 | static_cast<int64_t>(dedupe) << 3;
  }
};

}  // namespace triage
