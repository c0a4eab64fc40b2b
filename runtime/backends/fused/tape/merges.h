#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "runtime/backends/fused/opcodes.h"
#include "runtime/backends/fused/tape/primitives.h"

/// Steps that often follow each other, as one: what is between them stays in registers. The table is read by what finds
/// them (merging.cpp) and by what compiles them (primitives.inc).
namespace triage::fused {

/// An opcode of operands: k is the k-th of the merged step, -1 - k is the k-th node.
struct MergedNode {
  Opcode opcode;
  std::array<int8_t, 3> in;
};

struct Merge {
  static constexpr size_t most_nodes = 7, most_operands = 5;
  std::string_view operands;  // e: has elements; s: one value for all of them; c: elements that are conditions
  size_t count;               // of nodes
  std::array<MergedNode, most_nodes> nodes;
  int8_t stored = -1;  // the node whose values go to memory
  int8_t joined = -1;  // the node that a reduction joins
  Join join = Join::sum;
};

namespace merging {

using O = Opcode;
using Nodes = std::array<MergedNode, Merge::most_nodes>;
constexpr MergedNode of(O opcode, int a, int b = 0, int c = 0) {
  return {opcode, {static_cast<int8_t>(a), static_cast<int8_t>(b), static_cast<int8_t>(c)}};
}
constexpr Merge map(std::string_view operands, size_t count, const Nodes& nodes) {
  return {operands, count, nodes, static_cast<int8_t>(count - 1), -1};
}
/// `stored`: -1: nothing.
constexpr Merge join(Join join, std::string_view operands, size_t count, const Nodes& nodes, int joined, int stored) {
  return {operands, count, nodes, static_cast<int8_t>(stored), static_cast<int8_t>(joined), join};
}

}  // namespace merging

/// Longer ones first.
inline constexpr auto merges = [] {
  using namespace merging;  // NOLINT: the words of the table
  constexpr int first = -1, second = -2, third = -3, fourth = -4, fifth = -5, sixth = -6;
  return std::array{
      // What amax and amin ask beside the largest value.
      join(Join::any, "ess", 4, {of(O::div, 0, 1), of(O::sub, first, 2), of(O::abs, second), of(O::is_nan, third)}, 3,
           -1),
      join(Join::largest, "ess", 3, {of(O::div, 0, 1), of(O::sub, first, 2), of(O::abs, second)}, 2, -1),
      join(Join::any, "e", 2, {of(O::abs, 0), of(O::is_nan, first)}, 1, -1),
      // Is there a NaN or an Inf? With the copy that rows without one are.
      join(Join::largest, "e", 2, {of(O::magnitude_bits, 0), of(O::copy, 0)}, 0, 1),
      join(Join::largest, "e", 1, {of(O::magnitude_bits, 0)}, 0, -1),
      join(Join::any, "e", 3, {of(O::is_finite, 0), of(O::logical_not, first), of(O::copy, 0)}, 1, 2),
      join(Join::any, "e", 2, {of(O::is_finite, 0), of(O::logical_not, first)}, 1, -1),
      join(Join::any, "e", 2, {of(O::is_nan, 0), of(O::copy, 0)}, 0, 1),
      join(Join::any, "e", 1, {of(O::is_nan, 0)}, 0, -1),
      // Is a value below or above a bound? NaN is.
      join(Join::any, "ess", 4,
           {of(O::ge, 0, 1), of(O::le, 0, 2), of(O::bit_and, first, second), of(O::logical_not, third)}, 3, -1),
      join(Join::any, "es", 2, {of(O::ge, 0, 1), of(O::logical_not, first)}, 1, -1),
      join(Join::any, "es", 2, {of(O::le, 0, 1), of(O::logical_not, first)}, 1, -1),
      // How far values are from another one; with what those beyond a distance become.
      join(Join::any, "ess", 7,
           {of(O::sub, 0, 1), of(O::abs, first), of(O::gt, second, 2), of(O::sign, first), of(O::mul, 2, fourth),
            of(O::add, 1, fifth), of(O::select, third, sixth, 0)},
           2, 6),
      join(Join::any, "ess", 3, {of(O::sub, 0, 1), of(O::abs, first), of(O::gt, second, 2)}, 2, -1),
      join(Join::any, "es", 1, {of(O::gt, 0, 1)}, 0, -1),
      join(Join::any, "es", 1, {of(O::lt, 0, 1)}, 0, -1),
      join(Join::sum, "ess", 3, {of(O::div, 0, 1), of(O::sub, first, 2), of(O::mul, second, second)}, 2, -1),
      join(Join::sum, "es", 2, {of(O::div, 0, 1), of(O::mul, first, first)}, 1, -1),
      join(Join::sum, "es", 2, {of(O::sub, 0, 1), of(O::mul, first, first)}, 1, -1),
      join(Join::sum, "es", 2, {of(O::sub, 0, 1), of(O::exp, first)}, 1, 1),
      join(Join::sum, "es", 2, {of(O::sub, 0, 1), of(O::exp, first)}, 1, -1),
      join(Join::sum, "es", 1, {of(O::div, 0, 1)}, 0, -1),
      join(Join::sum, "e", 1, {of(O::mul, 0, 0)}, 0, -1),
      join(Join::sum, "ee", 1, {of(O::mul, 0, 1)}, 0, -1),
      join(Join::sum, "e", 1, {of(O::abs, 0)}, 0, -1),
      join(Join::largest, "e", 1, {of(O::abs, 0)}, 0, -1),
      // Values beyond a distance to where it ends.
      map("sesc", 5,
          {of(O::sub, 1, 0), of(O::sign, first), of(O::mul, 2, second), of(O::add, 0, third),
           of(O::select, 3, fourth, 1)}),
      map("ess", 3, {of(O::sub, 0, 1), of(O::abs, first), of(O::gt, second, 2)}),
      map("ess", 4, {of(O::sub, 0, 1), of(O::sign, first), of(O::mul, 2, second), of(O::add, 1, third)}),
      // Normalisation, scale and shift, limits.
      map("essee", 4, {of(O::sub, 0, 1), of(O::mul, first, 2), of(O::mul, second, 3), of(O::add, third, 4)}),
      map("essee", 4, {of(O::sub, 0, 1), of(O::div, first, 2), of(O::mul, second, 3), of(O::add, third, 4)}),
      map("ess", 2, {of(O::sub, 0, 1), of(O::mul, first, 2)}),
      map("ess", 2, {of(O::sub, 0, 1), of(O::div, first, 2)}),
      map("ess", 2, {of(O::div, 0, 1), of(O::sub, first, 2)}),
      map("ess", 2, {of(O::div, 0, 1), of(O::mul, first, 2)}),
      map("cesss", 3, {of(O::select, 0, 2, 1), of(O::minimum, first, 3), of(O::at_least, second, 4)}),
      map("esss", 3, {of(O::mul, 0, 1), of(O::at_least, first, 2), of(O::at_most, second, 3)}),
      map("es", 2, {of(O::sub, 0, 1), of(O::exp, first)}),
      map("eee", 2, {of(O::mul, 0, 1), of(O::add, first, 2)}),
      map("ees", 2, {of(O::mul, 0, 1), of(O::add, first, 2)}),
      map("ese", 2, {of(O::mul, 0, 1), of(O::add, first, 2)}),
      map("ess", 2, {of(O::mul, 0, 1), of(O::add, first, 2)}),
      map("ess", 2, {of(O::add, 0, 1), of(O::mul, first, 2)}),
      map("ess", 2, {of(O::at_least, 0, 1), of(O::at_most, first, 2)}),
      map("es", 2, {of(O::is_nan, 0), of(O::select, first, 1, 0)}),
      map("e", 2, {of(O::sigmoid, 0), of(O::mul, 0, first)}),
  };
}();

/// What a merge asks of each float of a row, where their edges tell it; the other operands are bounds.
constexpr std::optional<EdgeQuestion> question_of(const Merge& merge) {
  if (merge.joined < 0) return std::nullopt;
  const Opcode first = merge.nodes[0].opcode;
  if (merge.joined == 0 && first == Opcode::magnitude_bits && merge.join == Join::largest)
    return EdgeQuestion::magnitude;
  if (merge.join != Join::any) return std::nullopt;
  if (merge.joined == 0 && first == Opcode::is_nan) return EdgeQuestion::nan;
  if (merge.joined == 3 && merge.nodes[2].opcode == Opcode::bit_and) return EdgeQuestion::outside;
  if (merge.joined != 1 || merge.nodes[1].opcode != Opcode::logical_not) return std::nullopt;
  if (first == Opcode::ge) return EdgeQuestion::below;
  if (first == Opcode::le) return EdgeQuestion::above;
  return first == Opcode::is_finite ? std::optional(EdgeQuestion::not_finite) : std::nullopt;
}

}  // namespace triage::fused
