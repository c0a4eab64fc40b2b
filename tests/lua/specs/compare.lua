-- Where backends differ from `eager`: triage.compare.
local data = torch.tensor({{0.5, -1.0, 2.0}, {3.0, 0.25, -0.75}, {1.0, 1.0, 1.0}})

test("D04: compare says of a backend with the bits of eager that it has them", function()
  local all = triage.compare(function(x) return torch.relu(x * 2) end, {data})
  eq({all.ok, #all.graphs}, {true, 2})
  for i, backend in ipairs {"aot_eager", "fused"} do
    local one = all.graphs[i]
    eq({one.backend, one.ok, one.nodes, one.result, one.node}, {backend, true, 2})
  end
  assert(tostring(all):find("(2 nodes), fused: the same bits as eager", 1, true), all.text)
end)

test("D04: compare names the first node that is wrong, with its line, and where the results are wrong", function()
  local function f(x)
    local a = torch.exp(x)
    local b = torch.tanh(a)
    return b + 1, a
  end
  local all = triage.compare(f, {data}, {backends = {"eager", "faulty_result:tanh"}})
  eq({all.ok, #all.graphs}, {false, 1})
  local one = all.graphs[1]
  eq(one.result.value, "output 0")
  assert(one.node.value:find("aten::tanh(%1)", 1, true), one.node.value)
  eq(one.node.line, debug.getinfo(f, "S").linedefined + 2)
  assert(one.node.wrong:find("off by 1", 1, true), one.node.wrong)
  assert(all.text:find("WRONG\n    output 0 is wrong at element", 1, true), all.text)
end)

test("D04: compare counts a difference that is no more than rounding in units in the last place", function()
  local function nearly(graph)
    return function(...)
      local y = graph(...):clone()
      y[1][2] = y[1][2] * (1 + 2.5e-7)   -- two or three units
      return y
    end
  end
  local one = triage.compare(function(x) return x * 0.3 end, {data}, {backends = {nearly}}).graphs[1]
  eq({one.ok, one.backend, one.result.row}, {true, "function 1", 1})
  assert(one.result.units >= 1 and one.result.units <= 4, one.result.units)
  eq(one.result.wrong, nil)
end)

test("D04: compare finds other NaN places, flags, dtypes, numbers of results, and errors", function()
  local function with(change, fn)
    return triage.compare(fn or function(x) return x + 1 end, {data}, {backends = {change}}).graphs[1]
  end
  local function changed(change) return function(graph) return function(...) return change(graph(...)) end end end
  local nan = with(changed(function(y) y = y:clone() y[2][0] = 0 / 0 return y end))
  assert(nan.result.wrong:find("other NaN or Inf places", 1, true), nan.result.wrong)
  eq({nan.result.row, nan.result.units}, {2, math.huge})
  local dtype = with(changed(function(y) return y:double() end))
  assert(dtype.result.wrong:find("is Double[3, 3], and Float[3, 3] with eager", 1, true), dtype.result.wrong)
  local flags = with(changed(function(f) return f + 1 end), function(x) return flag_nan(x, "x") end)
  eq({flags.ok, flags.result.units}, {false, math.huge})
  local failed = with("faulty_run:add")
  eq({failed.ok, failed.result}, {false})
  assert(failed.failure:find("on purpose", 1, true), failed.failure)
end)

test("D04: compare compares gradients where an input requires grad", function()
  local w = torch.tensor({{1.0, -2.0, 0.5}}):requires_grad_(true)
  local function f(x) return torch.tanh(x * w):sum() end
  eq(triage.compare(f, {data}).ok, true)
  local function wrong_backward(graph)
    return function(...)
      local y = graph(...)
      return y + (y * 2 - (y * 2):detach())   -- the value is right, the gradient three times too large
    end
  end
  local one = triage.compare(f, {data}, {backends = {wrong_backward}}).graphs[1]
  eq(one.ok, false)
  assert(one.result.value:find("gradient of", 1, true), one.result.value)
  assert(one.node.value:find("aten::mul", 1, true), one.node.value)
end)

test("D04: compare follows graph breaks, draws the same numbers on every backend, and takes empty batches", function()
  local function broken(x)
    local y = torch.relu(x * 2)
    triage.graph_break()
    return torch.exp(y):sum(-1)
  end
  local all = triage.compare(broken, {data}, {backends = {"fused"}})
  eq({all.ok, #all.graphs}, {true, 2})
  eq(triage.compare(function(x) return torch.dropout(x, 0.5, true) * torch.rand_like(x) end, {data}).ok, true)
  for _, rows in ipairs {0, 1, 31, 33} do
    eq(triage.compare(function(x) return torch.softmax(x, -1):sum(0) end, {torch.randn({rows, 5})}).ok, true)
  end
end)

test("D04: compare says what it cannot take", function()
  local function f(x) return x + 1 end
  fails(function() triage.compare(f, data) end, "triage.compare: expected a table as `inputs`, got Tensor")
  fails(function() triage.compare(f, {data}, {backend = "fused"}) end, "option `backend` is unknown; there is")
  fails(function() triage.compare(f, {data}, {backends = {"eager"}}) end, "names none besides eager")
  fails(function() triage.compare(f, {data}, {backends = {"fusd"}}) end, "there is no backend `fusd`")
  fails(function() triage.compare(f, {data}, {backends = {7}}) end, "expected names and functions in `backends`, got")
  fails(function() triage.compare(f, {data}, {compiler = "off"}) end, "triage.compare: `compiler` is gone")
  fails(function() triage.compare(function() return 1 end, {}) end, "was not captured, so there is nothing to compare")
end)
