#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

/// What is known of a number: the interval it lies in, its ends included.
namespace triage::symbols {

/// Holds every int64 and every double exactly.
using Number = long double;
static_assert(std::numeric_limits<Number>::digits >= 64);

struct Range {
  static constexpr Number inf = std::numeric_limits<Number>::infinity();
  Number min = -inf, max = inf;

  /// Was something found out about this end? (A float that nobody looked at may be NaN, which is in no interval.)
  bool has_min() const { return min > -inf; }
  bool has_max() const { return max < inf; }
  bool empty() const { return min > max; }
  Range operator&(const Range& other) const {
    return {min > other.min ? min : other.min, max < other.max ? max : other.max};
  }
  friend bool operator==(const Range&, const Range&) = default;
};

enum class Relation : uint8_t { less, less_equal, greater, greater_equal, equal, not_equal };

/// Whether `relation` holds between every number of `a` and every one of `b`; nothing where some do and some do not.
std::optional<bool> decide(Relation relation, const Range& a, const Range& b);

/// Range of `a` after `relation` was found to hold between it and `b`. `whole`: both are integers.
Range refined(const Range& a, Relation relation, const Range& b, bool whole);

/// `b relation' a` for `a relation b`.
Relation swapped(Relation relation);
/// What holds between two numbers, neither NaN, where `relation` does not.
Relation contrary(Relation relation);
const char* sign(Relation relation);

/// "VR[0, 5]", "VR[0, int_oo]", "VR[-oo, 0.5]".
std::string text(const Range& range, bool whole);

}  // namespace triage::symbols
