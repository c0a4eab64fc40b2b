-- A compiled function has the caller's own tensors: the script can tell them apart, keep them, and ask autograd about
-- them, in the call that is recorded too.
local backends = {"eager", "aot_eager", "fused"}

--- What a fresh function gives over several calls, as a script and compiled.
local function same_calls(make, calls)
  local function outcomes(compile)
    local fn, list = compile(make()), {}
    for i, call in ipairs(calls) do list[i] = table.pack(pcall(call, fn)) end
    return list
  end
  local expected = outcomes(function(f) return f end)
  for _, backend in ipairs(backends) do
    eq(outcomes(function(f) return triage.compile(f, {backend = backend}) end), expected, backend)
  end
end

--- The same call several times, each on what `give` makes.
local function again(times, give)
  local list = {}
  for i = 1, times do list[i] = function(f) return give(f, i) end end
  return list
end

test("an input is a key that comes again", function()
  local p, q = torch.ones({1}), torch.ones({1}) * 5
  same_calls(function()
    local seen = {}
    return function(x) seen[x] = (seen[x] or 0) + 1 return x * seen[x] end
  end, again(6, function(f, i) return f(i % 3 == 0 and q or p) end))
  same_calls(function()   -- momentum
    local velocity = {}
    return function(x) velocity[x] = (velocity[x] or torch.zeros_like(x)) * 0.5 - x return velocity[x] * 1 end
  end, again(4, function(f) return f(p) end))
end)

