-- triage.compile in trusted scripts: what a captured graph may be used for again, and what is seen when it may not.
-- luacheck: globals scale
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

test("T32, G02: one graph serves every batch size", function()
  local calls = 0
  local double = triage.compile(function(x)
    calls = triage.is_compiling() and calls or calls   -- reads only
    return x * 2
  end)
  for _, rows in ipairs({2, 0, 1, 31, 32, 33}) do
    local x = torch.randn({rows, 3})
    eq(double(x), x * 2)
  end
end)

test("upvalues, globals and tables that the function reads are part of what it was captured for", function()
  local k, limits = 2, {high = 3}
  local f = triage.compile(function(x) return (x * k):clamp({max = limits.high}) end)
  eq(f(z), (z * 2):clamp({max = 3}))
  k = 3
  eq(f(z), (z * 3):clamp({max = 3}))
  limits.high = 1
  eq(f(z), (z * 3):clamp({max = 1}))
  k = 3.0   -- another subtype is another number
  eq(f(z:to(torch.int64)).dtype, torch.float32)
  scale = 5
  local g = triage.compile(function(x) return x * scale end)
  eq(g(z), z * 5)
  scale = 7
  eq(g(z), z * 7)
  scale = nil
end)

test("a helper's own state counts too", function()
  local state = {offset = 1}
  local function helper(x) return x + state.offset end
  local f = triage.compile(function(x) return helper(x) * 2 end)
  eq(f(z), (z + 1) * 2)
  state.offset = 10
  eq(f(z), (z + 10) * 2)
end)

test("a tensor upvalue that was written to in place is another tensor", function()
  local w = torch.ones({2})
  local f = triage.compile(function(x) return x * w end)
  eq(f(z), z)
  w:mul_(3)
  eq(f(z), z * 3)
end)

test("plain arguments are part of the graph, by value and subtype", function()
  local f = triage.compile(function(x, n, flag) if flag then return x * n end return x + n end)
  eq(f(z, 2, true), z * 2)
  eq(f(z, 3, true), z * 3)
  eq(f(z, 3, false), z + 3)
  eq(f(z:to(torch.int64), 2.0, true).dtype, torch.float32)
  eq(f(z:to(torch.int64), 2, true).dtype, torch.int64)
end)

test("G01, G02: a graph break runs the function, and is an error under fullgraph", function()
  local function largest(x) if x:sum():item() > 0 then return x end return -x end
  local f = triage.compile(largest)
  eq(f(z + 1), z + 1)
  eq(f(z - 1), 1 - z)
  eq(triage.explain(largest, z).graph_break_count, 1)
  local strict = triage.compile(largest, {fullgraph = true})
  fails(function() strict(z) end, "graph break: `item` reads a value")
  local here = triage.compile(function(x) triage.graph_break("here") return x end, {fullgraph = true})
  fails(function() here(z) end, "graph break: here")
end)

