-- Declared tensors: Tensor(...), tensorcheck, type_cast, and the seven kinds of error (rows T20 to T23).

--- The error that `fn` raises, as the table it is.
local function raised(fn, ...)
  local ok, problem = pcall(fn, ...)
  assert(not ok, "nothing was raised")
  return problem
end

--- What a user reads, without the line of the call.
local function text_of(fn, ...)
  return (raised(fn, ...).message:gsub("^[%w_./]+:%d+: ", ""))
end

local function same(x) return x end

local function identity(spec, options)
  options = options or {}
  options.args, options.name = {x = spec}, options.name or "encode"
  return tensorcheck(function(x) return x end, options)
end

test("T21: declarations read as they are written", function()
  eq(tostring(Tensor(float32_t, {32, 512})), 'Tensor(float32_t, {32, 512})')
  eq(tostring(Tensor(int64_t, {"N", Dim.hidden, Broadcast})), 'Tensor(int64_t, {"N", Dim.hidden, Broadcast})')
  eq(tostring(Tensor(bool_t, {"...", "seq"}, "cpu", false)), 'Tensor(bool_t, {"...", "seq"}, "cpu", false)')
  eq(tostring(Tensor(error_t, {"N", "words"})), 'Tensor(error_t, {"N", "words"})')
  eq(tostring(Tensor(float16_t)), 'Tensor(float16_t, {"..."})')
  eq(tostring(Tensor(float16_t, {}, nil, true)), 'Tensor(float16_t, {}, nil, true)')
  assert(Tensor(float32_t, {"N", 3}) == Tensor(torch.float32, {"N", 3}))
  assert(Tensor(float32_t, {"N", 3}) ~= Tensor(float32_t, {"N", 4}))
end)

test("T21: several dtypes by one name", function()
  eq(tostring(Tensor(floating_t, {"N"})), 'Tensor(floating_t, {"N"})')
  eq({tostring(integer_t), tostring(any_t)}, {"integer_t", "any_t"})
  eq(Tensor(floating_t) == Tensor(floating_t), true)
  eq(Tensor(floating_t) == Tensor(integer_t), false)
  local function fits(kind, dtype)
    return (pcall(tensorcheck(function(x) return x end, {args = {Tensor(kind)}}), torch.zeros({2}, {dtype = dtype})))
  end
  local floats = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
  local integers = {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8}
  local others = {torch.bool, torch.complex64}
  local function check_all(dtypes, expected)
    for _, dtype in ipairs(dtypes) do
      eq({fits(floating_t, dtype), fits(integer_t, dtype), fits(any_t, dtype)}, expected, tostring(dtype))
    end
  end
  check_all(floats, {true, false, true})
  check_all(integers, {false, true, true})
  check_all(others, {false, false, true})
  local check = tensorcheck(function(x) return x end, {args = {x = Tensor(floating_t)}})
  local ok, problem = pcall(check, torch.zeros({2}, {dtype = torch.int32}))
  eq({ok, problem.kind, problem.expected, problem.actual}, {false, "DTypeMismatchError", "a floating dtype", "int32"})
  local detect = tensorcheck(function(x) return x, err.new(x) end,
    {returns = {Tensor(any_t, {"N", "..."}), Tensor(error_t)}})
  eq(err.has_nan((select(2, detect(torch.tensor({0 / 0, 1.0}))))):totable(), {true, false})
end)

test("T21: dtype aliases are the dtypes", function()
  eq({float16_t, bfloat16_t, float32_t, float64_t}, {torch.float16, torch.bfloat16, torch.float32, torch.float64})
  eq({int8_t, int16_t, int32_t, int64_t}, {torch.int8, torch.int16, torch.int32, torch.int64})
  eq({uint8_t, bool_t}, {torch.uint8, torch.bool})
  eq(tostring(error_t), "error_t")
end)

