-- What a function is told of its graph breaks, and of what its graphs hold for.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

local function broken(x)
  x = x + 1
  triage.graph_break("here")
  return x + 2
end

test("D16: an argument that no graph takes breaks the call as a whole", function()
  local function scaled(x, options) return x * options.factor end
  for _, case in ipairs({
    {scaled, {z, {factor = 2}}, "argument 2 ('options') is a table", z * 2},
    {function(x, fn) return fn(x) end, {z, torch.relu}, "argument 2 ('fn') is a function", z:relu()},
    {function(x) return (x + x):to_dense() end, {z:to_sparse()}, "tensor 'x' has layout Sparse", z + z},
  }) do
    local report = triage.explain(case[1], table.unpack(case[2]))
    eq({report.graph_count, report.graph_break_count, report.break_ids[1]}, {0, 1, "TB0021"})
    for _, part in ipairs({case[3], "Explanation:", "Hint:", "other_argument (TB0021)", "from user code:"}) do
      assert(tostring(report):find(part, 1, true), part .. " is not in\n" .. tostring(report))
    end
    eq(triage.compile(case[1])(table.unpack(case[2])), case[4])
    for _, strict in ipairs({triage.compile(case[1], {fullgraph = true}),
                             triage.error_on_graph_break(true, triage.compile(case[1]))}) do
      fails(function() strict(table.unpack(case[2])) end, case[3])
    end
  end
  -- In captured code the call is a part of the caller's graph, where tables are fine.
  local inner = triage.compile(scaled, {fullgraph = true})
  eq(triage.compile(function(x) return inner(x, {factor = 3}) end, {fullgraph = true})(z), z * 3)
end)

test("D16: what requires grad is in graphs between breaks", function()
  local x = torch.tensor({1.0, 2.0}, {requires_grad = true})
  local report = triage.explain(broken, x)
  eq({report.graph_count, report.break_ids}, {2, {"TB0006"}})
  eq(triage.compare(broken, {x}).ok, true)
end)

test("D16: what a function as a whole breaks for is told to be where it begins", function()
  local info = debug.getinfo(1, "l")
  local report = triage.explain(function(x)
    return x, nil, "two"
  end, z)
  local place = (":%d: graph break: the function returns a value that is not a tensor: result 2 is nil"):format(
    info.currentline + 1)
  assert(report.break_reasons[1]:find(place, 1, true), report.break_reasons[1])
end)

test("an error that was caught is told with the script's stack", function()
  local report = triage.explain(function(x)
    local ok, y = pcall(function() return x:expand({7, 7}) end)
    return ok and y or x
  end, z)
  eq(report.break_ids[1], "TB0016")
  assert(tostring(report):find("from user code:", 1, true), tostring(report))
end)

test("D16: explain tells what a graph holds for: tensors, plain arguments, variables from outside", function()
  local limit, weight, list, apply = 3, torch.ones({2}), {2}, function(x) return x end
  local report = triage.explain(function(x, n, all)
    return all and apply(x) * weight * list[1] * n + limit
  end, z, 5, true)
  for _, line in ipairs({
    "x: dtype float32, rank 2\n", "n: is 5\n", "all: is true\n", "upvalue 'limit' is int 3\n",
    "upvalue 'weight' is any Tensor float32[2]\n",
    "upvalue 'list' is the same table, and its contents are unchanged\n",
    "upvalue 'apply' is the same function, and everything that it can read is unchanged\n",
  }) do
    assert(report.guards[1]:find(line, 1, true), line .. "is not in\n" .. report.guards[1])
  end
  local several = tostring(triage.explain(broken, z))
  assert(several:find("Out Guards:\n  none between graph breaks", 1, true), several)
end)

test("what stands for a function is named by it, and its parameters are those of the function", function()
  local function doubled(rows) return rows * 2 end
  local line = debug.getinfo(doubled, "S").linedefined
  for _, fn in ipairs({triage.error_on_graph_break(true, doubled), triage.allow_in_graph(doubled),
    triage.disable(doubled), triage.substitute_in_graph(function(x) return x end, doubled), tensorcheck(doubled),
    triage.assume_constant_result(doubled), as_result(doubled), unwrap(doubled), as_exception(doubled),
    triage.allow_in_graph(triage.error_on_graph_break(false, doubled))}) do
    local name = tostring(triage.compile(fn))
    assert(name:find(("breaks_told.lua:%d (0 graphs)"):format(line), 1, true), name)
  end
  local report = triage.explain(triage.error_on_graph_break(true, doubled), torch.ones({2, 2}))
  assert(report.guards[1]:find("^rows: dtype float32"), report.guards[1])
end)

test("messages quote text that was loaded, as it was loaded", function()
  local text = "local function largest(x)\n  return x:max():item()\nend\nreturn function(x) return x * largest(x) end"
  for _, name in ipairs({"=loaded", "@not_there.lua", text}) do
    local report = triage.explain(load(text, name)(), torch.ones({2}))
    local stack = report.user_stacks[1]
    assert(stack:find(":4\n    return function(x) return x * largest(x) end\n", 1, true), stack)
    assert(stack:find(":2: in function 'largest'\n    return x:max():item()", 1, true), stack)
  end
end)

test("a check that fails shows its condition and its line, in loaded text too", function()
  local check = load("return function(n)\n  triage.check(n <= 5, 'n is a count')\nend", "=loaded")()
  fails(function() check(7) end,
    "loaded:2: Runtime assertion failed for expression n <= 5: n is a count\n    triage.check(n <= 5, 'n is a count')")
end)
