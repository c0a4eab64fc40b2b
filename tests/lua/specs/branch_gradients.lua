-- Gradients through repairs and branches: those of healthy rows are right, and nothing of a repaired row reaches them.
local float64 = {dtype = torch.float64}

--- Central differences of the sum of fn(z) with the weights `w`, at every element.
local function differences(fn, z, w)
  local step, gradient = 1e-6, torch.zeros_like(z)
  for row = 0, z:size(0) - 1 do
    for column = 0, z:size(1) - 1 do
      local up, down = z:detach():clone(), z:detach():clone()
      up[{row, column}] = up[{row, column}] + step
      down[{row, column}] = down[{row, column}] - step
      gradient[{row, column}] = ((fn(up) * w):sum() - (fn(down) * w):sum()) / (2 * step)
    end
  end
  return gradient
end

local function gradient(fn, z, w)
  local x = z:detach():clone():requires_grad_()
  return torch.autograd.grad((fn(x) * w):sum(), x)
end

--- Each with a row that spoils its gradient.
local functions = {
  {name = "log", fn = function(v) return v:log() end, bad = {0.0, -1.0, 0 / 0}},
  {name = "sqrt", fn = function(v) return v:sqrt() end, bad = {0.0, -2.0, 0 / 0}},
  {name = "1/x", fn = function(v) return 1 / v end, bad = {0.0, 0 / 0}},
  {name = "norm", fn = function(v) return v / v:norm(2, {-1}, true) end, bad = {0.0, 0 / 0, math.huge}},
  {name = "of itself twice", fn = function(v) return v:log() * v:sqrt() end, bad = {0.0, -1.0}},
}

local bad_row <const> = 1

--- The ways to run fn on the rows that `ok` marks and leave the others. Each gets z and the mask.
local branches = {
  map_ok = function(fn, z, ok) return err.map_ok(push(err.new(z), err.NAN, 1, {where = ~ok}), z, fn) end,
  map_err = function(fn, z, ok) return err.map_err(push(err.new(z), err.NAN, 1, {where = ok}), z, fn) end,
  and_then = function(fn, z, ok)
    local step = function(v) return fn(v), err.new(v) end
    return (err.and_then(push(err.new(z), err.NAN, 1, {where = ~ok}), z, step))
  end,
  bind = function(fn, z, ok)
    local step = function(v) return fn(v), err.new(v) end
    return (err.bind(push(err.new(z), err.NAN, 1, {where = ~ok}), z, step))
  end,
  IF = function(fn, z, ok)
    return IF(ok, function() return fn(z) end):ELSE(function() return z end)
  end,
  ELSE = function(fn, z, ok)
    return IF(~ok, function() return z end):ELSE(function() return fn(z) end)
  end,
  ELIF = function(fn, z, ok)
    local first = torch.arange(z:size(0)):eq(0)
    return IF(first, function() return fn(z) end):ELIF(ok, function() return fn(z) end):ELSE(function() return z end)
  end,
  ["ELIF after a branch that is taken"] = function(fn, z, ok)
    return IF(~ok, function() return z * 1.0 end):ELIF(ok | ~ok, function() return fn(z) end)
      :ELSE(function() return fn(z) end)
  end,
  ["IF in a branch"] = function(fn, z, ok)
    local never = torch.zeros_like(ok)
    return IF(ok, function()
      local half = z * 0.5
      return IF(never, function() return half end):ELSE(function() return fn(half * 2) end)
    end):ELSE(function() return z end)
  end,
  ["map_ok in a branch"] = function(fn, z, ok)
    local f = err.new(z)
    return IF(ok, function() return err.map_ok(f, z, fn) end):ELSE(function() return z end)
  end,
}

local function sample(bad)
  local z = torch.linspace(0.5, 3.0, 15, float64):view({5, 3})
  if bad then z[bad_row] = bad end
  return z
end

local function every_row_but_the_bad(z)
  return torch.arange(z:size(0)):ne(bad_row)
end

--- fn(z, ok) eager, captured, and replayed.
local function ways(fn)
  local compiled = triage.compile(fn, {fullgraph = true})
  return {{"eager", fn}, {"captured", compiled}, {"replayed", compiled}}
end

