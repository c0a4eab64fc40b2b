-- What an exported program holds for: which of its inputs are one tensor, what it gives back of them, and what it is held to
-- once it stands in a file or a TorchScript module.
local function reloaded(program)
  local path = os.tmpname()
  program:save(path)
  local loaded = triage.load_exported(path)
  os.remove(path)
  eq(tostring(loaded), tostring(program))
  return loaded
end

local function ones() return torch.ones({2}) end

test("E04: a program whose function tells its inputs apart is held to what they were", function()
  local function rawly(x, y) return rawequal(x, y) and x * 2 or x * 3 + y end
  local function by_key(x, y)
    local seen, out = {}, torch.zeros({2})
    for _, t in ipairs({x, y}) do
      if not seen[t] then seen[t], out = true, out + t end
    end
    return out
  end
  local function raising(x, y)
    if rawequal(x, y) then error("one tensor") end
    return x + y
  end
  for _, fn in ipairs({rawly, by_key}) do
    local a = ones()
    local one = triage.export(fn, {a, a}, {name = "one"})
    assert(tostring(one):find("holds where y is x", 1, true), tostring(one))
    for _, program in ipairs({one, reloaded(one), one:run_decompositions()}) do
      eq(program(a, a), fn(a, a))
      fails(function() program(a, ones()) end,
        "exported program 'one': inputs 'x' and 'y' are two tensors, and what was exported does something else with two")
    end
  end
  for _, fn in ipairs({rawly, by_key, raising}) do
    local two = triage.export(fn, {ones(), ones()}, {name = "two"})
    assert(tostring(two):find("holds where no two inputs are one tensor", 1, true), tostring(two))
    for _, program in ipairs({two, reloaded(two), two:run_decompositions()}) do
      eq(program(ones(), ones() * 3), fn(ones(), ones() * 3))
      local a = ones()
      fails(function() program(a, a) end,
        "exported program 'two': inputs 'x' and 'y' are one tensor, and what was exported does something else with one")
      eq(program(a, a:clone()), fn(a, a:clone()))
    end
  end
  fails(function() triage.export(raising, {(function(a) return a, a end)(ones())}) end, "one tensor")
end)

test("E04: where it does not matter, inputs may be one tensor or two, however the program was exported", function()
  local function fn(x, y, z) return x * y + z, x end
  local a, b = ones(), ones() * 2
  for _, inputs in ipairs({{a, a, a}, {a, b, b}, {a, b, a}, {a, b, ones()}}) do
    local program = triage.export(fn, inputs)
    assert(not tostring(program):find("holds where", 1, true), tostring(program))
    for _, arguments in ipairs({{a, a, a}, {a, b, b}, {a, b, a}, {b, b, a}, {b, a, ones()}}) do
      eq({program(table.unpack(arguments))}, {fn(table.unpack(arguments))})
    end
  end
  -- Not even where only some ways to be one matter.
  local function pair(x, y, z) return rawequal(y, z) and x or x + y end
  local program = triage.export(pair, {ones(), ones(), ones()})
  fails(function() program(b, a, a) end, "inputs 'y' and 'z' are one tensor")
end)

test("E04: looking whether inputs may be one tensor draws no random numbers, and shows no errors", function()
  torch.manual_seed(3)
  local program = triage.export(function(x, y) return x + y + torch.rand({2}) end, {ones(), ones()})
  local after = torch.rand({2})
  assert(not tostring(program):find("holds where", 1, true), tostring(program))
  torch.manual_seed(3)
  torch.rand({2})
  eq(torch.rand({2}), after)
  local chain
  local unfinished = triage.export(function(x, y)
    if rawequal(x, y) then chain = IF((x > 0):any(), function() return x end) end
    return x + y
  end, {ones(), ones()})
  eq(unfinished(ones(), ones()), ones() * 2)
  eq(chain, nil)
  local f = triage.compile(function(x) return IF((x > 0):any(), function() return x + 1 end):ELSE(function() return x end) end)
  eq(f(ones()), ones() * 2)
end)
