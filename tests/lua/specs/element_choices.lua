-- WHERE, and what replaces elements: nothing non-finite comes back from what was not chosen. torch.where is PyTorch's.
local nan <const>, inf <const> = 0 / 0, 1 / 0
local float64 <const> = {dtype = torch.float64}

local function tensor(values) return torch.tensor(values, float64) end

local function ways(fn)
  local list = {{"script", fn}}
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local compiled = triage.compile(fn, {fullgraph = true, backend = backend})
    list[#list + 1] = {backend .. ", captured", compiled}
    list[#list + 1] = {backend .. ", replayed", compiled}
  end
  return list
end

local function check(fn, tensors, value, gradients)
  for _, way in ipairs(ways(fn)) do
    local leaves = {}
    for i, t in ipairs(tensors) do leaves[i] = t:detach():clone():requires_grad_() end
    local y = way[2](table.unpack(leaves))
    y:sum():backward()
    local fine, why = pcall(function()
      close_to(y:detach(), value, 1e-12)
      for i, gradient in ipairs(gradients) do close_to(leaves[i].grad, gradient, 1e-12) end
    end)
    if not fine then error(way[1] .. ": " .. why, 2) end
  end
end

test("WHERE takes functions, tensors and numbers", function()
  local x = tensor({{4.0, 0.0}, {-1.0, 1.0}})
  local value, gradient = tensor({{math.log(4), 0.0}, {0.0, 0.0}}), tensor({{0.25, 0.0}, {0.0, 1.0}})
  check(function(v) return WHERE(v > 0, function() return v:log() end, 0.0) end, {x}, value, {gradient})
  check(function(v) return WHERE(v <= 0, 0, function() return v:log() end) end, {x}, value, {gradient})
  check(function(v) return WHERE(v > 0, function() return v:log() end, v * 0) end, {x}, value, {gradient})
  check(function(v) return WHERE(v > 0, function() return v:log() end, function() return v * 0 end) end,
    {x}, value, {gradient})
end)

test("WHERE with a mask of samples", function()
  local x = tensor({{4.0, 1.0}, {0.0, 1.0}})
  local value, gradient = tensor({{math.log(4), 0.0}, {7.0, 7.0}}), tensor({{0.25, 1.0}, {0.0, 0.0}})
  check(function(v) return WHERE((v > 0):all(1), function() return v:log() end, 7) end, {x}, value, {gradient})
  check(function(v) return WHERE((v <= 0):any(1), 7, function() return v:log() end) end, {x}, value, {gradient})
  local f = flag_nan(torch.tensor({{nan}, {1.0}}), "x")
  local chosen = WHERE(err.is_err(f), function() return push(f, err.OOB, "x") end, f)
  eq(err.count_errors(chosen), torch.tensor({2, 0}):to(torch.int32))
end)

test("WHERE with a condition of shape (): both run, in eager code too", function()
  local ran = 0
  local a = torch.tensor(100.0, float64):requires_grad_()
  local y = WHERE(a <= 0, function() ran = ran + 1 return a:exp() end, function() ran = ran + 1 return 1 + a end)
  y:backward()
  eq({y:item(), a.grad:item(), ran}, {101.0, 1.0, 2})
  local function fn(v) return WHERE(v:sum() > 1e6, function() return v:exp() * inf end, function() return v * 2 end) end
  check(fn, {tensor({{800.0, 1.0}})}, tensor({{1600.0, 2.0}}), {tensor({{2.0, 2.0}})})
end)

test("WHERE gives several results, and refuses what cannot be chosen", function()
  local x = tensor({{4.0, -1.0}})
  local root, t = WHERE(x > 0, function() return x:sqrt(), {a = x} end, function() return 0, {a = -x} end)
  eq(root, tensor({{2.0, 0.0}}))
  eq(t.a, tensor({{4.0, 1.0}}))
  fails(function() WHERE(x, 1, 2) end, "WHERE: expected a bool tensor of shape (N,)")
  fails(function() WHERE(true, 1, 2) end, "WHERE: expected a bool tensor")
  fails(function() WHERE(x > 0, "a", 2) end, "WHERE: expected a function, a tensor or a number as `a`")
  fails(function() WHERE(x > 0, 2) end, "WHERE: expected a function, a tensor or a number as `b`")
  fails(function() WHERE(x > 0, x, torch.ones({3})) end, "WHERE: the branches a and b differ in result 1")
  fails(function() WHERE(x > 0, x, function() return x, x end) end, "WHERE: the branch a returns 1 values and b")
  fails(function() WHERE(x > 0, 1, 2) end, "int 1 against int 2")
  fails(function() WHERE(x > 0, err.new(x), err.new(x)) end, "mask:flatten(1):any(1)")
end)

test("torch.where keeps the gradient of PyTorch", function()
  local x = tensor({{4.0, 0.0}}):requires_grad_()
  torch.where(x > 0, x:log(), 0.0):sum():backward()
  eq(x.grad:isnan(), torch.tensor({{false, true}}))
  eq(select("#", 1, 2, 3), 3)   -- Lua's own
end)

test("nan_to_num and err.replace send nothing back for what they replaced", function()
  local x = tensor({{4.0, nan}, {inf, -inf}})
  local gradient = tensor({{0.25, 0.0}, {0.0, 0.0}})
  check(function(v) return v:nan_to_num(0.0, 0.0, 0.0):log():clamp(-10, 10) end, {x},
    tensor({{math.log(4), -10.0}, {-10.0, -10.0}}), {gradient})
  check(function(v) return torch.nan_to_num(v, 0.0, 0.0, 0.0):log():clamp(-10, 10) end, {x},
    tensor({{math.log(4), -10.0}, {-10.0, -10.0}}), {gradient})
  check(function(v) return err.replace(v, 0.0, {err.NAN, err.INF}):log():clamp(-10, 10) end, {x},
    tensor({{math.log(4), -10.0}, {-10.0, -10.0}}), {gradient})
  check(function(v) return err.replace(v, 0.0, {3}):sqrt() end, {tensor({{4.0, 3.0}})}, tensor({{2.0, 0.0}}),
    {tensor({{0.25, 0.0}})})
  local scalar = torch.tensor(nan, float64):requires_grad_()
  scalar:nan_to_num(0.0):log():backward()
  eq(scalar.grad, torch.tensor(0.0, float64))
end)
