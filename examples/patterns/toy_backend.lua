-- A backend of one's own: it is given the captured graph, prints it, and returns what is called in its place.
--     triage exec examples/patterns/toy_backend.lua
-- Each line marked with an arrow is what the program prints.

triage.register_backend("toy", function(graph, inputs)
  print(("graph %s, captured on %d tensors:"):format(graph.name, #inputs))
  for _, node in ipairs(graph.nodes) do
    print(("  %s = %s(%s)"):format(node.name, node.op, table.concat(node.inputs, ", ")))
  end
  return graph                                       -- a graph can be called: this backend changes nothing
end)

local function toy_example(a, b)
  local x = a / (a:abs() + 1)
  return x * b
end

local fast = triage.compile(toy_example, {backend = "toy", name = "toy_example"})
local a, b = torch.tensor({1.0, -3.0}), torch.tensor({2.0, 4.0})
fast(a, b)
--> graph toy_example, captured on 2 tensors:
-->   %2 = aten::abs(%a)
-->   %3 = aten::add.Scalar(%2)
-->   %4 = aten::div.Tensor(%a, %3)
-->   %5 = aten::mul.Tensor(%4, %b)
print(fast(a, b))                                    --> tensor([ 1., -3.])

-- One that cannot compile every graph says so with an error: the call is then run by the interpreter, or, with
-- fail_on_backend_error (as with fullgraph), fails.
local function no_division(graph)
  for _, node in ipairs(graph.nodes) do
    assert(not node.op:find("div"), "no division, please")
  end
  return graph
end
local strict = triage.compile(toy_example, {backend = no_division, fail_on_backend_error = true})
print((pcall(strict, a, b)))                          --> false
