-- A graph, its inputs and a backend as one program: triage.run_graph. Debug folders and the minifier write such
-- programs.
local graph = [==[
graph scaled(%x: "f32[4, 3]", %w: "f32[3, 3]"):
  %0: "f32[4, 3]" = aten::mm(%x, %w)
  %1: "f32[4, 3]" = aten::relu(%0)
  return %1
]==]

local function program(changes)
  local made = {
    graph = graph, backend = "eager",
    inputs = {
      {shape = {4, 3}, dtype = "float32", seed = 1},
      {shape = {3, 3}, stride = {1, 3}, dtype = "float32", device = "cpu", requires_grad = true, seed = 2},
    },
  }
  for key, value in pairs(changes or {}) do made[key] = value end
  return made
end

test("D08: a graph program runs, the same each time, forward and backward", function()
  local y = triage.run_graph(program())
  eq({y:size(0), y:size(1)}, {4, 3})
  eq(triage.run_graph(program()), y)
  eq(triage.run_graph(program {backend = "fused"}), y)
  local again, gradient = triage.run_graph(program {backward = true})
  eq(again, y)
  eq({gradient:size(0), gradient:size(1)}, {3, 3})
  eq(select("#", triage.run_graph(program {backward = true})), 2)
end)

test("D08: inputs have the strides, values and fills that they are given", function()
  local text = 'graph g(%x: "f32[2, 2]"):\n  return %x\n'
  local function input(fields)
    fields.shape, fields.dtype = {2, 2}, fields.dtype or "float32"
    return triage.run_graph {graph = text, inputs = {fields}}
  end
  eq(input {values = "[[1.0, -inf], [0.1, 3.0]]", stride = {1, 2}}, torch.tensor {{1.0, -math.huge}, {0.1, 3.0}})
  eq(input({values = "[[1.0, -inf], [0.1, 3.0]]", stride = {1, 2}}):stride(0), 1)
  eq(input {fill = 1}, torch.ones({2, 2}))
  eq(input {fill = 0}, torch.zeros({2, 2}))
  eq(input {fill = "arange", stride = {2, 1}}, torch.tensor {{0.0, 1.0}, {2.0, 3.0}})
  eq(input({seed = 3, stride = {0, 1}})[0], input({seed = 3, stride = {0, 1}})[1])   -- rows in one memory
  eq(input({seed = 3, dtype = "int64"}):max():item() <= 1, true)
end)

test("D08: a program fails where its backend does, and says how", function()
  fails(function() triage.run_graph(program {backend = "faulty_compile:relu"}) end,
    "backend `faulty_compile:relu` cannot compile the graph: faulty_compile: %1 = aten::relu cannot be compiled, " ..
    "on purpose")
  fails(function() triage.run_graph(program {backend = "faulty_run:mm"}) end, "fails when the graph runs: faulty_run")
  triage.run_graph(program {backend = "faulty_result:relu"})
  local message = fails(function() triage.run_graph(program {backend = "faulty_result:relu", check = "numbers"}) end,
    "gives wrong numbers: output 0 is wrong at element")
  assert(message:find("times the error of eager", 1, true), message)
  triage.run_graph(program {backend = "fused", check = "numbers", backward = true})
end)

test("D08: numbers are judged by float64: NaN places, integers and gradients count, rounding does not", function()
  local function checks(backend, text, x)
    triage.run_graph {
      graph = text, backend = backend, check = "numbers", backward = x.requires_grad or false, inputs = {x}
    }
  end
  local sum = 'graph g(%x: "f32[4000]"):\n  %0 = aten::sum(%x)\n  return %0\n'
  local x = {shape = {4000}, dtype = "float32", seed = 5}
  checks(function() return function(z) return z:flip({0}):sum() end end, sum, x)   -- another order of additions
  local function off(by) return function() return function(z) return z:sum() + by end end end
  fails(function() checks(off(1e-2), sum, x) end, "output 0 is wrong")
  fails(function() checks(off(0 / 0), sum, x) end, "other NaN or Inf places")
  local order = 'graph g(%x: "f32[8]"):\n  %0 = aten::argmax(%x)\n  return %0\n'
  fails(function()
    checks(function() return function(z) return z:argmin() end end, order, {shape = {8}, dtype = "float32", seed = 5})
  end, "output 0 differs")
  local cube = 'graph g(%x: "f32[8]"):\n  %0 = aten::mul.Tensor(%x, %x)\n  return %0\n'
  local g = {shape = {8}, dtype = "float32", seed = 5, requires_grad = true}
  fails(function() checks(function() return function(z) return z * z:detach() end end, cube, g) end,
    "gradient 0 is wrong")
end)

test("D08: a table that is no program is an error that says what is missing", function()
  fails(function() triage.run_graph {graph = graph} end, "triage.run_graph: the table needs a list `inputs`")
  fails(function() triage.run_graph {inputs = {}} end, "triage.run_graph: the table needs a text `graph`")
  fails(function() triage.run_graph(program {colour = 1}) end, "field `colour` is unknown")
  fails(function() triage.run_graph(program {inputs = {}}) end, "the graph takes 2 inputs, got 0")
  fails(function() triage.run_graph(program {backend = "nonsense"}) end, "there is no backend `nonsense`")
  local function input(x)
    return function() triage.run_graph {graph = 'graph g(%x: "f32[2]"):\n  return %x\n', inputs = {x}} end
  end
  fails(input(3), "input %x: expected a tensor or a table")
  fails(input {shape = {2}, stride = {1, 1}}, "input %x: it has 1 sizes and 2 strides")
  fails(input {shape = {2}, stride = {-1}}, "must not be negative")
  fails(input {shape = {1 << 40}}, "too large")
  fails(input {shape = {3}, values = "[1.0, 2.0]"}, "triage.run_graph: input %x: its values do not fit a f32[3]")
  fails(input {shape = {2}, colour = 1}, "input %x: field `colour` is unknown")
end)
