-- Tensors where Lua expects plain values: comparisons, conditions, and the library functions that test or iterate.

local x = torch.tensor({ 1.0, 2.0, 4.0 })

test("comparisons give masks, whichever side the tensor is on", function()
  eq(x > 1, torch.tensor({ false, true, true }))
  eq(x >= 2, torch.tensor({ false, true, true }))
  eq(x < 2, torch.tensor({ true, false, false }))
  eq(x <= 2, torch.tensor({ true, true, false }))
  eq(x == 2, torch.tensor({ false, true, false }))
  eq(x ~= 2, torch.tensor({ true, false, true }))
  eq(1 < x, x > 1)
  eq(2 >= x, x <= 2)
  eq(2 == x, x == 2)
  eq(x == x, torch.tensor({ true, true, true }))
end)

test("a tensor is never equal to what is no number", function()
  eq(x == nil, false)
  eq(x ~= nil, true)
  eq(x == "x", false)
  eq(x ~= {}, true)
  local nothing = nil
  eq(x == nothing, false)
end)

test("a tensor of numbers stands for itself as a default and as a choice", function()
  local f = nil
  f = f or x
  eq(f, x)
  f = f or error("there is one")
  local yes = true
  eq(yes and x or "no", x)
  eq((f or nil) == nil, false)
  local zero = torch.tensor(0)
  eq(zero or "default", zero)
end)

test("a tensor of one number is a condition as in PyTorch: true unless it is 0", function()
  local function taken(value)
    local function v() return value end
    local how = v() and "and" or "no"
    if v() then how = how .. " if" end
    if not v() then how = how .. " not" end
    if false or v() then how = how .. " or" end
    local n = 0
    while v() do n = n + 1 if n == 2 then break end end
    repeat n = n + 10 until v() or n > 20
    return how .. n .. tostring(pcall(assert, value))
  end
  for _, v in ipairs({torch.tensor(2), torch.tensor({-0.5}), torch.tensor({{0/0}}), torch.tensor(1):to(torch.int8)}) do
    eq(taken(v), "and if or12true")
  end
  for _, v in ipairs({torch.tensor(0), torch.tensor({0.0}), torch.tensor({{-0.0}})}) do
    eq(taken(v), "no not30false")
  end
  local clean = torch.ones({2, 2})
  local y = clean
  if clean:isnan():sum() then y = torch.zeros_like(clean) end
  eq(y, clean)
end)

test("a tensor of several numbers that a call gives is no condition; a variable asks whether there is one", function()
  local function get() return x end
  local function message(f) return select(2, pcall(f)) end
  local lines = {
    message(function() if get() then return end end), message(function() return not get() end),
    message(function() return get() and 1 end), message(function() while get() do end end),
    message(function() repeat until get() end), message(function() if nil or -x then return end end),
    message(function() if torch.zeros({0}) then return end end),
  }
  for i = 1, #lines do
    local located = "tensor_conditions%.lua:%d+:%d+: a tensor of numbers of shape %[%d%] as a condition"
    assert(lines[i]:find(located), lines[i])
    assert(lines[i]:find("x:any() or x:all()", 1, true) and lines[i]:find("x ~= nil", 1, true), lines[i])
  end
  fails(function() assert(x) end, "a tensor of numbers of shape [3] as a condition")
  local here = {x = x}
  eq({here.x and 1, not x, x and 2, here.y or 3}, {1, false, 2, 3})
  if here.x then here = 4 end
  eq(here, 4)
end)

test("a captured condition on a number breaks the graph where a mask does, and each call reads it again", function()
  local function f(z)
    local y = z
    if z:isnan():sum() then y = torch.zeros_like(z) end
    return y + 1
  end
  local z, bad = torch.ones({2}), torch.tensor({1.0, 0/0})
  for _, backend in ipairs({"eager", "fused"}) do
    local captured = triage.compile(f, {backend = backend})
    for _ = 1, 3 do
      eq(captured(z), z + 1)
      eq(captured(bad), torch.ones({2}))
    end
  end
  fails(function() triage.compile(f, {fullgraph = true})(z) end, "a condition reads the value of a tensor")
end)

test("a condition on the only sample of a batch is an error in a larger one, captured too", function()
  local function f(z)
    if -z then return z + 1 end
    return z - 1
  end
  local captured = triage.compile(f)
  eq(captured(torch.tensor({3.0})), torch.tensor({4.0}))
  fails(function() captured(torch.tensor({3.0, 0.0})) end, "a tensor of numbers of shape [2] as a condition")
  eq(captured(torch.tensor({0.0})), torch.tensor({-1.0}))
end)

