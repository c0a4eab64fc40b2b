-- What a script does with sizes: passed on they stay open, conditions are guards, what it counts to is held fast (D19).

--- The graphs of a compiled function, by its name in print.
local function graphs(f) return tonumber(tostring(f):match("%((%d+) graph")) end

test("D19: a size that is passed on to operations specialises nothing", function()
  local f = triage.compile(function(x) return x:view({x:size(0), -1}) * 2 end)
  for _, rows in ipairs({2, 1, 31, 32, 33}) do
    local x = torch.randn({rows, 4})
    eq(f(x), x:reshape({rows, 4}) * 2)
  end
  eq(graphs(f), 1)
end)

test("D19: whichever way a size is asked for, passing it on specialises nothing", function()
  local programs = {
    length = function(x) return x * #x end,
    numel = function(x) return x / x:numel() end,
    shape = function(x) return x + x.shape[1] * 2 - x.shape[2] end,
    sizes = function(x) return torch.zeros(x:size()) + x, torch.ones(x.shape):sum() end,
    list = function(x) local n, m = table.unpack(x.shape) return x:reshape({m, n}) end,
    arithmetic = function(x) return x * (12 // (#x + 1)) + (7 - #x) % 3 end,
    computed = function(x) local y = torch.cat({x, x}) return y * #y + y:numel() end,
    item = function(x) return torch.cat({x, torch.zeros({1, 3})})[{#x}] end,
    row = function(x) local y = torch.cat({x, torch.zeros({1, 3})}) return y[#x], y[x:size(0)] * #x end,
    slice = function(x) return x[{{0, #x // 2}}] * 2, x[{{#x // 2, torch.None}}] end,
  }
  for name, program in pairs(programs) do
    local f = triage.compile(program, {fullgraph = true})
    for _, rows in ipairs({2, 1, 0, 31, 32, 33}) do
      local x = torch.randn({rows, 3})
      eq({f(x)}, {program(x)}, name .. ", " .. rows .. " rows")
    end
    eq(graphs(f), 1, name)
  end
end)

test("D19: cutting along one dimension holds that one's size, and leaves the others open", function()
  local programs = {
    chunk = function(x) local a, b = table.unpack(x:chunk(2, -1)) return a * b end,
    split = function(x) return x:split(2, 1)[1]:relu() * x:split({1, 3}, 1)[2]:sum(1, true) end,
    unbind = function(x) local y = x:unbind(1) return y[1] + y[4] end,
    tensor_split = function(x) return x:tensor_split(3, 1)[2] * 2 end,
  }
  for name, program in pairs(programs) do
    local f = triage.compile(program, {fullgraph = true})
    for _, rows in ipairs({2, 1, 0, 31, 32, 33}) do
      local x = torch.randn({rows, 4})
      eq(f(x), program(x), name .. ", " .. rows .. " rows")
    end
    eq(graphs(f), 1, name)
  end
  local f = triage.compile(function(x) return #x:split(2) end)
  for _, rows in ipairs({2, 5, 8}) do eq(f(torch.ones({rows, 4})), (rows + 1) // 2) end
end)

test("D19: a condition on sizes is a guard, one graph for each way", function()
  local x = function(rows) return torch.randn({rows, 3}) end
  local programs = {   -- and how many ways there are through it
    {2, function(z) if #z > 3 then return z * 2 end return z + 1 end},
    {2, function(z) return z:size(0) % 2 == 0 and z:reshape({2, -1}) or z end},
    {2, function(z) return (#z - 40) // 4 >= -3 and z:size(0) * -2 % 7 ~= 8 and z * 2 or z end},
    {3, function(z) if #z < 2 then return z elseif #z < 32 then return z:sum(0) else return z:mean(0) end end},
    {2, function(z) if z:numel() ~= 6 then return z - 1 end return z end},
    {2, function(z) local y = (z * 2):t() return y:size(1) <= 4 and y or y:sum(1) end},
    {2, function(z) assert(z.shape[2] == 3) return math.type(#z) == "integer" and not (#z > 31) and z or z * 3 end},
    {2, function(z) local ok = z:size(0) >= 32 return ok and z + 1 or z + 2 end},
  }
  for i, case in ipairs(programs) do
    local f = triage.compile(case[2], {fullgraph = true})
    for _, rows in ipairs({2, 1, 0, 31, 32, 33, 4, 2}) do
      local z = x(rows)
      eq(f(z), case[2](z), "program " .. i .. ", " .. rows .. " rows")
    end
    eq(graphs(f), case[1], "program " .. i)
  end
end)

test("D19: a condition on sizes is known from there on, and named", function()
  local f = triage.compile(function(z)
    if #z > 3 then
      return #z > 2 and z * 2 or nil   -- follows
    end
    return z
  end, {fullgraph = true})
  f(torch.ones({8, 2}))
  f(torch.ones({2, 2}))
  local explained = tostring(triage.explain(f, torch.ones({8, 2})))
  eq(explained:find("z:size(0) > 3 (a condition of the script at ", 1, true) ~= nil, true)
  eq(explained:find("z:size(0) > 2", 1, true), nil)
end)

test("D19: equal sizes of two inputs are one guard, and known to be equal", function()
  local f = triage.compile(function(a, b)
    if #a == #b then return a + b end
    return a:sum() + b:sum()
  end, {fullgraph = true})
  for _, rows in ipairs({{3, 3}, {5, 5}, {1, 1}, {0, 0}, {3, 5}, {1, 4}}) do
    local a, b = torch.randn({rows[1], 2}), torch.randn({rows[2], 2})
    eq(f(a, b), #a == #b and a + b or a:sum() + b:sum())
  end
  eq(graphs(f), 2)
end)

test("D19: what counts to a size is held fast, and too many conditions", function()
  local counting = triage.compile(function(z)
    local sum = z
    for _ = 1, #z do sum = sum + z end
    return sum
  end, {fullgraph = true})
  local key = triage.compile(function(z) return z * ({10, 20, 30})[#z] end, {fullgraph = true})
  local text = triage.compile(function(z) return z * tonumber(("%d"):format(z:size(0))) end, {fullgraph = true})
  local many = triage.compile(function(z)
    local n = 0
    for i = 1, 40 do n = n + (#z * i % 7 == 3 and 1 or 0) end
    return z * n
  end, {fullgraph = true})
  for _, f in ipairs({counting, key, text, many}) do
    for _, rows in ipairs({2, 3, 1, 2}) do f(torch.ones({rows, 2})) end
    eq(graphs(f), 3)
  end
  eq(counting(torch.ones({2, 2})), torch.full({2, 2}, 3.0))
  eq(key(torch.ones({3, 2})), torch.full({3, 2}, 30.0))
end)

test("D19: dynamic = false makes a graph for each size", function()
  local f = triage.compile(function(z) return z * 2 end, {dynamic = false})
  local g = triage.compile(function(z) return z * 2 end, {dynamic = true})
  for _, rows in ipairs({2, 3, 2, 4}) do
    local z = torch.ones({rows})
    eq(f(z), z * 2)
    eq(g(z), z * 2)
  end
  eq(graphs(f), 3)
  eq(graphs(g), 1)
  fails(function() triage.compile(print, {dynamic = 1}) end, "dynamic (boolean)")
end)
