-- When a compiled function is captured again, why, and how that is limited.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

--- The graphs of a compiled function, by its name in print.
local function graphs(f) return tonumber(tostring(f):match("%((%d+) graph")) end

local function with_config(settings, fn)
  local before = {}
  for name, value in pairs(settings) do
    before[name] = triage.config[name]
    triage.config[name] = value
  end
  local ok, message = pcall(fn)
  for name, value in pairs(before) do
    triage.config[name] = value
  end
  if not ok then
    error(message, 0)
  end
end

local function with_stance(name, fn)
  triage.set_stance(name)
  local ok, message = pcall(fn)
  triage.set_stance("default")
  if not ok then
    error(message, 0)
  end
end

test("D17: beyond the limit the script runs, and graphs that fit are still used", function()
  with_config({recompile_limit = 2}, function()
    local f = triage.compile(function(x) return x:reshape({x:numel()}) * 2 end)
    for columns = 1, 6 do
      local x = torch.randn({2, columns})
      eq(f(x), x:reshape({-1}) * 2)
    end
    if graphs(f) > 2 then
      error("there are " .. graphs(f) .. " graphs")
    end
  end)
  with_config({accumulated_recompile_limit = 3}, function()
    local f = triage.compile(function(x, n) return x * n end)
    for n = 1, 9 do
      eq(f(z, n), z * n)
    end
    eq(graphs(f), 3)
  end)
end)

test("D17: with fail_on_recompile_limit_hit the limit is an error", function()
  with_config({accumulated_recompile_limit = 2, fail_on_recompile_limit_hit = true}, function()
    local f = triage.compile(function(x, n) return x * n end)
    eq(f(z, 1), z)
    eq(f(z, 2), z * 2)
    fails(function() f(z, 3) end, "reached the limit of 2 captured graphs")
    eq(f(z, 2), z * 2)
  end)
end)

test("D17: a change of rank is another graph, always", function()
  local f = triage.compile(function(x) return x * 2 end)
  f(z)
  f(z[0])
  eq(graphs(f), 2)
end)

test("N01: stances", function()
  local runs = 0
  local function work(x)
    if not triage.is_compiling() then
      runs = runs + 1
    end
    return x * 2
  end
  local f = triage.compile(work)
  with_stance("force_eager", function()
    eq(f(z), z * 2)
    eq(f(z), z * 2)
    eq(runs, 2)
    eq(graphs(f), 0)
  end)
  with_stance("eager_on_recompile", function()
    eq(f(z), z * 2)
    eq(graphs(f), 0)
  end)
  with_stance("fail_on_recompile", function()
    fails(function() f(z) end, "fail_on_recompile")
  end)
  local g = triage.compile(function(x) return x + 1 end)
  with_stance("eager_then_compile", function()
    eq(g(z), z + 1)
    eq(graphs(g), 0)
    eq(g(z), z + 1)
    eq(graphs(g), 1)
  end)
  with_stance("fail_on_recompile", function()
    eq(g(z), z + 1)
    fails(function() g(z[0]) end, "rank")
  end)
  eq(triage.get_stance(), "default")
  fails(function() triage.set_stance("fast") end, "there are default, force_eager")
  fails(function() triage.compile(function(x) triage.set_stance("default") return x end)(z) end, "captured code cannot")
end)

test("N01: reset forgets every graph", function()
  local f = triage.compile(function(x) return x * 2 end)
  f(z)
  eq(graphs(f), 1)
  triage.reset()
  eq(f(z), z * 2)
  eq(graphs(f), 1)
  local g = triage.compile(function(x) triage.graph_break() return x + 1 end)
  g(z)
  triage.reset()
  eq(g(z), z + 1)
  eq(g(z), z + 1)
end)

test("settings of capture are named, typed and guarded", function()
  fails(function() triage.config.recompile_limits = 3 end, "there is no setting 'recompile_limits'")
  fails(function() triage.config.recompile_limit = 0 end, "an integer of at least 1")
  fails(function() triage.config.fail_on_recompile_limit_hit = 1 end, "expected true or false")
  fails(function() triage.set_logs({everything = true}) end, "there is no log 'everything'")
  eq(triage.config.recompile_limit, 8)
end)

test("D19: mark_static holds a size fast, mark_dynamic refuses graphs that do", function()
  local f = triage.compile(function(x) return x * 2 end)
  local a, b = torch.ones({2, 3}), torch.ones({4, 3})
  triage.mark_static(a, 0)
  triage.mark_static(b, 0)
  eq(f(a), a * 2)
  eq(f(b), b * 2)
  eq(graphs(f), 2)
  local g = triage.compile(function(x) return x * 2 end)
  triage.mark_dynamic(a, 0, {min = 1, max = 16})
  eq(g(a), a * 2)
  eq(g(torch.ones({9, 3})), torch.ones({9, 3}) * 2)
  eq(graphs(g), 1)
  eq(g(torch.ones({17, 3})), torch.ones({17, 3}) * 2)
  eq(graphs(g), 2)
  local looping = triage.compile(function(x)
    local sum = torch.zeros({3})
    for i = 1, x:size(0) do
      sum = sum + x[i - 1]
    end
    return sum
  end)
  fails(function() looping(a) end, "is marked dynamic")
  eq(looping(torch.ones({2, 3})), torch.ones({3}) * 2)
  fails(function() triage.mark_dynamic(a, 0, {min = 5}) end, "the size is 2")
  fails(function() triage.mark_static(a, 7) end, "no dimension 7")
end)
