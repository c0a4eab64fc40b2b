-- Graph breaks: several graphs with the script between them, and who decides that they are errors.
-- luacheck: globals helpers allowed_calls
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

local function broken(x)
  x = x + 1
  triage.graph_break("here")
  return x + 2
end

local on, off = true, false

test("G03: breaks allowed around one hard function, an error everywhere else", function()
  local hard = triage.error_on_graph_break(off, broken)
  local function inner(x) return hard(x) end
  local f = triage.error_on_graph_break(on, triage.compile(inner))
  eq(f(z), z + 3)
  eq(f(z), z + 3)
  local g = triage.error_on_graph_break(on, triage.compile(broken))
  fails(function() g(z) end, "graph break: here")
  fails(function() g(z) end, "graph break: here")
end)

test("G04: the setting as a scope within a function", function()
  local f = triage.error_on_graph_break(on, triage.compile(function(x)
    x = x + 1
    do
      local _ <close> = triage.error_on_graph_break(off)
      triage.graph_break("inside")
    end
    return x + 2
  end))
  eq(f(z), z + 3)
  eq(f(z), z + 3)
  local g = triage.error_on_graph_break(on, triage.compile(function(x)
    do
      local _ <close> = triage.error_on_graph_break(off)
    end
    triage.graph_break("outside")
    return x + 2
  end))
  fails(function() g(z) end, "graph break: outside")
  local h = triage.compile(broken)
  eq(h(z), z + 3)   -- nothing was left behind
end)

test("G05: the setting from outside, around what one cannot edit", function()
  local library = {forward = broken}
  library.forward = triage.error_on_graph_break(off, library.forward)
  local f = triage.error_on_graph_break(on, triage.compile(function(x) return library.forward(x) end))
  eq(f(z), z + 3)
  local plain = triage.compile(broken)
  eq(triage.error_on_graph_break(off, plain)(z), z + 3)
  local other = triage.compile(broken)
  fails(function() triage.error_on_graph_break(on, other)(z) end, "graph break: here")
end)

test("G06: an error in one inner function, breaks allowed outside of it", function()
  local strict = triage.error_on_graph_break(on, broken)
  local f = triage.compile(function(x)
    x = x + 4
    triage.graph_break("fine")
    return strict(x)
  end)
  for _ = 1, 3 do
    fails(function() f(z) end, "graph break: here")
  end
end)

test("G07: the innermost setting wins, both ways round", function()
  local function scoped(flag, fn)
    return function(x)
      local _ <close> = triage.error_on_graph_break(flag)
      return fn(x)
    end
  end
  eq(triage.error_on_graph_break(on, triage.compile(scoped(off, broken)))(z), z + 3)
  eq(triage.compile(scoped(on, scoped(off, broken)))(z), z + 3)
  fails(function() triage.compile(scoped(off, scoped(on, broken)))(z) end, "graph break: here")
  fails(function() triage.error_on_graph_break(off, triage.compile(scoped(on, broken)))(z) end, "graph break: here")
end)

test("G07: an inner fullgraph under an outer that allows breaks keeps its promise for itself", function()
  local inner = triage.compile(broken, {fullgraph = true})
  local f = triage.compile(function(x)
    triage.graph_break("outer")
    return triage.error_on_graph_break(off, inner)(x)
  end)
  for _ = 1, 3 do
    fails(function() f(z) end, "graph break: here")
  end
  local whole = triage.compile(function(x) return x * 2 end, {fullgraph = true})
  local g = triage.compile(function(x) triage.graph_break("outer") return whole(x) + 1 end)
  for _ = 1, 3 do
    eq(g(z), z * 2 + 1)
  end
end)

