#pragma once
#include "tests/fuzz/operators/random.h"
#include "tests/fuzz/operators/tensors.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>

namespace triage::fuzz {

/// Arguments for one call: mostly such as belong together (hints.inc, or sizes that broadcast), some of them then
/// replaced by wild ones.
torch::jit::Stack make_arguments(const c10::FunctionSchema& schema, Random& random, Reach reach);

/// Some of the numbers among the arguments become NaN, infinities, zeros of both signs, subnormal or very large ones,
/// whole or real.
void make_numbers_special(const c10::FunctionSchema& schema, torch::jit::Stack& arguments, Random& random);

/// "self=float32 {2, 3} strides {1, 2} [0.1, ...], dim=-1": the arguments as a person would make them again.
std::string describe_arguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

}  // namespace triage::fuzz
