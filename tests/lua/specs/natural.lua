-- Natural Lua: `if`, `and`, `or` and `not` on masks choose per sample (row T15).
local nan, inf = 0 / 0, 1 / 0

--- What a chunk of natural Lua returns; its first line is line 1.
local function natural(text) return assert(load("--!tensor\n" .. text, "=natural.lua"))() end
local function plain(text) return assert(load(text, "=plain.lua"))() end

local batches = {0, 1, 2, 31, 32, 33}

--- Rows of three; every third has NaN, every fifth Inf.
local function rows(n)
  local z = torch.arange(n * 3):to(torch.float32):reshape({n, 3}) - n
  local i = torch.arange(n)
  z = torch.where((i % 3):eq(1):unsqueeze(1), z * nan, z)
  return torch.where((i % 5):eq(2):unsqueeze(1), z * inf, z)
end

--- The graph of `fn`, without its name.
local function graph(fn)
  return (tostring(triage.export(fn, {rows(4)})):gsub("graph [%w_]+", "graph"))
end

local function bits(x) return x:contiguous():view(torch.int32) end

local function same_bits(a, b)
  if a:is_floating_point() then a, b = bits(a), bits(b) end
  eq(a, b)
end

--- The same program twice: natural, and with IF.
local pairs_of_programs = {
  {"if and else", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local y
  if err.is_err(f) then
    y = torch.zeros_like(z)
  else
    y = z:tanh()
  end
  return y, f
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local y = IF(err.is_err(f), function() return torch.zeros_like(z) end):ELSE(function() return z:tanh() end)
  return y, f
end]]},
  {"a variable that one branch assigns keeps its value elsewhere", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  if err.has_nan(f) then z = torch.zeros_like(z) end
  return z, f
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  z = IF(err.has_nan(f), function() return torch.zeros_like(z) end):ELSE(function() return z end)
  return z, f
end]]},
  {"elseif", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  if err.has_nan(f) then
    z = torch.zeros_like(z)
  elseif err.has_inf(f) then
    z = z:nan_to_num(0.0, 1e4, -1e4):clamp(-10, 10)
  elseif z:sum(-1) > 0 then
    z = z * 2
  else
    z = z:abs()
  end
  return z, f
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  z = IF(err.has_nan(f), function() return torch.zeros_like(z) end)
    :ELIF(err.has_inf(f), function() return z:nan_to_num(0.0, 1e4, -1e4):clamp(-10, 10) end)
    :ELIF(z:sum(-1) > 0, function() return z * 2 end)
    :ELSE(function() return z:abs() end)
  return z, f
end]]},
  {"nested", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  if err.is_err(f) then
    if err.has_nan(f) then
      z = z:nan_to_num(0.0)
    else
      z = z:clamp(-1, 1)
    end
    f = push(f, err.FALLBACK_VALUE, "x")
  else
    local low = z:amin(-1)
    if low > 0 then z = z - 1 end
    z = z + 3
  end
  return z, f
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  z, f = IF(err.is_err(f), function()
    local y = IF(err.has_nan(f), function() return z:nan_to_num(0.0) end):ELSE(function() return z:clamp(-1, 1) end)
    return y, push(f, err.FALLBACK_VALUE, "x")
  end):ELSE(function()
    local low = z:amin(-1)
    local y = IF(low > 0, function() return z - 1 end):ELSE(function() return z end)
    return y + 3, f
  end)
  return z, f
end]]},
  {"several variables", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local a, b = z:sum(-1), z:amax(-1)
  if err.is_err(f) then
    a, b = b, a
    z = z:nan_to_num()
  end
  return z, a - b, f
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local a, b = z:sum(-1), z:amax(-1)
  a, b, z = IF(err.is_err(f), function() return b, a, z:nan_to_num() end):ELSE(function() return a, b, z end)
  return z, a - b, f
end]]},
  {"and, or, not", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local high = z:sum(-1)
  if err.has_nan(f) or err.has_inf(f) then
    z = z:nan_to_num()
  elseif not err.is_err(f) and high > 1 and not (high >= 50) then
    z = -z
  end
  return z, not err.is_ok(f)
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  local high = z:sum(-1)
  z = IF(err.has_nan(f) | err.has_inf(f), function() return z:nan_to_num() end)
    :ELIF(~err.is_err(f) & (high > 1) & ~(high >= 50), function() return -z end)
    :ELSE(function() return z end)
  return z, ~err.is_ok(f)
end]]},
  {"conditions of the batch", [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  if HAS(f) and not IS(err.OOB, f) then
    z = z:nan_to_num()
  elseif err.all_ok(f) or IS(err.NAN, f) then
    z = z + 1
  else
    z = z - 1
  end
  return z
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  return (IF(AND(HAS(f), NOT(IS(err.OOB, f))), function() return z:nan_to_num() end)
    :ELIF(OR(err.all_ok(f), IS(err.NAN, f)), function() return z + 1 end)
    :ELSE(function() return z - 1 end))
end]]},
  {"conditions of Lua between masks", [[
local repair, loud = true, false
return function(z)
  local f = flag_nan_and_inf(z, "x")
  if loud then
    z = z * 7
  elseif err.has_nan(f) then
    z = torch.zeros_like(z)
  elseif not repair then
    z = z * 9
  elseif err.has_inf(f) then
    z = torch.ones_like(z)
  elseif repair then
    z = z:relu()
  elseif z.never then
    error("not evaluated")
  end
  return z
end]], [[
return function(z)
  local f = flag_nan_and_inf(z, "x")
  return (IF(err.has_nan(f), function() return torch.zeros_like(z) end)
    :ELIF(err.has_inf(f), function() return torch.ones_like(z) end)
    :ELSE(function() return z:relu() end))
end]]},
  {"tables of tensors", [[
return function(z)
  local r
  if z:sum(-1) > 0 then
    r = {z = z * 2, n = 3}
  else
    r = {z = z, n = 3}
  end
  return r.z * r.n
end]], [[
return function(z)
  local r = IF(z:sum(-1) > 0, function() return {z = z * 2, n = 3} end):ELSE(function() return {z = z, n = 3} end)
  return r.z * r.n
end]]},
  {"a loop in a branch, a branch in a loop", [[
return function(z)
  z = z:nan_to_num()
  for i = 1, 3 do
    if z:sum(-1) > i then
      for k = 1, 2 do
        if k == 2 then break end
        z = z / (k + i)
      end
    end
  end
  return z
end]], [[
return function(z)
  z = z:nan_to_num()
  for i = 1, 3 do
    z = IF(z:sum(-1) > i, function() return z / (1 + i) end):ELSE(function() return z end)
  end
  return z
end]]},
}

