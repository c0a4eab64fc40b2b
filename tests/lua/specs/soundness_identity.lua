-- Compiled functions must do what the script does on the first call, which captures, and on those after it: which
-- tensor is which, what is handed out, what iterators and registries hold.
local ones = torch.ones({2})

--- Compares what `fn` gives with what its compiled form gives, on each argument list in turn.
local function agrees(fn, calls, options)
  local compiled = triage.compile(fn, options)
  for i, arguments in ipairs(calls) do
    eq(table.pack(compiled(table.unpack(arguments))), table.pack(fn(table.unpack(arguments))), "call " .. i)
  end
end

test("what the capturing call hands out is not the graph's own", function()
  for _, backend in ipairs({"eager", "fused", "aot_eager"}) do
    local f = triage.compile(function(x)
      local k = torch.tensor({1.0, 2.0})
      return x * k, k, k:view({2, 1})
    end, {fullgraph = true, backend = backend})
    for _ = 1, 3 do
      local y, k, view = f(ones)
      eq(y, torch.tensor({1.0, 2.0}))
      eq(k, torch.tensor({1.0, 2.0}))
      eq(view:flatten(), k)
      k:zero_()
      view:zero_()
    end
  end
end)

test("a variable as a result is the variable, on every call, and a view of it is one", function()
  for _, backend in ipairs({"eager", "fused", "aot_eager"}) do
    local w = torch.tensor({1.0})
    local f = triage.compile(function(x) return x + w, w, w:view({1, 1}) end, {fullgraph = true, backend = backend})
    for i = 1, 3 do
      local y, same, view = f(ones)
      eq(y, ones + (10 * i - 9))
      same:add_(9)
      view:add_(1)
      eq(w, torch.tensor({10.0 * i + 1}))
    end
  end
end)

local function sum_of_different(a, b, c)
  local seen, out = {}, torch.zeros({1})
  for _, t in ipairs({a, b, c}) do
    if not seen[t] then
      seen[t] = true
      out = out + t
    end
  end
  return out
end

test("which inputs are one tensor is a guard", function()
  local a, b, c = torch.tensor({1.0}), torch.tensor({10.0}), torch.tensor({100.0})
  agrees(sum_of_different, {{a, b, c}, {a, a, c}, {a, b, b}, {a, b, a}, {a, a, a}, {b, a, c}}, {fullgraph = true})
  agrees(sum_of_different, {{a, a, c}, {a, b, c}}, {fullgraph = true})
  agrees(function(x, y) return rawequal(x, y) and x * 2 or y * 3 end, {{a, b}, {a, a}, {b, b}, {b, a}})
  agrees(function(x, y) print() return rawequal(x, y) and x * 2 or y * 3 end, {{a, b}, {a, a}, {b, b}})
end)

