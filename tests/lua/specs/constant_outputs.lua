-- Models that return what does not depend on the input: gradients of it and of what is returned beside it.

local backends = {"eager", "aot_eager", "fused"}

local programs = {
  beside = function(w, k) return function(x) return x * w, k end end,
  literal = function(w) return function(x) return torch.tensor({1.0, 2.0}), (x * w):exp() end end,
  zeros = function(w) return function(x) return torch.zeros({3}), (x * w):exp() end end,
  view = function(w, k) return function(x) return k:view(3, 1), x * w end end,
  only = function(_, k) return function() return k end end,
  weight = function(w) return function() return w end end,
  computed = function(w) return function() return w:exp() * 2 end end,
  weight_beside = function(w, k) return function(x) return w, k, x * w end end,
  weight_view = function(w) return function(x) return w:view(3, 1), x end end,
  of_rows = function(w, k) return function(x)
    return IF(x:sum(-1) > 3, function() return x * w end):ELSE(function() return (k * w):expand_as(x) end)
  end end,
  flags = function(w) return function(x) return fix(x * w, flag_nan(x, "here")), w * 2 end end,
}

--- Outputs, gradients, and a step on the weight between the calls, which a graph must not hold fast.
local function history(make, backend)
  local w = torch.tensor({0.5, -2.0, 1.0}):requires_grad_()
  local f = make(w, torch.tensor({4.0, 5.0, 6.0}))
  if backend then f = triage.compile(f, {backend = backend}) end
  local seen = {}
  for i = 1, 4 do
    local x = (torch.ones({2, 3}) * i):requires_grad_()
    local results, total = table.pack(f(x)), nil
    for _, result in ipairs(results) do
      seen[#seen + 1] = result:detach():clone()
      seen[#seen + 1] = tostring(result.requires_grad)
      if result.requires_grad then
        total = total and total + (result * result):sum() or (result * result):sum()
      end
    end
    w.grad = nil
    if total then total:backward() end
    seen[#seen + 1] = w.grad and w.grad:clone() or "no gradient"
    seen[#seen + 1] = x.grad or "no gradient"
    torch.no_grad(function() w:add_(0.25) end)
    if backend == "fused" and i == 2 then f:finish_compiling() end
  end
  return seen
end

--- The compiler of `fused` has its own exp: up to some units in the last place.
local function check_same(got, expected, what)
  eq(#got, #expected, what)
  for i, value in ipairs(expected) do
    if torch.is_tensor(value) and torch.is_tensor(got[i]) then
      eq({got[i].dtype, got[i].shape}, {value.dtype, value.shape}, what)
      close_to(((got[i] - value):abs() / (value:abs() + 1)):max():item(), 0, 1e-5)
    else
      eq(got[i], value, what)
    end
  end
end

test("a model that returns a constant has the script's gradients on every backend", function()
  for name, make in pairs(programs) do
    local expected = history(make)
    for _, backend in ipairs(backends) do check_same(history(make, backend), expected, name .. ", " .. backend) end
  end
end)
