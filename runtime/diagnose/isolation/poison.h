#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

/// Bad samples made on purpose.
namespace triage::diagnose {

/// The largest finite number of a dtype; of a complex one, that of its parts.
double largest_of(at::ScalarType dtype);

/// What stands in a sample in the place of its own values; `one_nan`: in one of them only, as bad samples mostly come.
enum class Poison : uint8_t { nan, one_nan, inf, minus_inf, largest, smallest, error_record };

/// Those that a tensor of this dtype can hold: floats NaN, Inf and their largest finite value, integers both ends of
/// their range, flags a record with an error. Nothing for dtypes without a range (quantized ones).
std::vector<Poison> poisons_for(at::ScalarType dtype, bool is_flags);

/// Floats that are no complex numbers, of 16 to 64 bits.
bool is_real(at::ScalarType dtype);

/// "NaN", "-Inf", "3.40282e+38".
std::string poison_text(Poison poison, at::ScalarType dtype);
/// "nan", "minus_inf", ...: for programs.
const char* poison_name(Poison poison);

/// A copy with this in sample `row` of dim 0; it requires grad where `tensor` does.
at::Tensor poisoned(const at::Tensor& tensor, int64_t row, Poison poison);

/// A copy without NaN and Inf: samples that have some become copies of the first that has none, else zeros in their
/// places.
at::Tensor without_bad_values(const at::Tensor& tensor);

}  // namespace triage::diagnose
