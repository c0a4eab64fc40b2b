-- IF/ELIF/ELSE and its conditions, eager (row T15).
local nan, inf = 0/0, 1/0
local z = torch.tensor({{1.0, 2.0}, {nan, 1.0}, {inf, 0.0}})
local f = flag_nan_and_inf(z, "flow")

local function constant(value) return function() return torch.full_like(z, value) end end

test("T15: conditions of shape (N,) select per sample, the first that holds wins", function()
  local y = IF(err.has_nan(f), constant(1)):ELIF(err.is_err(f), constant(2)):ELSE(constant(3))
  eq(y, torch.tensor({{3.0, 3.0}, {1.0, 1.0}, {2.0, 2.0}}))
end)

test("T15: conditions of shape () select the batch and leave the other branches alone", function()
  local ran = {}
  local function branch(name) return function() ran[#ran + 1] = name return name end end
  eq(IF(HAS(f), branch("a")):ELIF(HAS(f), branch("b")):ELSE(branch("c")), "a")
  eq(IF(NOT(HAS(f)), branch("a")):ELIF(IS(err.INF, f), branch("b")):ELSE(branch("c")), "b")
  eq(IF(IS(err.OOB, f), branch("a")):ELSE(branch("c")), "c")
  eq(ran, {"a", "b", "c"})
end)

test("T15: both kinds in one chain", function()
  local y = IF(err.has_nan(f), constant(1))
    :ELIF(IS(err.OOB, f), constant(2))
    :ELIF(IS(err.INF, f), constant(3))
    :ELSE(constant(4))
  eq(y:select(1, 0), torch.tensor({3.0, 1.0, 3.0}))
end)

test("T15: several results, nested tables and equal plain values", function()
  local a, t, name, nothing = IF(err.is_err(f), function()
    return torch.zeros(3), {x = torch.ones(3), list = {torch.zeros(3, 2), 5}}, "same", nil
  end):ELSE(function()
    return torch.ones(3), {x = torch.zeros(3), list = {torch.ones(3, 2), 5}}, "same", nil
  end)
  eq(a, torch.tensor({1.0, 0.0, 0.0}))
  eq(t.x, torch.tensor({0.0, 1.0, 1.0}))
  eq(t.list[1]:select(1, 1), torch.tensor({1.0, 0.0, 0.0}))
  eq({t.list[2], name, nothing}, {5, "same"})
end)

test("T15: flags are selected like any tensor", function()
  local g = IF(err.is_err(f), function() return push(f, err.FALLBACK_VALUE, "flow") end):ELSE(function() return f end)
  eq(err.has_fallback(g), torch.tensor({false, true, true}))
end)

test("T15: branches that differ are an error that names branch and leaf", function()
  local m = err.is_err(f)
  local function pair(a, b) return function() IF(m, a):ELSE(b) end end
  fails(pair(constant(1), function() return torch.zeros(3, 3) end),
    "the branches IF and ELSE differ in result 1: Tensor float32[3, 2]")
  fails(pair(function() return z, {a = z} end, function() return z, {a = z > 0} end), "result 2, field 'a'")
  fails(pair(function() return {z, {z}} end, function() return {z, {z:sum()}} end), "result 1, element 2, element 1")
  fails(pair(function() return {a = z} end, function() return {b = z} end), "has no field")
  fails(pair(function() return z, z end, function() return z end), "IF returns 2 values and ELSE returns 1")
  fails(pair(function() return 1 end, function() return 2 end), "result 1: int 1 against int 2")
  fails(pair(function() return 1 end, function() return 1.0 end), "result 1")
  fails(pair(function() return z:sum() end, function() return z:mean() end), "does not have one row per sample")
  fails(function() IF(m, constant(1)):ELIF(m, function() return 1 end):ELSE(constant(1)) end,
    "the branches ELIF 1 and ELSE differ")
end)

test("T15: other conditions are errors that say what to do", function()
  fails(function() IF(true, constant(1)) end, "IF: expected a bool tensor of shape (N,)")
  fails(function() IF(true, constant(1)) end, "plain `if`")
  fails(function() IF(torch.ones(3), constant(1)) end, "compare it with something")
  fails(function() IF(torch.ones({2, 3}), constant(1)) end, "compare it with something")
  fails(function() IF(HAS(f), constant(1)):ELIF(1, constant(1)) end, "ELIF: expected a bool tensor")
  fails(function() IF(HAS(f), 5) end, "IF: expected a function as `fn`, got")
  fails(function() IF(HAS(f), z) end, "; write function() return ... end")
  fails(function() IF(HAS(f), constant(1)):ELSEIF(HAS(f), constant(1)) end, "IF has no 'ELSEIF'; did you mean 'ELIF'")
  fails(function() IF(HAS(f), constant(1)):ELSE() end, "ELSE: expected a function")
end)

test("T15: branches on samples that return nothing are an error, in a script and captured", function()
  local signs = torch.tensor({{1.0}, {-1.0}})
  local function assigns(x)
    local y
    IF(x:sum(1) > 0, function() y = x end):ELSE(function() y = x * 2 end)
    return y
  end
  fails(function() assigns(signs) end, "the branches return nothing")
  fails(function() triage.compile(assigns, {fullgraph = true})(signs) end, "the branches return nothing")
  local taken
  IF(signs:sum() > 10, function() taken = true end):ELSE(function() taken = false end)   -- of the batch: one runs
  eq(taken, false)
end)

test("T15: AND, OR and NOT combine conditions of the batch", function()
  local yes, no = HAS(f), IS(err.OOB, f)
  eq(AND(yes, yes), torch.tensor(true))
  eq(AND(yes, no, yes), torch.tensor(false))
  eq(OR(no, no, yes), torch.tensor(true))
  eq(NOT(no), torch.tensor(true))
  fails(function() AND() end, "AND: expected at least one condition")
  fails(function() OR(yes, err.is_err(f)) end, "combine per-sample masks with & | ~")
  fails(function() NOT(1) end, "NOT: expected a bool tensor")
end)

test("T15: a chain without ELSE is an error in everything that is captured", function()
  local function dropped(x)
    IF(err.has_nan(flag_nan(x, 1)), function() return x * 0 end):ELIF(x:isinf():any(-1), function() return x end)
    return x * 1
  end
  local function returned(x) return IF(err.has_nan(flag_nan(x, 1)), function() return x * 0 end) end
  local batch = torch.ones({2, 3})
  for _, fn in ipairs({dropped, returned}) do
    fails(function() triage.compile(fn)(batch) end, "IF was never finished")
    fails(function() triage.compile(fn, {fullgraph = true})(batch) end, "IF was never finished")
    fails(function() triage.export(fn, {batch}) end, "IF was never finished")
  end
  local function whole(x) return IF(x:isnan():any(-1), function() return x * 0 end):ELSE(function() return x end) end
  eq(triage.compile(whole, {fullgraph = true})(batch), batch)   -- nothing is left behind by those before
end)

test("an IF that raises is over: a script that catches the error goes on", function()
  local programs = {
    function(x) return IF(true, function() return x end):ELSE(function() return x * 2 end) end,
    function(x) return IF(x:sum() > 0, 5):ELSE(function() return x * 2 end) end,
    function(x) return IF(x:sum() > 0, function() return x end):ELIF(7, function() return x end) end,
    function(x) return IF(x:sum() > 0, function() return x end):ELSE(3) end,
  }
  for i, program in ipairs(programs) do
    local function guarded(x) local ok = pcall(program, x) return x + (ok and 1 or 0) end
    eq(triage.compile(guarded)(torch.ones({2})), guarded(torch.ones({2})), "program " .. i)
  end
end)

test("a branch on a mask never writes to a tensor from outside of it, in any construct and mode", function()
  local mask, wide = torch.tensor({true, false, true}), torch.tensor({{true, false}, {false, true}, {true, true}})
  local layer = nn.BatchNorm1d(2)
  local function give(x) return function() return x end end
  local writes = {
    function(x) x:add_(10) return x end,
    function(x) x[0] = 7 return x end,
    function(x) x:t():zero_() return x end,
    function(x) x[{":", 0}]:fill_(1) return x end,
    function(x) torch.relu_(x) return x end,
    function(x) x:copy_(-x) return x end,
    function(x) return layer(x) end,
  }
  local constructs = {
    function(x, write) return IF(mask, function() return write(x) end):ELSE(give(x)) end,
    function(x, write) return IF(mask, give(x)):ELSE(function() return write(x) end) end,
    function(x, write) return IF(mask, give(x)):ELIF(mask:any(), function() return write(x) end):ELSE(give(x)) end,
    function(x, write) return IF(wide, function() return write(x) end):ELSE(give(x)) end,
    function(x, write) return WHERE(mask, function() return write(x) end, 0.0) end,
    function(x, write) return WHERE(wide, 0.0, function() return write(x) end) end,
    function(x, write)
      return IF(mask, function() return IF(mask:any(), function() return write(x) end):ELSE(give(x)) end):ELSE(give(x))
    end,
    function(x, write) return (err.map_ok(err.new(x), x, write)) end,
  }
  for _, construct in ipairs(constructs) do
    for _, write in ipairs(writes) do
      for _, backend in ipairs({"script", "eager", "fused"}) do
        local x = torch.arange(6):float():view({3, 2})
        local run = function(given) return construct(given, write) end
        if backend ~= "script" then run = triage.compile(run, {backend = backend}) end
        fails(function() run(x) end, "from outside of a branch whose condition is a mask")
        eq(x, torch.arange(6):float():view({3, 2}))
      end
    end
  end
  eq(layer.num_batches_tracked:item(), 0)
end)

test("a branch may write to what it made, and a branch of the batch to anything", function()
  local x = torch.ones({3, 2})
  local y = IF(torch.tensor({true, false, true}), function()
    local copy = x:clone()
    copy:add_(10)
    local made = torch.zeros({3, 2})
    made[0] = 1
    return copy + made
  end):ELSE(function() return x end)
  eq(y, torch.tensor({{12.0, 12.0}, {1.0, 1.0}, {11.0, 11.0}}))
  eq(x, torch.ones({3, 2}))
  IF(torch.tensor(true), function() x:add_(1) return x end):ELSE(function() return x end)
  eq(x, torch.full({3, 2}, 2.0))
end)