test("T21: declarations that mean nothing are refused", function()
  fails(function() Tensor(nil, {3}) end,
    "Tensor: expected a dtype such as float32_t, floating_t, integer_t or any_t, or error_t for flags, got nil")
  fails(function() Tensor(float32_t, 3) end, "expected a list of dimensions")
  fails(function() Tensor(float32_t, {"N", true}) end, "dimension 1: expected a size, a name")
  fails(function() Tensor(float32_t, {-1}) end, "a dimension cannot have -1 elements")
  fails(function() Tensor(float32_t, {""}) end, "the name of a dimension is empty")
  fails(function() Tensor(float32_t, {"...", 3, "..."}) end, "may stand once")
  fails(function() Tensor(float32_t, {("N"):rep(1000)}) end, "dimension 0: expected a size, a name")
  local many = {}
  for i = 1, 100 do many[i] = 1 end
  fails(function() Tensor(float32_t, many) end, "at most 64 dimensions")
  fails(function() Tensor(float32_t, {3}, "nowhere") end, "nowhere")
  fails(function() Tensor(float32_t, {3}, nil, 1) end, "true or false as requires_grad")
end)

test("T20, T21: what fits passes, at every batch size", function()
  local module = {hidden = 4}
  local f = tensorcheck(function(x, bias, mask) return x + bias, mask end, {
    args = {Tensor(float32_t, {"N", "...", Dim.hidden}), Tensor(float32_t, {Broadcast, Dim.hidden}),
            Tensor(bool_t, {"N"}, "cpu", false)},
    returns = {Tensor(float32_t, {"N", "...", 4}), Tensor(bool_t, {"N"})},
    self = module,
  })
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    local x, mask = torch.randn({rows, 4}), torch.zeros({rows}, {dtype = torch.bool})
    local y, m = f(x, torch.ones({1, 4}), mask)
    eq(y, x + 1)
    eq(m, mask)
  end
  f(torch.randn({2, 5, 3, 4}):transpose(1, 2), torch.ones({3, 4})[{{0, 1}}], torch.ones({2}, {dtype = bool_t}))
end)

