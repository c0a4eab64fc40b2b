-- aot_eager: gradients from a joint graph, recorded once, are those that ATen gives call by call.
local function leaf(shape, dtype) return torch.randn(shape, {dtype = dtype or torch.float32}):requires_grad_() end

--- Runs fn(x, ...) backward several times with both backends, on leaves of the same values: outputs and gradients must
--- agree in every bit. `make()` gives the arguments.
local function agrees(name, fn, make, loss)
  loss = loss or function(y) return (y * y):sum() end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true, name = name})
  for round = 1, 4 do
    torch.manual_seed(round)
    local given, twins = make(), {}
    for i, x in ipairs(given) do
      twins[i] = x:detach():clone()
      if x.requires_grad then twins[i]:requires_grad_() end
    end
    local function differentiate(f, arguments)
      local results = {f(table.unpack(arguments))}
      loss(table.unpack(results)):backward()
      return results
    end
    local expected, got = differentiate(fn, twins), differentiate(compiled, given)
    for i, y in ipairs(expected) do eq(got[i]:detach(), y:detach(), name .. " output, round " .. round) end
    for i, x in ipairs(twins) do
      if x.requires_grad then
        eq(given[i].grad, x.grad, ("%s gradient of argument %d, round %d"):format(name, i, round))
      end
    end
  end
end

local functions = {
  linear = {function(x, w, b) return torch.linear(x, w, b) end, {{5, 3}, {4, 3}, {4}}},
  ["linear in 3-D"] = {function(x, w, b) return torch.linear(x, w, b) end, {{2, 5, 3}, {4, 3}, {4}}},
  ["two layers"] = {function(x, w, v)
    return torch.linear(torch.gelu(torch.linear(x, w)), v)
  end, {{5, 3}, {4, 3}, {2, 4}}},
  ["used twice"] = {function(x, w) return x * w + x:exp() * x:tanh() - w end, {{5, 3}, {3}}},
  ["three uses"] = {function(x) return x:sin() + x:cos() * x + x:mul(0.3) end, {{7, 3}}},
  softmax = {function(x) return x:softmax(-1):log() + x:log_softmax(0) end, {{5, 3}}},
  ["layer norm"] = {function(x, w, b) return torch.layer_norm(x, {3}, w, b) end, {{5, 3}, {3}, {3}}},
  convolution = {function(x, w, b)
    return torch.conv2d(x, w, b, {padding = {1, 1}}):relu()
  end, {{2, 3, 5, 5}, {4, 3, 3, 3}, {4}}},
  views = {function(x) return x:t():reshape({-1, 5}):unsqueeze(0):expand({2, 3, 5}) * 2 end, {{5, 3}}},
  reductions = {function(x) return x:std(-1, {keepdim = true}) + x:mean(0) + x:amax(-1):unsqueeze(1) end, {{5, 3}}},
  cat = {function(x, w) return torch.cat({x, w, x * 2}, 1):cumsum(1) end, {{5, 3}, {5, 2}}},
  where = {function(x, w) return torch.where(x > 0, x * w, w:sigmoid()) end, {{5, 3}, {5, 3}}},
  matmul = {function(x, w) return torch.matmul(x, w):pow(3) end, {{2, 5, 3}, {2, 3, 4}}},
  norms = {function(x) return x / x:norm(2, {-1}, true) + x:silu() end, {{5, 3}}},
  attention = {function(q, k, v) return torch.matmul((torch.matmul(q, k:transpose(-1, -2)) / 2.0):softmax(-1), v) end,
    {{2, 4, 3}, {2, 4, 3}, {2, 4, 3}}},
  indexing = {function(x)
    return x[{{1, 4}}]:select(1, 0) + x:index_select(0, torch.tensor({1, 1, 2})):sum(1)
  end, {{5, 3}}},
  loss = {function(x, t) return (torch.log_softmax(x, 1) * t):mean():neg():reshape({1}) end, {{5, 3}, {5, 3}}},
  fix = {function(x, w) return (fix(x * w, flag_nan_and_inf(x, "x"), "x", {fallback = 0.5})) end, {{5, 3}, {3}}},
  branch = {function(x)
    return IF((x > 0):any(-1), function() return x:exp() end):ELSE(function() return x * 2 end)
  end, {{5, 3}}},
}

