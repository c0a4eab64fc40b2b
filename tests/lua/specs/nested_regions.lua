-- triage.nested_compile_region: calls of one region that compute alike are compiled once (N01).

local function norm(x)
  local centered = x - x:mean({-1}, true)
  return centered / ((centered * centered):mean({-1}, true) + 1e-5):sqrt()
end

local function layer(x, p)
  local h = (norm(x) * p.gain):matmul(p.weight)
  return x + (h * 1.5):sigmoid() * h
end

local function weights(count, size)
  local list = {}
  for i = 1, count do
    list[i] = {weight = torch.randn({size, size}) * 0.1, gain = torch.ones({size}) * i}
  end
  return list
end

--- A function of `count` layers, and the same with each layer as a region.
local function stacks(count, size, options)
  local list = weights(count, size)
  local function over(one)
    return function(x)
      for i = 1, count do
        x = one(x, list[i])
      end
      return x
    end
  end
  local region = triage.nested_compile_region(layer, {name = "layer"})
  return over(layer), triage.compile(over(region), options or {}), list
end

test("N01: calls of a region are named in the graph, and give what the script gives", function()
  local plain, compiled = stacks(3, 8, {backend = "eager"})
  local x = torch.randn({4, 8})
  assert(torch.equal(compiled(x), plain(x)))
  assert(torch.equal(compiled(x), plain(x)))
  eq(compiled:cache().graphs, 1)
  local list = weights(2, 8)
  local region = triage.nested_compile_region(layer, {name = "layer"})
  local graph = triage.explain(function(y) return region(region(y * 2, list[1]), list[2]) end, x).graphs[1]
  for _, call in ipairs({"layer#1", "layer#2"}) do
    assert(graph:find("nested_regions.lua:%d+ in " .. call .. "\n"), graph)
  end
  assert(not graph:find("layer#3", 1, true), graph)
  assert(graph:find("nested_regions.lua:%d+\n"), graph)  -- y * 2 is in no call
end)

test("N01: however often a region is called, it has as many loops, and rows of any number", function()
  local loops
  for _, count in ipairs({2, 3, 12}) do
    local plain, compiled = stacks(count, 16, {backend = "fused"})
    for _, rows in ipairs({32, 1, 0, 2, 31, 33}) do
      local x = torch.randn({rows, 16})
      local y = compiled(x)
      assert(torch.allclose(y, plain(x), 1e-4, 1e-5), rows)
      assert(torch.equal(compiled(x), y))
      assert(torch.equal(compiled(x:t():contiguous():t()), y))
    end
    loops = loops or compiled:cache().tapes
    assert(loops > 0)
    eq(compiled:cache().tapes, loops)
  end
end)

