-- Views of what a graph computes, as factors of products and viewed again in other sizes. Loops make them dense, where
-- a script looks at memory with gaps: values and gradients are those of the script, in every round.
local backends <const> = {"aot_eager", "fused"}

--- Whole numbers: sums of their products are exact, in any order.
local function whole(shape, salt)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return ((torch.arange(count) * 7 + salt) % 5 - 2):to(torch.float32):view(shape)
end

local weight = whole({8, 4}, 3)
local computed = {
  {"a layer", function(x) return torch.linear(x, weight) end},
  {"a layer of a sum", function(x) return torch.linear(x + 1, weight):relu() * 2 end},
  {"a loop", function(x) return torch.cat({x * 2 + 1, x:square()}, -1) end},
  {"a loop over a transposed tensor", function(x)
    return torch.cat({x, x}, -1):transpose(-2, -1):mul(2):relu():transpose(-2, -1)
  end},
}
local views = {
  {"narrow", 2, function(l) return l:narrow(-1, 1, 4) end},
  {"a range of steps", 2, function(l) return l:slice(-1, 1, 8, 3) end},
  {"transpose", 2, function(l) return l:transpose(-2, -1) end},
  {"expand", 2, function(l) return l:unsqueeze(0):expand(l:dim() == 2 and {3, -1, -1} or {2, -1, -1, -1, -1}) end, 3},
  {"unfold", 2, function(l) return l:unfold(-1, 3, 2) end},
  {"heads", 2, function(l) return l:narrow(-1, 4, 4):unflatten(-1, {2, 2}):transpose(-2, -3) end},
  {"select", 3, function(l) return l:select(1, 0) end},
  {"permute", 3, function(l) return l:permute(l:dim() == 3 and {2, 0, 1} or {3, 1, 0, 2}) end},
  {"diagonal", 3, function(l) return l:diagonal(0, -2, -1) end},
}
local shapes = {
  function(n) return {n, 4} end, function(n) return {n, 3, 4} end, function(n) return {2, n, 4} end,
  function(n) return {n, 2, 3, 4} end}
local batches <const> = {3, 1, 2, 31, 32, 33, 3}