test("G08, G01, G09: the four combinations", function()
  for _, fullgraph in ipairs({on, off}) do
    for _, flag in ipairs({on, off}) do
      local f = triage.error_on_graph_break(flag, triage.compile(broken, {fullgraph = fullgraph}))
      if fullgraph or flag then
        fails(function() f(z) end, "graph break: here")
      else
        eq(f(z), z + 3)
      end
      local inner = triage.compile(broken, {fullgraph = off})
      local outer = triage.compile(function(x) return triage.error_on_graph_break(flag, inner)(x) end,
        {fullgraph = fullgraph})
      if fullgraph or flag then
        fails(function() outer(z) end, "graph break: here")
      else
        eq(outer(z), z + 3)
      end
    end
  end
  -- Without a break the setting changes nothing; only fullgraph promises one graph.
  local f = triage.error_on_graph_break(on, triage.compile(function(x) return x * 2 end))
  eq(f(z), z * 2)
  local report = triage.explain(triage.error_on_graph_break(off, broken), z)
  eq(report.graph_count, 2)
end)

test("G02: all breaks are reported, and the graphs between them", function()
  local function f(x)
    local y = x * 2
    triage.graph_break("one")
    y = y + 1
    triage.graph_break("two")
    return y:relu()
  end
  local report = triage.explain(f, z)
  eq(report.graph_break_count, 2)
  eq(report.graph_count, 3)
  eq(report.op_count, 3)
  eq(report.break_ids[1], "TB0006")
  local text = tostring(report)
  for _, part in ipairs({"Graph Count: 3", "Graph Break Count: 2", "Op Count: 3", "Break Reason 1:", "Break Reason 2:",
                         "from user code:", "Ops per Graph:", "aten::relu", "Out Guards:", "Compile Times:"}) do
    if not text:find(part, 1, true) then
      error("the explanation lacks " .. part .. ":\n" .. text)
    end
  end
end)

--- Calls `fn` plainly and compiled, several times, with each list of arguments: the same bits every time.
local function agrees(fn, lists)
  for _, backend in ipairs({"eager", "fused"}) do
    local f = triage.compile(fn, {backend = backend})
    for _ = 1, 4 do
      for _, list in ipairs(lists) do
        local expected, got = table.pack(fn(table.unpack(list))), table.pack(f(table.unpack(list)))
        eq(got.n, expected.n)
        for i = 1, got.n do
          eq(got[i], expected[i])
        end
      end
    end
  end
end

local batches = {}
for i, rows in ipairs({2, 0, 1, 31, 32, 33}) do
  batches[i] = {torch.randn({rows, 3})}