for name, branch in pairs(branches) do
  test("T11 T15 T31: gradients through " .. name .. ", where the rows not taken would spoil them", function()
    for _, case in ipairs(functions) do
      local ok = every_row_but_the_bad(sample())
      local w = torch.linspace(1.0, 2.0, 15, float64):view({5, 3})
      local healthy = torch.where(ok:unsqueeze(1), differences(case.fn, sample(), w), w)
      for _, way in ipairs(ways(function(z, mask) return branch(case.fn, z, mask) end)) do
        for _, bad in ipairs(case.bad) do
          local got = gradient(function(z) return way[2](z, ok) end, sample(bad), w)
          local what = ("%s %s at %s: %s"):format(way[1], case.name, bad, got)
          assert(torch.isfinite(got):all():item(), what)
          assert((got - healthy):abs():max():item() < 1e-6, what)
        end
      end
    end
  end)
end

test("T09 T11 T14 T31: gradients of what repairs rows and elements", function()
  local repairs = {
    fix = function(z) return (fix(z, flag_nan_and_inf(z, "x"), "x", {fallback = 1.0})) end,
    ["fix with a tensor"] = function(z)
      return (fix(z, flag_nan_and_inf(z, "x"), "x", {fallback = torch.ones({3}, float64)}))
    end,
    replace = function(z) return err.replace(z, 1.0, {err.NAN, err.INF}) end,
    take_ok_p = function(z) return err.take_ok_p(flag_nan_and_inf(z, "x"), z, 1.0) end,
    take_err_p = function(z)
      local f = push(err.new(z), err.NAN, "x", {where = torch.isfinite(z):all(-1)})
      return err.take_err_p(f, z, 1.0)
    end,
    recover = function(z) return (err.recover_with_fallback(flag_nan_and_inf(z, "x"), z, 1.0, "x")) end,
  }
  local ok, w = every_row_but_the_bad(sample()), torch.linspace(1.0, 2.0, 15, float64):view({5, 3})
  for name, repair in pairs(repairs) do
    for _, case in ipairs(functions) do
      local healthy = torch.where(ok:unsqueeze(1), differences(case.fn, sample(), w), 0.0)
      for _, way in ipairs(ways(function(z) return case.fn(repair(z)) end)) do
        for _, bad in ipairs({0 / 0, math.huge, -math.huge}) do
          local got = gradient(way[2], sample(bad), w)
          local what = ("%s %s of %s at %s: %s"):format(way[1], case.name, name, bad, got)
          assert(got[bad_row]:eq(0):all():item(), what)
          assert((got - healthy):abs():max():item() < 1e-6, what)
        end
      end
    end
  end
end)

test("T11 T15 T31: functions across rows keep the gradients they have", function()
  local function centred(v) return v - v:mean(0, true) end
  local ok, w = every_row_but_the_bad(sample()), torch.linspace(1.0, 2.0, 15, float64):view({5, 3})
  local expected = gradient(function(z) return torch.where(ok:unsqueeze(1), centred(z), z) end, sample(), w)
  for name, branch in pairs(branches) do
    for _, way in ipairs(ways(function(z, mask) return branch(centred, z, mask) end)) do
      local got = gradient(function(z) return way[2](z, ok) end, sample(), w)
      assert((got - expected):abs():max():item() < 1e-12, way[1] .. " " .. name .. ": " .. tostring(got))
    end
  end
  assert(expected[bad_row]:ne(w[bad_row]):all():item(), "the row not taken has a part in the mean")
end)

test("T15 T31: a branch for the whole batch that is not taken leaves no trace, in weights neither", function()
  local weight = torch.full({3}, 0.0, {dtype = torch.float64, requires_grad = true})
  local fn = function(z, flag)
    return IF(flag, function() return (z * weight):log() end):ELSE(function() return z * (weight + 1) end)
  end
  for _, way in ipairs(ways(fn)) do
    weight.grad = nil
    local z = sample():requires_grad_()
    way[2](z, torch.tensor(false)):sum():backward()
    eq(z.grad, torch.ones({5, 3}, float64))
    eq(weight.grad, sample():sum(0))
  end
end)

test("T11 T31: what is upstream of a branch stays finite", function()
  local weight = torch.ones({3}, {dtype = torch.float64, requires_grad = true})
  local function log(v) return v:log() end
  for _, way in ipairs(ways(function(z, ok) return branches.map_ok(log, z * weight, ok) end)) do
    weight.grad = nil
    local z = sample(0.0)
    way[2](z, every_row_but_the_bad(z)):sum():backward()
    assert(torch.isfinite(weight.grad):all():item(), way[1])
    close_to(weight.grad, torch.tensor({4.0, 4.0, 4.0}, float64))
  end
end)

