-- Gradients through code with graph breaks: its parts are graphs, and gradients go through each of them, and from one
-- to the next, as they go through the script.

local function between() triage.graph_break("between") end

local w = torch.tensor({0.5, -1.5, 2.0}, {requires_grad = true})
local m = torch.tensor({{1.0, 0.5, 0.0}, {0.0, -1.0, 0.25}, {2.0, 0.0, 1.0}}, {requires_grad = true})

--- What `fn` gives for a leaf of these values, whether that requires grad, and the gradients of all leaves.
local function outcome(fn, values, requires_grad)
  local x = values:detach():clone():requires_grad_(requires_grad)
  w.grad, m.grad = nil, nil
  local results = table.pack(fn(x))
  local list, loss = {}, nil
  for i, value in ipairs(results) do
    list[i] = {value:detach():clone(), value.requires_grad}
    if value.requires_grad then
      local part = (value * torch.arange(value:numel()):view(value:size()):remainder(5)):sum()
      loss = loss and loss + part or part
    end
  end
  if loss then loss:backward() end
  for i, leaf in ipairs({x, w, m}) do list[#results + i] = leaf.grad and leaf.grad:clone() or false end
  return list
end

--- Up to the order of sums.
local function near(got, expected, what)
  eq({got.dtype, got.shape}, {expected.dtype, expected.shape}, what)
  assert(torch.allclose(got, expected, 1e-5, 1e-5, true), ("%s: got %s, expected %s"):format(what, got, expected))
end

--- Two outcomes: results and whether they require grad, then gradients, where there are any.
local function same_outcome(got, expected, what)
  eq(#got, #expected, what)
  for k, value in ipairs(expected) do
    local which = ("%s: result or leaf %d"):format(what, k)
    if type(value) == "table" then
      eq(got[k][2], value[2], which .. ": whether it requires grad")
      near(got[k][1], value[1], which)
    else
      eq(type(got[k]), type(value), which .. ": whether it has a gradient")
      if value then near(got[k], value, which .. ": its gradient") end
    end
  end
end

--- Compiled, called again and again, `body` gives what it gives as a script.
local function same_as_script(body, backends)
  for _, backend in ipairs(backends or {"eager", "aot_eager", "fused"}) do
    local f = triage.compile(body, {backend = backend})
    for round = 1, 3 do
      for x, order in batches_of_all_orders() do
        local requires_grad = round < 3 or order ~= "by rows"
        local what = ("%s, round %d, %d rows %s"):format(backend, round, x:size(0), order)
        same_outcome(outcome(f, x, requires_grad), outcome(body, x, requires_grad), what)
      end
    end
  end
end

test("N01: gradients go through the graphs between breaks", function()
  local function body(x)
    local y = (x * w):tanh()
    between()
    local z = y:matmul(m) + x
    between()
    return torch.where(z > 0, z, z * 0.5), y
  end
  same_as_script(body)
  local x = torch.randn({4, 3}):requires_grad_()
  eq(triage.explain(body, x).graph_count, 3)
end)

test("N01: views stay in the graph, and are views of what the script has", function()
  same_as_script(function(x)
    local y = x * w
    local t, column, flat = y:t(), y:select(1, 1):unsqueeze(-1), y:reshape({-1})
    between()
    return t * 2, y - column, flat:exp(), y:expand({2, -1, -1}), column
  end)
end)

test("N01: a write to a view changes what it is a view of, in its gradient too", function()
  same_as_script(function(x)
    local y = x * 2
    local column = y:select(1, 0)
    between()
    column:mul_(w:select(0, 1))
    between()
    return y * 3, column
  end)
  same_as_script(function(x)
    local y = x:reshape({-1}):exp() + 0
    local flat = y:view({-1, 1}):narrow(0, 0, y:numel())
    between()
    y:mul_(2)
    return flat + 1, y
  end)
  same_as_script(function(x)   -- that required no grad before
    local y = torch.zeros_like(x:detach()) + 1
    local row = y:narrow(0, 0, math.min(1, x:size(0)))
    between()
    row:mul_(w)
    between()
    return y + x
  end)
end)

test("N01: what an operator hands back is the argument", function()
  same_as_script(function(x)
    local y = x:contiguous():to(torch.float32):expand_as(x)
    between()
    local z = (y * w):contiguous()
    between()
    return z:contiguous() + y, y
  end)
end)

test("N01: what is done to what was handed back is done to the argument", function()
  for _, hand in ipairs({function(y) return y:contiguous() end, function(y) return y:to(torch.float32) end,
                         function(y) return y:dropout(0.5, false) end, function(y) return y:flatten(1) end}) do
    same_as_script(function(x)
      local y = x * 2
      local z = hand(y)
      between()
      y:mul_(3)
      between()
      return z
    end)
    same_as_script(function(x)
      local y = x * w
      local z = hand(y)
      between()
      z:mul_(z:detach() + 1)
      return y, z:t()
    end)
    same_as_script(function(x)
      local y = x * 2
      local z = hand(y)
      between()
      z:detach_()
      between()
      return y * w, z, x
    end)
    same_as_script(function(x)
      local z = torch.no_grad(function() return hand(x) end)
      between()
      return z * w
    end)
  end
end)

test("N01: what autograd says of a tensor that comes later", function()
  same_as_script(function(x)
    local y = x * w
    if y.is_leaf then return y:detach() end
    between()
    return y * (y.requires_grad and 2 or 3)
  end)
  same_as_script(function(x)   -- `contiguous` copies, or not
    local y = (x * w):t()
    local z = torch.no_grad(function() return y:contiguous() end)
    between()
    return z.requires_grad and z * 2 or z * 3, y
  end)
end)

test("N01: steps of a sequence, each of which goes back only as far as it has to", function()
  local function step(h, x)
    h = h:detach()
    h = (h * w + x):tanh()
    between()
    return h, h * 1.5
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(step, {backend = backend})
    local function run(fn)
      local h, all = torch.zeros({2, 3}), {}
      w.grad = nil
      torch.manual_seed(3)
      for i = 1, 6 do
        local out
        h, out = fn(h, torch.randn({2, 3}))
        out:sum():backward()
        all[i] = w.grad:clone()
      end
      return all
    end
    for _ = 1, 2 do
      for i, expected in ipairs(run(step)) do near(run(f)[i], expected, backend .. ", step " .. i) end
    end
  end
end)

test("N01: what an operator hands back is a leaf that is a view", function()
  local function body(x)
    local y = x:contiguous()
    between()
    return x * w, y
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(body, {backend = backend})
    for _ = 1, 4 do
      local x = torch.randn({3, 1}):t():requires_grad_()
      local _, y = f(x)
      eq(y.requires_grad, true)
      y:sum():backward()
      eq(x.grad, torch.ones({1, 3}))
    end
  end
end)

test("N01: parts with and without gradients", function()
  same_as_script(function(x)
    local y = x * w
    local scale = torch.no_grad(function() return y:abs():sum():sqrt() end)
    between()
    local z = y:detach() + 1
    between()
    return y / (scale + 1), z, (z * m:select(0, 0)), (x > 0):to(torch.float32)
  end)
end)

test("N01: a row that is repaired has a gradient of 0, at every break", function()
  local function body(x)
    local f = flag_nan_and_inf(x, "in")
    between()
    local z = fix(x, f)
    between()
    return z * w
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(body, {backend = backend})
    for _ = 1, 3 do
      w.grad = nil
      local x = torch.tensor({{1.0, 2.0, 3.0}, {0 / 0, 1.0, 1.0}, {4.0, 1 / 0, 5.0}}):requires_grad_()
      f(x):sum():backward()
      eq(x.grad[1], torch.zeros({3}))
      eq(x.grad[0], w:detach())
      eq(x.grad[2]:isfinite():all():item(), true)
      eq(w.grad:isfinite():all():item(), true)
    end
  end
end)

test("N01: a training step inside the function", function()
  local function step(x, weight)
    local y = (x * weight):tanh()
    local loss = y:square():sum()
    between()
    weight.grad = nil
    loss:backward()
    torch.no_grad(function() weight:sub_(weight.grad * 0.1) end)
    return loss:detach(), weight.grad
  end
  local a, b = torch.ones({3}):requires_grad_(), torch.ones({3}):requires_grad_()
  local f = triage.compile(step)
  for round = 1, 5 do
    local x = torch.full({4, 3}, 0.25 * round)
    local expected, got = table.pack(step(x, a)), table.pack(f(x, b))
    for i = 1, 2 do near(got[i], expected[i], "round " .. round) end
    near(b:detach(), a:detach(), "round " .. round)
  end
end)

test("N01: what was saved and then written to is an error, as in the script", function()
  local function body(x)
    local y = (x * 2):exp()
    between()
    local z = y + 1
    return z, y
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(body, {backend = backend})
    for _ = 1, 3 do
      local x = torch.randn({4, 3}):requires_grad_()
      local z, y = f(x)
      torch.no_grad(function() y:add_(1) end)
      fails(function() z:sum():backward() end, "modified by an inplace operation")
      z, y = f(x)
      z:sum():backward()
      fails(function() y:sum():backward() end, "second time")
    end
  end
end)

test("N01: what a later write spares in the script is spared in a graph", function()
  same_as_script(function(x)
    local y = x * 1
    local v = y:select(-1, 1)
    between()
    local z = v * 3
    y:mul_(2)
    return z * 2, y
  end)
end)

test("N01: a gradient is differentiated again", function()
  local function body(x)
    local y = x:pow(3)
    between()
    return (y * w):sum()
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(body, {backend = backend})
    for _ = 1, 3 do
      local x = torch.tensor({{1.0, 2.0, 3.0}}):requires_grad_()
      local first = torch.autograd.grad(f(x), {x}, nil, {create_graph = true})
      local second = torch.autograd.grad(first:sum(), {x})
      near(second, x:detach() * 6 * w:detach(), backend)
    end
  end
end)