test("a write to what was there before the call is never frozen", function()
  local count = 0
  local f = triage.compile(function(x) count = count + 1 return x * count end)
  eq(f(z), z * 1)
  eq(f(z), z * 2)
  eq(f(z), z * 3)
  local seen = {}
  local g = triage.compile(function(x) seen[#seen + 1] = true return x end)
  g(z) g(z)
  eq(#seen, 2)
end)

test("results that are no tensors come back as they are", function()
  local f = triage.compile(function(x) return x, "name", 3 end)
  local y, name, number = f(z)
  eq(y, z)
  eq(name, "name")
  eq(number, 3)
end)

test("D09: explain counts graphs, breaks and operations, and shows the graph and its guards", function()
  local report = triage.explain(function(x) return (x + 1):relu() end, z)
  eq(report.graph_count, 1)
  eq(report.graph_break_count, 0)
  eq(report.op_count, 2)
  assert(report.graphs[1]:find("aten::relu", 1, true), report.graphs[1])
  assert(report.guards[1]:find("dtype float32, rank 2", 1, true), report.guards[1])
  assert(tostring(report):find("Graph Count: 1", 1, true))
end)

test("D09: explain of a function that breaks: counts, the break with its place, operations of each graph", function()
  local function toy_example(a, b)
    local x = a / (torch.abs(a) + 1)
    if b:sum() < 0 then
      b = b * -1
    end
    return x * b
  end
  local line = debug.getinfo(toy_example, "S").linedefined
  local report = triage.explain(toy_example, torch.ones({10}), -torch.ones({10}))
  eq({report.graph_count, report.graph_break_count, report.op_count}, {2, 1, 7})
  local text = tostring(report)
  for _, part in ipairs({"Graph Count: 2\nGraph Break Count: 1\nOp Count: 7\nBreak Reasons:\n  Break Reason 1:\n    ",
    ("compile.lua:%d: graph break: a condition reads the value of a tensor\n      Explanation: "):format(line + 2),
    "(TB0001)\n\n    from user code:\n",
    "  Ops 1:\n    aten::abs\n    aten::add.Scalar\n    aten::div.Tensor\n    aten::sum\n    aten::lt.Scalar\n" ..
    "  Ops 2:\n    aten::mul.Scalar\n    aten::mul.Tensor\nOut Guards:\n"}) do
    assert(text:find(part, 1, true), part .. " is not in\n" .. text)
  end
  eq(report.break_ids, {"TB0001"})
end)

test("D09: a compiled function says what its cache keeps", function()
  local f = triage.compile(function(x, n) return (x * n):relu() end)
  eq(f:cache(), {graphs = 0, segments = 0, retired = 0, bytes = 0, kernels = 0, tapes = 0})
  f(z, 1)
  local one = f:cache()
  eq(one.graphs, 1)
  eq(one.segments, 0)
  eq({one.tapes, one.kernels}, {1, 0})
  assert(one.bytes > 500 and one.bytes < 20000, one.bytes)
  f(z, 2)
  eq(f:cache().graphs, 2)
  assert(f:cache().bytes > one.bytes)
  triage.reset()
  f(z, 1)
  eq(f:cache().graphs, 1)
  local broken = triage.compile(function(x) x = x * 2 triage.graph_break() return x + 1 end)
  broken(z)
  broken(z)
  eq(broken:cache().graphs, 0)
  eq(broken:cache().segments, 2)
  local asks = triage.compile(function(x) return x * f:cache().graphs end, {fullgraph = true})
  fails(function() asks(z) end, "the script reads the cache of a compiled function")
  eq(triage.explain(function(x) return x + 1 end, z).cache.graphs, 1)
end)

test("options of earlier versions are gone, and say so", function()
  for name, value in pairs {compiler = "background", kernels = "off"} do
    fails(function() triage.compile(function(a) return a end, {[name] = value}) end,
          "triage.compile: `" .. name .. "` is gone, and nothing replaces it")
  end
  local off = triage.compile(function(a) return a * 2 end, {compiler = "off"})   -- what holds: told in the log
  eq(off(torch.ones({2})), torch.full({2}, 2.0))
end)

test("a script waits for the loops of a compiled function", function()
  local x = torch.tensor({{1.0, -2.0}, {3.0, 0.5}})
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(function(a) return (a * 2 + 1):relu() end, {backend = backend})
    eq(select("#", f:finish_compiling()), 0)   -- there is nothing to wait for
    local first = f(x)
    f:finish_compiling()
    eq(f(x), first)
    local broken = triage.compile(function(a)
      a = a * 3
      triage.graph_break()
      return a + 1
    end, {backend = backend})
    first = broken(x)
    broken:finish_compiling()
    eq(broken(x), first)
    local waits = triage.compile(function(a) f:finish_compiling() return a * 2 end)
    eq(waits(x), x * 2)
    eq(#triage.explain(function(a) f:finish_compiling() return a * 2 end, x).break_ids, 1)
    local strict = triage.compile(function(a) f:finish_compiling() return a * 2 end, {fullgraph = true})
    fails(function() strict(x) end, "the script waits for the loops of a compiled function")
  end
end)

test("D14: every node names its script line, in tail calls too", function()
  local function line_of(fn, op)
    local text = triage.explain(fn, z).graphs[1]
    return tonumber(text:match(op:gsub("%p", "%%%0") .. "%([^\n]*# [^\n]*:(%d+)\n"))
  end
  local function last(x)
    local f = flag_nan(x, "x")
    return fix(x, f, "x")
  end
  local start = debug.getinfo(last, "S").linedefined
  eq(line_of(last, "triage::flag_nan"), start + 1)
  eq(line_of(last, "triage::fix.scalar"), start + 2)
  local function branches(x)
    return IF(x:sum(-1) > 0, function() return x end)
      :ELSE(function() return -x end)
  end
  local chain = debug.getinfo(branches, "S").linedefined
  eq(line_of(branches, "aten::neg"), chain + 2)
  assert(line_of(branches, "triage::select") > chain)
end)

test("gradients flow through compiled functions", function()
  local f = triage.compile(function(x) return x * x:relu() end)
  for _ = 1, 2 do
    local x = torch.tensor({-1.0, 2.0}, {requires_grad = true})
    f(x):sum():backward()
    eq(x.grad, torch.tensor({0.0, 4.0}))
  end
end)

test("wrong use of triage.compile says what is expected", function()
  fails(function() triage.compile(3) end, "triage.compile: expected a function, got int 3")
  fails(function() triage.compile(function() end, {fulgraph = true}) end, "option 'fulgraph'")
  fails(function() triage.compile(function() end, {backend = "nowhere"}) end, "nowhere")
end)
