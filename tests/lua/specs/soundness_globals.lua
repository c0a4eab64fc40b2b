-- What a compiled function is captured anew for among the globals: those that it can read, and no others.
local ones = torch.ones({2})

--- Runs `source`, in which `set(name, value)` writes a global: its function, and the compiled form of it.
local function made(source, options)
  local fn = load("local set = ...\n" .. source)(function(name, value) _G[name] = value end)
  return fn, triage.compile(fn, options)
end

local function graphs(f) return tonumber(tostring(f):match("%((%d+) graph")) end

--- The compiled form gives what the function gives, for each of `values` in the global of the name.
local function follows(source, name, values, options)
  local fn, compiled = made(source, options)
  for _ = 1, 2 do
    for i, value in ipairs(values) do
      _G[name] = value
      eq(compiled(ones), fn(ones), source .. ", value " .. i)
    end
  end
  _G[name] = nil
end

test("a global that a function does not name is no part of its key", function()
  local _, f = made("factor = 2 return function(x) return x * factor end", {fullgraph = true})
  for i = 1, 5 do
    _G.batch = torch.randn({3, i})  -- as a script that reads its data into globals
    _G.count = i
    eq(f(ones), ones * 2)
  end
  eq(graphs(f), 1)
  _G.factor = 3
  eq(f(ones), ones * 3)
  eq(graphs(f), 2)
  _G.batch, _G.count, _G.factor = nil, nil, nil
end)

test("globals that a function can read are followed, wherever it finds them", function()
  local t = {torch.tensor({2.0}), torch.tensor({3.0})}
  for _, values in ipairs({{1, 2, 3.5}, t}) do
    for _, source in ipairs({
      "return function(x) return x * g end",
      "local function helper(x) return x * g end return function(x) return helper(x) end",
      "set('helper', function(x) return x * g end) return function(x) return helper(x) end",
      "return function(x) local function inner() return g end return x * inner() end",
      "return function(x)\n  local inner = function()\n    return g\n  end\n  return x * inner()\nend",
      "return function(x) return x * _G.g end",
      "return function(x) return x * _ENV.g end",
      "local all = _G return function(x) return x * all.g end",
      "local all = {deep = {_G}} return function(x) return x * all.deep[1].g end",
      "local name = 'g' return function(x) return x * load('return ' .. name)() end",
      "local text = load return function(x) return x * text('return g')() end",
      "local get = load('return g') return function(x) return x * get() end",
      "local o = setmetatable({}, {__index = function() return g end}) return function(x) return x * o.any end",
      "local o = {f = function() return g end} return function(x) return x * o.f() end",
      "local check = tensorcheck(function(x) return x * g end) return function(x) return check(x) end",
      "local inner = triage.compile(function(x) return x * g end) return function(x) return inner(x) end",
      "local _ENV = setmetatable({}, {__index = _ENV}) return function(x) return x * g end",
      "local get = coroutine.wrap(function() while true do coroutine.yield(g) end end) " ..
        "return function(x) return x * get() end",
      "local plain = triage.disable(function(x) return x * g end) return function(x) return plain(x) + 1 end",
    }) do
      follows(source, "g", values)
    end
  end
end)

test("an environment of its own is where a function finds its globals", function()
  local env = {k = 2}
  local fn = load("return function(x) return x * k end", "own", "t", env)()
  local f = triage.compile(fn, {fullgraph = true})
  eq(f(ones), ones * 2)
  env.k = 5
  eq(f(ones), ones * 5)
  _G.k = 7
  eq(f(ones), ones * 5)
  eq(graphs(f), 2)
  _G.k = nil
end)

test("a library in the place of another, and a function of the library that is replaced, are seen", function()
  local before, kind = flags, type
  local fn, f = made("return function(x) return x * (flags == err and 2 or 3) * #type(x) end")
  eq(f(ones), fn(ones))
  _G.flags = err
  eq(f(ones), fn(ones))
  _G.flags = before
  _G.type = function() return "something" end
  eq(f(ones), fn(ones))
  _G.type = kind
  eq(f(ones), fn(ones))
end)

test("an input that is also a global of the function is one value", function()
  local a, b = torch.tensor({1.0}), torch.tensor({2.0})
  for _, source in ipairs({
    "return function(x) return rawequal(x, g) and x * 10 or x + g end",
    "local function same(x) return rawequal(x, g) end return function(x) return same(x) and x * 10 or x + g end",
    "return function(x) local t = {[g] = 10} return x * (t[x] or 3) end",
    "return function(x) return rawequal(x, _G.g) and x * 10 or x + _G.g end",
  }) do
    local fn, f = made(source)
    for _, g in ipairs({a, b, a}) do
      _G.g = g
      for _, x in ipairs({a, b, b, a}) do
        eq(f(x), fn(x), source)
      end
    end
  end
  _G.g = nil
end)

test("N01: what an allowed function writes is left out of guards only where that function leads to it", function()
  _G.step = 0
  local note = triage.allow_in_graph(load("return function(x) step = step + 1 return x end")())
  local f = triage.compile(function(x) return note(x) * 2 end, {fullgraph = true})
  for _ = 1, 3 do eq(f(ones), ones * 2) end
  eq({_G.step, graphs(f)}, {1, 1})
  local env = {step = 3}
  local own = triage.compile(load("return function(x) return x * step end", "own", "t", env)())
  local other = triage.compile(load("return function(x) return x * step end")())
  for i = 4, 6 do
    env.step, _G.step = i, 10 * i
    eq(own(ones), ones * i)
    eq(other(ones), ones * (10 * i))
    eq(f(ones), ones * 2)
  end
  _G.step = nil
  local s = {scale = ones}
  local counted = triage.allow_in_graph(function(x) s.calls = (s.calls or 0) + 1 return x end)
  local g = triage.compile(function(x) return counted(x) * s.scale end)
  for _ = 1, 4 do
    eq(g(ones), s.scale)
    s.scale = s.scale * 2
  end
end)

test("chains of compiled functions are read as deep as they are", function()
  local chain = {triage.compile(function(x) return x + 1 end)}
  for i = 2, 400 do
    local inner = chain[i - 1]
    chain[i] = triage.compile(function(x) return inner(x) end)
  end
  eq(chain[60](ones), ones + 1)
  fails(function() chain[400](ones) end, "C stack overflow")  -- Lua's own limit of 200 calls through C
end)
