-- An error of the backend: whether ATen serves the call, or the call fails, is decided by
-- `triage.error_on_graph_break` where the operators of the graph are called, as it decides about breaks.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})
local on, off = true, false

--- A backend that refuses graphs with a relu.
local function refusing(graph)
  for _, node in ipairs(graph.nodes) do
    if node.op == "aten::relu" then error("no relu here") end
  end
  return graph
end
local function compile(fn, options)
  options = options or {}
  options.backend = refusing
  return triage.compile(fn, options)
end
local function under(flag, fn)
  if flag == nil then return fn end
  return triage.error_on_graph_break(flag, fn)
end
local function in_block(flag, fn)
  if flag == nil then return fn end
  return function(...)
    local _ <close> = triage.error_on_graph_break(flag)
    return fn(...)
  end
end

local function expect(what, raises, f, expected, ...)
  for _ = 1, 3 do
    local ok, result = pcall(f, ...)
    if raises then
      eq({ok, tostring(result):find("no relu here", 1, true) ~= nil}, {false, true}, what .. ": " .. tostring(result))
    else
      eq({ok, result}, {true, expected}, what)
    end
  end
end

local settings = {on, off, n = 3}   -- and none
local function name(flag) return flag == nil and "none" or tostring(flag) end
local function either(...)
  for i = 1, select("#", ...) do
    if select(i, ...) ~= nil then return (select(i, ...)) end
  end
  return off
end

test("G06: around the call, inside of it, and both: the innermost decides", function()
  for _, wrap in ipairs({under, in_block}) do
    for around = 1, settings.n do
      for outer = 1, settings.n do
        for inner = 1, settings.n do
          local a, b, c = settings[around], settings[outer], settings[inner]
          local relu = wrap(c, function(x) return x:relu() end)
          local f = compile(wrap(b, function(x) return relu(x) end))
          local what = ("around %s, outer %s, inner %s"):format(name(a), name(b), name(c))
          expect(what, either(c, b, a), under(a, f), z:relu(), z)
          eq(select(2, pcall(compile(function(x) return x * 2 end), z)), z * 2, what)   -- nothing is left behind
        end
      end
    end
  end
end)

test("G06: a graph is refused as a whole, so one part under true is enough", function()
  local strict, lenient = under(on, torch.relu), under(off, torch.relu)
  expect("a part under true", true, compile(function(x) return strict(x) + 1 end), nil, z)
  local magnitude = under(on, torch.abs)
  expect("another part under true", true, compile(function(x) return x:relu() + magnitude(x) end), nil, z)
  expect("all under false", false, under(on, compile(function(x) return lenient(x) end)), z:relu(), z)
  expect("not all under false", true, under(on, compile(function(x) return lenient(x) + 1 end)), nil, z)
  expect("none under true", false, under(off, compile(function(x) return lenient(x) + 1 end)), z:relu() + 1, z)
end)

test("G06: no effect under fullgraph, whose errors are errors", function()
  for around = 1, settings.n do
    for inner = 1, settings.n do
      local f = compile(under(settings[inner], function(x) return x:relu() end), {fullgraph = true})
      expect("fullgraph", true, under(settings[around], f), nil, z)
    end
  end
  local inner = compile(function(x) return x:relu() end, {fullgraph = true})
  expect("an inner fullgraph", true, compile(under(off, function(x) return inner(x) + 1 end)), nil, z)
end)

test("G06: between breaks each graph has the setting of its own operators", function()
  local graph_break = under(off, triage.graph_break)
  for around = 1, settings.n do
    for first = 1, settings.n do
      for second = 1, settings.n do
        local a, b, c = settings[around], settings[first], settings[second]
        local before, behind = under(b, function(x) return x * 2 end), under(c, function(x) return x:relu() end)
        local f = compile(function(x)
          local y = before(x)
          graph_break("between")
          return behind(y)
        end)
        expect(("around %s, first %s, second %s"):format(name(a), name(b), name(c)), either(c, a), under(a, f),
          (z * 2):relu(), z)
      end
    end
  end
end)

test("G06: what served a call under one setting fails another under another, and the other way round", function()
  local whole = compile(function(x) return x:relu() end)
  local parts = compile(function(x)
    local y = x:relu()
    under(off, triage.graph_break)("between")
    return y * 2
  end)
  for _, case in ipairs({{f = whole, expected = z:relu()}, {f = parts, expected = z:relu() * 2}}) do
    for _ = 1, 3 do
      expect("by itself", false, case.f, case.expected, z)
      expect("under true", true, under(on, case.f), nil, z)
      expect("under false", false, under(off, case.f), case.expected, z)
    end
    eq(case.f:cache().graphs <= 1, true)
  end
  local lenient = compile(under(off, function(x) return x:relu() end))
  for _ = 1, 10 do
    eq(lenient(z), z:relu())
    eq(under(on, lenient)(z), z:relu())
  end
  eq(lenient:cache().graphs <= 2, true)
end)

test("G06: a graph without operators has the setting around the call", function()
  local nothing = triage.compile(function(x) return x end, {backend = function() error("no relu here") end})
  expect("by itself", false, nothing, z, z)
  expect("under true", true, under(on, nothing), nil, z)
end)
