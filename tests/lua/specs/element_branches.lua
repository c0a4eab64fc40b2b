-- Branches by element: a condition of two or more dimensions, eager, captured and fused, with the gradients of what is
-- chosen and nothing of what is not.
local nan <const>, inf <const> = 0 / 0, 1 / 0
local float64 <const> = {dtype = torch.float64}

local function tensor(values) return torch.tensor(values, float64) end

--- fn eager, captured, and replayed, with each backend.
local function ways(fn)
  local list = {{"eager", fn}}
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local compiled = triage.compile(fn, {fullgraph = true, backend = backend})
    list[#list + 1] = {backend .. ", captured", compiled}
    list[#list + 1] = {backend .. ", replayed", compiled}
  end
  return list
end

--- The value of fn and the gradients of its sum at copies of the tensors.
local function run(fn, tensors, weight)
  local leaves = {}
  for i, t in ipairs(tensors) do leaves[i] = t:detach():clone():requires_grad_() end
  local y = fn(table.unpack(leaves))
  if weight then (y * weight):sum():backward() else y:sum():backward() end
  local gradients = {}
  for i, leaf in ipairs(leaves) do gradients[i] = leaf.grad end
  return y:detach(), gradients
end

--- Each way gives these, and all the same bits.
local function check(fn, tensors, value, gradients, tolerance)
  local first
  for _, way in ipairs(ways(fn)) do
    local y, got = run(way[2], tensors)
    local fine, why = pcall(function()
      close_to(y, value, tolerance or 1e-12)
      for i, expected in ipairs(gradients) do close_to(got[i], expected, tolerance or 1e-12) end
      if first then
        eq(y, first[1])
        for i = 1, #gradients do eq(got[i], first[2][i]) end
      end
    end)
    if not fine then error(way[1] .. ": " .. why, 2) end
    first = first or {y, got}
  end
end

local function choose(mask, a, b)
  return IF(mask, a):ELSE(b)
end

-- The situations of public threads about `where` and NaN gradients

test("exp that overflows where it is not taken", function()
  local function fn(a) return choose(a <= 0, function() return a:exp() end, function() return 1 + a end) end
  check(fn, {tensor({{100.0, 0.0}, {-1.0, 800.0}})}, tensor({{101.0, 1.0}, {math.exp(-1), 801.0}}),
    {tensor({{1.0, 1.0}, {math.exp(-1), 1.0}})})
end)

test("sqrt, log and a division of what is not taken", function()
  local x = tensor({{4.0, -4.0}, {0.0, nan}})
  local cases = {
    {function(v) return v:sqrt() end, 2.0, 0.25},
    {function(v) return v:log() end, math.log(4), 0.25},
    {function(v) return v:log2() end, 2.0, 0.25 / math.log(2)},
    {function(v) return 1 / v end, 0.25, -1 / 16},
    {function(v) return v ^ 0.5 end, 2.0, 0.25},
    {function(v) return v:pow(-1.5) end, 0.125, -1.5 * 4 ^ -2.5},
    {function(v) return v / (v * 0.5 - v * 0.5 + v) end, 1.0, 0.0},
  }
  for _, case in ipairs(cases) do
    local value, gradient = tensor({{case[2], 0.0}, {0.0, 0.0}}), tensor({{case[3], 0.0}, {0.0, 0.0}})
    local function root(v) return function() return case[1](v) end end
    local function zero(v) return function() return torch.zeros_like(v) end end
    check(function(v) return choose(v > 0, root(v), zero(v)) end, {x}, value, {gradient})
    check(function(v) return choose(v > 0, root(v), function() return 0 end) end, {x}, value, {gradient})
  end
end)

test("a division by zero in a branch that nobody takes", function()
  local function fn(a) return choose(a ~= a, function() return a / 0 end, function() return torch.ones_like(a) end) end
  check(fn, {tensor({{0.5, -1.0}})}, tensor({{1.0, 1.0}}), {tensor({{0.0, 0.0}})})
end)

test("a vector's direction, and its norm, where it is zero", function()
  local v = tensor({{3.0, 4.0}, {0.0, 0.0}})
  local function fn(x)
    local size = x:pow(2):sum(1, true)
    return choose(size > 0, function() return x / size:sqrt() end, function() return x end)
  end
  check(fn, {v}, tensor({{0.6, 0.8}, {0.0, 0.0}}),
    {tensor({{(16 - 12) / 125, (9 - 12) / 125}, {1.0, 1.0}})})
  local function norm(x)
    return choose((x ~= 0):any(1, true), function() return x:pow(2):sum(1, true):sqrt() end, function() return 0.0 end)
  end
  check(norm, {v}, tensor({{5.0}, {0.0}}), {tensor({{0.6, 0.8}, {0.0, 0.0}})})
end)

test("a root of a sum over what is taken away, without and with its dimension", function()
  local v = tensor({{3.0, 4.0}, {0.0, 0.0}})
  local function fn(x)
    return choose(x ~= 0, function() return x / x:pow(2):sum(1):sqrt():unsqueeze(1) end, function() return x end)
  end
  check(fn, {v}, tensor({{0.6, 0.8}, {0.0, 0.0}}), {tensor({{4 / 125, -3 / 125}, {1.0, 1.0}})})
end)

test("atan2 at the origin", function()
  local y, x = tensor({{0.0, 1.0}}), tensor({{0.0, 1.0}})
  local function fn(a, b)
    local function angle() return torch.atan2(a, b) end
    return choose((a ~= 0) | (b ~= 0), angle, function() return torch.zeros_like(a) end)
  end
  check(fn, {y, x}, tensor({{0.0, math.pi / 4}}), {tensor({{0.0, 0.5}}), tensor({{0.0, -0.5}})})
end)

test("softmax over what a mask leaves, in a row where it leaves nothing", function()
  local mask = torch.tensor({{true, true, false}, {false, false, false}})
  local function fn(x)
    local scores = torch.where(mask, x, -inf)
    return choose(mask:any(1, true), function() return scores:softmax(1) end, function() return torch.zeros_like(x) end)
  end
  local x = tensor({{0.0, math.log(3), 5.0}, {1.0, 2.0, 3.0}})
  check(fn, {x}, tensor({{0.25, 0.75, 0.0}, {0.0, 0.0, 0.0}}), {torch.zeros({2, 3}, float64)})
end)

test("the squared error with targets that are missing", function()
  local prediction, target = tensor({{1.0, 2.0}, {3.0, 4.0}}), tensor({{0.0, nan}, {nan, 2.0}})
  local function fn(p)
    return choose(~target:isnan(), function() return (p - target) ^ 2 end, function() return 0.0 end)
  end
  check(fn, {prediction}, tensor({{1.0, 0.0}, {0.0, 4.0}}), {tensor({{2.0, 0.0}, {0.0, 4.0}})})
  local function loss(p, t)   -- one row, one column
    return choose(~t:isnan(), function() return torch.mse_loss(p, t, 0) end, function() return torch.zeros_like(p) end)
  end
  local y, gradients = run(loss, {prediction, target})
  eq(y, tensor({{1.0, 0.0}, {0.0, 4.0}}))
  eq(gradients[1], tensor({{2.0, 0.0}, {0.0, 4.0}}))
  eq(gradients[2], tensor({{-2.0, 0.0}, {0.0, -4.0}}))
end)

test("the deviation of rows that are constant", function()
  local x = tensor({{1.0, 3.0}, {2.0, 2.0}})
  local function fn(v)
    local centred = v - v:mean(1, true)
    return choose(v:amax(1, true) > v:amin(1, true), function()
      return centred / centred:pow(2):mean(1, true):sqrt()
    end, function() return centred end)
  end
  check(fn, {x}, tensor({{-1.0, 1.0}, {0.0, 0.0}}), {tensor({{0.0, 0.0}, {0.0, 0.0}})})
end)

-- Weights

test("a weight that is broadcast gets nothing of elements that are not taken", function()
  local x = tensor({{4.0, 0.0, nan}, {inf, 2.0, -inf}})
  local good = torch.isfinite(x) & (x > 0)
  for _, size in ipairs({{3}, {1, 3}, {2, 1}, {1}, {}, {2, 3}}) do
    local w = torch.full(size, 2.0, float64)
    local function fn(weight)
      return choose(good, function() return (x * weight):log() end, function() return x:nan_to_num(0, 0, 0) end)
    end
    local safe = torch.where(good, x, 1.0)
    local _, expected = run(function(weight) return torch.where(good, (safe * weight):log(), 0.0) end, {w})
    local y = torch.where(good, (safe * 2):log(), 0.0)
    check(fn, {w}, y, {expected[1]})
  end
end)

test("two weights of which neither has all elements", function()
  local x = tensor({{4.0, nan, 1.0}, {inf, 2.0, 3.0}})
  local good = torch.isfinite(x)
  local function fn(a, b)
    return choose(good, function() return (a * b) * x end, function() return 0.0 end)
  end
  local a, b = tensor({{1.0}, {2.0}}), tensor({{3.0, 4.0, 5.0}})
  local safe = torch.where(good, x, 0.0)
  check(fn, {a, b}, torch.where(good, a * b * safe, 0.0), {(b * safe):sum(1, true), (a * safe):sum(0, true)})
end)

test("layers in front of a branch and in it", function()
  local x = tensor({{1.0, -2.0}, {-3.0, 0.5}, {0.0, 0.0}})
  local function fn(w, v)
    local h, u = x:matmul(w), x:matmul(v)
    return choose(h > 0, function() return h:log() end, function() return h end)
      + choose(u > 0, function() return x:matmul(v):sqrt() end, function() return u end)
  end
  local w = tensor({{1.0, -1.0, 0.0, 2.0}, {0.0, 1.0, 0.0, -1.0}})
  local v = tensor({{2.0, 0.0, -1.0, 0.5}, {1.0, 0.0, 3.0, -1.0}})
  local function safe(a, b)
    local h, u = x:matmul(a), x:matmul(b)
    local good, fine = (h > 0):detach(), (u > 0):detach()
    return torch.where(good, torch.where(good, h, 1.0):log(), h)
      + torch.where(fine, torch.where(fine, u, 1.0):sqrt(), u)
  end
  local y, gradients = run(safe, {w, v})
  check(fn, {w, v}, y, gradients)
end)

test("a row that no element takes spoils no weight upstream, where the backend has a graph of gradients", function()
  local x = tensor({{1.0, 2.0}, {nan, 1.0}, {3.0, -1.0}})
  local w = tensor({{1.0, -1.0, 2.0}, {1.0, 1.0, 0.5}})
  local function fn(weight)
    local h = x:matmul(weight)
    return choose(h > 0, function() return h:log() end, function() return 0.0 end)
  end
  local sound = x:index_select(0, torch.tensor({0, 2}))
  local _, expected = run(function(weight)
    local h = sound:matmul(weight)
    return choose(h > 0, function() return h:log() end, function() return 0.0 end)
  end, {w})
  for _, backend in ipairs({"aot_eager", "fused"}) do
    for _, mode in ipairs({"warn", "require"}) do
      local compiled = triage.compile(fn, {fullgraph = true, backend = backend, masked_rows = mode})
      for _ = 1, 2 do
        local _, got = run(compiled, {w})
        close_to(got[1], expected[1], 1e-12)
      end
    end
  end
end)

test("a branch may write to what it made, also through a view", function()
  local w = tensor({{1.0, -1.0}, {0.5, 2.0}})
  local x = tensor({{1.0, -2.0}, {0.0, 3.0}})
  local good = x > 0
  local function made(weight)
    local y = x:matmul(weight)
    y:add_(1)
    y[{1, 1}] = 5.0
    return y:sqrt()
  end
  local _, expected = run(function(weight) return made(weight):masked_select(good) end, {w})
  local function fn(weight) return choose(good, function() return made(weight) end, function() return 0 end) end
  local y, got = run(fn, {w})
  close_to(got[1]:nan_to_num(0), expected[1]:nan_to_num(0), 1e-12)
  eq(y[{1, 1}], torch.tensor(5.0, float64):sqrt())
end)

-- Shapes, dtypes and what else a branch may give

test("what is a view of mixed elements is guarded where the mask knows it, whatever the sizes of the view", function()
  local x = tensor({{4.0, -9.0, 2.0}, {1.0, 3.0, -5.0}})
  local mask = x:cumsum(1) > 0
  local safe = function(v) return torch.where(v:cumsum(1) > 0, v:cumsum(1), 1.0) end
  local expected = torch.where(mask, safe(x):log(), 0.0)
  local leaf = x:clone():requires_grad_()
  torch.where(mask, safe(leaf):log(), 0.0):sum():backward()
  local views = {
    function(z) return z:t():log():t() end,
    function(z) return z:view({-1}):log():view({2, 3}) end,
    function(z) return z:reshape({3, 2}):log():reshape({2, 3}) end,
    function(z) return z:unsqueeze(0):transpose(1, 2):log():transpose(1, 2)[0] end,
    function(z) return torch.stack({z[0]:log(), z[1]:log()}) end,
    function(z) return torch.cat({z:narrow(1, 0, 1):log(), z:narrow(1, 1, 2):t():log():t()}, 1) end,
    function(z) local a, b = table.unpack(z:split(1)) return torch.cat({a:log(), b:log()}) end,
  }
  local function through(of)
    return function(v)
      return choose(v:cumsum(1) > 0, function() return of(v:cumsum(1)) end, function() return 0.0 end)
    end
  end
  for i, of in ipairs(views) do
    local fine, why = pcall(check, through(of), {x}, expected, {leaf.grad})
    if not fine then error("view " .. i .. ": " .. why) end
  end
  local value, gradients = run(through(function(z) local t = z:t() t:mul_(1.0) return t:log():t() end), {x})
  close_to(value, expected, 1e-12)   -- a view that was written to since
  close_to(gradients[1], leaf.grad, 1e-12)
  local nested = function(v)   -- a view of the outer branch, in the inner one
    return choose(v:cumsum(1) > 0, function()
      local t = v:cumsum(1):t()
      return choose(v < 100, function() return t:log():t() end, function() return v end)
    end, function() return 0.0 end)
  end
  check(nested, {x}, expected, {leaf.grad})
end)

test("a view of mixed elements that takes another form since has its own values", function()
  local x = tensor({{4.0, -9.0}, {1.0, 3.0}})
  local sums = x:cumsum(1)
  for i, of in ipairs({function(m) local r = m:t() r:t_() return r * 1 end,
                       function(m) local r = m:t() m:t_() return (r * 1):t() end,
                       function(m) local r = m:unsqueeze(0) r:squeeze_(0) return r * 1 end}) do
    local y = run(function(v)
      return choose(v > -100, function() return of(v:cumsum(1)) end, function() return v end)
    end, {x})
    if not pcall(eq, y, sums) then error("form " .. i .. ": " .. tostring(y)) end
  end
  local long = run(function(v)   -- a chain of views is no depth of calls
    return choose(v > -100, function()
      local m = v:cumsum(1)
      for _ = 1, 60000 do m = m:view({2, 2}) end
      return m * 1
    end, function() return v end)
  end, {x})
  eq(long, sums)
end)

test("masks that broadcast, and results that do", function()
  local x = torch.arange(24, float64):view({2, 3, 4})
  local function pair(mask)
    return choose(mask, function() return x end, function() return -x end), torch.where(mask, x, -x)
  end
  for _, size in ipairs({{2, 3, 4}, {1, 3, 4}, {2, 1, 1}, {3, 4}, {1, 4}, {3, 1}}) do
    local mask = torch.ones(size, {dtype = torch.bool}):cumsum(-1):remainder(2):eq(1)
    local got, expected = pair(mask)
    eq(got, expected)
  end
  local mask = torch.tensor({{true, false}, {false, true}})
  eq(choose(mask, function() return torch.tensor({1.0, 2.0}) end, function() return torch.tensor({{5.0}, {6.0}}) end),
    torch.tensor({{1.0, 5.0}, {6.0, 2.0}}))
  eq(choose(mask, function() return torch.tensor(1.0) end, function() return torch.tensor(2.0) end),
    torch.tensor({{1.0, 2.0}, {2.0, 1.0}}))
end)

test("dtypes are promoted as by torch.where, numbers take those of tensors", function()
  local mask = torch.tensor({{true, false}})
  local whole, real = torch.tensor({{1, 2}}), torch.tensor({{0.5, 0.25}})
  local function both(a, b) return choose(mask, function() return a end, function() return b end) end
  for _, pair in ipairs({{whole, real}, {real, whole}, {real, real:to(torch.float64)}, {whole, 0.5}, {0.5, real},
                         {real, 3}, {whole, 7}, {whole:to(torch.bool), real}}) do
    local got, expected = both(pair[1], pair[2]), torch.where(mask, pair[1], pair[2])
    eq(got, expected)
    eq(tostring(got.dtype), tostring(expected.dtype))
  end
end)

test("several results, tables, and equal values", function()
  local x = tensor({{4.0, -1.0}})
  local root, t, name = IF(x > 0, function() return x:sqrt(), {y = x, n = 3}, "same" end)
    :ELSE(function() return x, {y = 0, n = 3}, "same" end)
  eq(root, tensor({{2.0, -1.0}}))
  eq(t.y, tensor({{4.0, 0.0}}))
  eq({t.n, name}, {3, "same"})
end)

test("ELIF: the first condition that holds for an element wins, with conditions of all kinds in one chain", function()
  local x = tensor({{-1.0, 0.0, 4.0}, {9.0, -4.0, 0.0}})
  local rows = torch.tensor({true, false})
  local function fn(v)
    return IF(v > 0, function() return v:sqrt() end)
      :ELIF(rows, function() return v * 10 end)
      :ELIF(v < 0, function() return (-v):sqrt() end)
      :ELSE(function() return v + 7 end)
  end
  check(fn, {x}, tensor({{-10.0, 0.0, 2.0}, {3.0, 2.0, 7.0}}), {tensor({{10.0, 10.0, 0.25}, {1 / 6, -0.25, 1.0}})})
end)

test("branches in branches, with masks of other shapes", function()
  local x = tensor({{4.0, -1.0}, {0.0, 9.0}})
  local rows = torch.tensor({true, false})
  local function fn(v)
    return IF(rows, function()
      return IF(v > 0, function() return v:sqrt() end):ELSE(function() return v end)
    end):ELSE(function()
      return IF((v > 0):any(1, true), function()
        return IF(v > 0, function() return v:log() end):ELSE(function() return v * 2 end)
      end):ELSE(function() return v end)
    end)
  end
  check(fn, {x}, tensor({{2.0, -1.0}, {0.0, math.log(9)}}), {tensor({{0.25, 1.0}, {2.0, 1 / 9}})})
  local function outer(v)   -- what is made in the inner branch may spoil elements of the outer one
    return IF(v > 0, function()
      return IF(rows, function() return v / v:prod(1, true) end):ELSE(function() return v:log() end)
    end):ELSE(function() return v end)
  end
  for _, way in ipairs(ways(outer)) do
    local _, gradients = run(way[2], {x})
    assert(torch.isfinite(gradients[1]):all():item(), way[1] .. tostring(gradients[1]))
  end
end)

test("masks of sizes that do not broadcast to each other, in branches of each other", function()
  local x = torch.linspace(-2, 3, 24, float64):view({2, 3, 4})
  local function fn(v)
    local m = v:sum(1)   -- (2, 4)
    return IF(m > 0, function()
      return IF(v > 0, function() return v:sqrt() end):ELSE(function() return v * 0 end):sum(1) / m
    end):ELSE(function() return m end)
  end
  local y, gradients = run(function(v)
    local m = v:sum(1)
    local root = torch.where(v > 0, torch.where(v > 0, v, 1):sqrt(), v * 0):sum(1)
    return torch.where(m > 0, root / torch.where(m > 0, m, 1), m)
  end, {x})
  check(fn, {x}, y, gradients)
end)

test("a mask of one dimension is one of samples", function()
  local x = tensor({{4.0, 9.0}, {0.0, 1.0}})
  eq(choose(torch.tensor({true, false}), function() return x:sqrt() end, function() return x end),
    tensor({{2.0, 3.0}, {0.0, 1.0}}))
  fails(function() choose(torch.tensor({true, false, true}), function() return x end, function() return -x end) end,
    "A mask over the last dimension needs one more in front: mask:unsqueeze(0)")
end)

-- Errors

test("flags are chosen by sample, and the error says how to reduce the mask", function()
  local x = torch.tensor({{1.0, nan}, {2.0, 3.0}})
  local f = flag_nan(x, "x")
  local function fn() return IF(x:isnan(), function() return f end):ELSE(function() return err.new(x) end) end
  fails(fn, "mask:flatten(1):any(1)")
  fails(fn, "belong to samples")
  fails(triage.compile(fn, {fullgraph = true}), "mask:flatten(1):any(1)")
  eq(err.is_err(IF(x:isnan():flatten(1):any(1), function() return f end):ELSE(function() return err.new(x) end)),
    torch.tensor({true, false}))
end)

test("what does not broadcast, or would grow unseen, is an error that names branch and result", function()
  local x = torch.ones({2, 3})
  local function fn(mask, a, b) return function() choose(mask, function() return a end, function() return b end) end end
  local mask = torch.ones({2, 3}, {dtype = torch.bool})
  fails(fn(mask, x, torch.ones({2, 2})), "differ in result 1: Tensor float32[2, 3] against Tensor float32[2, 2]")
  fails(fn(torch.ones({2, 2}, {dtype = torch.bool}), x, -x), "does not broadcast with the condition")
  fails(fn(mask:narrow(1, 0, 1), torch.ones({2}), torch.zeros({2})), "has more dimensions than the results")
  fails(fn(mask, 1, 2), "int 1 against int 2")
  fails(fn(mask, x, {x}), "differ in result 1")
  fails(fn(mask, x, "a"), "differ in result 1")
  fails(fn(mask, x, nil), "differ in result 1")
end)

test("guarded tensors: flags are those of the branches that the elements of a sample take", function()
  local data = torch.tensor({{4.0, 1.0}, {-1.0, 4.0}, {-1.0, -4.0}})
  local function fn(plain)
    local v = guard(plain)
    return unguard(IF(v.data > 0, function() return flag_nan(v:log() * nan, "log") end)
      :ELSE(function() return flag_inf(v * inf, "product") end))
  end
  for _, run_it in ipairs({fn, triage.compile(fn, {fullgraph = true})}) do
    for _ = 1, 2 do
      local z, f = run_it(data)
      eq(err.has_nan(f), torch.tensor({true, true, false}))
      eq(err.has_inf(f), torch.tensor({false, true, true}))
      eq(z:isnan(), torch.tensor({{true, true}, {false, true}, {false, false}}))
    end
  end
  local x = guard(data)
  eq(IF(x > 0, function() return x:sqrt() end):ELSE(function() return 0 end).data,
    torch.tensor({{2.0, 1.0}, {0.0, 2.0}, {0.0, 0.0}}))
end)

-- Properties

test("the gradient of chosen elements is that of a computation with these alone", function()
  local functions = {
    function(v) return v:log() end, function(v) return v:sqrt() * v end, function(v) return v ^ 1.5 / (v + 1) end,
    function(v) return (v * v):log1p():sqrt() end,
  }
  for seed = 1, 20 do
    torch.manual_seed(seed)
    local x = torch.randn({4, 5}, float64)
    x[{0, 0}] = nan
    x[{1, 1}] = -inf
    local mask = x > 0
    local fn = functions[seed % #functions + 1]
    local _, expected = run(function(v) return fn(v:masked_select(mask)) end, {x})
    local function by_element(v) return choose(mask, function() return fn(v) end, function() return v:detach() end) end
    local _, got = run(by_element, {x})
    eq(got[1], torch.where(mask, expected[1], 0.0))
  end
end)

test("a mask over elements that is the same for all elements of a sample gives what a mask of samples gives", function()
  for seed = 1, 10 do
    torch.manual_seed(seed)
    local x, rows = torch.randn({6, 3}, float64), torch.randn({6}) > 0
    x[2] = 0.0
    local function with(mask)
      return function(v)
        return IF(mask, function() return v / v:norm(2, {1}, true) end):ELSE(function() return v:abs():sqrt() + 1 end)
      end
    end
    local y, by_sample = run(with(rows), {x})
    for _, mask in ipairs({rows:unsqueeze(1), rows:unsqueeze(1):expand({6, 3})}) do
      local z, by_element = run(with(mask), {x})
      eq(z, y)
      eq(by_element[1], by_sample[1])
    end
  end
end)

test("batches of other sizes replay the same graph", function()
  local function fn(v)
    return IF(v > 0, function() return (v * v:mean(1, true)):abs():sqrt() + v:log() end):ELSE(function() return v end)
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local compiled = triage.compile(fn, {fullgraph = true, backend = backend})
    for _, rows in ipairs({3, 1, 2, 0, 31, 32, 33}) do
      local x = torch.randn({rows, 3})
      local y, expected = run(fn, {x})
      local z, got = run(compiled, {x})
      if rows == 0 then
        eq(z, y, backend)
      elseif backend == "fused" then   -- its log may differ in the last bit
        close_to(z, y, 1e-6)
        close_to(got[1], expected[1], 1e-5)
      else
        eq(z, y, backend)
        eq(got[1], expected[1], backend)
      end
    end
  end
end)
