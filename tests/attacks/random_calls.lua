-- Calls what policies have with values of every kind: functions of torch, methods of tensors, indexing, operators, the functions of
-- samples and flags. Arguments of the chunk: a seed, the number of calls, the names of operators, and a function that is told the
-- text of each call before it is made.
local seed, count, operators, tell = ...

local state = seed * 2654435761 + 12345
local function below(n)
  state = state * 6364136223846793005 + 1442695040888963407
  return math.ult(n, 1) and 0 or (state >> 33) % n
end
local function pick(list) return list[below(#list) + 1] end
local function chance(percent) return below(100) < percent end

local dtypes = {torch.float32, torch.float32, torch.float32, torch.float64, torch.int64, torch.int64, torch.int32, torch.bool,
                torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.complex64, torch.complex128}
local integers = {0, 0, 1, 1, 1, 2, 2, 3, 4, -1, -1, -2, 5, 7, 33, 77, 100, 1 << 20, 1 << 31, 1 << 33, 1 << 53, 1 << 62, math.maxinteger,
                  math.mininteger, -(1 << 40)}
local reals = {0.5, 1.0, 2.0, -1.5, 0 / 0, 1 / 0, -1 / 0, 1e300, 5e-324, 1e-5, -0.0, 3.5e38, 9.3e18, 4503599627370495.5}
local words = {"", "mean", "sum", "none", "constant", "reflect", "replicate", "linear", "floor", "trunc", "ij", "tanh", "cpu", "meta", "cuda:7",
               "amax", "ij,jk->ik", "...i->i", "%s%n", ("x"):rep(3000), "\0\255", "torch.float32"}
local keys = {"dim", "keepdim", "dtype", "device", "out", "size", "reduction", "mode", "min", "max", "value", "other", "weight", "bias", "layout",
              "memory_format", "generator", "requires_grad", "dims", "axis", "self", "input", "index", "eps", "p", "n", "k", "largest", "nonsense"}
local pool = {}
local of_policies = {}  -- dtypes; calls get the others as arguments too
for _, dtype in ipairs(dtypes) do
  if pcall(function() return torch.ones(1):to(dtype) end) then of_policies[#of_policies + 1] = dtype end
end

local views = {
  function(x) return x:t() end,
  function(x) return x[0] end,
  function(x) return x:unsqueeze(0):expand(3, -1) end,
  function(x) return x:narrow(-1, 0, 1) end,
}
local function tensor()
  local x = pick(pool)
  if chance(10) then
    local ok, own = pcall(guard, x)
    if ok then return own end
  end
  local way = views[below(12) + 1]
  if not way then return x end
  local ok, view = pcall(way, x)
  if ok then return view end
  return x
end

for _ = 1, 40 do
  local sizes = {}
  for i = 1, below(5) do sizes[i] = pick {0, 1, 1, 2, 2, 3, 3, 4, 7} end
  local x = torch.ones(sizes) * below(5) + (chance(30) and torch.randn(sizes) or 0)
  if chance(10) then x = x * pick(reals) end
  pool[#pool + 1] = x:to(pick(of_policies))
end

local cyclic = {}
cyclic[1], cyclic.self = cyclic, cyclic
local huge = {}
for i = 1, 3000 do huge[i] = i % 3 end
local hostile = setmetatable({1, 2}, {__index = function() error("index") end, __len = function() return 1 << 60 end, __eq = function() return true end,
                                      __lt = function() error("less") end, __concat = function() return "x" end, __call = function() return 1 end,
                                      __tostring = function() error("text") end, __name = "Tensor", __close = function() end, __unm = error})

local value
local function list(depth)
  local items = {}
  local kind = below(4)
  for i = 1, pick {0, 1, 1, 2, 2, 3, 4, 9} do
    if kind < 2 then items[i] = pick(integers) elseif kind == 2 then items[i] = tensor() else items[i] = value(depth + 1) end
  end
  return items
end
local function options(depth)
  local items = {}
  for _ = 1, pick {1, 1, 2, 3, 70} do items[pick(keys) .. (chance(3) and below(99) or "")] = value(depth + 1) end
  return items
end

local makers = {
  tensor, tensor, tensor, tensor, tensor, tensor,
  function() return pick(integers) end, function() return pick(integers) end, function() return pick(integers) end,
  function() return pick(reals) end, function() return pick(reals) end,
  function() return pick(words) end,
  function() return chance(50) end,
  function() return nil end,
  list, list, options,
  function() return pick(dtypes) end,
  function() return pick {cyclic, huge, hostile, print, error, torch, err, _G, torch.zeros, torch.sparse_coo, torch.preserve_format, torch.channels_last,
                          torch.None, string, 1 << 62, "x"} end,
  function() return setmetatable({}, {__index = pool}) end,
  function() return function(...) return ... end end,
  function() return function() return pick(pool) end end,
  function() return torch.Generator and torch.Generator(3) end,
}
function value(depth) return (depth or 0) > 3 and 1 or pick(makers)(depth or 0) end

--- One number, list or tensor too many, too few, or of another kind than an operator expects; often none.
local function arguments()
  local way = below(6)
  local few = way < 3
  local n = few and pick {0, 0, 1, 1, 1, 2, 2, 3} or pick {0, 1, 1, 2, 2, 3, 3, 4, 5, 9, 40}
  local items = {n = n}
  local x = tensor()
  for i = 1, n do
    if way == 0 then items[i] = x
    elseif way == 1 then items[i] = below(2)
    elseif way == 2 then
      if i == 1 and chance(60) then items[i] = x else items[i] = pick {0, 1, -1, 0.5, 2} end
    elseif way == 3 then items[i] = value(0)
    elseif way == 4 then items[i] = tensor()
    elseif chance(45) then items[i] = tensor()
    elseif chance(70) then items[i] = pick(integers)
    else items[i] = value(0) end
  end
  return items
end

local function keep(first)
  if torch.is_tensor and not torch.is_tensor(first) then return end
  local sizes = first:size()
  local elements = 1
  for i = 1, #sizes do elements = elements * sizes[i] end
  if elements < 2000 then pool[below(#pool) + 1] = first end
end

local libraries = {}
for name, library in pairs {err = err, flags = flags, torch = torch, nn = nn, triage = triage} do
  for key, f in pairs(library) do
    if type(f) == "function" then libraries[#libraries + 1] = {name .. "." .. tostring(key), f} end
  end
end
for _, name in ipairs {"find", "push", "fix", "has_err", "flag_nan", "flag_inf", "flag_nan_and_inf", "flag_oob_indices", "guard", "unguard",
                       "IF", "IS", "HAS", "AND", "OR",
                       "NOT", "Tensor", "as_result", "unwrap", "type_cast", "tensorcheck", "tostring", "select", "next", "ipairs", "setmetatable"} do
  libraries[#libraries + 1] = {name, _G[name]}
end

local ways = {
  function(a) local name = pick(operators) return "torch." .. name, function() return torch[name](table.unpack(a, 1, a.n)) end end,
  function(a) local name, x = pick(operators), tensor() return "x:" .. name, function() return x[name](x, table.unpack(a, 1, a.n)) end end,
  function(a) local entry = pick(libraries) return entry[1], function() return entry[2](table.unpack(a, 1, a.n)) end end,
  function(a) local x = tensor() return "x[...]", function() return x[a.n == 1 and a[1] or a] end end,
  function(a) local x = tensor() return "x[...] = ...", function() x[a[1]] = a[2] end end,
  function(a)
    local x, y = tensor(), a[1]
    return "an operator", pick {function() return x + y end, function() return y - x end, function() return x * y end, function() return x / y end,
                    function() return x // y end, function() return x % y end, function() return y ^ x end, function() return x & y end,
                    function() return x << y end, function() return ~x end, function() return x < y end, function() return x == y end,
                    function() return tostring(x) end, function() return #x end, function() return x .. "" end, function() return x() end,
                    function() return x:tolist() end, function() return x:item() end, function() return x:size(y) end}
  end,
}
local weights = {1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 4, 5, 6}

local good = 0
for i = 1, count do
  local made, name, f = pcall(function() return ways[pick(weights)](arguments()) end)
  if made then
    tell(i, name)
    local ok, first = pcall(f)
    if ok then
      good = good + 1
      pcall(keep, first)
    end
  end
end
return good
