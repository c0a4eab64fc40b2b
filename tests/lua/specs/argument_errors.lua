-- Every function that a script can call, with arguments that it does not take: the error says whose it is, and where in
-- the script. A new function is found by itself; it is looked at as soon as it is there.
local standard = {
  _G = true, arg = true, coroutine = true, debug = true, io = true, math = true, os = true, package = true,
  string = true, table = true, utf8 = true,
}
local of_lua = {}
for name in ("assert collectgarbage dofile error getmetatable ipairs load loadfile next pairs pcall print rawequal "
  .. "rawget rawlen rawset require select setmetatable tonumber tostring type warn xpcall"):gmatch("%a+") do
  of_lua[name] = true
end
for _, name in ipairs({"test", "eq", "close_to", "fails", "random_programs"}) do of_lua[name] = true end   -- of specs

--- Other names of functions: the error tells the first.
local also_called = {["err.Ok"] = "take_ok", ["err.Err"] = "take_err", ["err.has_any"] = "any_err",
  ["x:type"] = "x:to"}

local function can_be_called(value)
  if type(value) == "function" then return true end
  local meta = debug.getmetatable(value)
  return type(meta) == "table" and meta.__call ~= nil and not torch.is_tensor(value)
end

--- All functions in tables of the library, by name.
local functions = {}
local function collect(prefix, tab, depth, seen)
  for key, value in next, tab do
    local name = type(key) == "string" and prefix .. key
    if name and not standard[name] and not of_lua[name] then
      if can_be_called(value) then functions[name] = value end
      if type(value) == "table" and depth < 3 and not seen[value] then
        seen[value] = true
        collect(name .. ".", value, depth + 1, seen)
      end
    end
  end
end
collect("", _G, 1, {})

local ones = torch.ones({2, 3})
local odd = {
  {"nothing"}, {"a table", {}}, {"a string", "odd"}, {"nil", nil}, {"a function", print}, {"a number", 1.5},
  {"a boolean", true, {}, {}, {}, {}, {}}, {"too many", {}, "odd", true, "odd", {odd = 1}, {odd = 1}},
  {"a tensor", ones, true, {}, print, {}, {odd = 1}}, {"two tensors", ones, ones, {odd = 1}, {odd = 1}},
  {"a closed file", io.stdout, 2, io.stdout},
}

--- Would the call write a file of that name?
local function names_a_file(name, case)
  if not (name:find("[.:]save") or name:find("to_torchscript$")) then return false end
  for i = 2, #case do
    if type(case[i]) == "string" or type(case[i]) == "number" then return true end
  end
  return false
end

--- What is wrong with the error of one call; nil where nothing is, or the function took what it was given.
local function complaint(name, fn, case)
  if names_a_file(name, case) then return nil end
  local count = case[1] == "nothing" and 1 or #case == 1 and 2 or #case
  local results = table.pack(pcall(fn, table.unpack(case, 2, count)))
  if results[1] then
    for i = 2, results.n do   -- scopes end at once
      local meta = debug.getmetatable(results[i])
      if type(meta) == "table" and meta.__close then meta.__close(results[i]) end
    end
    return nil
  end
  local text = tostring(type(results[2]) == "table" and results[2].message or results[2])
  local own = name:match("[^%.:]+$")
  local faults = {}
  if not text:find(own, 1, true) and not text:find(also_called[name] or own, 1, true) then
    faults[#faults + 1] = "does not say whose it is"
  end
  if not text:find("argument_errors.lua:%d+:") then faults[#faults + 1] = "does not say where" end
  if text:find("bad argument", 1, true) then faults[#faults + 1] = "is one of Lua's own" end
  if text:find("[triage ", 1, true) or text:find("core.", 1, true) then
    faults[#faults + 1] = "tells of our own code"
  end
  if #faults == 0 then return nil end
  return ("%s of %s %s: %s"):format(name, case[1], table.concat(faults, ", "), text)
end

--- What is raised for reasons of its own, and says so.
local function is_its_own(name, case)
  return name == "triage.check" and case[1] == "nil"   -- Runtime assertion failed
    or name == "triage.reset"   -- would forget the graphs of other tests, and takes nothing
end

local function check_all(list)
  local complaints, names = {}, {}
  for name in next, list do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    for _, case in ipairs(odd) do
      local found = not is_its_own(name, case) and complaint(name, list[name], case)
      if found then complaints[#complaints + 1] = found end
    end
  end
  assert(#complaints == 0, #complaints .. " errors:\n" .. table.concat(complaints, "\n"))
  return #names
end

test("errors of arguments name the function and the script's line, of every function", function()
  assert(check_all(functions) > 100)
end)

test("errors of arguments name the method and the script's line, of every method", function()
  local objects = {
    x = {torch.ones({2, 3}), "size", "dim", "item", "totable", "to", "cuda", "cpu", "requires_grad_",
      "retain_grad", "stride", "type", "is_floating_point", "numel", "expand", "clamp", "where"},
    generator = {torch.Generator(), "manual_seed"},
    program = {triage.export(function(x) return x * 2 end, {ones}), "save", "to_torchscript", "run_decompositions"},
    compiled = {triage.compile(function(x) return x * 2 end), "cache"},
    tree = {LocationTree(), "add_path", "build_ids", "get_location", "to_dict"},
    weighted = {WeightedLocationTree(), "set_weight", "set_default_weight"},
    result = {Ok(1), "unwrap_or", "map", "map_err", "and_then"},
    config = {ErrorConfig({}), "should_transpose"},
    chain = {IF(torch.tensor({true, false}), function() return ones[{{0, 2}}] end), "ELIF", "ELSE"},
    layer = {nn.Linear(3, 2), "load_state_dict", "to", "train", "requires_grad_", "parameters"},
    optimizer = {optim.SGD(nn.Linear(3, 2):parameters(), {lr = 0.1}), "step", "zero_grad"},
  }
  local methods = {}
  for name, list in next, objects do
    for i = 2, #list do
      local method = list[1][list[i]]
      if method then methods[name .. ":" .. list[i]] = function(...) return method(list[1], ...) end end
    end
  end
  assert(check_all(methods) > 25)
end)

test("a list with other keys than its places is refused, of tensors, sizes and numbers", function()
  local z = torch.ones({2, 3})
  local from_zero, with_gap = {z}, {z}
  from_zero[0], with_gap[3] = z, z
  fails(function() torch.cat(from_zero) end, "an element [0] (the elements of a list are counted from 1, without gaps)")
  fails(function() torch.cat(with_gap) end, "an element [3]")
  fails(function() torch.stack({z, dim = 1}) end, "mixes options with list elements")
  fails(function() torch.stack({z, dim = 1}, 0) end, "a field 'dim'")
  fails(function() torch.tensor({1, 2, dtype = torch.int8}) end, "a field 'dtype' (named arguments go in a table")
  fails(function() torch.tensor({{1, 2}, {3, 4, x = 5}}) end, "element [2] is a list with a field 'x'")
  fails(function() torch.autograd.grad({z, z, create_graph = true}, {z}) end, "a field 'create_graph'")
end)