test("an input that is kept is the caller's", function()
  local inputs = {torch.ones({2}), torch.ones({2}) * 2, torch.ones({3}), torch.ones({3}) * 4}
  local kept = {}
  same_calls(function()
    kept.last = nil
    return function(x) kept.last = x return x * 2 end
  end, again(4, function(f, i) local y = f(inputs[i]) return y, rawequal(kept.last, inputs[i]) end))
  local last
  same_calls(function()
    last = nil
    return function(x)
      local known = last ~= nil and rawequal(last, x)
      last = x
      return known and x * 100 or x
    end
  end, again(4, function(f, i) return f(inputs[i // 3 + 1]) end))
  same_calls(function() return function(x) error({x, "kept"}) end end,
    again(2, function(f)
      local _, raised = pcall(f, inputs[1])
      return rawequal(raised[1], inputs[1]), raised[2]
    end))
  same_calls(function() return function(x) return {x} end end,
    again(3, function(f) return rawequal(f(inputs[1])[1], inputs[1]) end))
end)

test("autograd tells of an input what it tells outside", function()
  local function leaf(grad)
    local x = torch.ones({2}, {requires_grad = true})
    if grad then x:sum():backward() end
    return x
  end
  local programs = {
    function(x) if x.grad ~= nil then return x.grad * 1 end return x * 0 - 1 end,
    function(x) if x.grad ~= nil then x.grad:zero_() end return x * 2 end,
    function(x) x.grad = nil return x * 2 end,
    function(x) (x * 3):sum():backward() return x.grad end,
    function(x) return x.is_leaf and x * 2 or x * 3 end,
    function(x) x.requires_grad = false return x * 2 end,
    function(x) x:detach_() return x * 2 end,
    function(x) x:retain_grad() return x * 2 end,
    function(x) local read = triage.disable(function(y) return y.grad end) return x * (read(x) or 7) end,
    function(x) local y = x:to(torch.float32) return y.is_leaf and x * 2 or x * 3 end,
    function(x) local y = x:contiguous() if y.grad ~= nil then return y.grad * 1 end return x * 0 - 1 end,
    function(x) local y = x:float() y.requires_grad = false return x * 2 end,
    function(x) local y = x:cpu(); (y * 3):sum():backward() return y.grad * 1 end,
    function(x) return x * #tostring(x) end,
    function(x)   -- a step of SGD
      (x * x):sum():backward()
      local _ <close> = torch.no_grad()
      x:sub_(x.grad * 0.1)
      return x * 1
    end,
  }
  for i, program in ipairs(programs) do
    for _, grad in ipairs({false, true}) do
      local function calls(f)
        local list = {}
        for round = 1, 3 do
          local x = leaf(grad)
          local ok, y = pcall(f, x)
          list[round] = {ok, ok and y, x.grad or "none", x.requires_grad, x.is_leaf, x * 1}
        end
        return list
      end
      local expected = calls(program)
      for _, backend in ipairs(backends) do
        eq(calls(triage.compile(program, {backend = backend})), expected, i .. ", " .. backend)
      end
    end
  end
  same_calls(function() return function(x) x.requires_grad = true return x * 2 end end,
    again(3, function(f) local x = torch.ones({2}) f(x) return x.requires_grad end))
  same_calls(function() return function(x) x:requires_grad_() return x * 2 end end,
    again(3, function(f) local x = torch.ones({2}) f(x) return x.requires_grad end))
  same_calls(function() return function(x) x:retain_grad() return x * 2 end end,
    again(3, function(f) local w = leaf() local y = w * 1 f(y):sum():backward() return y.grad end))
end)

test("a module and an optimizer that are made inside hold the caller's parameter", function()
  local w = torch.ones({2}, {requires_grad = true})
  local kept
  same_calls(function() return function(x) kept = {params = {x}} return x * 2 end end,
    again(3, function(f)
      w.grad = nil
      f(w):sum():backward()
      return kept.params[1].grad, rawequal(kept.params[1], w)
    end))
  same_calls(function()
    return function(x)
      local sgd = optim.SGD({x}, {lr = 0.5})
      sgd:zero_grad();
      (x * 3):sum():backward()
      sgd:step()
      return x * 1
    end
  end, again(2, function(f) local x = torch.ones({2}, {requires_grad = true}) return f(x), x * 1 end))
end)

test("an input that is lent on, out of captured code and into it again, stays the caller's", function()
  for _, recursive in ipairs({false, true}) do
    same_calls(function()
      local g = triage.compile(function(x) x.requires_grad = true return x * 2 end)
      local mid = triage.disable(function(t) return g(t) end, {recursive = recursive})
      return function(x) return mid(x) + 1 end
    end, again(3, function(f) local x = torch.ones({2}) local y = f(x) return y:detach(), x.requires_grad end))
  end
end)

test("an argument that comes back is the caller's own value", function()
  local x, y = torch.ones({2}), torch.ones({2})
  for _, backend in ipairs(backends) do
    local f = triage.compile(function(a, b) return b, a * 2, a end, {backend = backend})
    for _ = 1, 3 do
      local b, _, a = f(x, y)
      assert(rawequal(a, x) and rawequal(b, y))
    end
  end
end)

test("comparisons by metamethods are conditions on sizes and tensors", function()
  local by_size = {
    __lt = function(a, b) return a.n < b.n end, __le = function(a, b) return a.n <= b.n end,
    __eq = function(a, b) return a.n == b.n end,
  }
  local function of(n) return setmetatable({n = n}, by_size) end
  local programs = {
    function(x) if of(#x) < of(3) then return x + 1 end return x - 1 end,
    function(x) if of(#x) <= of(3) then return x + 1 end return x - 1 end,
    function(x) if of(#x) > of(3) then return x + 1 end return x - 1 end,
    function(x) return of(#x) == of(3) and x + 1 or x - 1 end,
    function(x) return of(#x) ~= of(3) and x + 1 or x - 1 end,
    function(x)
      local list = {of(#x), of(3), of(5)}
      table.sort(list)
      return x + list[1].n * 100 + list[2].n * 10 + list[3].n
    end,
    function(x) local less = of(#x) < of(3) return x + (less and 1 or 0) end,
  }
  for i, program in ipairs(programs) do
    local f = triage.compile(program)
    for _, rows in ipairs({8, 2, 3, 4, 1}) do
      local x = torch.zeros({rows})
      eq(f(x), program(x), i .. ", " .. rows .. " rows")
    end
  end
  local by_value = {__lt = function(a, b) return a.v:sum() < b.v:sum() end}
  local one, two = setmetatable({v = torch.ones({2})}, by_value), setmetatable({v = torch.ones({2}) * 2}, by_value)
  eq({(one < two) and 1 or 0, (two < one) and 1 or 0}, {1, 0})
  local list = {two, one}
  table.sort(list)
  assert(list[1] == one)
  local by_mask = {__lt = function(a, b) return a.v < b.v end}
  local a, b = setmetatable({v = torch.ones({2})}, by_mask), setmetatable({v = torch.tensor({0.0, 2.0})}, by_mask)
  eq(a < b, torch.tensor({false, true}))
  by_value.__eq = function(p, q) return (p.v == q.v):all() end
  eq({one == two, one ~= two, type(one == setmetatable({v = torch.ones({2})}, by_value))}, {false, true, "boolean"})
  fails(function() if a < b then return 1 end end, "a bool tensor of shape [2] as a condition")
  fails(function() table.sort({a, b}) end, "a bool tensor of shape [2] as a condition")
end)
