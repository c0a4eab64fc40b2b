-- Arguments and options that nothing would read are errors: what was meant by them would be silently ignored.

local x = torch.ones({4, 3})

--- Functions that take as many arguments as there are, by their nature.
local any_number = {}
for name in ([[AND OR Ok err.merge err.partition_many nn.Sequential nn.ModuleList torch.autocast torch.no_grad
    torch.enable_grad
    torch.set_grad_enabled triage.explain]]):gmatch("%S+") do
  any_number[name] = true
end

--- Lua's own, which drop what they do not take, as everywhere in Lua.
local luas_own = {}
for name in ([[assert collectgarbage error getmetatable ipairs load next pairs pcall print rawequal rawget rawlen
    rawset select setmetatable tonumber tostring type xpcall warn require dofile loadfile string table math
    utf8 coroutine os io debug package random_programs
    _G]]):gmatch("%S+") do
  luas_own[name] = true
end

--- Functions of tests/lua/spec.lua, whatever their number.
local function is_of_the_specs(fn)
  return debug.getinfo(fn, "S").short_src:find("spec.lua", 1, true) ~= nil
end

local surplus = {}
for i = 1, 20 do surplus[i] = {nonsense = i} end

local function message_of(fn, ...)
  local ok, message = pcall(fn, ...)
  message = type(message) == "table" and message.message or tostring(message)
  return not ok and message or "accepted"
end

local function refuses_surplus(message)
  return message:find("expected at most %d+ argument") or message:find("expected no arguments", 1, true)
end

local function walk(name, value, check, seen)
  if seen[value] then return end
  seen[value] = true
  if type(value) == "function" then
    if not any_number[name] and not is_of_the_specs(value) then check(name, value) end
  elseif type(value) == "table" then
    for key, field in pairs(value) do
      if not (name == "" and luas_own[key]) then
        walk((name == "" and "" or name .. ".") .. tostring(key), field, check, seen)
      end
    end
  end
end

