#include "runtime/symbols/range.h"

#include <fmt/format.h>

namespace triage::symbols {
namespace {

constexpr Number kLargestWhole = 4.6e18L;  // no size is larger, and few integers

std::string end_text(Number number, bool whole) {
  if (whole)
    return number >= kLargestWhole    ? "int_oo"
           : number <= -kLargestWhole ? "-int_oo"
                                      : fmt::format("{}", static_cast<int64_t>(number));
  if (number == Range::inf) return "oo";
  if (number == -Range::inf) return "-oo";
  std::string text = fmt::format("{}", static_cast<double>(number));
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

bool surely_less(const Range& a, const Range& b) { return a.has_max() && b.has_min() && a.max < b.min; }
bool surely_less_equal(const Range& a, const Range& b) { return a.has_max() && b.has_min() && a.max <= b.min; }

}  // namespace

std::optional<bool> decide(Relation relation, const Range& a, const Range& b) {
  const bool one = a.min == a.max && b.min == b.max && a.has_min() && a.has_max() && b.has_min() && b.has_max();
  switch (relation) {
    case Relation::less:
      if (surely_less(a, b)) return true;
      if (surely_less_equal(b, a)) return false;
      return std::nullopt;
    case Relation::less_equal:
      if (surely_less_equal(a, b)) return true;
      if (surely_less(b, a)) return false;
      return std::nullopt;
    case Relation::greater:
      return decide(Relation::less, b, a);
    case Relation::greater_equal:
      return decide(Relation::less_equal, b, a);
    case Relation::equal:
      if (one && a.min == b.min) return true;
      if (surely_less(a, b) || surely_less(b, a)) return false;
      return std::nullopt;
    case Relation::not_equal:
      if (const auto equal = decide(Relation::equal, a, b)) return !*equal;
      return std::nullopt;
  }
  return std::nullopt;
}

Range refined(const Range& a, Relation relation, const Range& b, bool whole) {
  const Number step = whole ? 1 : 0;  // between floats there is no next one worth the name
  switch (relation) {
    case Relation::less:
      return a & Range{-Range::inf, b.max - step};
    case Relation::less_equal:
      return a & Range{-Range::inf, b.max};
    case Relation::greater:
      return a & Range{b.min + step, Range::inf};
    case Relation::greater_equal:
      return a & Range{b.min, Range::inf};
    case Relation::equal:
      return a & b;
    case Relation::not_equal: {
      Range result = a;
      if (whole && b.min == b.max && result.min == b.min) result.min += 1;
      if (whole && b.min == b.max && result.max == b.min) result.max -= 1;
      return result;
    }
  }
  return a;
}

Relation swapped(Relation relation) {
  switch (relation) {
    case Relation::less:
      return Relation::greater;
    case Relation::less_equal:
      return Relation::greater_equal;
    case Relation::greater:
      return Relation::less;
    case Relation::greater_equal:
      return Relation::less_equal;
    default:
      return relation;
  }
}

Relation contrary(Relation relation) {
  switch (relation) {
    case Relation::less:
      return Relation::greater_equal;
    case Relation::less_equal:
      return Relation::greater;
    case Relation::greater:
      return Relation::less_equal;
    case Relation::greater_equal:
      return Relation::less;
    case Relation::equal:
      return Relation::not_equal;
    default:
      return Relation::equal;
  }
}

const char* sign(Relation relation) {
  static constexpr const char* signs[] = {"<", "<=", ">", ">=", "==", "!="};
  return signs[static_cast<size_t>(relation)];
}

std::string text(const Range& range, bool whole) {
  return fmt::format("VR[{}, {}]", end_text(range.min, whole), end_text(range.max, whole));
}

}  // namespace triage::symbols
