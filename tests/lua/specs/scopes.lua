-- Settings that hold for a call, `torch.no_grad(fn)`, and for a block, `local _ <close> = torch.no_grad()`: an error
-- ends all that it passes, the inner ones first, whatever is nested in what.

local function breaks_raise()
  local f = triage.compile(function(v) triage.graph_break("asked for") return v * 2 end, {backend = "eager"})
  return not pcall(f, torch.ones({2}))
end

local matrix = torch.ones({2, 2})
local function state()
  return {
    grad = torch.is_grad_enabled(),
    autocast = tostring(matrix:mm(matrix).dtype),
    raises = breaks_raise(),
  }
end
local at_first = state()
local function is_as_at_first(what) eq(state(), at_first, what) end

local calls = {
  no_grad = torch.no_grad,
  enable_grad = torch.enable_grad,
  ["set_grad_enabled(false)"] = function(fn) return torch.set_grad_enabled(false, fn) end,
  autocast = torch.autocast,
  ["autocast on cpu"] = function(fn) return torch.autocast("cpu", {dtype = torch.bfloat16}, fn) end,
  ["error_on_graph_break(true)"] = function(fn) return triage.error_on_graph_break(true, fn)() end,
  ["error_on_graph_break(false)"] = function(fn) return triage.error_on_graph_break(false, fn)() end,
  disable = function(fn) return triage.disable(fn)() end,
  allow_in_graph = function(fn) return triage.allow_in_graph(fn)() end,
  fullgraph = function(fn)
    local inner = triage.compile(function(x) fn() return x end, {fullgraph = true, backend = "eager"})
    return triage.disable(function() inner(torch.ones({2})) end)()
  end,
}
local blocks = {
  no_grad = function() return torch.no_grad() end,
  enable_grad = function() return torch.enable_grad() end,
  autocast = function() return torch.autocast() end,
  ["error_on_graph_break(true)"] = function() return triage.error_on_graph_break(true) end,
  ["error_on_graph_break(false)"] = function() return triage.error_on_graph_break(false) end,
}

--- Calls `fn(what, call, block, other_block)` for every combination.
local function for_all(fn)
  for call_name, call in pairs(calls) do
    for block_name, block in pairs(blocks) do
      for other_name, other in pairs(blocks) do
        fn(call_name .. ", " .. block_name .. ", " .. other_name, call, block, other)
      end
    end
  end
end

test("an error under an open block scope leaves nothing of the call's setting behind", function()
  for_all(function(what, call, block, other)
    local thrown = {}
    local ok, caught = pcall(call, function()
      local _ <close> = block()
      local _ <close> = other()
      error(thrown)
    end)
    eq({ok, rawequal(caught, thrown)}, {false, true}, what)
    is_as_at_first(what)
  end)
end)

test("so do calls within calls, and an error that is caught half way", function()
  for_all(function(what, call, block, other)
    for name, inner in pairs(calls) do
      local caught
      local ok = pcall(call, function()
        local _ <close> = block()
        local before = state()
        caught = select(2, pcall(inner, function()
          local _ <close> = other()
          error("half way", 0)
        end))
        eq(state(), before, what .. ", " .. name)
        error("on")
      end)
      eq({ok, caught}, {false, "half way"}, what .. ", " .. name)
      is_as_at_first(what .. ", " .. name)
    end
  end)
end)

test("the closers of the script run under the setting that their function ran under", function()
  local seen
  pcall(torch.no_grad, function()
    local _ <close> = setmetatable({}, {__close = function() seen = torch.is_grad_enabled() end})
    error("on purpose")
  end)
  eq(seen, false)
end)

test("handlers see the error where it was raised, and its text, value and level are its own", function()
  local function deep_inside() error("on purpose", 2) end
  for name, call in pairs(calls) do
    local ok, trace = xpcall(call, debug.traceback, function()
      local _ <close> = torch.enable_grad()
      deep_inside()
    end)
    eq(ok, false, name)
    eq(trace:find("scopes.lua:%d+: on purpose") ~= nil, true, trace)
    eq(trace:find("deep_inside", 1, true) ~= nil, true, trace)
  end
  is_as_at_first()
end)

test("results come back whole, and scopes end on the way", function()
  for name, call in pairs(calls) do
    if name ~= "fullgraph" then
      eq(table.pack(call(function() return 1, nil, 3, nil end)), {1, nil, 3, nil, n = 4}, name)
      eq(select("#", call(function() end)), 0, name)
    end
  end
  eq({torch.no_grad(function(...) return torch.is_grad_enabled(), ... end, 1, 2)}, {false, 1, 2})
  is_as_at_first()
end)

test("an error in a branch of natural Lua, which puts back the modes that it began in", function()
  local natural = load([[--!tensor
    return function(x)
      local _ <close> = torch.enable_grad()
      if x > 0 then
        error("on purpose", 0)
      end
      return x
    end]])()
  for name, call in pairs(calls) do
    if name ~= "fullgraph" then
      local ok, message = pcall(call, function() return natural(torch.ones({2})) end)
      eq({ok, message:match("^on purpose") or message}, {false, "on purpose"}, name)
      is_as_at_first(name)
    end
  end
end)

