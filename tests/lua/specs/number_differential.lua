-- Random programs of mixed dtypes, casts, sizes, items and plain numbers, run as scripts, compiled, and exported: the
-- same dtypes, shapes, bits and errors, at every batch size. Only operations whose bits do not depend on how a loop is
-- cut. TRIAGE_DIFFERENTIAL=N makes N programs, TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(60, 2654435761)

local dtypes = {"float32", "float32", "float64", "int64", "int32", "uint8", "int8", "int16", "bool", "float16",
                "bfloat16"}
local reals = {0.0, -0.0, 1.0, -1.0, 2.0, -2.5, 3.0, 0.5, 7.0, 0 / 0, 1 / 0, -1 / 0, 300.0, -129.0, 1e10, -3e9, 65504.0}
local whole = {0, 1, -1, 2, 3, -7, 127, -128, 255, 65535, 1 << 31, (1 << 53) + 1, math.maxinteger, math.mininteger}
local numbers = {"n", "m", "(n * 0.5)", "(n / 2)", "(n - 3)", "(-n)", "(n * 100)", "(m // 2)", "math.sqrt(n)", "k", "q",
                 "(k + n)", "2", "-1", "0.5", "0", "300", "1e10", "2.0", "-0.0", "true"}
local operators = {"+", "-", "*", "//", "%", "/", "&", "|", "~", "<<", ">>", "<", "<=", "==", "~=", ">", ">="}
local named = {"add", "sub", "mul", "floor_divide", "remainder", "eq", "lt", "bitwise_and", "logical_xor", "copysign",
               "where", "rsub"}
-- Of two equal zeros they may give either; added to 0, both are +0.
local greater = {"maximum", "minimum", "fmax"}
local unary = {"neg", "abs", "sign", "floor", "trunc", "round", "frac", "relu", "square", "isnan", "logical_not",
               "bitwise_not", "nan_to_num", "signbit", "zeros_like", "ones_like", "clone", "relu6"}
local tensors   -- the names there are
local function t() return pick(tensors) end
local function number() return pick(numbers) end

local expressions = {
  function() return ("(%s %s %s)"):format(t(), pick(operators), t()) end,
  function() return ("(%s %s %s)"):format(t(), pick(operators), number()) end,
  function() return ("(%s %s %s)"):format(number(), pick(operators), t()) end,
  function() return ("torch.%s(%s, %s)"):format(pick(named), t(), pick({t(), number()})) end,
  function() return ("%s:%s()"):format(t(), pick(unary)) end,
  function() return ("%s:to(torch.%s)"):format(t(), pick(dtypes)) end,
  function() return ("%s:to(torch.%s)"):format(t(), pick(dtypes)) end,
  function() return ("torch.where(%s, %s, %s)"):format(pick({"c", t() .. ":gt(0)"}), pick({t(), number()}),
    t()) end,
  function() return ("%s:clamp({%s = %s})"):format(t(), pick({"min", "max"}), number()) end,
  function() return ("(%s:clamp({%s = %s}) + 0)"):format(t(), pick({"min", "max"}), t()) end,
  function() return ("(torch.%s(%s, %s) + 0)"):format(pick(greater), t(), t()) end,
  function() return ("%s:masked_fill(c, %s)"):format(t(), number()) end,
  function() return ("%s:threshold(%s, %s)"):format(t(), number(), number()) end,
  function() return ("%s:%s(-1%s)"):format(t(), pick({"amax", "amin", "argmax", "any", "all"}),
    pick({"", ", true"})) end,
  function() return ("%s:to(torch.int64):%s(-1, true)"):format(t(), pick({"sum", "prod"})) end,
  function() return ("%s:div(%s, {rounding_mode = '%s'})"):format(t(), pick({t(), number()}),
    pick({"floor", "trunc"})) end,
  function() return ("torch.full_like(%s, %s)"):format(t(), number()) end,
  function() return ("torch.add(%s, %s, {alpha = %s})"):format(t(), t(), number()) end,
  function() return ("%s:pow(%s)"):format(t(), pick({"2", "0", "1", "2.0"})) end,
  function() return ("%s:%s(%s)"):format(t(), pick({"view_as", "type_as", "expand_as"}), t()) end,
}

