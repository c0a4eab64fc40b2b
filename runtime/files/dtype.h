#pragma once
#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

namespace triage::files {

/// One dtype in the names of the formats; empty where a format cannot hold it.
struct DtypeNames {
  const char* torch;        // "float32"
  const char* c10;          // "Float"; which of them this LibTorch has is found by this name
  const char* storage;      // class of the storage in a pickle: "FloatStorage"
  const char* numpy;        // kind and size of an .npy header, without byte order: "f4"
  const char* safetensors;  // "F32"
};

/// Null for dtypes of LibTorch that no format here knows (quantized ones, ...).
const DtypeNames* names_of(at::ScalarType dtype);

/// The dtype by its name in a format, e.g. `find_dtype(&DtypeNames::numpy, "f4")`. Nullopt where the name is unknown,
/// or the LibTorch at hand has no such dtype (1.13 has no uint16 and no float8).
std::optional<at::ScalarType> find_dtype(const char* DtypeNames::*format, std::string_view name);

}  // namespace triage::files