--- Outputs and the gradient of a call. The factors of the loss keep its gradients apart.
local function outcome(f, x)
  x = x:detach():clone():requires_grad_()
  local results, loss = table.pack(f(x)), 0
  for i, result in ipairs(results) do
    loss = loss + (result * whole(result.shape, i)):sum()
    results[i] = result:detach()
  end
  loss:backward()
  results[#results + 1] = x.grad
  return results
end

local function same_calls(f, compiled, shape, what)
  for _, n in ipairs(batches) do
    local x = whole(shape(n), n)
    local expected, got = outcome(f, x), outcome(compiled, x)
    for i, value in ipairs(expected) do eq(got[i], value, ("%s, batch %d, result %d"):format(what, n, i)) end
  end
end

for v, view in ipairs(views) do
  test("a view of what is computed, as a factor and reshaped: " .. view[1], function()
    for s, shape in ipairs(shapes) do
      local rank, base = #shape(1), computed[(v + s) % #computed + 1]
      if rank >= view[2] then
        local function f(x)
          local q = view[3](base[2](x))
          return torch.matmul(q, q:transpose(-2, -1)), q:reshape({-1}), q:flatten(0, 1) * 2
        end
        for _, backend in ipairs(backends) do
          local compiled = triage.compile(f, {backend = backend, warn = false})
          local what = ("%s of %s, rank %d, %s"):format(view[1], base[1], rank, backend)
          same_calls(f, compiled, shape, what)
          if backend == "fused" and (v + s) % 3 == 0 then
            compiled:finish_compiling()
            same_calls(f, compiled, shape, what .. ", compiled")
          end
        end
      end
    end
  end)
end

test("what a script can view in other sizes a loop's result can be, too, and what is computed from it", function()
  local function loop(x) return x:transpose(0, 1):mul(2):relu() end
  local bodies = {
    view = function(x) return loop(x):transpose(0, 1):view({-1}) * 3 end,
    view_as = function(x) return loop(x):transpose(0, 1):view_as(torch.zeros({x:numel()})) * 3 end,
    dtype = function(x) return loop(x):transpose(0, 1):view(torch.int16):view(torch.float32) * 3 end,
    flip = function(x) return torch.flip(loop(x), {0}):transpose(0, 1):view({-1}) * 3 end,
    cumsum = function(x) return torch.cumsum(loop(x):transpose(0, 1), 0):view({-1}) * 3 end,
    sort = function(x) return (torch.sort(loop(x), 0)):transpose(0, 1):view({-1}) * 3 end,
  }
  for name, f in pairs(bodies) do   -- (numbers of another dtype have no gradient)
    local compiled = triage.compile(f, {backend = "fused", warn = false})
    for _ = 1, 2 do
      if name ~= "dtype" then same_calls(f, compiled, shapes[1], name) end
      for _, n in ipairs(batches) do
        local x = whole({n, 4}, n)
        eq(compiled(x), f(x), name .. " without gradients")
      end
      compiled:finish_compiling()
    end
  end
end)

test("products of batches of matrices that are views of one layer", function()
  local function f(x)
    local l = torch.linear(x, weight)
    local q, k = l:narrow(-1, 0, 4), l:narrow(-1, 4, 4)
    return torch.bmm(q, k:transpose(-2, -1)), torch.baddbmm(x, q, whole({1, 4, 4}, 1):expand({x:size(0), 4, 4}))
  end
  local compiled = triage.compile(f, {backend = "fused", warn = false})
  for _ = 1, 2 do
    same_calls(f, compiled, shapes[2], "bmm")
    compiled:finish_compiling()
  end
end)

test("attention of several heads, with gradients", function()
  torch.manual_seed(1)
  local layer = nn.MultiheadAttention(4, 2, {batch_first = true})
  local x = torch.randn({3, 5, 4})
  local function gradients(f, n)
    local own = x:narrow(0, 0, n):clone():requires_grad_()
    local out, weights = f(own)
    layer:zero_grad();
    (out:square():sum() + weights:square():sum()):backward()
    local found = {out:detach(), weights:detach(), own.grad}
    for _, parameter in ipairs(layer:parameters()) do found[#found + 1] = parameter.grad:clone() end
    return found
  end
  local function f(own) return layer(own, own, own) end
  for _, backend in ipairs(backends) do
    local compiled = triage.compile(f, {backend = backend, warn = false})
    for round = 1, 2 do
      for _, n in ipairs({3, 1, 2, 3}) do
        local expected, got = gradients(f, n), gradients(compiled, n)
        eq(#got, #expected)
        for i, value in ipairs(expected) do close_to(got[i], value, 1e-4) end
      end
      if round == 1 then compiled:finish_compiling() end
    end
  end
end)

test("a gradient whose masked rows are masked is viewed as the gradient of the script", function()
  local function f(x, ok, factors)
    local y = x:reshape({-1, 2, 3}):transpose(1, 2) * factors
    return torch.where(ok:view({-1, 1, 1}), y, 0.0)
  end
  for _, backend in ipairs(backends) do
    local compiled = triage.compile(f, {backend = backend, warn = false})
    for _, n in ipairs({3, 1, 2, 3, 33}) do
      local found, factors = {}, whole({n, 2, 3}, 1):transpose(1, 2)
      for i, call in ipairs({f, compiled}) do
        local x = whole({n, 6}, n):requires_grad_()
        local y = call(x, torch.arange(n) % 2 == 0, factors);
        (y * whole({n, 2, 3}, 2):transpose(1, 2)):sum():backward()
        found[i] = {y:detach(), x.grad}
      end
      eq(found[2], found[1], ("%s, batch %d"):format(backend, n))
    end
  end
end)