local function drawn(dtype, shape, rows)
  local real, list = dtype:match("float"), {}
  for i = 1, rows do list[i] = pick(real and reals or whole) end
  if rows == 0 then return torch.zeros(shape, {dtype = torch[dtype]}) end
  local all = torch.tensor(list, {dtype = real and torch.float64 or torch.int64})
  if dtype == "bool" then all = all:gt(0) end
  return all:to(torch[dtype]):view(shape)
end

local function load_program(lines, names)
  return assert(load(("return function(x, y, r, s, c, i, d)\n%s\nreturn %s\nend"):format(table.concat(lines, "\n"),
    table.concat(names, ", "))))()
end

--- dtype, shape, values and signs of zeros of all results; of an error, that it is one.
local function outcome(fn, arguments)
  local results = table.pack(pcall(fn, table.unpack(arguments)))
  if not results[1] then return "an error" end
  for i = 2, results.n do
    local value = results[i]
    local signs = value:is_floating_point() and value:masked_fill(value:isnan(), 0):signbit()
    results[i] = {value, signs}
  end
  return results
end

--- Lines that plain code runs; now and then the last one is an error.
local function make_program(given)
  local lines, names = {"local n, m, k, q = x:size(0), x:size(1), i:item(), d:item()"}, {}
  tensors = {"x", "y", "r", "s", "x", "y"}
  local may_fail, tries = random(6) == 1, 0
  while #names < 10 and tries < 100 do
    tries = tries + 1
    local name = "v" .. #names + 1
    lines[#lines + 1] = ("local %s = %s"):format(name, pick(expressions)())
    names[#names + 1] = name
    local results = table.pack(pcall(load_program(lines, names), table.unpack(given)))
    local fine = results[1] and torch.is_tensor(results[#names + 1]) and results[#names + 1]:numel() < 5000
    if fine then
      tensors[#tensors + 1] = name
    elseif may_fail and not results[1] and #names > 4 then
      break
    else
      lines[#lines], names[#names] = nil, nil
    end
  end
  return lines, names
end

local function compare(what, run, calls, expected)
  for position, call in ipairs(calls) do
    local fine, why = pcall(eq, outcome(run, call), expected[position])
    if not fine then error(("%s, call %d: %s"):format(what, position, why), 2) end
  end
end

test("numbers, casts and mixed dtypes give the same captured and exported", function()
  local before = triage.config.capture_scalar_outputs
  for seed in seeds() do
    local dtype_x, dtype_y, dtype_r, dtype_s, width = pick(dtypes), pick(dtypes), pick(dtypes), pick(dtypes), random(6)
    local sizes = pick({{4, 1, 7}, {3, 32, 2}, {33, 2, 0}, {2, 31, 1000}, {5, 0, 1}})
    local calls = {}
    for position, rows in ipairs(sizes) do
      calls[position] = {
        drawn(dtype_x, {rows, width}, rows * width), drawn(dtype_y, {rows, width}, rows * width),
        drawn(dtype_r, {rows, 1}, rows), drawn(dtype_s, {}, 1), drawn("bool", {rows, width}, rows * width),
        torch.tensor(pick({0, 2, 7, -3, 300})), torch.tensor(pick({0.5, -2.0, 3.0, 1e30}))}
    end
    local lines, names = make_program(calls[1])
    local fn = load_program(lines, names)
    local expected = {}
    for position, call in ipairs(calls) do expected[position] = outcome(fn, call) end
    triage.config.capture_scalar_outputs = random(3) > 1
    local function check(what, run)
      local told = ("seed %d, %s\n%s"):format(seed, what, table.concat(lines, "\n"))
      compare(told, run, calls, expected)
      return told
    end
    local compiled = triage.compile(fn, {backend = seed % 12 == 0 and "fused" or "eager"})
    check("captured", compiled)
    compiled:finish_compiling()
    check("compiled", compiled)
    local exported, program = pcall(triage.export, fn, calls[1], {dynamic_shapes = sizes[1] > 1 and "batch" or nil})
    if exported then   -- what depends on sizes or values cannot be
      check("exported", program)
      check("decomposed", program:run_decompositions())
    end
  end
  triage.config.capture_scalar_outputs = before
end)
