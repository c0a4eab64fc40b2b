-- In a graph every branch of a condition of the batch runs. One that the script does not take may fail on a batch of
-- other sizes or values than the captured one, or give other shapes there: the caller gets what the script gives.
local backends = {"eager", "aot_eager", "fused"}
local rows = {0, 1, 2, 3, 4, 31, 32, 33}

local function batch(n) return (torch.arange(n * 2):to(torch.float32) + 1):view({n, 2}) end

--- Each takes the second branch, and is `failing` in the first one for some sizes.
local failing = {
  ["the largest of nothing"] = "x - x:nan_to_num(0.0):max()",
  ["an index"] = "x + x[3]",
  ["a view"] = "(x:view({2, -1}) * 3):view_as(x)",
  ["narrow"] = "x + x:narrow(0, 1, 1)",
  ["matmul"] = "torch.matmul(x, torch.ones({2, 2})) + torch.matmul(x:t(), torch.ones({3, 1})):sum()",
  ["shapes that agree for no rows"] = "torch.cat({x, x}, 0)",
  ["shapes that agree for one row"] = "x:mean(0, {keepdim = true})",
  ["the largest place"] = "x - x:argmax(0):amax(-1)",
}

local forms = {
  ["IF"] = "local f = flag_nan_and_inf(x, 'in')\n" ..
    "return IF(HAS(f), function() return %s end):ELSE(function() return x * 2 end)",
  ["ELIF"] = "return IF(x:sum() < -5, function() return x end):ELIF(x:sum() < -1, function() return %s end)" ..
    ":ELSE(function() return x * 2 end)",
  ["ELSE"] = "return IF(x:sum() >= 0, function() return x * 2 end):ELSE(function() return %s end)",
  ["behind a condition per sample"] = "return IF(x:sum(-1) > 10, function() return x + 1 end)" ..
    ":ELIF(x:sum() < -1, function() return %s end):ELSE(function() return x * 2 end)",
  ["inside of another"] = "return IF(x:sum() >= 0, function() return IF(x:sum() < -1, function() return %s end)" ..
    ":ELSE(function() return x * 2 end) end):ELSE(function() return x end)",
  ["natural Lua"] = "--!tensor\nlocal y = x * 2 if x:sum() < -1 then y = %s end return y",
}

local function program(form, branch)
  local head, body = form:match("^(%-%-!tensor\n)(.*)$")
  return assert(load((head or "") .. "local x = ...\n" .. (body or form):format(branch), "=program.lua"))
end