test("a chain of comparisons is an error that says what to write", function()
  local z = torch.tensor({-1.0, 0.5, 2.0})
  fails(function() return 0 < z < 1 end, "write (0 < z) & (z < 1)")
  fails(function() return z:abs() >= 0.5 ~= 1 end, "write (z:abs() >= 0.5) & (0.5 ~= 1)")
  fails(function() if 0 <= z[1] < 1 then return end end, "write (0 <= z[1]) & (z[1] < 1)")
  fails(function() return triage.compile(function(v) return 0 < v < 1 end)(z) end, "write (0 < v) & (v < 1)")
  eq((0 < z) & (z < 1), torch.tensor({false, true, false}))
  eq((0 < z) == (z < 1), torch.tensor({false, true, false}))
  eq(1 < 2 == true, true)
end)

test("sizes are compared by their numbers", function()
  local y, z = torch.zeros({2, 3}), torch.ones({2, 3})
  eq({y.shape == z.shape, y:size() == z:size(), y.shape == z:size(), y.shape ~= z.shape}, {true, true, true, false})
  eq({y.shape == z.T.shape, y.shape ~= z[0].shape, y.shape == {2, 3}, {3, 2} == y:size()}, {false, true, true, false})
  local s, t = y.shape, z.shape
  eq({s == t, s ~= t, s == nil, y.shape == 2}, {true, false, false, false})
  local captured = triage.compile(function(a, b) if a.shape == b.shape then return a + b end return a - 1 end)
  for _ = 1, 2 do
    for _, n in ipairs({4, 1, 7, 2}) do
      eq(captured(torch.ones({n, 2}), torch.ones({n, 2})), torch.full({n, 2}, 2.0))
      eq(captured(torch.ones({n, 2}), torch.ones({n, 3})), torch.zeros({n, 2}))
      eq(captured(torch.ones({n, 2}), torch.ones({n + 1, 2})), torch.zeros({n, 2}))
    end
  end
end)

test("a nil in a list of indices is an error", function()
  local z = torch.ones({2, 3})
  fails(function() return z[{":", nil}] end, 'write "new" for a new axis')
  fails(function() return z[{nil, 0}] end, 'write "new" for a new axis')
  fails(function() return z[{{1, nil}}] end, "torch.None for the open end of a range")
  fails(function() z[{":", nil}] = 0 end, 'write "new" for a new axis')
  fails(function() return z[{":", None}] end, 'write "new" for a new axis')  -- luacheck: ignore None
  eq(z[{":", "new"}].shape == {2, 1, 3}, true)
  eq(z[{{1, torch.None}}].shape == {1, 3}, true)
end)

test("a mask of one element is its value", function()
  local yes, no = torch.tensor(true), torch.tensor({ false })
  eq(not yes, false)
  eq(not no, true)
  eq(no or "default", "default")
  eq(no and "never", false)
  eq(yes and "reached", "reached")
  local branch = "else"
  if x:sum() > 100 then branch = "then" elseif x:sum() == 7 then branch = "elseif" end
  eq(branch, "elseif")
  local n = 0
  while torch.tensor(n) < 3 do n = n + 1 end
  repeat n = n + 1 until torch.tensor(n) >= 6
  eq(n, 6)
end)

test("a mask of several elements is no condition", function()
  local function message(f) return select(2, pcall(f)) end
  local lines = { message(function() if x > 1 then return end end), message(function() return not (x > 1) end),
    message(function() return (x > 1) and 1 end), message(function() local m = x > 1 while m do end end) }
  for i = 1, 4 do
    local located = "^[^\n]*tensor_conditions%.lua:%d+:%d+: a bool tensor of shape %[3%] as a condition"
    assert(lines[i]:find(located), lines[i])
    assert(lines[i]:find("IF(mask, ...)", 1, true) and lines[i]:find("mask:any()", 1, true), lines[i])
  end
end)

test("assert and sort test what they are given", function()
  eq(select("#", assert(torch.tensor(true), "unused")), 2)
  eq(select(2, pcall(assert, torch.tensor(false), "failed")), "failed")
  assert(not pcall(assert, x > 1))
  local t = { 3, 1, 2 }
  table.sort(t, function(a, b) return torch.tensor(a) < torch.tensor(b) end)
  eq(t, { 1, 2, 3 })
  assert(not pcall(table.sort, { x, x + 1 }))
end)

test("ipairs goes over rows, from 0", function()
  local seen = {}
  for i, row in ipairs(x) do seen[#seen + 1] = i .. "=" .. row:item() end
  eq(seen, { "0=1.0", "1=2.0", "2=4.0" })
  assert(not pcall(ipairs, torch.tensor(1.0)))
end)

test("string.format shows the number that a tensor holds", function()
  eq(string.format("%d %5.2f %%", torch.tensor(7), torch.tensor({ 1.5 })), "7  1.50 %")
  assert(not pcall(string.format, "%d", x))
end)

test("& of numbers that are no masks names what binds tighter", function()
  local z = torch.tensor({1.0, 4.0, 7.0})
  fails(function() return z > 3 & z < 5 end, "`&` binds tighter than < and >: write (z > 3) & (z < 5)")
  eq((z > 3) & (z < 5), torch.tensor({false, true, false}))
end)
