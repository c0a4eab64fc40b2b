-- luacheck: no max line length
local function toy_example(a, b)
  local x = a / (torch.abs(a) + 1)
  print("woo")
  if b:sum() < 0 then
    b = b * -1
  end
  return x * b
end

local ones = torch.ones({10})

--- What `triage.explain` tells, with the same times, sizes and paths wherever and whenever it is made.
local function masked(report)
  local text = tostring(report):gsub("[^%s\"]*explain%.lua", "explain.lua"):gsub("%d+%.%d+ s\n", "<time> s\n")
  return (text:gsub("%d+ bytes", "<number of> bytes"))
end

test("D09: explain of the toy example, word for word", function()
  local report = triage.explain(toy_example, ones, -ones)
  eq(masked(report), [[
Graph Count: 3
Graph Break Count: 2
Op Count: 7
Break Reasons:
  Break Reason 1:
    explain.lua:4: graph break: `print` writes output
      Explanation: A graph has no side effects and reads only its inputs. Output, files, clocks and random numbers of Lua need the script.
      Hint: Print before or after the compiled code, for example the tensors that it returns.
      Developer debug context: output (TB0003)

    from user code:
      explain.lua:20
        local report = triage.explain(toy_example, ones, -ones)
      explain.lua:4
        print("woo")
  Break Reason 2:
    explain.lua:5: graph break: a condition reads the value of a tensor
      Explanation: A graph is captured once and then runs on other data. A value that the script reads from a tensor would become a constant of the graph.
      Hint: Use IF(cond, ...):ELSE(...) or torch.where, which keep the choice in the graph.
      Developer debug context: reads_value (TB0001)

    from user code:
      explain.lua:20
        local report = triage.explain(toy_example, ones, -ones)
      explain.lua:5
        if b:sum() < 0 then
Ops per Graph:
  Ops 1:
    aten::abs
    aten::add.Scalar
    aten::div.Tensor
  Ops 2:
    aten::sum
    aten::lt.Scalar
  Ops 3:
    aten::mul.Scalar
    aten::mul.Tensor
Out Guards:
  none between graph breaks: the script runs on every call, and triage checks that its operators are the recorded ones
Compile Times:
  capture <time> s
  backend <time> s
Cache:
  whole calls 0, between breaks 3, retired 0
  <number of> bytes
Fused Loops:
  tapes 2, kernels of a GPU 0, neither 0
Outside of Loops:
  Graph 2:
    explain.lua:5: aten::sum: it reduces the whole batch; loops reduce each row, as in x:sum(-1)
    explain.lua:5: aten::lt.Scalar: it makes a number of numbers, which no loop reads

graph "explain.lua:2_segment_1"(%in0: "f32[10]"):
  %1: "f32[10]" = aten::abs(%in0)             # explain.lua:3
  %2: "f32[10]" = aten::add.Scalar(%1, 1)     # explain.lua:3
  %3: "f32[10]" = aten::div.Tensor(%in0, %2)  # explain.lua:3
  return %3

graph "explain.lua:2_segment_2"(%in0: "f32[10]"):
  %1: "f32[]" = aten::sum(%in0)        # explain.lua:5
  %2: "b8[]" = aten::lt.Scalar(%1, 0)  # explain.lua:5
  return %2

graph "explain.lua:2_segment_3"(%in0: "f32[10]", %in1: "f32[10]"):
  %1: "f32[10]" = aten::mul.Scalar(%in0, -1)  # explain.lua:6
  %3: "f32[10]" = aten::mul.Tensor(%in1, %1)  # explain.lua:8
  return %3
]])
end)

test("D09: explain of the toy example as a table", function()
  local report = triage.explain(toy_example, ones, ones)   -- without the branch: 3 graphs, 2 breaks, 6 operations
  eq({report.graph_count, report.graph_break_count, report.op_count}, {3, 2, 6})
  eq(report.ops_per_graph, {{"aten::abs", "aten::add.Scalar", "aten::div.Tensor"}, {"aten::sum", "aten::lt.Scalar"},
    {"aten::mul.Tensor"}})
  eq(report.out_guards, {{}, {}, {}})
  eq(report.break_ids, {"TB0003", "TB0001"})
  assert(report.break_reasons[1]:find("explain.lua:4: graph break: `print` writes output", 1, true))
  assert(report.user_stacks[1]:find("explain.lua:4\n    print(\"woo\")", 1, true), report.user_stacks[1])
  assert(report.user_stacks[2]:find("explain.lua:5\n    if b:sum() < 0 then", 1, true), report.user_stacks[2])
  eq(#report.graphs, 3)
end)

test("D09: explain tells what a graph took to make, and what it holds for", function()
  local report = triage.explain(function(x, n) return (x * n):relu() end, ones, 2)
  eq(report.ops_per_graph, {{"aten::mul.Scalar", "aten::relu"}})
  eq(report.out_guards, {{"x: dtype float32, rank 1", "grad mode on, default dtype float32",
    "the same as at capture: devices, layouts, which inputs are one tensor, autocast, inference mode, flags " ..
    "configuration, settings", "n: is 2"}})
  eq(table.concat(report.out_guards[1], "\n") .. "\n", report.guards[1])
  assert(report.compile_times.capture > 0 and report.compile_times.backend > 0)
  local segments = triage.explain(toy_example, ones, ones)
  assert(segments.compile_times.capture > 0 and segments.compile_times.backend > 0)
end)
