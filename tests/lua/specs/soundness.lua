-- Compiled functions must never freeze what may change: each program is run plain and compiled, on several calls.
-- luacheck: globals op_under_test math.factor torch.relu torch.linalg.norm err.new
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

--- Compares `fn` with its compiled form on each argument list in turn. `between(i)` runs before call i of each form.
local function agrees(fn, calls, between)
  local function results(f)
    local list = {}
    for i, arguments in ipairs(calls) do
      if between then between(i) end
      list[i] = table.pack(pcall(f, table.unpack(arguments)))
    end
    return list
  end
  local plain, compiled = results(fn), results(triage.compile(fn))
  for i = 1, #calls do
    eq(compiled[i][1], plain[i][1])
    if plain[i][1] then eq(compiled[i], plain[i]) end
  end
end

test("torch.tensor of a tensor is a copy that the graph makes on every call", function()
  agrees(function(x) return x - torch.tensor(x:sum()) end, {{z}, {z * 10}, {z - 3}})
end)

test("an operator that raises in a protected call is the script's to handle, on every call", function()
  local function third(x)
    local ok, y = pcall(function() return x:select(0, 2) end)
    if ok then return y end
    return torch.zeros({2})
  end
  local three = torch.ones({3, 2})
  agrees(third, {{z}, {three}, {z}})       -- fails first
  agrees(third, {{three}, {z}, {three}})   -- works first
end)

test("a rank that depends on sizes is a guard", function()
  local one = torch.ones({1, 2})
  agrees(function(x) return x * x:squeeze(0):dim() end, {{z}, {one}, {z}})
  agrees(function(x) return x * x:squeeze(0).ndim end, {{one}, {z}})
  agrees(function(x) return x:squeeze(0)[{"...", 0}] end, {{z}, {one}, {torch.ones({3, 2})}})
end)

test("functions of C, library fields and metatables are part of the world", function()
  op_under_test = math.sin
  agrees(function(x) return x * op_under_test(1) end, {{z}, {z}}, function(i)
    op_under_test = i == 1 and math.sin or math.cos
  end)
  op_under_test = nil
  agrees(function(x) return x * (math.factor or 1) end, {{z}, {z}}, function(i) math.factor = i end)
  math.factor = nil
  local inner = 2
  local g = triage.compile(function(x) return x * inner end)
  agrees(function(x) return g(x) + 1 end, {{z}, {z}}, function(i) inner = i end)
end)

test("a value at the address of another that was collected is not taken for it", function()
  local scale
  local f = triage.compile(function(x) return x * scale().k end)
  for i = 1, 200 do
    scale = function() return {k = i} end
    collectgarbage()
    eq(f(z), z * i)
  end
end)

test("what reaches outside breaks the graph, and happens on every call", function()
  local count = 0
  local function next_number() return coroutine.wrap(function() coroutine.yield(count) end)() end
  local f = triage.compile(function(x) return x * next_number() end)
  for i = 1, 3 do
    count = i
    eq(f(z), z * i)
  end
  for name, fn in pairs({
    clock = function(x) os.clock() return x end,
    memory = function(x) collectgarbage("count") return x end,
    locations = function(x) ErrorLocation.count() return x end,
    seed = function(x) torch.manual_seed(0) return x end,
    gradient = function(x) return x, x.grad end,
    requires_grad = function(x) return torch.zeros({2}, {requires_grad = true}) * x end,
  }) do
    local report = triage.explain(fn, z)
    if report.graph_break_count < 1 then error(name .. ": no graph break") end
  end
end)

test("in-place work on what may be a view, or may grow, is never frozen", function()
  agrees(function(x) local y = x * 1 local v = y:t():reshape({-1}) v:add_(1) return y:sum() end, {{z}, {z:t()}})
  local five, one = torch.ones({5, 2}), torch.ones({1, 2})
  agrees(function(x) local y = x + 1 return y:add_(torch.ones({5, 2})) end, {{five}, {one}})
end)