test("the address of a tensor is no part of a graph", function()
  eq(triage.explain(function(x) return x * #string.format("%p", x) end, ones).graph_break_count, 1)
end)

test("integers and floats are compared by their values", function()
  local function answers(x)
    local n, out = x:size(0), {}
    local function note(condition) out[#out + 1] = condition and 1 or 0 end
    note(n + (1 << 53) == 2.0 ^ 53 + 1)
    note(n + (1 << 53) > 2.0 ^ 53)
    note(n + math.maxinteger - 2 < 2.0 ^ 63)
    note(2.0 ^ 63 <= n + math.maxinteger - 2)
    note(n < 0 / 0)
    note(n ~= 0 / 0)
    note(n < math.huge)
    note(n > -math.huge)
    note(n <= 1.5)
    note(n > 1.5)
    note(n == 1.5)
    note(n / 2 < (1 << 53) + 1)
    note(n / 2 == (1 << 53) + 1)
    note(n * 2.0 ^ 53 < (1 << 53) + 1)
    note(n + (1 << 53) == n * 2.0 ^ 53)
    note(n + (1 << 53) > n * 2.0 ^ 53)
    return x + torch.tensor(out):sum() * torch.tensor(out):mul(torch.arange(#out)):sum()
  end
  for _, size in ipairs({0, 1, 2, 3}) do
    local calls = {{torch.ones({size})}, {torch.ones({size})}, {torch.ones({2})}, {torch.ones({1})}}
    agrees(answers, calls, {fullgraph = true})
  end
end)

test("// of floats is the floor of the quotient", function()
  agrees(function(x) return x + (x:size(0) / 0) // 2, x + 7.5 // x:size(0), x + (-x:size(0) / 2) // 1 end,
    {{ones}, {torch.ones({3})}, {torch.ones({1})}}, {fullgraph = true})
end)

test("sparse inputs: the function runs as a script; a generator of its own breaks the graph", function()
  local sparse = torch.ones({2, 2}):to_sparse()
  local f = triage.compile(function(x) return x + x end)
  for _ = 1, 2 do eq(f(sparse):to_dense(), torch.full({2, 2}, 2.0)) end
  eq(f(ones), ones * 2)
  fails(function() triage.compile(function(x) return x + x end, {fullgraph = true})(sparse) end, "layout")
  local drawn = triage.compile(function(x, seed)
    local g = torch.Generator("cpu"):manual_seed(seed)
    return x + torch.rand({2}, {generator = g})
  end)
  for i = 1, 3 do eq(drawn(ones, 1), ones + torch.rand({2}, {generator = torch.Generator(1)}), "call " .. i) end
  fails(function() torch.Generator("cuda") end, "cpu")
end)

test("functions of C get the numbers that sizes are", function()
  local function text(x)
    local n = x:size(0)
    local moved = table.move({1, 2, 3}, 1, n, 2)
    local _, message = pcall(error, "a", n - n)
    local joined = table.concat({n, n + 1}, ",")
    return x * #(joined .. string.format("%q|%s|%d", n, n, n) .. table.concat(moved, " ") .. message)
  end
  agrees(text, {{ones}, {torch.ones({3})}, {torch.ones({1})}}, {fullgraph = true})
  agrees(function(x) return x * #os.date("%Y", x:size(0)) * (math.random(x:size(0)) // 100 + 1) end, {{ones}, {ones}})
  agrees(function(x) return x + select(2, 7, x:size(0)), x * table.unpack({5, 6}, x:size(0)) end, {{ones}, {ones}},
    {fullgraph = true})
  agrees(function(x) local n = x:size(0) return x * #tostring(next({10}, n - 1 == 0 and n or nil) or "") end,
    {{torch.ones({1})}, {ones}})
end)

test("an iterator from outside goes on in every call", function()
  local it = ("1 2 3 4 5 6 7 8"):gmatch("%d")
  local f = triage.compile(function(x) return x * tonumber(it()) end)
  for i = 1, 4 do eq(f(ones), ones * i) end
  fails(function() triage.compile(function(x) return x * tonumber(it()) end, {fullgraph = true})(ones) end,
    "graph break: a step of an iterator or coroutine")
  local count = 0
  local co = coroutine.wrap(function() while true do count = count + 1 coroutine.yield(count) end end)
  local g = triage.compile(function(x) return x * co() end)
  for i = 1, 3 do eq(g(ones), ones * i) end
  agrees(function(x)
    local sum = 0
    for digit in ("1 2 3"):gmatch("%d") do sum = sum + tonumber(digit) end
    return x * sum
  end, {{ones}, {ones}}, {fullgraph = true})
end)

test("what is registered, configured or added to strings is not frozen", function()
  local z = torch.tensor({{1.0}, {0 / 0}})
  local f = triage.compile(function(x) return flag_nan(x, "frozen.encoder") end)
  ErrorLocation.reset()
  ErrorLocation.register("frozen.decoder")
  eq(err.get_first_location(f(z)), err.get_first_location(flag_nan(z, "frozen.encoder")))
  eq(ErrorLocation.is_registered("frozen.encoder"), true)
  for name, fn in pairs({
    register = function(x) return x * ErrorLocation.register("frozen.p") end,
    config = function(x) return x * triage.config.recompile_limit end,
    seed = function(x) math.randomseed(1) return x * 2 end,
  }) do
    if triage.explain(fn, ones).graph_break_count < 1 then error(name .. ": no graph break") end
  end
  function string.zork() return 2 end  -- luacheck: ignore
  local g = triage.compile(function(x) return x * ("a"):zork() end)
  eq(g(ones), ones * 2)
  function string.zork() return 3 end  -- luacheck: ignore
  eq(g(ones), ones * 3)
  string.zork = nil  -- luacheck: ignore
  local meta = getmetatable("")
  local add = meta.__add
  local h = triage.compile(function(x) return x * ("a" + 1) end)
  for i = 1, 3 do
    meta.__add = function() return i end
    eq(h(ones), ones * i)
  end
  meta.__add = add
end)

test("an argument that is also a variable of the function is that variable", function()
  local w, lin = torch.ones({3}), nn.Linear(2, 2)
  local same = function(x) return rawequal(x, w) and x + 1 or x - 1 end
  local tied = function(v)
    local n = 0
    for _, p in ipairs(lin:parameters()) do
      if rawequal(p, v) then n = n + 1 end
    end
    return v:sum() * 0 + n
  end
  local seen = function(x)
    local met, n = {}, 0
    for _, t in ipairs({x, w}) do
      if not met[t] then met[t], n = true, n + 1 end
    end
    return x * n
  end
  for _, case in ipairs({{same, w}, {same, torch.ones({3})}, {tied, lin.weight}, {tied, torch.ones({2, 2})}, {seen, w},
                         {seen, torch.ones({3})}}) do
    local compiled = triage.compile(case[1], {fullgraph = true})
    for _ = 1, 3 do eq(compiled(case[2]):detach(), case[1](case[2]):detach()) end
  end
  local compiled = triage.compile(same, {fullgraph = true})
  for _ = 1, 2 do
    eq(compiled(w), same(w))
    eq(compiled(torch.ones({3})), torch.zeros({3}))
  end
end)

test("a comparison of sizes as a key, and a size as a place in table.remove", function()
  local function looks_up(x)
    local t = {[true] = 1, [false] = 2, [x:size(0) > 5] = 3}
    return x * t[x:size(0) > 5]
  end
  local function removes(x)
    local t = {1, 2, 3, 4, 5, 6, 7}
    return x * table.remove(t, x:size(0))
  end
  for _, fn in ipairs({looks_up, removes}) do
    local compiled = triage.compile(fn, {fullgraph = true})
    for _, n in ipairs({3, 7, 3, 6}) do eq(compiled(torch.ones({n})), fn(torch.ones({n}))) end
  end
end)

test("inputs without sizes, where many graphs are known", function()
  local before = triage.config.recompile_limit
  triage.config.recompile_limit = 100
  local f = triage.compile(function(x)
    local s = 0
    for i = 1, x:size(1) do s = s + i end
    return x * s
  end)
  for n = 2, 14 do f(torch.ones({2, n})) end
  local made, nested = pcall(function()
    return torch._nested_tensor_from_tensor_list({torch.ones({2}), torch.ones({3})})
  end)
  if made then pcall(f, nested) end  -- an error, or none: the process goes on
  triage.config.recompile_limit = before
end)