test("T15 T31: what holds no row for each sample keeps its gradient in a branch", function()
  local fn = function(z, ok)
    local centre, scale = z:mean(0), z:sum()
    return IF(ok, function() return (z - centre) / scale end):ELSE(function() return z end)
  end
  local where = function(z, ok)
    return torch.where(ok:unsqueeze(1), (z - z:mean(0)) / z:sum(), z)
  end
  local ok, w = every_row_but_the_bad(sample()), torch.linspace(1.0, 2.0, 15, float64):view({5, 3})
  local expected = gradient(function(z) return where(z, ok) end, sample(), w)
  for _, way in ipairs(ways(fn)) do
    close_to(gradient(function(z) return way[2](z, ok) end, sample(), w), expected, 1e-12)
  end
end)

test("T15 T31: a compiled function in an eager branch is guarded, and its graph knows nothing of the branch", function()
  local log = triage.compile(function(v) return v:log() end, {name = "log", fullgraph = true})
  local ok = every_row_but_the_bad(sample())
  local expected = torch.where(ok:unsqueeze(1), 1 / sample(), 1.0)
  for _ = 1, 2 do
    for _, name in ipairs({"IF", "ELSE", "map_ok", "bind"}) do
      local through = function(z) return branches[name](log, z, ok) end
      close_to(gradient(through, sample(0.0), torch.ones_like(expected)), expected)
    end
    eq(gradient(log, torch.ones({2, 3}, float64), torch.ones({2, 3}, float64)), torch.ones({2, 3}, float64))
  end
  eq(tostring(log), "compiled function log (1 graph)")
end)

test("T15: code without gradients has no guards in its graph, code with gradients has", function()
  local branch = function(z, ok) return IF(ok, function() return z:log() end):ELSE(function() return z end) end
  local ok = every_row_but_the_bad(sample())
  assert(not triage.explain(branch, sample(), ok).graphs[1]:find("guard_grad", 1, true))
  assert(triage.explain(branch, sample():requires_grad_(), ok).graphs[1]:find("guard_grad", 1, true))
end)

test("T15 T32: a captured branch has the gradients of the eager one at every batch size", function()
  local fn = function(z)
    local ok = (z > 0):all(-1)
    return IF(ok, function() return z:sqrt() + z:mean(0) end):ELSE(function() return z * 2 end)
  end
  local compiled = triage.compile(fn, {fullgraph = true, backend = "eager"})
  for _, rows in ipairs({3, 0, 1, 2, 31, 32, 33}) do
    local z = torch.randn({rows, 3})
    local a, b = z:clone():requires_grad_(), z:clone():requires_grad_()
    fn(a):sum():backward()
    compiled(b):sum():backward()
    eq(b.grad, a.grad)
    assert(torch.isfinite(b.grad):all():item())
  end
end)

test("a condition of the batch in a branch of samples: nothing of the other samples reaches a gradient", function()
  local nan <const> = 0 / 0
  local function square(x) return x * x end
  local function more(x) return x + 1 end
  --- `inner`: what the sound rows get.
  local function repaired(inner)
    return function(x)
      local f = flag_nan(x, 1)
      return IF(err.is_ok(f), function() return inner(x, f) end):ELSE(function() return torch.zeros_like(x) end)
    end
  end
  local any_bad = function(x, f)
    return IF(HAS(f), function() return square(x) end):ELSE(function() return more(x) end)
  end
  local forms = {
    any_bad,
    function(x, f) return any_bad(x, f) + any_bad(x, f) * square(x) end,
    function(x, f) return IF(NOT(HAS(f)), function() return more(x) end):ELSE(function() return square(x) end) end,
    function(x, f)
      return IF((x > -100):any(-1), function() return any_bad(x, f) end):ELSE(function() return more(x) end)
    end,
    function(x, f)
      return IF(HAS(f), function()
        return IF((x > -100):any(-1), function() return square(x) end):ELSE(function() return more(x) end)
      end):ELSE(function() return more(x) end)
    end,
  }
  for number, form in ipairs(forms) do
    local fn = repaired(form)
    local runs = {script = fn}
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      runs[backend] = triage.compile(fn, {backend = backend})
    end
    for name, run in pairs(runs) do
      for _ = 1, 2 do
        local x = torch.tensor({{1.0, 2.0}, {nan, 3.0}, {-2.0, 0.5}}, {requires_grad = true})
        local got = torch.autograd.grad(run(x):sum(), x)
        local expected = number == 2 and 2 * x + 4 * x ^ 3 or 2 * x
        expected = torch.where(torch.tensor({{true}, {false}, {true}}), expected:detach(), torch.zeros({3, 2}))
        local fine, why = pcall(eq, got, expected)
        if not fine then error(("form %d, %s: %s"):format(number, name, why)) end
      end
    end
  end
end)
