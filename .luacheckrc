-- What policies and scripts find there without `require`.
std = "lua54"
max_line_length = 120
unused_args = false  -- a policy names all its inputs, used or not
read_globals = {
  -- the libraries
  "err", "flags", "torch", "nn", "optim", "dist", "policy",
  -- helpers and control flow
  "find", "push", "fix", "has_err", "flag_nan", "flag_inf", "flag_nan_and_inf", "flag_oob_indices",
  "guard", "unguard",
  "IF", "WHERE", "IS", "HAS", "AND", "OR", "NOT",
  -- locations
  "tracked", "ErrorLocation", "LocationTree", "WeightedLocationTree",
  -- types and results
  "Tensor", "Dim", "Broadcast", "tensorcheck", "type_cast",
  "float16_t", "bfloat16_t", "float32_t", "float64_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "bool_t",
  "floating_t", "integer_t", "any_t",
  "error_t", "ValidationError", "DimensionMismatchError", "DTypeMismatchError", "DeviceMismatchError",
  "InvalidParameterError", "TypeMismatchError", "InvalidReturnTypeError",
  "Ok", "Err", "as_result", "as_exception", "unwrap",
  -- configuration
  "ErrorConfig", "AccumulationConfig", "get_config", "set_config", "Priority", "Order", "Dedupe", "Severity", "ErrorCode",
  "ErrorDomain", "SLOT_BITS", "SLOT_MASK", "SLOTS_PER_WORD", "SEVERITY_SHIFT", "SEVERITY_BITS", "SEVERITY_MASK",
  "CODE_SHIFT", "CODE_BITS", "CODE_MASK", "LOCATION_SHIFT", "LOCATION_BITS", "LOCATION_MASK",
  CONFIG = { other_fields = true, read_only = false },
  triage = { other_fields = true, fields = { config = { other_fields = true, read_only = false } } },
}
-- The corpus of the rewriter covers the language, not good manners.
exclude_files = { "build", "tests/data", "tests/rewriter/corpus" }

-- Specs: what tests/lua/spec.lua gives them, and defines. They compare on purpose in every way there is.
files["tests/lua"] = { globals = { "test", "eq", "close_to", "fails", "random_programs", "batches_of_all_orders" }, ignore = { "581", "582" } }

-- Hostile policies: blocks of statements, each of which is expected to fail.
files["tests/attacks"] = { ignore = { "113", "211", "143" }, max_line_length = 160 }
files["examples/given"] = { read_globals = { "small", "means" } }
