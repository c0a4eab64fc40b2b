#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <triage/api.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace triage {

/// A value for a param of a policy: a number or boolean, a list of numbers, or a tensor. Converts from each of them. A
/// value, safe to copy; copies share the memory of a tensor.
class TRIAGE_API ParamValue {
 public:
  /// A number or boolean: whatever is a c10::Scalar.
  template <class T, std::enable_if_t<std::is_convertible_v<T, c10::Scalar>, int> = 0>
  ParamValue(T number) : number_(number) {}  // NOLINT(google-explicit-constructor)
  /// A list of numbers, copied. It becomes a 1-D tensor on the CPU, of the dtype that the policy's own list has.
  template <class T, std::enable_if_t<std::is_arithmetic_v<T> && !std::is_same_v<T, bool>, int> = 0>
  ParamValue(const std::vector<T>& numbers)  // NOLINT(google-explicit-constructor)
      : ParamValue(
            std::vector<std::conditional_t<std::is_integral_v<T>, int64_t, double>>(numbers.begin(), numbers.end())) {}
  ParamValue(const std::vector<int64_t>& numbers);  // NOLINT(google-explicit-constructor)
  ParamValue(const std::vector<double>& numbers);   // NOLINT(google-explicit-constructor)
  /// A tensor, which is not copied: do not write to it while a call may read it. Calls that come later see what was
  /// written.
  ParamValue(at::Tensor tensor);  // NOLINT(google-explicit-constructor)

  bool is_number() const noexcept { return kind_ == Kind::number; }
  bool is_list() const noexcept { return kind_ == Kind::list; }
  /// Throws InputError if it is none.
  const c10::Scalar& number() const;
  /// Of a list: its numbers as int64 or float64, 1-D. Undefined for a number.
  const at::Tensor& tensor() const noexcept { return tensor_; }
  /// For messages: "2.5", "a list of 3 numbers", "a tensor of Float [3, 4]".
  std::string text() const;

 private:
  enum class Kind : uint8_t { number, list, tensor };
  Kind kind_ = Kind::number;
  c10::Scalar number_ = 0;
  at::Tensor tensor_;
};

/// Values for params by name; other params keep the policy's values.
using Params = std::vector<std::pair<std::string, ParamValue>>;

}  // namespace triage