test("a compiled function may call itself", function()
  local f
  f = triage.compile(function(x, n)
    if x:sum():item() > 1e6 or n == 0 then return x end
    return f(x * 2, n - 1)
  end)
  eq(f(z, 3), z * 8)
  for n = 1, 70 do f(z * 0, n) end
end)

test("arguments that graphs cannot take: the function runs as it is", function()
  local f = triage.compile(function(x, options) return x * options.k end)
  eq(f(z, {k = 2}), z * 2)
  eq(f(z, {k = 3}), z * 3)
  local strict = triage.compile(function(x) return x end, {fullgraph = true})
  fails(function() strict({}) end, "argument 1 ('x') is a table")
end)

test("the smallest integer divided by -1 is no crash", function()
  local smallest = torch.tensor({math.mininteger, 7, -8})
  local minus = torch.tensor({-1, -1, 3})
  eq(smallest // minus, torch.tensor({math.mininteger, -7, -3}))
  eq(smallest % minus, torch.tensor({0, 0, 1}))
  eq(smallest:fmod(minus), torch.tensor({0, 0, -2}))
  eq(smallest // -1, torch.tensor({math.mininteger, -7, 8}))
  eq(smallest % -1, torch.tensor({0, 0, 0}))
  eq(smallest:div(minus, {rounding_mode = "trunc"}), torch.tensor({math.mininteger, -7, -2}))
  eq(math.mininteger % minus, torch.tensor({0, 0, math.mininteger % 3}))
  eq(smallest:clone():floor_divide_(minus), smallest // minus)
  local bytes = torch.tensor({1, 2, 200}, {dtype = torch.uint8})
  eq(bytes // torch.full({3}, 255, {dtype = torch.uint8}), torch.tensor({0, 0, 0}, {dtype = torch.uint8}))
  eq(bytes % torch.full({3}, 255, {dtype = torch.uint8}), bytes)
  local small = torch.tensor({-(1 << 31)}, {dtype = torch.int32})
  eq(small // torch.tensor({-1}), torch.tensor({1 << 31}))
  eq(torch.tensor({true, false}) // -1, torch.tensor({-1, 0}))
  eq(torch.div(torch.tensor({3}), -1, {rounding_mode = torch.None}), torch.tensor({-3.0}))
  local f = triage.compile(function(x, y) return x // y, x % y end, {fullgraph = true})
  for _ = 1, 2 do
    local quotient, remainder = f(smallest, minus)
    eq(quotient, smallest // minus)
    eq(remainder, smallest % minus)
  end
end)

test("what a library table holds is part of the world once a script has written to it", function()
  local kept = {relu = torch.relu, new = err.new, norm = torch.linalg.norm}
  local factor
  local writes = {
    function()
      factor, torch.linalg.norm, err.new = 2, kept.norm, kept.new
      torch.relu = function(x) return x * factor end
    end,
    function() factor = 5 end,
    function() rawset(torch, "relu", function(x) return x - 1 end) end,
    function() torch.linalg.norm = function(x) return x:sum() end end,
    function() torch.linalg.norm = function(x) return x:amax() end end,
    function() err.new = function(x) return x * 3 end end,
    function() err.new = kept.new end,
  }
  local calls = {}
  for i = 1, #writes do calls[i] = {z} end
  agrees(function(x) return torch.relu(x), torch.linalg.norm(x), err.new(x) end, calls, function(i) writes[i]() end)
  torch.relu, torch.linalg.norm = kept.relu, kept.norm
  agrees(function(x) return torch.relu(x) end, {{z}, {z}})
  local G = _G
  op_under_test = 1
  agrees(function(x) return x * G.op_under_test end, {{z}, {z}, {z}}, function(i)
    if i == 3 then G.op_under_test = 3 else op_under_test = i end
  end)
  op_under_test = nil
end)

test("what the right side of an assignment runs does not hide the assignment", function()
  local t, u = {k = 1}, 1
  local f = triage.compile(function(x) return x * t.k + u end)
  eq(f(z), z + 1)
  t.k = (function() f(z) return 5 end)()
  eq(f(z), z * 5 + 1)
  u = f(z):size(0) + 1
  eq(f(z), z * 5 + 3)
  t[f(z):dim() == 2 and "k"], u = 7, 0
  eq(f(z), z * 7)
end)

test("debug.setupvalue and its kin are seen", function()
  local function counter(n) return function(x) return x * n end end
  local one, two = counter(1), counter(2)
  local f = triage.compile(function(x) return one(x) end)
  local function upvalue_named(fn, name)
    for i = 1, 9 do if debug.getupvalue(fn, i) == name then return i end end
  end
  eq(f(z), z)
  debug.setupvalue(one, upvalue_named(one, "n"), 7)
  eq(f(z), z * 7)
  debug.upvaluejoin(one, upvalue_named(one, "n"), two, upvalue_named(two, "n"))
  eq(f(z), z * 2)
  eq(triage.explain(function(x) debug.setupvalue(one, upvalue_named(one, "n"), 3) return x end, z).graph_break_count, 1)
end)

test("a gradient mode that outlives the call is no part of a graph", function()
  local report = triage.explain(function(x) local y = x + 1 torch.no_grad() return y end, z)
  eq(report.graph_break_count, 1)
  torch.set_grad_enabled(true)
  local leaves = triage.compile(function(x) local y = x + 1 torch.no_grad() return y end)
  for _ = 1, 3 do
    leaves(z)
    eq(torch.is_grad_enabled(), false)
    torch.set_grad_enabled(true)
  end
  local closes = triage.compile(function(x) local _ <close> = torch.no_grad() return x + 1 end, {fullgraph = true})
  closes(z)
  closes(z)
  eq(torch.is_grad_enabled(), true)
end)

test("T02: flags that arithmetic made of an input are refused where they are used as flags", function()
  local data = torch.tensor({{0 / 0, 1}, {1, 2}})
  local f = err.push(err.new(data), err.NAN, 3)
  for name, change in pairs({
    double = function(x) return x * 2 end,
    shift = function(x) return (x:view(torch.int64) << 1):view(torch.float64) end,
    moved = function(x) return torch.cat({x[{{0, 1}}], x[{{1, 2}}] + 1}) end,
    converted = function(x) return x:to(torch.float32):to(torch.float64) end,
  }) do
    local compiled = triage.compile(function(x, g)
      return err.push(change(g), err.INF, 1, {where = x:isnan():any(-1)})
    end, {fullgraph = true, name = name})
    fails(function() compiled(data, f) end, "flags")
  end
  local moved = triage.compile(function(x, g)
    return err.push(torch.cat({g[{{1, 2}}], g[{{0, 1}}]}), err.INF, 1, {where = x:isnan():any(-1)})
  end, {fullgraph = true})
  eq(moved(data, f), err.push(f, err.INF, 1, {where = data:isnan():any(-1)}))
end)

test("T02: words that turn out to be flags late are flags wherever they went, down long chains too", function()
  local function moved(x)
    for _ = 1, 500 do
      x = x:view({-1}):view({-1, 4})
    end
    return x
  end
  local words = err.new(torch.ones({3, 2}))
  local late = triage.compile(function(x)
    local copy = moved(x:clone())
    local ok = err.is_ok(x)
    return ok, copy:view({-1}) + 1
  end)
  fails(function() late(words) end, "arithmetic on a flags tensor")
  local early = triage.compile(function(x)
    local made = moved(x + 1)
    return err.is_ok(made)
  end)
  fails(function() early(words) end, "arithmetic on a flags tensor")
  local fine = triage.compile(function(x) return moved(x), err.is_ok(moved(x)) end)
  for _ = 1, 2 do
    local same, ok = fine(words)
    eq({same, ok}, {words, torch.tensor({true, true, true})})
  end
end)
