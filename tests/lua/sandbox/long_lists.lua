-- Every function that the script can reach, and every method, with long lists of arguments, wide tables of options and
-- deeply nested tables. What they answer is their own matter; that the process goes on is the test, above all on a Lua
-- that checks its stack (`./dev sanitize lua`). Runs in a policy and in a trusted script (stack_test.cpp); returns the
-- number of calls.
-- With TRIAGE_LONG_LISTS in the environment each call is told, to find the one that ends the process.
local told = os and os.getenv("TRIAGE_LONG_LISTS")

--- Not called: they wait for input, end the process, write files of the names that they are given, or change what other
--- tests find.
local left_out = {
  debug = true, io = true, os = true, package = true, arg = true, _G = true, loaded = true,
  dofile = true, loadfile = true, require = true, print = true, warn = true, collectgarbage = true,
  ["torch.save"] = true,
  ["triage.reset"] = true, ["triage.set_stance"] = true, ["triage.set_logs"] = true, ["triage.register_backend"] = true,
  ["torch.manual_seed"] = true, ["set_config"] = true,
  ["ErrorLocation.reset"] = true, ["ErrorLocation.register"] = true,
}

local function nested(depth)
  local t = {}
  for _ = 1, depth do t = {t} end
  return t
end

local function options(count)
  local t = {}
  for i = 1, count do t["option_" .. i] = i end
  return t
end

local function list(count, item)
  local t = {}
  for i = 1, count do t[i] = item end
  return t
end

local one = torch.ones({1})
local flags = torch.zeros({1, 1}, {dtype = torch.int64})
local function nothing() end
local function gives_200() return table.unpack(list(200, one)) end
local mixed = {}
for i = 1, 300 do mixed[i] = ({i, "s", one, {}, nothing, true, flags, {[1] = i}})[i % 8 + 1] end

local kinds = {
  numbers = list(300, 1), tensors = list(300, one), tables = list(300, {}), strings = list(300, "s"),
  of_200 = list(300, gives_200), mixed = mixed,
}
local lengths = {0, 1, 20, 60, 300}
local self_holding = {}
self_holding[1], self_holding.inner = self_holding, self_holding

--- Lists of arguments that have one odd value at their end.
local odd_ends = {
  options(60), options(1000), nested(200), nested(100000), self_holding,
  list(10000, 1), list(10000, one), list(10000, {}),
  {option = nested(100000)}, {out = list(300, one)}, {out = list(30, one), dim = 1},
  {[1 << 31] = 1, [(1 << 32) - 5] = one},
  {args = {[(1 << 32) - 5] = Tensor and Tensor(float32_t), [(1 << 31) + 3] = Tensor and Tensor(float32_t)}},
  setmetatable({}, {__index = function(_, key) return key end, __len = function() return 300 end}),
  setmetatable({}, {__tostring = gives_200, __name = string.rep("n", 10000)}),
}
local beginnings = {{}, {one, flags}, {nothing, one}}

local calls = 0
local function call(name, fn, arguments, count)
  if told then io.stderr:write(name, " with ", count, "\n") end
  calls = calls + 1
  local results = table.pack(pcall(function() return fn(table.unpack(arguments, 1, count)) end))
  for i = results.n, 2, -1 do   -- scopes of modes end at once
    local ended, scope = pcall(function() local s <close> = results[i] return s end)
    if not ended then results[i] = scope end
  end
end

