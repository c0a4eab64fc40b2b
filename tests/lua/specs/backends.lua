-- Backends: written in Lua, failing ones, and what happens when a backend fails.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

local function clipped(x, y)
  local a = torch.relu(x + y)
  return a * 2, a:sum(-1)
end

--- A logger of what `triage: ...` lines say is not at hand in a script: a backend tells by itself what it was given.
test("D20: a backend is a function of the graph and example inputs", function()
  local seen
  triage.register_backend("toy", function(graph, inputs)
    seen = {text = tostring(graph), graph = graph, inputs = inputs}
    return graph
  end)
  local fast = triage.compile(clipped, {backend = "toy", fullgraph = true, name = "clipped"})
  for _ = 1, 3 do
    local a, b = fast(z, z + 0)   -- another tensor: one that is given twice is one value
    local c, d = clipped(z, z)
    eq(a, c)
    eq(b, d)
  end
  local graph = seen.graph
  eq(#seen.inputs, 2)
  eq(seen.inputs[1], z)
  assert(seen.text:find("aten::relu", 1, true), seen.text)
  eq(seen.text, graph.text)
  eq(graph.name, "clipped")
  eq(#graph.nodes, 4)
  eq(graph.nodes[2].op, "aten::relu")
  eq(graph.nodes[2].inputs, {graph.nodes[1].name})
  eq(graph.nodes[1].inputs, {graph.inputs[1].name, graph.inputs[2].name})
  eq(graph.nodes[2].users, {graph.nodes[3].name, graph.nodes[4].name})
  eq(graph.nodes[3].arguments.other, 2)
  eq(graph.nodes[4].arguments.dim, {-1})
  eq(graph.outputs, {graph.nodes[3].name, graph.nodes[4].name})
  eq(graph.inputs[1].dtype, "float32")
  eq(graph.inputs[1].shape, {2, 2})
  assert(graph.nodes[2].source:find("backends.lua:5", 1, true), graph.nodes[2].source)
  local a, b = graph:run({z, z})
  local c, d = graph(z, z)
  eq(a, c)
  eq(b, d)
  eq(a, (clipped(z, z)))
end)

test("D20: what a backend returns is called with the inputs on every warm call", function()
  local calls = 0
  local counting = triage.compile(function(x) return x * 2 end, {backend = function()
    return function(x) calls = calls + 1 return x + x end
  end})
  for _ = 1, 4 do eq(counting(z), z * 2) end
  eq(calls, 3, "the first call is the one that was recorded")
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    local x = torch.randn({rows, 3})
    eq(counting(x), x * 2)
  end
end)

test("D20: a backend of a script is among the others, and its own name", function()
  triage.register_backend("mine", function(graph) return graph end)
  local names = {}
  for _, name in ipairs(triage.list_backends()) do names[name] = true end
  assert(names.mine and names.eager and names.fused and names.aot_eager)
  triage.register_backend("mine", function(graph) return graph end)
  fails(function() triage.register_backend("eager", print) end, "there is a backend 'eager' already")
  fails(function() triage.register_backend("", print) end, "must not be empty")
  fails(function() triage.register_backend("x", 3) end, "expected a function that takes a graph")
  fails(function() triage.compile(clipped, {backend = "none"}) end, "there is no backend `none`")
  fails(function() triage.compile(clipped, {backend = 3}) end, "'backend' is unknown or has the wrong type")
end)

test("D20: what a backend gives back is checked", function()
  local function broken(result)
    local f = triage.compile(clipped, {backend = function() return function() return result end end})
    f(z, z)
    return function() return f(z, z) end
  end
  fails(broken(z), "gave 1 results; the graph has 2 outputs")
  local f = triage.compile(clipped, {backend = function() return 3 end, fail_on_backend_error = true})
  fails(function() f(z, z) end, "returned a number for graph")
  local g = triage.compile(clipped, {backend = function() return function(x) return x, 3 end end})
  g(z, z)
  fails(function() g(z, z) end, "gave a number as result 2")
end)

test("D20: no output shares memory with an input, whatever a backend gives", function()
  local same = triage.compile(function(x) return x * 1 end, {backend = function()
    return function(x) return x[{{0, 1}}] end
  end})
  local x = z:clone()
  same(x)
  same(x):zero_()
  eq(x, z)
end)

test("D04: a backend that refuses a graph with relu, as a toy compiler of the seed does", function()
  local function no_relu(graph)
    for _, node in ipairs(graph.nodes) do assert(node.op ~= "aten::relu", "no relu here") end
    return graph
  end
  local falls_back = triage.compile(clipped, {backend = no_relu})
  for _ = 1, 3 do eq((falls_back(z, z)), (clipped(z, z))) end
  for _, options in ipairs({{fullgraph = true}, {fail_on_backend_error = true}}) do
    options.backend = no_relu
    local f = triage.compile(clipped, options)
    fails(function() f(z, z) end, "no relu here")
  end
  local narrowed = triage.compile(clipped, {backend = "aot_eager", fullgraph = true})
  for _ = 1, 3 do eq((narrowed(z, z)), (clipped(z, z))) end
end)

test("D04, D20: backends that fail on purpose", function()
  local function with(backend, options)
    options = options or {}
    options.backend = backend
    return triage.compile(clipped, options)
  end
  local f = with("faulty_compile", {fail_on_backend_error = true})
  fails(function() f(z, z) end, "backends.lua:5: faulty_compile: %3 = aten::relu cannot be compiled, on purpose")
  eq((with("faulty_compile")(z, z)), (clipped(z, z)))
  f = with("faulty_compile:tanh", {fail_on_backend_error = true})
  eq((f(z, z)), (clipped(z, z)))
  f = with("faulty_run")
  f(z, z)
  fails(function() f(z, z) end, "backends.lua:5: faulty_run: ")
  f = with("faulty_result")
  f(z, z)
  local a, b = f(z, z)
  eq(a, (torch.relu(z + z) + 1) * 2)
  eq(b, (torch.relu(z + z) + 1):sum(-1))
  f = with("faulty_result:aten::sum.dim_IntList")
  f(z, z)
  a, b = f(z, z)
  local c, d = clipped(z, z)
  eq(a, c)
  eq(b, d + 1)
  f = triage.compile(function(x) return x > 0 end, {backend = "faulty_result:gt"})
  f(z)
  eq(f(z), z <= 0)
  for _, name in ipairs(triage.list_backends()) do assert(not name:find("faulty"), name) end
end)

test("D20: a backend that calls the function it compiles, and one called from a coroutine", function()
  local f
  f = triage.compile(function(x) return x * 3 end, {backend = function(graph)
    return function(x) return graph(x) end
  end})
  f(z)
  eq(coroutine.wrap(function() return f(z) end)(), z * 3)
  eq(coroutine.wrap(function() return f(z:to(torch.float64)) end)(), z:to(torch.float64) * 3)
  eq(f(z), z * 3)
end)

test("D20: an error of the compiled callable is an error of the call", function()
  local f = triage.compile(function(x) return x * 3 end, {backend = function()
    return function() error("out of order") end
  end})
  f(z)
  fails(function() f(z) end, "out of order")
  fails(function() f(z) end, "out of order")
end)

test("D20: what a backend keeps in variables is none of the function's state", function()
  local runs, last, made = 0, nil, {}
  triage.register_backend("counting", function(graph)
    made[#made + 1] = graph
    return function(...)
      runs = runs + 1
      last = ...
      return graph(...)
    end
  end)
  local f = triage.compile(function(x)
    local a = x + 1
    local b = a * 2
    local c = b:relu() - a
    triage.graph_break("between")
    local d = c:abs()
    return d * 3 + c
  end, {backend = "counting"})
  local function expected(x)
    local c = ((x + 1) * 2):relu() - (x + 1)
    return c:abs() * 3 + c
  end
  eq(f(z), expected(z))
  eq(#made, 2)
  eq({#made[1].outputs, #made[2].outputs}, {1, 1})
  for rows = 1, 5 do
    local x = torch.randn({rows, 2})
    eq(f(x), expected(x))
    eq({runs, #made}, {2 * rows, 2}, "after call " .. rows)
  end
  eq(last:size(0), 5)
  eq({f:cache().graphs, f:cache().segments, f:cache().retired}, {0, 2, 0})
end)

test("D20: what a backend keeps and the function reads is an upvalue like any other", function()
  local count = 0
  local f = triage.compile(function(x) return x * count end, {backend = function(graph)
    return function(...)
      count = count + 1
      return graph(...)
    end
  end})
  for _ = 1, 5 do
    local before = count
    eq(f(z), z * before)
  end
end)

test("every backend draws numbers like a result in the same order, whatever strides the input has", function()
  local bodies = {
    function(x, y) return y * 2, torch.randn_like(y) end,
    function(x, y) return torch.rand_like(y * 2 + 1), torch.randint_like(y, 100) end,
    function(x, y) return torch.multinomial(y:abs() + 0.5, 2), y + 1 end,
    function(x, y) return torch.rand_like(y:t() + 1), torch.rand_like((x * 2):t()) end,
    function(x, y)
      local w = y:abs() * 2
      triage.graph_break("between")
      return torch.rand_like(w) + w, torch.randn_like(w)
    end,
  }
  local inputs = {
    function(n) return torch.arange(1, 4 * n + 1):to(torch.float32):view({4, n}):t() end,
    function(n) return torch.arange(1, 4 * n + 1):to(torch.float32):view({n, 4}) end,
    function(n) return torch.arange(1, 8 * n + 1):to(torch.float32):view({n, 8}):narrow(1, 2, 4) end,
  }
  for number, body in ipairs(bodies) do
    local function fn(x)
      local f = flag_nan(x, "x")
      local y
      y, f = fix(x * 0.5, f, "x")
      local a, b = body(x, y)
      return a, b, f
    end
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      local compiled = triage.compile(fn, {backend = backend})
      for round = 1, 6 do
        for kind, input in ipairs(inputs) do
          local x = input(2 + round % 2)
          torch.manual_seed(round)
          local expected = {fn(x)}
          torch.manual_seed(round)
          eq({compiled(x)}, expected, ("body %d, %s, input %d, round %d"):format(number, backend, kind, round))
        end
      end
    end
  end
end)
