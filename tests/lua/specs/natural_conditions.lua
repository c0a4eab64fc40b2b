-- Natural Lua: `and`, `or` and `not` of masks, booleans of Lua and conditions on sizes (row T15).

--- What a chunk of natural Lua returns; its first line is line 1.
local function natural(text) return assert(load("--!tensor\n" .. text, "=natural.lua"))() end

test("natural Lua: and, or, not of Lua values short-circuit and keep their values", function()
  local f = natural([[
local asked = 0
local function ask(v) asked = asked + 1 return v end
local flags = torch.zeros({2, 1}, {dtype = torch.int64})
return {
  nil and ask(1) == nil, false or 7, nil or false, 3 and "x" or "y", not nil, not 0, 1 and nil == nil,
  ask(false) and ask(2), ask(1) or ask(2), (flags or 5) == nil, 6, false, asked,
}]])
  eq({f[2], f[4], f[5], f[6], f[7]}, {7, "x", true, false, true})
  eq({f[8], f[9], f[10], f[11], f[12], f[13]}, {false, 1, false, 6, false, 2})
end)

test("natural Lua: a tensor of one number is a condition of the batch, true unless it is 0", function()
  local f = natural([[return function(z)
    local bad, y, how = z:isnan():sum(), z, 0
    if bad then y = torch.zeros_like(z) end
    if not bad then y = y * 2 end
    if bad and z:numel() > 0 then y = y + 10 end
    if bad or z.ndim == 7 then y = y + 100 end
    return y, bad and true, bad or "default", z.ndim == 1 and z or 0
  end]])
  local clean, bad = torch.tensor({1.0, 2.0}), torch.tensor({1.0, 0/0})
  for _, g in ipairs({f, triage.compile(f), triage.compile(f, {backend = "fused"})}) do
    for _ = 1, 2 do
      local y, some, sum, same = g(clean)
      eq({y, sum, same}, {clean * 2, torch.tensor(0), clean})
      eq(some:item(), false)
      y, some, sum = g(bad)
      eq({y, sum}, {torch.tensor({110.0, 110.0}), torch.tensor(1)})
      eq(some:item(), true)
    end
  end
end)

test("natural Lua: a tensor of several numbers says that there is one", function()
  local z = torch.tensor({1.0, 0.0})
  for _, text in ipairs({"if z then return 1 end", "return z and 1", "if z or nil then return 1 end"}) do
    eq(natural("return function(z)\n" .. text .. "\nend")(z), 1)
  end
  eq(natural("return function(z)\nreturn not z\nend")(z), false)
  local endless = natural("return function(z)\nwhile z do end\nend")
  fails(function() endless(z) end, "a tensor of numbers as the condition of `while`")
  fails(function() natural("return function(z)\nreturn 0 < z < 1\nend")(z) end, "write (0 < z) & (z < 1)")
end)

test("natural Lua: a boolean of Lua decides for all samples, and what is behind it is not asked", function()
  local f = natural([[return function(m, x)
    return m and x ~= nil and x:sum(-1) > 0, m or x == nil or x:sum(-1) > 0
  end]])
  local m = torch.tensor({true, false})
  local none, all = f(m, nil)
  eq(none, torch.tensor({false, false}))
  eq(all, torch.tensor({true, true}))
  eq({f(m, torch.ones({2, 1}))}, {m, torch.tensor({true, true})})
end)

test("natural Lua: masks with booleans of Lua", function()
  local m = torch.tensor({true, false})
  local f = natural([[return function(m, yes)
    return m and yes, m or yes, m and not yes, m or not yes, yes and m, not yes or m
  end]])
  local all, none = torch.ones_like(m), torch.zeros_like(m)
  local results = {f(m, true)}
  for i, expected in ipairs({m, all, none, m, m, m}) do eq(results[i], expected) end
end)

test("natural Lua: masks with conditions on sizes, in scripts and captured", function()
  local f = natural([[return function(x)
    local m, large = x:sum(-1) > 0, x:size(0) > 2
    local all = #x
    if m and x:size(0) > 2 and x:size(1) == 1 then x = x * 2 end
    return x, m and large, m or large, m and not large, m or not large, m and all > 2 or m, m and true and large
  end]])
  local function expected(n)
    local x = torch.arange(n):to(torch.float32):view({n, 1}) - 1
    local m = x:sum(-1) > 0
    local all, none = torch.ones_like(m), torch.zeros_like(m)
    if n > 2 then return x, {torch.where(m:unsqueeze(1), x * 2, x), m, all, none, m, m, m} end
    return x, {x, none, m, m, all, m, none}
  end
  for _, backend in ipairs({"eager", "fused"}) do
    for _, fullgraph in ipairs({true, false}) do
      local captured = triage.compile(f, {backend = backend, fullgraph = fullgraph})
      for _, n in ipairs({4, 2, 3, 0, 33, 1, 4}) do
        local x, results = expected(n)
        eq({f(x)}, results)
        eq({captured(x)}, results)
      end
    end
  end
end)

test("natural Lua: and, or, not are elementwise on masks of any shape", function()
  local f = natural("return function(x) return x > 0 and x < 5 or x == 9, not (x > 0) end")
  local inside, outside = f(torch.tensor({{-1, 1, 4}, {5, 9, 0}}))
  eq(inside, torch.tensor({{false, true, true}, {false, true, false}}))
  eq(outside, torch.tensor({{true, false, false}, {false, false, true}}))
end)