test("D04: gradients of joint graphs are ATen's own, bit for bit", function()
  for name, case in pairs(functions) do
    for _, dtype in ipairs({torch.float32, torch.float64}) do
      agrees(name, case[1], function()
        local arguments = {}
        for i, shape in ipairs(case[2]) do arguments[i] = leaf(shape, dtype) end
        return arguments
      end)
    end
  end
end)

test("D04: at every batch size, dense and strided", function()
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    agrees("rows", functions["two layers"][1], function() return {leaf({rows, 3}), leaf({4, 3}), leaf({2, 4})} end)
    agrees("strided", functions["layer norm"][1], function()
      return {torch.randn({3, rows}):t():requires_grad_(), leaf({3}), leaf({3})}
    end)
  end
end)

test("D04: one compiled function serves sizes that change from call to call", function()
  local w = leaf({4, 3})
  local fn = function(x) return torch.linear(x, w):relu() end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 3 do
    for _, rows in ipairs({5, 1, 0, 33}) do
      local x = leaf({rows, 3})
      local y = x:detach():clone():requires_grad_()
      w.grad = nil
      fn(y):sum():backward()
      local expected = w.grad
      w.grad = nil
      compiled(x):sum():backward()
      eq(w.grad, expected)
      eq(x.grad, y.grad)
    end
  end
end)

test("D04: gradients of some outputs only, of none, and of the same graph again", function()
  local fn = function(x, w) return x * w, x:exp(), (x > 0) end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
  local losses = {
    function(a) return a:sum() end, function(_, b) return (b * b):sum() end,
    function(a, b) return (a * b):sum() end, function(a, b) return (a + b):mean() end,
  }
  for _ = 1, 3 do
    for i, loss in ipairs(losses) do
      local x, w = leaf({5, 3}), leaf({3})
      local x2, w2 = x:detach():clone():requires_grad_(), w:detach():clone():requires_grad_()
      loss(fn(x2, w2)):backward()
      local a, b, c = compiled(x, w)
      assert(not c.requires_grad)
      local l = loss(a, b)
      l:backward({retain_graph = true})
      eq(x.grad, x2.grad, "loss " .. i)
      eq(w.grad, w2.grad, "loss " .. i)
      l:backward()
      eq(x.grad, x2.grad * 2)
      fails(function() l:backward() end, "second time")
    end
  end
end)

test("D04: the gradient of a gradient is ATen's", function()
  local fn = function(x, w) return (x * w):tanh() end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 3 do
    local x, w = leaf({5, 3}), leaf({3})
    local function second(f)
      local g = torch.autograd.grad(f(x, w):sum(), x, {create_graph = true})
      return torch.autograd.grad((g * g):sum(), w)
    end
    eq(second(compiled), second(fn))
    compiled(x, w):sum():backward()
  end
end)

test("D04: without gradients, and where only some arguments have one", function()
  local fn = function(x, w) return torch.linear(x, w), x + 1 end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 3 do
    local x, w = torch.randn({5, 3}), leaf({4, 3})
    local y, z = compiled(x, w:detach())
    assert(not y.requires_grad and not z.requires_grad)
    y, z = compiled(x, w)
    assert(y.requires_grad and not z.requires_grad)
    y:sum():backward()
    eq(w.grad, torch.ones({5, 4}):t():matmul(x))
    torch.no_grad(function() assert(not compiled(x, w).requires_grad) end)
  end
end)

