#pragma once
#include <triage/graph.h>

#include <optional>
#include <string_view>
#include <vector>

/// Functions of <cmath> of numbers of a graph, to the bits that scripts get: ATen's own differ from them in the last
/// bit (measured: on AVX512 even `sqrt`).
///
///     triage::math(Tensor self, str function) -> Tensor                        sqrt(self)
///     triage::math.Scalar(Tensor self, str function, Scalar second) -> Tensor   pow(self, 0.5)
///     triage::math.Tensor(Tensor self, str function, Tensor second) -> Tensor
///
/// Of 0-dim float64 or int64 tensors, computed in double. The result is float64, of "floor" and "ceil" int64; it raises
/// where int64 does not hold it. "pow" of 2 is a product, as in Lua.
namespace triage::graph {

inline constexpr std::string_view kMath = "triage::math";

struct MathFunction {
  std::string_view name;  // of <cmath>
  double (*unary)(double);
  double (*binary)(double, double);
  bool whole;             // the result is an integer
  bool rises;             // correctly rounded and never falling: the ends of a range are those of its image
  const char* operation;  // the same of tensors, in ATen, but for the last bit
  const char* overload;
};

/// Null where there is none of that name.
const MathFunction* find_math(std::string_view name);

/// Which function a node computes; null where it is none.
const MathFunction* math_of(const Node& node);

/// The same in plain ATen, but for the last bit.
Value* append_math(Graph& graph, const Node& node, const std::vector<Operand>& operands);

}  // namespace triage::graph