test("N01: a call on another type or size, or one that goes another way, has code of its own", function()
  local region = triage.nested_compile_region(function(x, double)
    local y = x:sigmoid() * x + 1
    return double and y * 2 or y
  end)
  local function script(x, z)
    return region(x, true), region(x * 3, false), region(z, true), region(x:to(torch.float64), true)
  end
  local x, z = torch.randn({4, 8}), torch.randn({4, 5})
  local compiled = triage.compile(script, {backend = "fused"})
  for _ = 1, 2 do
    local got, expected = {compiled(x, z)}, {script(x, z)}
    eq(#got, 4)
    for i, one in ipairs(expected) do
      assert(torch.allclose(got[i], one, 1e-5, 1e-6), i)
      eq(got[i].dtype, one.dtype)
    end
  end
end)

test("N01: regions may be nested, and call themselves", function()
  local inner = triage.nested_compile_region(function(x) return (x * 2):tanh() + 1 end, {name = "inner"})
  local outer = triage.nested_compile_region(function(x) return inner(inner(x)) - x end, {name = "outer"})
  local function script(x) return outer(outer(x)) end
  local x = torch.randn({3, 4})
  local graph = triage.explain(script, x).graphs[1]
  for _, call in ipairs({"outer#1/inner#1", "outer#1/inner#2", "outer#2/inner#1", "outer#2"}) do
    assert(graph:find("in " .. call .. "\n", 1, true), graph)
  end
  local compiled = triage.compile(script, {backend = "fused"})
  assert(torch.allclose(compiled(x), script(x)))
  local deep
  deep = triage.nested_compile_region(function(y, n) return n == 0 and y or deep(y * 1.5 + n, n - 1) end)
  local to_itself = triage.compile(function(y) return deep(y, 20) end, {backend = "fused"})
  assert(torch.allclose(to_itself(x), deep(x, 20)))
end)

test("N01: gradients through regions are those of the script, and lines of the backward run are known", function()
  local size = 8
  local list = weights(3, size)
  local function loss(one)
    return function(x)
      local y = x
      for i = 1, 3 do
        y = one(y, list[i])
      end
      return y:square():sum()
    end
  end
  local compiled = triage.compile(loss(triage.nested_compile_region(layer)), {backend = "fused"})
  local x = torch.randn({5, size})
  local function gradient(fn)
    local leaf = x:clone():requires_grad_()
    fn(leaf):backward()
    return leaf.grad
  end
  local expected = gradient(loss(layer))
  for _ = 1, 3 do
    assert(torch.allclose(gradient(compiled), expected, 1e-3, 1e-4))
  end
end)

test("N01: random numbers in regions come in the script's order", function()
  local region = triage.nested_compile_region(function(x) return (x + torch.rand({4, 8})) * 2 - 1 end)
  local function script(x) return region(region(region(x))) end
  local compiled = triage.compile(script, {backend = "eager"})
  local x = torch.randn({4, 8})
  for _ = 1, 3 do
    torch.manual_seed(7)
    local expected = script(x)
    torch.manual_seed(7)
    assert(torch.equal(compiled(x), expected))
  end
end)

test("N01: a graph break in a region ends a graph as anywhere else", function()
  local region = triage.nested_compile_region(function(x)
    local y = x * 2 + 1
    if y:sum():item() > 1e9 then
      y = y * 0
    end
    return (y - 1):tanh()
  end, {name = "breaking"})
  local function script(x) return region(region(x)) end
  local compiled = triage.compile(script, {backend = "fused", warn = false})
  local x = torch.randn({4, 8})
  for _ = 1, 4 do
    assert(torch.allclose(compiled(x), script(x)))
  end
  assert(compiled:cache().segments > 0)
end)

test("N01: an error in a region ends the call of it", function()
  local failing = triage.nested_compile_region(function(x) return x:reshape({7}) end, {name = "failing"})
  local x = torch.randn({4, 8})
  local graph = triage.explain(function(y)
    pcall(failing, y)
    return y + 1
  end, x)
  for _, text in ipairs(graph.graphs) do
    assert(not text:find("failing", 1, true), text)
  end
  local ok, message = pcall(triage.compile(function(y) return failing(y) end), x)
  assert(not ok)
  assert(tostring(message):find("nested_regions.lua:%d+: "), tostring(message))
end)

test("N01: calls that share code have results of their own, where sizes depend on values too", function()
  triage.config.capture_dynamic_output_shape_ops = true
  local weight = torch.randn({16, 16}) * 0.2
  local function block(x)
    local h = ((x * 2):tanh() + 1):matmul(weight)
    return (h * 0.5):sigmoid() + h, h
  end
  local function chained(one)
    return function(x)
      local a, p = one(x:index({x:sum(1):gt(0)}))
      local b, q = one(a)
      local c, r = one(b)
      return a, b, c, p, q, r
    end
  end
  local plain = chained(block)
  local compiled = triage.compile(chained(triage.nested_compile_region(block)), {backend = "fused", fullgraph = true})
  local held, copies
  for i = 1, 6 do
    local x = torch.randn({30 + i, 16})
    local got = {compiled(x)}
    for k, expected in ipairs({plain(x)}) do
      assert(torch.allclose(got[k], expected, 1e-4, 1e-5), k)
    end
    for k = 1, held and 6 or 0 do
      assert(torch.equal(held[k], copies[k]))
    end
    held, copies = got, {}
    for k = 1, 6 do
      copies[k] = got[k]:clone()
    end
  end
  triage.config.capture_dynamic_output_shape_ops = false
end)

test("N01: modules are regions as well, and outside of captures a region is its function", function()
  local linear = nn.Linear(8, 8)
  local region = triage.nested_compile_region(linear)
  local x = torch.randn({4, 8})
  assert(torch.equal(region(x), linear(x)))
  local compiled = triage.compile(function(y) return region(region(y):relu()) end)
  assert(torch.allclose(compiled(x), linear(linear(x):relu()), 1e-5, 1e-6))
  eq({triage.nested_compile_region(function(...) return select("#", ...), ... end)(nil, 1, nil)}, {3, nil, 1, nil})
end)

test("N01: what is no function, no option or no name is refused", function()
  local region = triage.nested_compile_region
  fails(function() region(3) end, "triage.nested_compile_region: expected a function as `fn`")
  fails(function() region(print, {title = "x"}) end, "title")
  for _, name in ipairs({"", "a b", "a/b", "1st", ("x"):rep(61)}) do
    fails(function() region(print, {name = name}) end, "expected letters, digits and `_.-` as `name`")
  end
end)