end
batches[#batches + 1] = {torch.randn({3, 5}):t()}

test("T32: what follows a break runs in graphs, at every batch size", function()
  agrees(function(x)
    local y = (x * 2 + 1):relu()
    if y:sum():item() > 3 then
      y = y - 1
    end
    return y * y
  end, batches)
  agrees(function(x)
    local f = flag_nan(x)
    if has_err(f) then
      return fix(x, f) + 1, f
    end
    return x, f
  end, batches)
end)

test("what the script reads of a size, and loops over, is read on every call", function()
  agrees(function(x)
    local sum = torch.zeros({3})
    triage.graph_break("rows")
    for i = 1, x:size(0) do
      sum = sum + x[i - 1] * i
    end
    return sum
  end, batches)
end)

test("views stay views of what they look at across breaks", function()
  agrees(function(x)
    local y = x * 1
    local v = y:t()
    triage.graph_break("a")
    v:add_(1)
    triage.graph_break("b")
    local w = v * 2
    return y, w
  end, batches)
  agrees(function(x)
    local y = x * 1
    local a, b = y:relu(), y:relu()
    triage.graph_break("a")
    a:add_(1)
    return a, b
  end, batches)
end)

test("what nobody looked at before is there when somebody does", function()
  local wanted = false
  local function f(x)
    local a, b = x + 1, x * 3
    triage.graph_break("here")
    if wanted then
      return a - b
    end
    return a * 2
  end
  local g = triage.compile(f)
  for i = 1, 12 do
    wanted = i % 3 == 0
    eq(g(z), f(z))
  end
end)

test("tensors that outlive the call have their values", function()
  local kept = {}
  local f = triage.compile(function(x)
    local a = x + 1
    kept[#kept + 1] = a * 2
    triage.graph_break("here")
    kept[#kept + 1] = a - 1
    return a
  end)
  for i = 1, 6 do
    eq(f(z * i), z * i + 1)
  end
  for i = 1, 6 do
    eq(kept[2 * i - 1], (z * i + 1) * 2)
    eq(kept[2 * i], z * i)
  end
end)

test("side effects happen on every call, in their order", function()
  local log = {}
  local f = triage.compile(function(x)
    log[#log + 1] = (x + 1):sum():item()
    local y = x * 2
    log[#log + 1] = y:sum():item()
    return y
  end)
  for i = 1, 5 do
    f(torch.ones({i}))
  end
  eq(table.concat(log, " "), "2.0 2.0 4.0 4.0 6.0 6.0 8.0 8.0 10.0 10.0")
end)

test("random numbers come from the generator in the order of the script", function()
  local function f(x)
    local a = torch.rand_like(x)
    triage.graph_break("here")
    local b = torch.rand_like(x)
    return a, b, a + b
  end
  local g = triage.compile(f)
  for _ = 1, 4 do
    torch.manual_seed(3)
    local a, b, c = f(z)
    torch.manual_seed(3)
    local d, e, h = g(z)
    eq(d, a)
    eq(e, b)
    eq(h, c)
  end
end)

test("an operator that fails is the error of the call, and of pcall around it", function()
  local function f(x, index)
    triage.graph_break("here")
    local ok, message = pcall(function() return x:index_select(0, index) end)
    if ok then
      return message
    end
    return x * 0
  end
  agrees(f, {{z, torch.tensor({1})}, {z, torch.tensor({7})}})
  local g = triage.compile(function(x, index)
    triage.graph_break("here")
    return x:index_select(0, index) + 1
  end)
  eq(g(z, torch.tensor({1})), z[{{1, 2}}] + 1)
  eq(g(z, torch.tensor({0})), z[{{0, 1}}] + 1)
  for _ = 1, 3 do
    fails(function() g(z, torch.tensor({7})) end, "index")
  end
  eq(g(z, torch.tensor({1})), z[{{1, 2}}] + 1)
end)

test("T31: with gradients the script runs, and autograd sees it", function()
  local function f(x, w)
    local y = x:matmul(w)
    triage.graph_break("here")
    return (y * y):sum()
  end
  local g = triage.compile(f)
  for _ = 1, 3 do
    local w = torch.ones({2, 2}, {requires_grad = true})
    local v = torch.ones({2, 2}, {requires_grad = true})
    f(z, w):backward()
    g(z, v):backward()
    eq(v.grad, w.grad)
  end
end)

test("what a function reads of other tensors is read on every call", function()
  local w = torch.ones({2})
  local f = triage.compile(function(x) triage.graph_break("here") return x * w + 1 end)
  for i = 1, 4 do
    eq(f(z), z * w + 1)
    w:mul_(i)
  end
end)

test("D16: print, a branch on data and a function of the library say why they break", function()
  for _, case in ipairs({
    {function(x) if x:sum():item() > 0 then return x end return -x end, "TB0001", "`item` reads a value"},
    {function(x) if (x > 0):all() then return x end return -x end, "TB0001", "a condition reads the value of a tensor"},
    {function(x) io.write("") return x end, "TB0003", "`io.write`"},
    {function(x) os.time() return x end, "TB0003", "`time` of the Lua library"},
    {function(x) return err.take_ok(flag_nan(x), x) end, "TB0002", "size depends on values"},
    {function(x) return x, 1 end, "TB0012", "returns a value that is not a tensor"},
  }) do
    local report = triage.explain(case[1], z)
    eq(report.break_ids[1], case[2])
    if not report.break_reasons[1]:find(case[3], 1, true) then
      error("expected " .. case[3] .. ", got " .. report.break_reasons[1])
    end
  end
end)

test("N01: disable keeps a function out of graphs, allow_in_graph its effects in them", function()
  local calls = 0
  local function count(x)
    calls = calls + 1
    if triage.is_compiling() then
      error("a disabled function is captured")
    end
    return x * 2
  end
  local hidden = triage.disable(count)
  local f = triage.compile(function(x) return hidden(x + 1) - 1 end)
  for i = 1, 4 do
    eq(f(z), (z + 1) * 2 - 1)
    eq(calls, i)
  end
  local strict = triage.compile(function(x) return hidden(x) end, {fullgraph = true})
  fails(function() strict(z) end, "`triage.disable` keeps ")

  local inner = triage.compile(function(x) return triage.is_compiling() and x + 1 or x + 1 end)
  eq(triage.disable(function(x) return inner(x) end, {recursive = false})(z), z + 1)

  local seen = 0
  local noted = triage.allow_in_graph(function(x) seen = seen + 1 return x + 1 end)
  local g = triage.compile(function(x) return noted(x) end, {fullgraph = true})
  eq(g(z), z + 1)
  for _ = 1, 5 do eq(g(z), z + 1) end
  if seen ~= 1 then
    error("the function ran " .. seen .. " times")
  end
  fails(function() triage.disable(3) end, "triage.disable: expected a function as `fn`")
  fails(function() triage.error_on_graph_break("yes") end, "expected true or false")
end)

test("N01: what an allowed function writes to is no guard; what it only reads is one", function()
  local count, log, factor = 0, {last = {}}, 2
  allowed_calls = 0
  local function bump() count = count + 1 end
  local noted = triage.allow_in_graph(function(x)
    bump()
    allowed_calls = allowed_calls + 1
    log[#log + 1] = count
    log.last.count = count
    return x * factor
  end)
  for _, options in ipairs({{fullgraph = true}, {}}) do
    count, allowed_calls, factor = 0, 0, 2
    local f = triage.compile(function(x) return noted(x) + 1 end, options)
    for _ = 1, 12 do eq(f(z), z * 2 + 1) end
    if count ~= 1 or allowed_calls ~= 1 then
      error(("the function ran %d times"):format(count))
    end
    eq(tostring(f):match("%((.-)%)"), "1 graph")
    factor = 3
    for _ = 1, 3 do eq(f(z), z * 3 + 1) end
    eq(tostring(f):match("%((.-)%)"), "2 graphs")
  end
  allowed_calls = nil
end)

test("N01: substitute_in_graph gives captured code another function", function()
  helpers = {stamp = function(x) os.time() return x end}
  local plain = helpers.stamp
  triage.substitute_in_graph(plain, function(x) return x end)
  local f = triage.compile(function(x) return helpers.stamp(x) * 2 end, {fullgraph = true})
  eq(f(z), z * 2)
  eq(helpers.stamp(z), z)
  local substitute = triage.substitute_in_graph(plain, function(x) return x + 1 end)
  eq(triage.compile(function(x) return substitute(x) end, {fullgraph = true})(z), z + 1)
  eq(substitute(z), z)
  helpers = nil
end)

test("a function that counts its calls is followed, not captured for ever", function()
  local count = 0
  local f = triage.compile(function(x)
    count = count + 1
    return x * 2 + count
  end)
  for i = 1, 20 do
    eq(f(z), z * 2 + i)
  end
  if not tostring(f):find("compiled function", 1, true) then
    error(tostring(f))
  end
end)

local late = false

--- Calls both eight times, the last four of them `late`: the same two results every time.
local function agrees_late(f, g)
  for i = 1, 8 do
    late = i > 4
    local a, b = f(z)
    local c, d = g(z)
    eq(c, a)
    eq(d, b)
  end
end

test("what was put off is computed before what it is computed of is written to", function()
  local function f(x)
    local a = x * 1
    local b = a * 2   -- nobody looks at it the first times
    triage.graph_break("here")
    a:add_(1)
    if late then
      return a, b
    end
    return a, a
  end
  local g = triage.compile(f)
  agrees_late(f, g)
end)

test("what outlives a call does not change when its inputs do", function()
  local kept
  local x = torch.ones({2})
  local f = triage.compile(function(y)
    local doubled = y * 2
    triage.graph_break("here")
    kept = doubled
    return y + 1
  end)
  for i = 1, 6 do
    f(x)
    local expected = x * 2
    x:add_(i)
    eq(kept, expected)
  end
  local failing = triage.compile(function(y)
    triage.graph_break("here")
    kept = y * 3
    error("stop")
  end)
  for _ = 1, 3 do
    pcall(failing, x)
    local expected = x * 3
    x:add_(1)
    eq(kept, expected)
  end
end)

test("writes that no operator shows come after what was put off", function()
  local bump = triage.disable(function(a) a:add_(1) end)
  local function work(hidden)
    return function(x)
      local a = x * 1
      local b = a * 2
      hidden(a)
      if late then
        return a, b
      end
      return a, a
    end
  end
  local f, g = work(bump), triage.compile(work(bump))
  agrees_late(f, g)
end)

test("tensors in tables, closures and errors have their values, whatever happens to the inputs", function()
  local x = torch.ones({2})
  local tables = triage.compile(function(y) return {a = y * 2, [1] = {y + 1}} end)
  local closures = triage.compile(function(y) local a = y * 2 return function() return a end end)
  local errors = triage.compile(function(y) triage.graph_break("here") error({value = y * 3}) end)
  for _ = 1, 5 do
    local list, fn = tables(x), closures(x)
    local _, problem = pcall(errors, x)
    local doubled, more, tripled = x * 2, x + 1, x * 3
    x:add_(1)
    eq(list.a, doubled)
    eq(list[1][1], more)
    eq(fn(), doubled)
    eq(problem.value, tripled)
  end
end)

test("assignments to parts of a tensor are followed by what they assign", function()
  local function f(x, v)
    triage.graph_break("here")
    local y = x * 1
    y[0] = v * 2
    y[{1, {0, 2}}] = (v * 3):to(torch.float64)[{{0, 2}}]
    return y, y[0]
  end
  agrees(f, {{torch.ones({3, 2}), torch.tensor({5.0, 6.0})},
             {torch.ones({3, 2}):to(torch.float64), torch.tensor({1, 2})}})
end)

test("T31: gradients flow through views that are written to behind a break", function()
  local function f(x, w)
    local y = x * 1
    triage.graph_break("here")
    y:t():add_(w)
    y[0] = w * 2
    return (y * y):sum()
  end
  local g = triage.compile(f)
  for _ = 1, 4 do
    local v, w = torch.ones({2}, {requires_grad = true}), torch.ones({2}, {requires_grad = true})
    f(z, v):backward()
    g(z, w):backward()
    eq(w.grad, v.grad)
  end
end)

test("N01: statistics of a normalisation that trains move once a call", function()
  local x = torch.tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 7.0}})
  local a, b = torch.zeros({3}), torch.zeros({3})
  local function normalised(mean)
    return function(y)
      triage.graph_break("here")
      return torch.batch_norm(y, nil, nil, mean, torch.ones({3}), true, 0.1, 1e-5, false)
    end
  end
  local f, g = normalised(a), triage.compile(normalised(b))
  for _ = 1, 4 do
    torch.no_grad(function()
      eq(g(x), f(x))
    end)
    eq(b, a)
  end
end)

test("G06: an error on a graph break fails the call though the script catches it", function()
  local f = triage.error_on_graph_break(true, triage.compile(function(x)
    pcall(triage.graph_break, "inside")
    return x * 2
  end))
  for _ = 1, 2 do
    fails(function() f(z) end, "graph break: inside")
  end
end)

test("numbers that change on every call do not make graphs for ever", function()
  local count = 0
  local f = triage.compile(function(x)
    count = count + 1
    return (x * count + 1):relu()
  end)
  for i = 1, 60 do
    eq(f(z), (z * i + 1):relu())
  end
end)

test("T15: a branch that assigns to a local of the function is told so", function()
  local f = triage.compile(function(x)
    local k = 0
    local y = IF(x:sum() > 0, function()
      k = 1
      return x
    end):ELSE(function() return -x end)
    return y + k
  end, {fullgraph = true})
  fails(function() f(z) end, "a write to upvalue 'k', a variable from outside of the branch")
  fails(function() f(z) end, "return the value from the branch instead")
end)