--- Sizes from the first place on, each twice in a row, then all again.
local function order(first, step)
  local sizes = {}
  for round = 1, 2 do
    for i = 0, #rows - 1 do
      local n = rows[(first - 1 + i * step) % #rows + 1]
      sizes[#sizes + 1] = n
      sizes[#sizes + 1] = round == 1 and n or nil
    end
  end
  return sizes
end

for name, branch in pairs(failing) do
  test("a branch that is not taken, and fails on other sizes: " .. name, function()
    for form, text in pairs(forms) do
      local fn = program(text, branch)
      for _, backend in ipairs(form == "IF" and backends or {"eager", "aot_eager"}) do
        for _, sizes in ipairs({order(1, 1), order(#rows, #rows - 1), order(5, 3)}) do
          local compiled = triage.compile(fn, {backend = backend, warn = false})
          for call, n in ipairs(sizes) do
            local x = batch(n)
            local fine, got = pcall(compiled, x)
            assert(fine, ("%s, %s, call %d of %d rows: %s"):format(form, backend, call, n, got))
            eq(got, fn(x))
          end
        end
      end
    end
  end)
end

test("an error of the branch that is taken is the script's, call after call, and the graph stays", function()
  local function fn(x)
    return IF(x:sum() > 0, function() return x:view({2, -1}) end):ELSE(function() return x:view({2, -1}) * 2 end)
  end
  for _, backend in ipairs(backends) do
    local f = triage.compile(function(x) return (fn(x)) end, {backend = backend})
    f(torch.ones({4}))
    for _ = 1, 20 do
      fails(function() f(torch.ones({3})) end, "shape '[2, -1]' is invalid for input of size 3")
      eq(f(torch.ones({4})), torch.ones({2, 2}))
      eq(f(-torch.ones({6})), -torch.ones({2, 3}) * 2)
    end
    eq(f:cache().graphs, 1)
  end
end)

test("a branch that is not taken fails by the values: the caller gets what the script gives", function()
  local function fn(x, i)
    return IF((i < x:size(0)):all(), function() return x:index_select(0, i) end):ELSE(function() return x end)
  end
  for _, backend in ipairs(backends) do
    local f = triage.compile(fn, {backend = backend, warn = false})
    local x, good, bad = batch(3), torch.tensor({2, 0, 1}), torch.tensor({2, 7, 1})
    for _, i in ipairs({good, bad, good, bad, bad, good}) do eq(f(x, i), fn(x, i)) end
  end
end)

test("sizes on which the graph works keep it", function()
  local fn = program(forms["IF"], failing["the largest of nothing"])
  local f = triage.compile(fn, {warn = false})
  f(batch(3))
  f(batch(0))
  local before = f:cache()
  for n = 1, 40 do eq(f(batch(n)), fn(batch(n))) end
  eq(f:cache().graphs, before.graphs)
  eq(f:cache().segments, before.segments)
  eq(f:cache().graphs, 1)
end)

test("random numbers are the script's, also where the graph drew and then failed", function()
  local function fn(x)
    local r = torch.rand_like(x) + torch.randn({2})
    return IF(x:sum() < -1, function() return r - x:max() end):ELSE(function() return x + r end), torch.rand({1})
  end
  for _, backend in ipairs(backends) do
    local f = triage.compile(fn, {backend = backend, warn = false})
    for _, sizes in ipairs({order(1, 1), order(4, 3)}) do
      torch.manual_seed(3)
      local wanted, got = {}, {}
      for i, n in ipairs(sizes) do wanted[i] = {fn(batch(n))} end
      torch.manual_seed(3)
      for i, n in ipairs(sizes) do got[i] = {f(batch(n))} end
      eq(got, wanted)
    end
  end
end)

test("fullgraph: what one graph cannot hold is an error that says so, one of the script is the script's", function()
  local fn = program(forms["IF"], failing["the largest of nothing"])
  local f = triage.compile(fn, {fullgraph = true})
  eq(f(batch(3)), fn(batch(3)))
  fails(function() f(batch(0)) end, "TB0020")
  eq(f(batch(5)), fn(batch(5)))
end)

test("stances: a graph that fails leaves the call to the script", function()
  local fn = program(forms["IF"], failing["the largest of nothing"])
  for _, stance in ipairs({"eager_on_recompile", "fail_on_recompile"}) do
    local f = triage.compile(fn, {warn = false})
    f(batch(3))
    triage.set_stance(stance)
    local fine, got = pcall(f, batch(0))
    triage.set_stance("default")
    assert(fine, got)
    eq(got, fn(batch(0)))
    eq(f:cache().graphs, 1)
  end
end)

--- Gradients of `x` and `w`, or the error; what requires grad.
local function gradients(fn, x, w)
  x, w = x:clone():requires_grad_(), w:clone():requires_grad_()
  local y = fn(x, w)
  local fine, message = pcall(function() y:sum():backward() end)
  return {y:detach(), fine or message:match("does not require grad") or message, x.grad, w.grad}, y.requires_grad
end

--- Loops of `fused` give functions such as exp within a few units in the last place of ATen's.
local function agree(got, wanted, backend, message)
  if backend ~= "fused" or wanted == nil then return eq(got, wanted, message) end
  if type(wanted) ~= "table" then return assert(torch.allclose(got, wanted, 1e-6, 0), message) end
  for i = 1, 2 do agree(got[i], wanted[i], backend, message) end
end

local selections = {
  ["no derivative"] = {"x * w", "x // 2"},
  ["no derivative, and one"] = {"x:exp()", "w:relu() + x // 2"},
  ["no gradient"] = {"x * w", "torch.zeros_like(x)"},
  ["detached"] = {"(x * w):detach()", "x * 3"},
  ["another input"] = {"x * 2", "w * 3"},
}
for name, branches in pairs(selections) do
  test("gradients are those of the branch that is taken: " .. name, function()
    local function fn(x, w)
      return IF(x:sum() > 0, function() return branches[1](x, w) end):ELSE(function() return branches[2](x, w) end)
    end
    for i, text in ipairs(branches) do branches[i] = assert(load("local x, w = ... return " .. text)) end
    for _, signs in ipairs({{1, -1, 1, -1}, {-1, 1, -1, 1}}) do
      local f = triage.compile(fn, {backend = "eager"})
      for call, sign in ipairs(signs) do
        local x, w = batch(3) * sign, batch(3) + 4
        local wanted, requires = gradients(fn, x, w)
        local got, does = gradients(f, x, w)
        if call == 1 and does and not requires then
          eq(got[1], wanted[1])   -- the call that captures stands for both
        else
          eq(got, wanted)
          eq(does, requires)
        end
      end
      for _, backend in ipairs({"aot_eager", "fused"}) do
        f = triage.compile(fn, {backend = backend, warn = false})
        for _, sign in ipairs(signs) do
          local x, w = batch(3) * sign, batch(3) + 4
          local wanted, requires = gradients(fn, x, w)
          local got = gradients(f, x, w)
          agree(got[1], wanted[1], backend)
          for i = 3, 4 do   -- no gradient may be one of zeros
            if requires and wanted[i] ~= nil then agree(got[i], wanted[i], backend)
            elseif got[i] ~= nil then eq(got[i], torch.zeros_like(got[i])) end
          end
        end
      end
    end
  end)
end

test("what a capture makes of a branch without gradients holds for the others", function()
  local function selected(x)
    return (IF(x:sum() > 0, function() return x * 2 end):ELSE(function() return torch.zeros_like(x) end))
  end
  local programs = {
    ["a write"] = function(x) local y = selected(x) y:add_(1) return y end,
    ["a branch per sample"] = function(x)
      local y = selected(x)
      return (IF(y:sum(-1) > 6, function() return (y - 2):sqrt() end):ELSE(function() return y * 3 end))
    end,
    ["without gradients"] = function(x)
      local y = selected(x)
      return x * torch.no_grad(function() return y * 2 end)
    end,
    ["equal calls"] = function(x) local y = selected(x) return y:exp() + y:exp() end,
  }
  for name, fn in pairs(programs) do
    for _, backend in ipairs(backends) do
      local f = triage.compile(fn, {backend = backend, warn = false})
      for _, sign in ipairs({-1, 1, 1, -1, 1}) do
        local grads = {}
        for i, form in ipairs({fn, f}) do
          local x = (batch(3) * sign):requires_grad_()
          local y = form(x)
          if y.requires_grad then y:sum():backward() end
          grads[i] = {y:detach(), sign > 0 and x.grad or nil}
        end
        agree(grads[2], grads[1], backend, name .. " " .. backend)
      end
    end
  end
end)