for _, case in ipairs(pairs_of_programs) do
  local name, text, dsl = case[1], case[2], case[3]
  test("T15: natural Lua gives the graph of the DSL: " .. name, function()
    local a, b = graph(natural(text)), graph(plain(dsl))
    if a ~= b then error("natural:\n" .. a .. "\nwith IF:\n" .. b) end
  end)

  test("T15: natural Lua computes what the DSL does, eager and captured: " .. name, function()
    local written, with_if = natural(text), plain(dsl)
    for _, backend in ipairs({"eager", "aot_eager"}) do
      local compiled = triage.compile(natural(text), {fullgraph = true, backend = backend})
      for _, n in ipairs(batches) do
        local z = rows(n)
        local expected, eager, captured = {with_if(z)}, {written(z)}, {compiled(z)}
        for i, value in ipairs(expected) do
          same_bits(eager[i], value)
          same_bits(captured[i], value)
        end
      end
      local strided = rows(62):t():contiguous():t()[{{0, 62, 2}}]
      same_bits((compiled(strided)), (with_if(strided)))
    end
  end)
end

test("natural Lua: gradients are those of the DSL: none from samples that a branch does not decide", function()
  local repair = natural([[
return function(z)
  local y
  if z:amin(-1) > 0 then y = z:log() else y = z * 2 end
  return y
end]])
  local z = torch.tensor({{1.0, 2.0}, {0.0, 3.0}, {-1.0, 4.0}})
  local expected = torch.tensor({{1.0, 0.5}, {2.0, 2.0}, {2.0, 2.0}})
  for _, fn in ipairs({repair, triage.compile(repair, {fullgraph = true, backend = "aot_eager"}),
    triage.compile(repair, {fullgraph = true, backend = "eager"})}) do
    local x = z:clone():requires_grad_()
    eq(torch.autograd.grad(fn(x):sum(), x), expected)
  end
end)

