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

test("tensors that are no masks are true", function()
  local f = nil
  f = f or x
  eq(f, x)
  eq((x and "yes") or "no", "yes")
  eq(not x, false)
  eq(not torch.tensor({ 0.0 }), false)
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