test("D04: parameters that change between calls, as an optimizer changes them", function()
  local w = leaf({4, 3})
  local v = w:detach():clone():requires_grad_()
  local fn = function(x, p) return torch.linear(x, p):gelu() end
  local compiled = triage.compile(function(x) return fn(x, w) end, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 5 do
    local x = torch.randn({6, 3})
    compiled(x):pow(2):mean():backward()
    fn(x, v):pow(2):mean():backward()
    eq(w.grad, v.grad)
    torch.no_grad(function()
      for _, p in ipairs({w, v}) do
        p:sub_(p.grad * 0.1)
        p.grad = nil
      end
    end)
    eq(w:detach(), v:detach())
  end
end)

test("D04: writing to what the backward run needs is an error, as it is without a graph", function()
  local compiled = triage.compile(function(x, w) return (x * w):exp() end, {backend = "aot_eager", fullgraph = true})
  local function loss(y) return (y * y):sum() end
  for _ = 1, 3 do loss(compiled(leaf({5, 3}), leaf({3}))):backward() end
  local x, w = leaf({5, 3}), leaf({3})
  local y = compiled(x, w)
  y:mul_(2)
  fails(function() loss(y):backward() end, "modified by an inplace operation")
  y = compiled(x, w)
  torch.no_grad(function() w:mul_(2) end)
  fails(function() loss(y):backward() end, "modified by an inplace operation")
end)

test("D04: what has no joint graph is left to the eager backend", function()
  local refused = {
    views = function(x) local y = x * 2 return y, y:t() end,
    values = function(x) return x:prod(1) end,
  }
  for name, fn in pairs(refused) do
    local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
    for _ = 1, 4 do
      local x = leaf({5, 3})
      local twin = x:detach():clone():requires_grad_()
      torch.manual_seed(3)
      fn(twin):sum():backward()
      torch.manual_seed(3)
      compiled(x):sum():backward()
      eq(x.grad, twin.grad, name)
    end
  end
end)

test("D04: random numbers are ATen's, in the script's order, whoever asks for which gradient", function()
  local fn = function(x, w)
    local hidden = torch.dropout(torch.linear(x, w):relu(), 0.5, true)
    return torch.dropout(hidden * 2, 0.25, true), hidden, torch.randn_like(x)
  end
  local compiled = triage.compile(fn, {backend = "aot_eager", fullgraph = true})
  local losses = {
    function(y) return y:sum() end, function(y) return (y * y):sum() end, function(_, h) return h:pow(3):sum() end,
    function(y, h) return (y * h):sum() end, function(y) return y:sum() end,
  }
  for round = 1, 3 do
    for i, loss in ipairs(losses) do
      local x, w = leaf({6, 3}), leaf({4, 3})
      if round == 3 then x = torch.randn({3, 6}):t():requires_grad_() end
      local x2, w2 = x:detach():clone():requires_grad_(), w:detach():clone():requires_grad_()
      torch.manual_seed(round * 10 + i)
      local expected = {fn(x2, w2)}
      loss(table.unpack(expected)):backward()
      local after = torch.rand({3})
      torch.manual_seed(round * 10 + i)
      local got = {compiled(x, w)}
      loss(table.unpack(got)):backward()
      eq(torch.rand({3}), after, "the generator goes on in the same way")
      for k = 1, 3 do
        eq(got[k]:detach(), expected[k]:detach(), ("output %d, round %d, loss %d"):format(k, round, i))
      end
      eq(x.grad, x2.grad, ("round %d, loss %d"):format(round, i))
      eq(w.grad, w2.grad)
    end
  end
end)

test("D04: the same tensor given twice, and a tensor that is returned as it came", function()
  local compiled = triage.compile(function(x, y) return x * y:exp(), x end, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 4 do
    local x = leaf({5, 3})
    local twin = x:detach():clone():requires_grad_()
    local y, same = compiled(x, x)
    eq(same, x)
    assert(same.requires_grad)
    y:sum():backward();
    (twin * twin:exp()):sum():backward()
    eq(x.grad, twin.grad)
    x = leaf({5, 3})
    local other = leaf({5, 3})
    twin = other:detach():clone():requires_grad_()
    local x2 = x:detach():clone():requires_grad_()
    compiled(x, other):sum():backward();
    (x2 * twin:exp()):sum():backward()
    eq(x.grad, x2.grad)
    eq(other.grad, twin.grad)
  end
end)

for _, backend in ipairs({"aot_eager", "fused"}) do
  test("G06: gradients that cannot be compiled are an error with fail_on_backend_error, " .. backend, function()
    local function fn(z) return z:prod(-1, true) * z end
    local strict = triage.compile(fn, {backend = backend, fullgraph = true, fail_on_backend_error = true})
    local z = leaf({3, 2})
    for _ = 1, 2 do
      fails(function() strict(z):sum():backward() end, "cannot compile the gradients")
    end
    eq(strict(z:detach()), fn(z:detach()))   -- without gradients there is nothing that fails
    local lenient = triage.compile(fn, {backend = backend, fullgraph = true})
    lenient(z):sum():backward()
    assert(z.grad:isfinite():all():item())
  end)
end