-- Lua values

test("natural Lua: on Lua values all is plain Lua: return, break, goto, varargs, close, recursion", function()
  local f = natural([[
local log = {}
local function each(...)
  for i = 1, select("#", ...) do
    local v = select(i, ...)
    if v == nil then goto continue end
    if v == "stop" then break elseif v == "leave" then return "left", i end
    if type(v) == "number" and v > 2 then log[#log + 1] = v end
    ::continue::
  end
  return "end"
end
local function fib(n) if n < 2 then return n else return fib(n - 1) + fib(n - 2) end end
local function count(n) while n > 0 do n = n - 1 if n == 3 then return n end end return "none" end
local function last(...) if select("#", ...) > 1 then return ... end return nil, "one" end
local function closes()
  local order = {}
  if #order == 0 then
    local a <close> = setmetatable({}, {__close = function() order[#order + 1] = "closed" end})
    local k <const> = 5
    order[#order + 1] = k
  end
  return order
end
return {each = each, fib = fib, count = count, last = last, closes = closes, log = log}]])
  eq({f.each(1, nil, 3, "stop", 9)}, {"end"})
  eq({f.each(4, "leave")}, {"left", 2})
  eq(f.log, {3, 4})
  eq(f.fib(10), 55)
  eq({f.count(10), f.count(2)}, {3, "none"})
  eq({f.last(1, 2, 3)}, {1, 2, 3})
  eq(select("#", f.last()), 2)
  eq(f.closes(), {5, "closed"})
end)

test("natural Lua: long chains, and chains in chains", function()
  local terms = {}
  for i = 1, 600 do terms[i] = "x ~= " .. i end
  local f = natural("return function(x) return " .. table.concat(terms, " and ") .. " end")
  eq(f(torch.tensor({0, 5, 600, 601})), torch.tensor({true, false, false, true}))
  local g = natural("return function(a, b, c) return (a and (b or not c)) and (a or b) or (c and not (a and b)) end")
  for bit = 0, 7 do
    local a, b, c = bit & 1 > 0, bit & 2 > 0, bit & 4 > 0
    local expected = (a and (b or not c)) and (a or b) or (c and not (a and b))
    eq(g(torch.tensor({a}), torch.tensor({b}), torch.tensor({c})), torch.tensor({expected}))
    eq(g(a, b, c), expected)
    eq(g(torch.tensor(a), b, torch.tensor({c})):view({-1}), torch.tensor({expected}))
  end
end)

-- errors

local function refused(body, text)
  local fn = natural("return function(z, t)\n  local m = z:sum(-1) > 0\n" .. body .. "\n  return z\nend")
  local z = torch.tensor({{1.0, 2.0}, {-1.0, -2.0}})
  fails(function() fn(z, {}) end, text)
  local t = {}
  local compiled = function(x) return fn(x, t) end
  fails(function() triage.compile(compiled, {fullgraph = true})(z) end, text)
  local partly = triage.compile(compiled)
  for _ = 1, 3 do fails(function() partly(z) end, text) end
  eq(t, {})
  eq(bits(z), bits(torch.tensor({{1.0, 2.0}, {-1.0, -2.0}})))
end

test("natural Lua: what leaves a branch that runs for every sample is an error with line and hint", function()
  refused("  if m then return z end", "natural.lua:4: `return` in a branch")
  refused("  if m then return z end", "after the `if`")
  refused("  for i = 1, 2 do\n    if m then break end\n  end", "natural.lua:5: `break` in a branch")
  refused("  while true do if m then if true then break end end end", "`break` in a branch")
  refused("  if m then z = z + 1 else if true then goto done end end ::done::", "`goto` in a branch")
  refused("  for i = 1, 2 do if m then goto continue end z = z + 1 ::continue:: end", "`goto` in a branch")
  refused("  if nil then elseif m then do return end end", "`return` in a branch")
end)

test("natural Lua: loops on tensors are errors", function()
  refused("  while m do z = z - 1 end", "natural.lua:4: a mask as the condition of `while`")
  refused("  while z:sum() > 0 do z = z - 1 end", "mask:any():item()")
  refused("  repeat z = z - 1 until z:sum(-1) < 0", "a mask as the condition of `until`")
  refused("  for i = 1, z:sum() do z = z - 1 end", "a tensor as a bound of `for`")
end)

test("natural Lua: side effects in branches are errors, eager and captured", function()
  refused("  if m then t.x = z end", "natural.lua:4: a write to a table from outside of the branch")
  refused("  if m then t[1] = z end", "write it to the table after the `if`")
  refused("  if m then table.insert(t, z) end", "a write to a table")
  refused("  if m then rawset(t, 1, z) end", "a write to a table")
  refused("  if m then function t.f() end end", "a write to a table")
  refused("  if m then count = 1 end", "a write to global 'count'")
  refused("  local function set() z = z * 0 end if m then set() end", "a write to upvalue 'z'")
  refused("  local y = z + 1 if m then y:add_(1) end", "natural.lua:4: `aten::add_` writes in place")
  refused("  local y = z + 1 if m then y[0] = 5 end", "writes in place to a tensor from outside")
  refused("  local y = z + 1 if m then y:view({-1}):mul_(0) end", "writes in place to a tensor from outside")
  refused("  local y = z + 1 if m then z = z + 1 if z:sum(-1) > 3 then z:mul_(2) end end", "writes in place")
  rawset(_G, "count", nil)
end)

test("natural Lua: what a branch makes it may write to", function()
  local text = [[
return function(z)
  if z:sum(-1) > 0 then
    local t = {n = 0}
    t.n = t.n + 2
    t.list = {}
    table.insert(t.list, z)
    local function bump() t.n = t.n + 1 end
    bump()
    local y = z * t.n
    y:add_(1)
    y[{":", 0}] = 7
    if y:sum(-1) > 100 then
      local w = y:clone()
      w:zero_()
      y = w
    end
    z = y + #t.list
  end
  return z
end]]
  local z = torch.tensor({{1.0, 2.0}, {-1.0, -2.0}, {100.0, 90.0}})
  local expected = torch.tensor({{8.0, 8.0}, {-1.0, -2.0}, {1.0, 1.0}})
  eq(natural(text)(z), expected)
  eq(triage.compile(natural(text))(z), expected)
end)

test("natural Lua: between graph breaks, call after call", function()
  local text = [[
return function(z)
  triage.graph_break("asked for")
  if z:sum(-1) > 0 then
    local y = z + 1
    y:mul_(2)
    local t = {}
    t.y = y
    z = t.y
  elseif z:sum():item() < 100 and z:sum(-1) < -5 then
    z = z * 0
  end
  triage.graph_break("again")
  return z * 3
end]]
  local fn = natural(text)
  local compiled = triage.compile(fn)
  for _ = 1, 4 do
    for _, n in ipairs({2, 33, 0, 1}) do
      local z = (torch.arange(n * 2):to(torch.float32):reshape({n, 2}) * 7) % 13 - 6
      eq(compiled(z), fn(z))
    end
  end
end)

test("natural Lua: a graph break in a branch", function()
  local fn = natural([[
return function(z)
  if z:sum(-1) > 0 then
    local t = {}
    triage.graph_break("in a branch")
    t.y = z * 2
    z = t.y
  else
    z = z - 1
  end
  return z
end]])
  local compiled = triage.compile(fn)
  local z = torch.tensor({{1.0}, {-1.0}})
  for _ = 1, 3 do
    eq(fn(z), torch.tensor({{2.0}, {-2.0}}))
    eq(compiled(z), torch.tensor({{2.0}, {-2.0}}))
  end
  fails(function() triage.compile(fn, {fullgraph = true})(z) end, "in a branch")
end)

test("natural Lua: functions in branches: what they assign is selected", function()
  local f = natural([[
return function(z)
  if z:sum(-1) > 0 then
    local function double() z = z * 2 end
    double()
    double()
  else
    local function recurse(n) if n == 0 then return z end return recurse(n - 1) + 1 end
    z = recurse(3)
  end
  return z
end]])
  local z = torch.tensor({{1.0}, {-1.0}})
  eq(f(z), torch.tensor({{4.0}, {2.0}}))
  eq(triage.compile(f, {fullgraph = true})(z), torch.tensor({{4.0}, {2.0}}))
end)

test("natural Lua: upvalues that a branch assigns are selected", function()
  local f = natural([[
return function(z)
  local function repair()
    if z:sum(-1) > 0 then z = z * 10 end
  end
  repair()
  return z
end]])
  local z = torch.tensor({{1.0}, {-1.0}})
  eq(f(z), torch.tensor({{10.0}, {-1.0}}))
  eq(triage.compile(f, {fullgraph = true})(z), torch.tensor({{10.0}, {-1.0}}))
  local g = natural([[
local kept
return function(z)
  kept = z
  if z:sum(-1) > 0 then kept = z * 10 end
  return kept
end]])
  eq(g(z), torch.tensor({{10.0}, {-1.0}}))
  fails(function() triage.compile(g, {fullgraph = true})(z) end, "a write to upvalue 'kept' outlives the call")
end)

test("natural Lua: branches that leave different things in a variable are errors that name it", function()
  refused("  local y if m then y = z end z = y", "variable 'y'")
  refused("  local y if m then y = z end z = y", "before the `if`")
  refused("  local k = 1 if m then k = 2 end z = z * k", "variable 'k': int 2 against int 1")
  refused("  if m then z = z:sum() end", "differ in variable 'z'")
  refused("  if m then z = z:to(torch.float64) end", "differ in variable 'z': Tensor float64[2, 2] against")
  refused("  local s = 'a' if m then s = 'b' elseif not m then s = 'c' end", "`elseif` 1 and before the `if`")
  refused("  local r = {} if m then r = {z} else r = {z, z} end", "has no element 2")
  refused("  if m then z = nil end", "variable 'z'")
  refused("  local g if m then g = function() end else g = function() end end", "variable 'g'")
end)

test("natural Lua: operands and conditions that say nothing per sample", function()
  refused("  z = m and z or z * 2", "torch.where(mask, a, b)")
  refused("  z = m or z", "`or` of a mask and Tensor float32[2, 2]")
  refused("  z = m and nil", "`and` of a mask and nil")
end)

test("natural Lua: coroutines: a branch does not yield, and one that was given up is forgotten", function()
  local f = natural([[
return function(m, fn) local k if m then k = fn() end return k end]])
  local m = torch.tensor({true, false})
  local co = coroutine.create(function() return f(m, coroutine.yield) end)
  local ok, message = coroutine.resume(co)
  eq(ok, false)
  assert(tostring(message):find("Yield after the `if`", 1, true), message)
  local t = {}
  t.x = 1   -- no branch is open
  eq(t, {x = 1})
  f(m, function()
    local sum = 0
    for v in coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end) do sum = sum + v end
    eq(sum, 3)
  end)
  coroutine.close(co)
  local y = torch.ones({2})
  y:add_(1)
end)

test("natural Lua: an error in a branch closes it", function()
  local f = natural([[
return function(m, t)
  local ok, message = pcall(function() if m then error("on purpose") end end)
  t.ok, t.message = ok, message
  return t
end]])
  local t = f(torch.tensor({true, false}), {})
  eq(t.ok, false)
  assert(t.message:find("natural.lua:3: on purpose", 1, true), t.message)
end)

-- the text

test("natural Lua: names, shadowing, many locals, many arms", function()
  fails(function() natural("local __triage_k = 1") end, "reserved for the runtime")
  local f = natural([[
return function(z)
  local x = z
  do
    local x = x * 2
    if x:sum(-1) > 0 then local x = 5 z = z + x end
    if x:sum(-1) > 0 then x = x + 1 end
    z = z + x
  end
  return z + x
end]])
  eq(f(torch.tensor({{1.0}, {-1.0}})), torch.tensor({{10.0}, {-4.0}}))
  local locals = {}
  for i = 1, 190 do locals[i] = ("local v%d = %d"):format(i, i) end
  local text = "return function(z)\n" .. table.concat(locals, "\n") ..
    "\nif z:sum(-1) > v190 then z = z * v190 if z:sum(-1) > v1 then z = z + v1 end end return z end"
  eq(natural(text)(torch.tensor({{200.0}, {1.0}})), torch.tensor({{38001.0}, {1.0}}))
  local more = text:gsub("local v190", "local a,b,c,d,e,f,g,h,i local v190")
  fails(function() natural(more) end, "too many local variables")
  local assigned = {}
  for i = 1, 60 do assigned[i] = ("v%d = z"):format(i) end
  fails(function()
    natural("return function(z)\n" .. table.concat(locals, "\n", 1, 60) ..
      "\nif z then " .. table.concat(assigned, " ") .. " end end")
  end, "natural.lua:63: an `if` of natural Lua may assign at most 50 variables")
  local arms = {"if k == 0 then z = z + 0"}
  for i = 1, 300 do arms[#arms + 1] = ("elseif k == %d then z = z + %d"):format(i, i) end
  local g = natural("return function(z, k) " .. table.concat(arms, " ") .. " end return z end")
  eq(g(torch.ones({2}), 300), torch.full({2}, 301.0))
  eq(g(torch.zeros({3}), torch.tensor({7, 300, 999})), torch.tensor({7.0, 300.0, 0.0}))
end)

test("natural Lua: lines are kept, and errors of branches name theirs", function()
  local f = natural([[
return function(z)
  if z:sum(-1)
      > 0
  then
    z = z +
      nothing.here
  else z = z
  end
  return z
end]])
  fails(function() f(torch.ones({1, 1})) end, "natural.lua:7: attempt to index a nil value (global 'nothing')")
end)

test("natural Lua: a string.dump'd chunk and text given to load", function()
  local f = natural([[return function(z) if z:sum(-1) > 0 then z = z + 1 end return z end]])
  eq(assert(load(string.dump(f)))(torch.tensor({{1.0}, {-1.0}})), torch.tensor({{2.0}, {-1.0}}))
  local unmarked = plain([[return function(z) if z:sum(-1) > 0 then z = z + 1 end return z end]])
  fails(function() unmarked(torch.ones({2, 1})) end, "2 elements")
  eq(assert(load("#! first line\n--!tensor\nreturn not torch.tensor({true})"))(), torch.tensor({false}))
  eq(assert(load("--!tensors\nreturn not torch.tensor(true)"))(), false)
end)

test("natural Lua: a policy asks for it by a literal", function()
  local text = [[
local function repair(z) if z:sum(-1) > 0 then z = z * 2 end return z end
return policy {lua = %s, run = function(z) return repair(z) end}]]
  local run = plain(text:format('"tensor"')).run
  eq(run(torch.tensor({{1.0}, {-1.0}})), torch.tensor({{2.0}, {-1.0}}))
  plain("return policy({lua = \n'tensor', run = function(z) return not z end})")
  fails(function() plain("local t = 'tensor' " .. text:format("t")) end, "Write lua = \"tensor\" as a literal")
  fails(function() plain(text:format("'python'")) end, "expected \"tensor\"")
  fails(function() plain(text:format("true")) end, "field 'lua': expected")
  local own = plain("local function policy(t) return t end " ..
    "return policy {lua = 'tensor', run = function(m) return not m end}")
  eq(own.run(torch.tensor(false)), true)   -- another function of that name says nothing
end)
