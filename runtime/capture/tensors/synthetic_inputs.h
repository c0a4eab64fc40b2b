#pragma once
#include "runtime/capture/compiled.h"

#include <ATen/core/Tensor.h>

namespace triage::capture {

/// Values that nobody sent. `identity`, in the last two dimensions: what asks for an invertible or positive definite
/// matrix. `mixed`: sound rows and bad ones (NaN, infinite, large, small) take turns, so that rules about values take
/// some and leave others.
enum class SyntheticValues : uint8_t { ones, zeros, identity, mixed };

at::Tensor synthetic(const InputShape& shape, SyntheticValues values);

}  // namespace triage::capture