test("T23: every kind of error, as it is read", function()
  local x = torch.zeros({32, 256})
  eq(text_of(identity(Tensor(float32_t, {"N", 512})), x),
     "DimensionMismatchError: encode: argument 'x': dimension 1: expected 512, got 256; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"N", 512})')
  eq(text_of(identity(Tensor(float32_t, {"N", Dim.hidden}), {self = {hidden = 512}}), x),
     "DimensionMismatchError: encode: argument 'x': dimension 1 (Dim.hidden): expected 512, got 256; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"N", Dim.hidden})')
  eq(text_of(identity(Tensor(float32_t, {"N", "N"})), x),
     "DimensionMismatchError: encode: argument 'x': dimension 1 ('N', as dimension 0 of argument 'x'): expected 32, "
     .. 'got 256; it is float32 (32, 256) and declared Tensor(float32_t, {"N", "N"})')
  eq(text_of(identity(Tensor(float32_t, {"N"})), x),
     "DimensionMismatchError: encode: argument 'x': number of dimensions: expected 1, got 2; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"N"})')
  eq(text_of(identity(Tensor(float32_t, {"...", "A", "B", "C"})), x),
     "DimensionMismatchError: encode: argument 'x': number of dimensions (at least): expected 3, got 2; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"...", "A", "B", "C"})')
  eq(text_of(identity(Tensor(float64_t)), x),
     "DTypeMismatchError: encode: argument 'x': dtype: expected float64, got float32; "
     .. 'it is float32 (32, 256) and declared Tensor(float64_t, {"..."})')
  eq(text_of(identity(Tensor(float32_t, {"N", "D"}, "cuda:1")), x),
     "DeviceMismatchError: encode: argument 'x': device: expected cuda:1, got cpu; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"N", "D"}, "cuda:1")')
  eq(text_of(identity(Tensor(float32_t, {"N", "D"}, nil, true)), x),
     "InvalidParameterError: encode: argument 'x': requires_grad: expected true, got false; "
     .. 'it is float32 (32, 256) and declared Tensor(float32_t, {"N", "D"}, nil, true)')
  eq(text_of(identity(Tensor(float32_t, {"N", "D"})), "x"),
     "InvalidParameterError: encode: argument 'x': expected Tensor(float32_t, {\"N\", \"D\"}), got string \"x\"")
  eq(text_of(identity(Tensor(float32_t, {"N", Dim.width}), {self = {hidden = 512}}), x),
     "InvalidParameterError: encode: argument 'x': dimension 1 (Dim.width): expected an integer as `self.width`, got "
     .. 'nil; it is float32 (32, 256) and declared Tensor(float32_t, {"N", Dim.width})')
  local function returning(...)
    local results = table.pack(...)
    return tensorcheck(function() return table.unpack(results, 1, results.n) end,
                       {name = "encode", returns = {Tensor(float32_t, {"N", "D"}), Tensor(float32_t, {"N"})}})
  end
  eq(text_of(returning(x)),
     "InvalidReturnTypeError: encode: expected 2 results, as `returns` declares, got 1")
  eq(text_of(returning(x, 3)),
     "TypeMismatchError: encode: result 2: expected Tensor(float32_t, {\"N\"}), got int 3")
  eq(text_of(returning(x, torch.zeros({31}))),
     "DimensionMismatchError: encode: result 2: dimension 0 ('N', as dimension 0 of result 1): expected 32, got 31; "
     .. 'it is float32 (31) and declared Tensor(float32_t, {"N"})')
  local strict = ErrorConfig{strict_validation = true}
  eq(text_of(identity(Tensor(error_t, {"N", "words"}), {config = strict}), torch.zeros({3, 5}, {dtype = int64_t})),
     "ValidationError: encode: argument 'x': a malformed flags tensor, words a sample (of 16 slots by the "
     .. 'configuration): expected 4, got 5; it is int64 (3, 5) and declared Tensor(error_t, {"N", "words"})')
end)

test("T23: the fields, and the base of the seven", function()
  local problem = raised(identity(Tensor(float32_t, {"N", Dim.hidden}), {self = {hidden = 512}}), torch.zeros({2, 3}))
  eq(problem.kind, "DimensionMismatchError")
  eq({problem.parameter, problem.expected, problem.actual, problem.dim_name, problem["function"]},
     {"x", 512, 3, "hidden", "encode"})
  assert(problem.message:find("^specs/typing.lua:%d+: "), problem.message)
  eq(tostring(problem), problem.message)
  assert(DimensionMismatchError.is(problem) and ValidationError.is(problem))
  assert(not DTypeMismatchError.is(problem))
  local dtype = raised(identity(Tensor(float64_t)), torch.zeros({2}))
  eq({dtype.kind, dtype.expected, dtype.actual}, {"DTypeMismatchError", "float64", "float32"})
  assert(DTypeMismatchError.is(dtype) and ValidationError.is(dtype))
  for _, other in ipairs({"text", {kind = "ValidationError"}, 3}) do
    assert(not ValidationError.is(other))
  end
end)

test("T20: a method takes its attributes from the object it is called on", function()
  local Encoder = {}
  Encoder.__index = Encoder
  Encoder.forward = tensorcheck(function(self, x) return x:matmul(self.weight) end, {
    name = "Encoder:forward",
    args = {Tensor(float32_t, {"N", Dim.inputs})},
    returns = {Tensor(float32_t, {"N", Dim.outputs})},
  })
  local encoder = setmetatable({inputs = 3, outputs = 5, weight = torch.ones({3, 5})}, Encoder)
  eq(encoder:forward(torch.ones({2, 3})), torch.ones({2, 5}) * 3)
  local problem = raised(encoder.forward, encoder, torch.ones({2, 4}))
  eq({problem.parameter, problem.expected, problem.actual, problem.dim_name}, {"x", 3, 4, "inputs"})
  encoder.outputs = 6
  eq(raised(encoder.forward, encoder, torch.ones({2, 3})).parameter, "result 1")
end)

test("T20: NaN and Inf of float results are recorded in the flags that error_t names, at the place of self", function()
  local x = torch.tensor({{1.0, 2.0}, {0 / 0, 1.0}, {1 / 0, 1.0}, {0 / 0, 1 / 0}})
  local place = {_fx_path = "typing.encoder"}
  local function checked(auto_detect, config)
    return tensorcheck(function(z) return z * 1, err.new(z, {config = config}), z:isnan() end, {
      returns = {Tensor(float32_t, {"N", 2}), Tensor(error_t, {"N", "words"}), Tensor(bool_t, {"N", 2})},
      auto_detect = auto_detect, self = place, config = config,
    })
  end
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    local z = torch.randn({rows, 2})
    if rows > 0 then z[0] = 0 / 0 end
    local _, f = checked()(z)
    eq(f, flag_nan_and_inf(z, "typing.encoder"))
  end
  eq(select(2, checked(true)(x)), flag_nan_and_inf(x, "typing.encoder"))
  eq(select(2, checked({err.NAN})(x)), flag_nan(x, "typing.encoder"))
  eq(select(2, checked({err.INF})(x)), flag_inf(x, "typing.encoder"))
  eq(select(2, checked({err.INF, err.NAN})(x)), flag_nan_and_inf(x, "typing.encoder"))
  eq(select(2, checked(false)(x)), err.new(x))
  for _, carrier in ipairs({float32_t, float64_t, int32_t}) do
    local config = ErrorConfig{flag_dtype = carrier, num_slots = 8}
    eq(select(2, checked(true, config)(x)), flag_nan_and_inf(x, "typing.encoder", nil, {config = config}))
  end
end)

test("T20: detection looks only at results whose samples are those of the flags", function()
  local function checked(first, config)
    return tensorcheck(function(z, other) return err.new(z), other end, {
      returns = {Tensor(error_t, {"N", "words"}), Tensor(float32_t, {first, "D"})}, config = config,
    })
  end
  local z, bad = torch.zeros({2, 3}), torch.full({5, 3}, 0 / 0)
  eq((checked("classes")(z, bad)), err.new(z))
  eq((checked("N")(z, bad[{{0, 2}}])), flag_nan(bad[{{0, 2}}], nil))
end)

test("T20, T25: a malformed flags tensor passes with a warning, or raises when validation is strict", function()
  local function checked(config)
    return tensorcheck(function(z, f) return f, z end, {
      args = {z = Tensor(float32_t, {"N", "D"})},
      returns = {Tensor(error_t, {"N", "words"}), Tensor(float32_t, {"N", "D"})}, config = config,
    })
  end
  local z, strict = torch.full({2, 3}, 0 / 0), ErrorConfig{strict_validation = true}
  local malformed = {
    err.new_t(3), err.new(z, {config = ErrorConfig{num_slots = 32}}), torch.zeros({2}, {dtype = int64_t}),
    torch.zeros({2, 4}, {dtype = int16_t}), torch.zeros({2, 4, 1}, {dtype = int64_t}),
  }
  for _, f in ipairs(malformed) do
    eq((checked()(z, f)), f)   -- nothing is recorded
    local problem = raised(checked(strict), z, f)
    eq({problem.kind, problem.parameter}, {"ValidationError", "result 1"})
    assert(problem.message:find("a malformed flags tensor", 1, true), problem.message)
    local _ <close> = set_config(strict)
    eq(raised(checked(), z, f).kind, "ValidationError")
  end
  eq((checked(strict)(z, err.new(z))), flag_nan(z, nil))
  eq(raised(checked(), z, 3).kind, "TypeMismatchError")   -- no tensor at all: never let pass
  local captured = triage.compile(checked())
  for _ = 1, 2 do
    for _, f in ipairs(malformed) do eq((captured(z, f)), f) end
    eq((captured(z, err.new(z))), flag_nan(z, nil))
  end
end)

test("T20: a declaration that cannot be used is an InvalidParameterError", function()
  local function refused(options, text)
    local problem = raised(tensorcheck, same, options)
    eq(problem.kind, "InvalidParameterError")
    assert(problem.message:find(text, 1, true), problem.message)
  end
  refused({args = {y = Tensor(float32_t)}}, "the name of a parameter of the function, got 'y'")
  refused({args = {x = float32_t}}, "`args.x`: expected a type such as Tensor(")
  refused({args = 3}, "`args`: expected a table of types")
  refused({returns = {3}}, "`returns[1]`: expected a type")
  refused({auto_detect = true}, "a result declared with error_t to record into")
  refused({auto_detect = {err.OVERFLOW}, returns = Tensor(error_t)}, "err.NAN and err.INF")
  refused({auto_detect = {nan = true}, returns = Tensor(error_t)}, "true, false, or a list")
  refused({returns = {Tensor(error_t), Tensor(error_t)}}, "one result declared with error_t")
  fails(function() tensorcheck(same, {arg = {}}) end, "there is no option 'arg'")
  fails(function() tensorcheck(3, {}) end, "expected a function as `fn`")
end)

test("T22: type_cast gives a Result", function()
  local whole = torch.tensor({1, 2, 3})
  local cast = type_cast(float32_t, whole)
  assert(cast:is_ok())
  eq(cast:unwrap(), torch.tensor({1.0, 2.0, 3.0}))
  eq(type_cast(int64_t, torch.tensor({1.9, -1.9})):unwrap(), torch.tensor({1, -1}))
  eq(type_cast(bool_t, whole):unwrap().dtype, torch.bool)
  local no_tensor = type_cast(float32_t, 3):unwrap_err()
  eq({no_tensor.kind, no_tensor.expected, no_tensor.actual}, {"InvalidParameterError", "a tensor", "int 3"})
  eq(type_cast(nil, whole):unwrap_err().kind, "InvalidParameterError")
  eq(type_cast(error_t, whole):unwrap_err().kind, "InvalidParameterError")
  local complex = torch.complex(torch.ones({2}), torch.ones({2}))
  local lost = type_cast(float32_t, complex):unwrap_err()
  eq(lost.kind, "DTypeMismatchError")
  assert(lost.message:find("would drop the imaginary parts", 1, true), lost.message)
  eq(type_cast(torch.complex128, complex):unwrap().dtype, torch.complex128)
end)

test("T20, T23: captured, the checks hold, and a call that does not fit raises the same error", function()
  local f = triage.compile(tensorcheck(function(x, y) return x + y end, {
    name = "sum",
    args = {Tensor(float32_t, {"N", 3}), Tensor(float32_t, {"N", 3})},
    returns = {Tensor(float32_t, {"N", 3})},
  }))
  for _, rows in ipairs({2, 0, 1, 31, 32, 33}) do
    local x, y = torch.randn({rows, 3}), torch.randn({3, rows}):t()
    eq(f(x, y), x + y)
  end
  local problem = raised(f, torch.ones({2, 3}), torch.ones({1, 3}))   -- would broadcast
  eq({problem.kind, problem.dim_name, problem.expected, problem.actual}, {"DimensionMismatchError", "N", 2, 1})
  eq(raised(f, torch.ones({2, 4}), torch.ones({2, 4})).dim_name, nil)
  eq(raised(f, torch.ones({2, 3}, {dtype = float64_t}), torch.ones({2, 3})).kind, "DTypeMismatchError")
  eq(f(torch.ones({2, 3}), torch.ones({2, 3})), torch.ones({2, 3}) * 2)
end)

test("T20: captured, an attribute that changes is seen", function()
  local module = {hidden = 3}
  local f = triage.compile(tensorcheck(function(x) return x * 2 end,
                                       {args = {Tensor(float32_t, {"N", Dim.hidden})}, self = module}))
  eq(f(torch.ones({2, 3})), torch.ones({2, 3}) * 2)
  module.hidden = 4
  eq(raised(f, torch.ones({2, 3})).expected, 4)
  eq(f(torch.ones({2, 4})), torch.ones({2, 4}) * 2)
end)

test("T20: captured, a failed check that a script catches is tied to the sizes it failed for", function()
  local checked = as_result(tensorcheck(function(x) return x * 2 end, {args = {Tensor(float32_t, {"N", 3})}}))
  local f = triage.compile(function(x)
    local result = checked(x)
    if result:is_err() then return x end
    return result:unwrap()
  end, {fullgraph = true})
  for _ = 1, 2 do
    eq(f(torch.ones({2, 4})), torch.ones({2, 4}))
    eq(f(torch.ones({2, 3})), torch.ones({2, 3}) * 2)
    eq(f(torch.ones({5, 3})), torch.ones({5, 3}) * 2)
    eq(f(torch.ones({5, 5})), torch.ones({5, 5}))
  end
end)

test("T20: requires_grad is that of the caller's tensor, also without grad mode", function()
  local f = triage.compile(identity(Tensor(float32_t, {"N"}, nil, true)))
  local x = torch.ones({2}, {requires_grad = true})
  eq(f(x), x)
  torch.no_grad(function() eq(f(x), x) end)
  eq(raised(f, torch.ones({2})).kind, "InvalidParameterError")
end)