test("an optimizer's step whose closure fails", function()
  local w = torch.ones({2}):requires_grad_(true)
  local optimizer = optim.SGD({w}, {lr = 0.1})
  local _ <close> = torch.no_grad()
  fails(function()
    optimizer:step(function()
      eq(torch.is_grad_enabled(), true)
      local _ <close> = torch.no_grad()
      error("on purpose")
    end)
  end, "on purpose")
  eq(torch.is_grad_enabled(), false)
end)

test("a coroutine that fails ends what it has open, at once", function()
  for_all(function(what, call, block, other)
    local function body()
      call(function()
        local _ <close> = block()
        local _ <close> = other()
        error("on purpose", 0)
      end)
    end
    local co = coroutine.create(body)
    eq({coroutine.resume(co)}, {false, "on purpose"}, what)
    is_as_at_first(what)
    eq(debug.traceback(co):find("scopes.lua", 1, true) ~= nil, true, what)
    do
      local _ <close> = torch.no_grad()
      coroutine.close(co)
      eq(torch.is_grad_enabled(), false, what)
    end
    fails(coroutine.wrap(body), "on purpose")
    is_as_at_first(what)
    eq({coroutine.wrap(function() return pcall(body) end)()}, {false, "on purpose"}, what)
    is_as_at_first(what)
  end)
end)

test("a coroutine that fails leaves what it had open when it went on, until it is closed, as Lua says", function()
  local co = coroutine.create(function()
    local _ <close> = torch.no_grad()
    coroutine.yield(torch.is_grad_enabled())
    torch.enable_grad(function()
      local _ <close> = torch.no_grad()
      error("on purpose", 0)
    end)
  end)
  eq({coroutine.resume(co)}, {true, false})
  eq({coroutine.resume(co)}, {false, "on purpose"})
  eq(torch.is_grad_enabled(), false)
  coroutine.close(co)
  is_as_at_first()
end)

test("a stack that overflows, closers that fail", function()
  local function deep() return torch.no_grad(deep) end
  local function deeper()
    local _ <close> = torch.enable_grad()
    return 1 + deeper()
  end
  for name, call in pairs(calls) do
    eq(pcall(call, deep), false, name)
    is_as_at_first(name)
    eq(coroutine.resume(coroutine.create(call), deep), false, name)
    is_as_at_first(name)
    local _, message = pcall(call, function()
      local _ <close> = torch.enable_grad()
      local _ <close> = setmetatable({}, {__close = function() error("second", 0) end})
      error("first", 0)
    end)
    eq(message, "second", name)
    is_as_at_first(name)
  end
  eq(pcall(torch.no_grad, deeper), false)
  eq(coroutine.resume(coroutine.create(torch.no_grad), deeper), false)
  is_as_at_first()
end)

test("a yield within a call is an error, and leaves nothing behind", function()
  for name, call in pairs(calls) do
    local co = coroutine.create(function()
      call(function()
        local _ <close> = torch.enable_grad()
        coroutine.yield()
      end)
    end)
    local ok, message = coroutine.resume(co)
    eq({ok, tostring(message):find("yield", 1, true) ~= nil}, {false, true}, name)
    is_as_at_first(name)
  end
end)

test("in compiled functions: while it is captured, while a trace is followed, and when the error leaves it", function()
  local x = torch.tensor({1., -2., 3.})
  for_all(function(what, call, block, other)
    local fail = false
    local function body(v)
      local y = v * 2
      local ok, message = pcall(call, function()
        local _ <close> = block()
        local _ <close> = other()
        error({y = y + 1})
      end)
      eq(ok, false)
      triage.graph_break("between")
      local z = (y + 1):relu()
      if fail then
        call(function()
          local _ <close> = block()
          error("out of it", 0)
        end)
      end
      return z, type(message) == "table" and message.y or y + 1   -- fullgraph: the error is about pcall
    end
    local f = triage.compile(body, {backend = "eager"})
    for _ = 1, 3 do
      local ok, z, y = pcall(f, x)
      if ok then
        eq({z, y:to(torch.float32)}, {torch.tensor({3., 0., 7.}), torch.tensor({3., -3., 7.})}, what)
      else   -- one setting breaks the graph where another makes that an error
        eq(tostring(z):find("graph break", 1, true) ~= nil, true, what)
      end
      is_as_at_first(what)
    end
    fail = true
    for _ = 1, 2 do
      eq(pcall(f, x), false, what)
      is_as_at_first(what)
    end
  end)
end)

test("the promise of a compiled function inside another ends with its error", function()
  local inner = triage.compile(function(x)
    local _ <close> = triage.error_on_graph_break(false)
    triage.graph_break("not kept")
    return x
  end, {fullgraph = true, backend = "eager"})
  local outer = triage.compile(function(x)
    local y = x + 1
    pcall(inner, y)
    return y * 2
  end, {backend = "eager"})
  for _ = 1, 3 do
    pcall(outer, torch.ones({2}))
    is_as_at_first()
  end
end)

test("what was put off is computed outside of autocast that an error leaves open", function()
  local a = torch.rand({4, 4})
  local kept
  local f = triage.compile(function(v, fail)
    local y = v:mm(v)
    triage.graph_break("between")
    if fail then
      kept = {y}
      local _ <close> = torch.autocast()
      error("on purpose")
    end
    return v + 1
  end, {backend = "eager"})
  for _ = 1, 3 do f(a, false) end
  for _ = 1, 2 do
    fails(function() f(a, true) end, "on purpose")
    eq(kept[1], a:mm(a))
  end
  is_as_at_first()
end)
