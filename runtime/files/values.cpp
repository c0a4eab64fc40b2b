#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/error.h>
#include <triage/files.h>

#include <array>
#include <cstring>

#include "runtime/compat/readable_values.h"
#include "runtime/files/dtype.h"
#include "runtime/files/formats.h"

namespace triage::files {

namespace {

struct Unread : torch::CustomClassHolder {
  explicit Unread(std::string reason) : why(std::move(reason)) {}
  const std::string why;
};

}  // namespace

c10::IValue not_read(std::string why) { return c10::IValue::make_capsule(c10::make_intrusive<Unread>(std::move(why))); }

const std::string* why_not_read(const c10::IValue& value) {
  return value.isCapsule() ? &static_cast<const Unread&>(*value.toCapsule()).why : nullptr;
}

at::Tensor plain_values(const at::Tensor& tensor) {
  if (!tensor.defined()) throw Malformed("the tensor is undefined");
  if (tensor.is_quantized()) throw Malformed("the tensor is quantized; convert it first (dequantize())");
  if (tensor.layout() != at::kStrided) throw Malformed("the tensor is sparse; convert it first (to_dense())");
  if (tensor.is_meta()) throw Malformed("the tensor is on the meta device and has no values");
  try {
    return compat::readable_values(tensor);
  } catch (const InputError& error) {
    throw Malformed(error.what());
  }
}

uint64_t checked_bytes(const std::vector<int64_t>& sizes, size_t element_size) {
  constexpr uint64_t limit = uint64_t{1} << 62;
  // LibTorch multiplies the sizes itself, so they must not overflow even where another one of them is 0.
  uint64_t bytes = element_size;
  bool empty = false;
  for (int64_t size : sizes) {
    if (size < 0) throw Malformed(fmt::format("the shape ({}) has a negative size", fmt::join(sizes, ", ")));
    if (size == 0) empty = true;
    uint64_t factor = size == 0 ? 1 : static_cast<uint64_t>(size);
    if (bytes > limit / factor)
      throw Malformed(fmt::format("the shape ({}) is too large for any memory", fmt::join(sizes, ", ")));
    bytes *= factor;
  }
  return empty ? 0 : bytes;
}

void normalize_bools(void* bytes, size_t count) {
  auto* values = static_cast<unsigned char*>(bytes);
  for (size_t i = 0; i < count; ++i) values[i] = values[i] != 0;
}

std::string describe_shape(at::IntArrayRef sizes) {
  return sizes.empty() ? "0-dim" : fmt::format("{}", fmt::join(sizes, "x"));
}

namespace {

constexpr std::array dtypes = {
    DtypeNames{"bool", "Bool", "BoolStorage", "b1", "BOOL"},
    DtypeNames{"uint8", "Byte", "ByteStorage", "u1", "U8"},
    DtypeNames{"int8", "Char", "CharStorage", "i1", "I8"},
    DtypeNames{"int16", "Short", "ShortStorage", "i2", "I16"},
    DtypeNames{"int32", "Int", "IntStorage", "i4", "I32"},
    DtypeNames{"int64", "Long", "LongStorage", "i8", "I64"},
    DtypeNames{"float16", "Half", "HalfStorage", "f2", "F16"},
    DtypeNames{"bfloat16", "BFloat16", "BFloat16Storage", "", "BF16"},
    DtypeNames{"float32", "Float", "FloatStorage", "f4", "F32"},
    DtypeNames{"float64", "Double", "DoubleStorage", "f8", "F64"},
    DtypeNames{"complex64", "ComplexFloat", "ComplexFloatStorage", "c8", ""},
    DtypeNames{"complex128", "ComplexDouble", "ComplexDoubleStorage", "c16", ""},
    DtypeNames{"uint16", "UInt16", "", "u2", "U16"},
    DtypeNames{"uint32", "UInt32", "", "u4", "U32"},
    DtypeNames{"uint64", "UInt64", "", "u8", "U64"},
    DtypeNames{"float8_e4m3fn", "Float8_e4m3fn", "", "", "F8_E4M3"},
    DtypeNames{"float8_e5m2", "Float8_e5m2", "", "", "F8_E5M2"},
};

std::optional<at::ScalarType> by_c10_name(const char* name) {
  for (int i = 0; i < static_cast<int>(at::ScalarType::NumOptions); ++i) {
    auto dtype = static_cast<at::ScalarType>(i);
    if (std::strcmp(c10::toString(dtype), name) == 0) return dtype;
  }
  return std::nullopt;
}

}  // namespace

const DtypeNames* names_of(at::ScalarType dtype) {
  for (const DtypeNames& names : dtypes) {
    if (std::strcmp(names.c10, c10::toString(dtype)) == 0) return &names;
  }
  return nullptr;
}

std::optional<at::ScalarType> find_dtype(const char* DtypeNames::*format, std::string_view name) {
  if (name.empty()) return std::nullopt;
  for (const DtypeNames& names : dtypes) {
    if (names.*format == name) return by_c10_name(names.c10);
  }
  return std::nullopt;
}

}  // namespace triage::files

std::string triage::dtype_name(at::ScalarType dtype) {
  const files::DtypeNames* names = files::names_of(dtype);
  return names ? names->torch : c10::toString(dtype);
}