--- `self` is nil for a function.
local function attack(name, fn, self)
  local function with(arguments, count)
    if self == nil then return call(name, fn, arguments, count) end
    return call(name, fn, table.move(arguments, 1, count, 2, {self}), count + 1)
  end
  for _, kind in pairs(kinds) do
    for _, count in ipairs(lengths) do with(kind, count) end
  end
  for _, last in ipairs(odd_ends) do
    for _, first in ipairs(beginnings) do
      local arguments = table.move(first, 1, #first, 1, {})
      arguments[#first + 1] = last
      with(arguments, #first + 1)
    end
  end
end

local functions, seen = {}, {}
local function collect(prefix, tab, depth)
  if seen[tab] or depth > 4 then return end
  seen[tab] = true
  for key, value in pairs(tab) do
    local name = type(key) == "string" and prefix .. key
    if name and not left_out[name] and not left_out[key] then
      if type(value) == "function" then functions[name] = value end
      if type(value) == "table" then
        local meta = getmetatable(value)
        if meta ~= nil then functions[name] = function(...) return value(...) end end
        collect(name .. ".", value, depth + 1)
      end
    end
  end
end
collect("", _ENV, 1)
for name in ("zeros ones full cat stack where add sub max min sum mean arange linspace einsum block_diag softmax "
  .. "broadcast_tensors cross_entropy conv2d nn.functional layer_norm topk sort unique split chunk clamp norm var_mean "
  .. "aminmax frexp svd lu_unpack index_put logsumexp rand randn empty"):gmatch("[%w_]+") do
  local found, fn = pcall(function() return torch[name] end)
  if found and type(fn) == "function" then functions["torch." .. name] = fn end
end

local objects = {
  x = {one, "size", "dim", "item", "totable", "to", "cuda", "cpu", "requires_grad_", "stride", "type", "view",
    "reshape", "expand", "clamp", "where", "sum", "max", "min", "split", "chunk", "unbind", "permute", "repeat", "topk",
    "sort", "std", "index", "gather", "any", "all", "norm", "backward", "retain_grad", "var_mean"},
  tree = {LocationTree(), "add_path", "build_ids", "get_location", "to_dict"},
  weighted = {WeightedLocationTree(), "set_weight", "set_default_weight", "add_path", "build_ids"},
  result = {Ok(1), "unwrap_or", "map", "map_err", "and_then", "unwrap", "expect"},
  config = {ErrorConfig({}), "should_transpose"},
  layer = {nn.Linear(3, 2), "load_state_dict", "to", "train", "eval", "requires_grad_", "parameters",
    "named_parameters", "state_dict", "register_parameter", "register_buffer", "add_module", "forward"},
  optimizer = {optim and optim.SGD(nn.Linear(3, 2):parameters(), {lr = 0.1}), "step", "zero_grad", "load_state_dict"},
  program = {triage.export(function(x) return x * 2 end, {one}), "run_decompositions", "verify"},
  compiled = {triage.compile(function(x) return x * 2 end), "cache"},
  generator = {torch.Generator and torch.Generator(), "manual_seed", "seed"},
  type_of_tensor = {Tensor and Tensor(float32_t, {"N", 3})},
}
for name, object in pairs(objects) do
  local self = object[1]
  if self then
    functions[name .. "()"] = function(...) return self(...) end
    functions[name .. "[]"] = function(...) return self[(...)] end
    functions[name .. "[]="] = function(key, ...) self[key] = (...) end
    functions[name .. "+"] = function(a) return self + a end
    functions[name .. ".."] = function(a) return self .. a end
    functions[name .. "=="] = function(a) return self == a end
    functions[name .. "<"] = function(a) return self < a end
    functions["tostring(" .. name .. ")"] = function() return tostring(self), #self end
  end
  for i = 2, #object do
    local label = name .. ":" .. object[i]
    local found, method = pcall(function() return self[object[i]] end)
    if found and type(method) == "function" and not left_out[label] then
      attack(label, method, self)
      attack(label .. " without self", method)
    end
  end
end
for name in ("IF find triage.compile triage.disable triage.allow_in_graph triage.assume_constant_result tensorcheck "
  .. "torch.no_grad tracked triage.explain triage.export"):gmatch("%S+") do
  local outer = functions[name]
  if outer then
    functions[name .. " of 200 results"] = function(...) return outer(gives_200, ...) end
    functions[name .. " of its arguments"] = function(...) return outer(function(...) return ... end, ...) end
  end
end

local names = {}
for name in pairs(functions) do names[#names + 1] = name end
table.sort(names)
for _, name in ipairs(names) do
  local start = told and os.clock()
  attack(name, functions[name])
  if told then io.stderr:write("# ", name, " took ", os.clock() - start, " s\n") end
end

-- What is made of functions is called itself.
for name in ("triage.compile triage.disable triage.allow_in_graph triage.assume_constant_result "
  .. "tensorcheck"):gmatch("%S+") do
  for _, of in ipairs({function(...) return ... end, gives_200}) do
    local made, fn = pcall(functions[name], of, name == "tensorcheck" and {} or nil)
    if made then
      for _, kind in pairs(kinds) do
        for _, count in ipairs({0, 1, 20, 60, 250}) do call("made by " .. name, fn, kind, count) end
      end
    end
  end
end
for _, count in ipairs({3000, 100000, 999900}) do   -- the last nearly fills Lua's stack
  for _, item in ipairs(count < 999900 and {1, one, "s", {}} or {one}) do
    local arguments = list(count, item)
    for _, name in ipairs({"torch.zeros", "torch.cat", "torch.add", "triage.explain", "string.format", "table.pack",
      "select", "tostring", "math.max", "Ok", "err.new", "find", "fix", "pcall", "nn.Sequential",
      "string.char", "utf8.char"}) do
      if functions[name] then
        call(name, functions[name], arguments, count)
        call(name .. " of a function", function(...) return functions[name](gives_200, ...) end, arguments, count)
      end
    end
  end
end
return calls