test("every function of the library refuses a list of arguments that is too long", function()
  local complaints, count = {}, 0
  walk("", _G, function(name, fn)
    count = count + 1
    local message = message_of(fn, table.unpack(surplus))
    -- operators of ATen say it of their own schema
    local operator = message:find("it takes %d+ arguments? by position, but 20 were given")
      or message:find("unknown option 'nonsense'", 1, true)
    if not (refuses_surplus(message) or operator) then complaints[#complaints + 1] = name .. ": " .. message end
  end, {})
  assert(#complaints == 0, table.concat(complaints, "\n"))
  assert(count > 130, count)
end)

test("every method that is no operator refuses arguments that it does not take", function()
  local model = nn.Linear(3, 2)
  local program = triage.export(function(y) return y + 1 end, {x})
  local compiled = triage.compile(function(y) return y + 1 end)
  compiled(x)
  local instrumented = triage.instrument(nn.Linear(3, 2))
  instrumented(x)
  local graph
  triage.compile(function(y) return y + 1 end, {backend = function(g) graph = g return g end})(x)
  local methods = {
    {x, [[size dim ndimension numel nelement stride is_contiguous element_size is_floating_point is_complex is_signed
        item totable tolist to type float double half bfloat16 byte char short int long bool cpu cuda requires_grad_
        retain_grad backward]]},
    {model, [[named_modules modules named_children children named_parameters parameters named_buffers buffers apply
        register_buffer train eval requires_grad_ zero_grad state_dict load_state_dict forward]]},
    {optim.SGD(model:parameters(), {lr = 0.1}), "step zero_grad"},
    {program, "run_decompositions verify save to_torchscript"},
    {compiled, "cache finish_compiling"},
    {instrumented, "locations checked unseen unlooked"},
    {graph, "run"},
    {Ok(1), "is_ok is_err unwrap unwrap_err map map_err and_then"},
    {LocationTree():add_path("a.b"), "add_path build_ids get_location get_path to_dict"},
    {WeightedLocationTree():add_path("a.b"), "set_weight set_default_weight"},
    {IF(torch.tensor(true), function() return x end), "ELIF ELSE"},
    {torch.Generator(1), "manual_seed"},
    {CONFIG, "should_transpose"},
  }
  for _, entry in ipairs(methods) do
    local object, names = entry[1], entry[2]
    for name in names:gmatch("%S+") do
      local message = message_of(object[name], object, table.unpack(surplus))
      assert(refuses_surplus(message), name .. ": " .. message)
    end
  end
  IF(torch.tensor(true), function() return x end):ELSE(function() return x end)
end)

test("options that a function does not have are refused, with those that it has", function()
  local flagged = err.new(x)
  local options = {nonsense = 1}
  local leaf = torch.ones({2}, {dtype = torch.float32}):requires_grad_()
  local one = function(y) return y end
  local calls = {
    {function() return x:sum(options) end, "{dtype: dtype"},
    {function() return x:softmax(-1, options) end, "dim: int"},
    {function() return torch.zeros({2}, options) end, "pin_memory"},
    {function() return torch.tensor({1}, options) end, "requires_grad"},
    {function() return x:to(options) end, "non_blocking"},
    {function() return leaf:sum():backward(options) end, "retain_graph"},
    {function() return torch.autograd.grad(leaf:sum(), leaf, nil, options) end, "allow_unused"},
    {function() return torch.autocast("cpu", options, print) end, "enabled"},
    {function() return nn.Linear(2, 2, options) end, "bias"},
    {function() return nn.Conv2d(1, 1, 1, options) end, "padding_mode"},
    {function() return nn.LayerNorm(2, options) end, "eps"},
    {function() return nn.Embedding(2, 2, options) end, "padding_idx"},
    {function() return nn.Parameter(x, options) end, "requires_grad"},
    {function() return nn.Linear(2, 2):to(options) end, "device"},
    {function() return nn.Linear(2, 2):load_state_dict({}, options) end, "strict"},
    {function() return optim.SGD(nn.Linear(2, 2):parameters(), options) end, "momentum"},
    {function() return optim.Adam(nn.Linear(2, 2):parameters(), options) end, "betas"},
    {function() return triage.compile(one, options) end, "fullgraph"},
    {function() return triage.export(one, {x}, options) end, "dynamic_shapes"},
    {function() return triage.disable(one, options) end, "recursive"},
    {function() return triage.mark_dynamic(x, 0, options) end, "min"},
    {function() return triage.constrain_as_value(3, options) end, "min"},
    {function() return triage.constrain_as_size(3, options) end, "min"},
    {function() return triage.instrument(nn.Linear(2, 2), options) end, "benign"},
    {function() return triage.set_logs(options) end, "recompiles"},
    {function() return tracked(nn.Linear(2, 2), options) end, "prefix"},
    {function() return tensorcheck(one, options) end, "auto_detect"},
    {function() return push(flagged, err.NAN, "a", options) end, "severity"},
    {function() return fix(x, flagged, "a", options) end, "fallback"},
    {function() return flag_nan(x, "a", nil, options) end, "config"},
    {function() return err.new(x, options) end, "config"},
    {function() return flags.repr(flagged, options) end, "config"},
    {function() return ErrorConfig(options) end, ""},
    {function() return AccumulationConfig(options) end, "priority"},
    {function() return policy(options) end, "signature"},
  }
  for i, call in ipairs(calls) do
    local message = message_of(call[1])
    assert(message:find("nonsense", 1, true), i .. ": " .. message)
    assert(message:find(call[2], 1, true), i .. ": " .. message)
    assert(message:find("surplus.lua:%d+: "), i .. ": " .. message)
  end
end)

test("arguments that have no meaning where they stand are refused", function()
  local leaf = torch.ones({2}):requires_grad_()
  fails(function() x:to() end, "x:to: expected a dtype, a device or a tensor")
  fails(function() x:to("cpu", torch.float32, torch.float64) end, "x:to: the dtype is given twice")
  fails(function() x:to(torch.float64, {dtype = torch.float32}) end, "x:to: the dtype is given twice")
  fails(function() x:to(x, "cpu") end, "x:to: the device is given twice")
  fails(function() x:to({copy = 3}) end, "'copy'")
  fails(function() x:requires_grad_(5) end, "expected true or false")
  fails(function() x:is_contiguous(5) end, "torch.channels_last")
  fails(function() leaf:sum():backward(5) end, "expected a tensor as `gradient`")
  fails(function() leaf:sum():backward(nil, 5) end, "expected a table as `options`")
  fails(function() leaf:sum():backward({}, {}) end, "at most 1 argument")
  fails(function() torch.autograd.grad(leaf:sum(), leaf, 4) end, "expected a table as `options`")
  fails(function() torch.autograd.grad(leaf:sum(), leaf, nil, {retain_graph = 1}) end, "retain_graph")
  fails(function() nn.Linear(2, 2):requires_grad_(5) end, "expected true or false")
  fails(function() nn.Linear(2, 2):to() end, "to: expected a dtype")
  fails(function() nn.Linear(2, 2):to("cpu", torch.float32, "cpu") end, "the device is given twice")
  fails(function() nn.Linear(3, 2)(x, 1) end, "module:forward: expected at most 1 argument")
  fails(function() nn.Conv2d(1, 1, 1, {stride = {1, 1, a = 1}}) end, "`stride`")
  fails(function() return x[{{0, 2, step = 2}}] end, "a slice is a list")
  fails(function() return x[{0, a = 1}] end, "an index is a list")
  fails(function() Severity.is_critical("high") end, "expected a severity")
  fails(function() ErrorCode.in_domain(1, 9) end, "expected a domain")
  eq(x:requires_grad_(false):requires_grad_().requires_grad, true)
  eq(x:detach():to(torch.float64, {copy = true}).dtype, torch.float64)
  x:requires_grad_(false)
end)
