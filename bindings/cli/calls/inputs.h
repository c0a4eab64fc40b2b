#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/lua/engine/policies/lua_script.h"
#include "bindings/lua/testing/examples.h"

namespace triage::cli {

/// The tensor that a text such as `randn:32x512,seed=1,dtype=float16,nan=3,inf=2` describes; nullopt where the text is
/// no generator (it is a file then). Kinds: randn, rand, randint, zeros, ones, arange; the shape is sizes joined by
/// `x`. `nan=K` and `inf=K` put one such element into K samples, chosen by the seed, no sample twice. The same text
/// gives the same tensor. Throws UsageError.
std::optional<at::Tensor> generate(const std::string& text);

using lua::ExampleInputs;

/// The inputs given on the command line; where there are none, what each of the policy's own tests calls it with; where
/// it has no tests, a batch made from the declared types. Throws UsageError that says what to give where there is
/// nothing of these. `script` runs the tests' `args` functions.
std::vector<ExampleInputs> examples_for(lua::LuaScript& script, const CallOptions& options);

/// A batch made from the declared types, with some bad rows; nothing where an input has no declared type.
std::optional<ExampleInputs> example_of_types(const Signature& signature, const CallOptions& options);

/// `rows` rows of the batch, its own again and again; inputs that do not have its length, or are as large as one of its
/// rows, stay as they are. Empty where the first input has no rows to take.
std::vector<at::Tensor> with_rows(const std::vector<at::Tensor>& inputs, int64_t rows);

}  // namespace triage::cli
