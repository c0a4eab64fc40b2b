-- Natural Lua's `if` on a mask over elements, eager, captured and fused.
local nan <const> = 0 / 0
local float64 <const> = {dtype = torch.float64}

local function tensor(values) return torch.tensor(values, float64) end

local function natural(text)
  return assert(load("--!tensor\n" .. text, "@natural.lua"))()
end

--- fn eager, captured and replayed gives these; `gradient` is that of the sum of its first result.
local function check(fn, x, values, gradient)
  for _, backend in ipairs({"script", "eager", "aot_eager", "fused"}) do
    local run = backend == "script" and fn or triage.compile(fn, {fullgraph = true, backend = backend})
    for _ = 1, 2 do
      local leaf = x:detach():clone():requires_grad_()
      local results = table.pack(run(leaf))
      results[1]:sum():backward()
      for i, value in ipairs(values) do close_to(results[i]:detach(), value, 1e-12) end
      close_to(leaf.grad, gradient, 1e-12)
    end
  end
end

test("natural Lua, elements: a branch that is not taken sends nothing back, and no else is needed", function()
  local fn = natural("return function(z) local y = z * 0 if z > 0 then y = z:log() end return y end")
  check(fn, tensor({{4.0, 0.0}, {-1.0, 1.0}}), {tensor({{math.log(4), 0.0}, {0.0, 0.0}})},
    tensor({{0.25, 0.0}, {0.0, 1.0}}))
end)

test("natural Lua, elements: elseif, several variables, and conditions of samples and the batch beside", function()
  local fn = natural([[
return function(z)
  local y, count = z, z * 0
  if z > 0 then
    y = z:sqrt()
    count = count + 1
  elseif z:sum(-1) < -4 then
    y = -z
    count = count + 2
  elseif z:sum() > 1000 then
    y = z * 5
  elseif z < -1 then
    y = (-z):sqrt()
  end
  return y, count
end]])
  check(fn, tensor({{4.0, -9.0}, {-4.0, 0.0}, {2.0, -4.0}}),
    {tensor({{2.0, 9.0}, {2.0, 0.0}, {math.sqrt(2), 2.0}}), tensor({{1.0, 2.0}, {0.0, 0.0}, {1.0, 0.0}})},
    tensor({{0.25, -1.0}, {-0.25, 1.0}, {0.5 / math.sqrt(2), -0.25}}))
end)

test("natural Lua, elements: an if in an if, and numbers for elements", function()
  local fn = natural([[
return function(z)
  local y = z
  if z > 0 then
    if z > 100 then y = 100 else y = z:log() end
  else
    y = 0
  end
  return y
end]])
  check(fn, tensor({{1.0, 200.0}, {0.0, nan}}), {tensor({{0.0, 100.0}, {0.0, 0.0}})}, tensor({{1.0, 0.0}, {0.0, 0.0}}))
end)

test("natural Lua, elements: and, or and not of masks over elements", function()
  local fn = natural([[
return function(z)
  local y = z
  if z > 0 and not (z > 4) or z ~= z then y = z * 10 end
  return y
end]])
  eq(fn(tensor({{1.0, 5.0, -1.0}})), tensor({{10.0, 5.0, -1.0}}))
end)

test("natural Lua, elements: what belongs to samples, or leaves the branch, is refused", function()
  local z = torch.tensor({{1.0, nan}, {2.0, 3.0}})
  local function refused(body, text)
    local fn = natural("return function(z, f)\n" .. body .. "\nreturn z, f end")
    fails(function() fn(z:clone(), flag_nan(z, "z")) end, text)
  end
  refused("if z > 0 then f = push(f, err.OOB, 'z') end", "mask:flatten(1):any(1)")
  refused("if z > 0 then f = push(f, err.OOB, 'z') end", "variable 'f'")
  refused("if z > 0 then return z end", "`return` in a branch")
  refused("if z > 0 then z:add_(1) end", "writes in place")
  refused("if z > 0 then z[0] = 1 end", "writes in place")
  refused("local t = {} if z > 0 then t.x = 1 end", "table")
  refused("local k = 1 if z > 0 then k = 2 end", "int 2 against int 1")
  refused("while z > 0 do z = z - 1 end", "a mask as the condition of `while`")
  refused("local y if z > 0 then y = z end", "variable 'y'")
end)

test("natural Lua, elements: what a branch makes of its own it may write to", function()
  local fn = natural([[
return function(z)
  local y = z
  if z > 0 then
    local copy = z:clone()
    copy:mul_(2)
    y = copy
  end
  return y
end]])
  check(fn, tensor({{1.0, -1.0}}), {tensor({{2.0, -1.0}})}, tensor({{2.0, 1.0}}))
end)
