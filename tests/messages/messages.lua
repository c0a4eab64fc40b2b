-- Every message about graph breaks, recompiles, stances, failing backends and exports, as who writes a script meets it.
-- `run` runs this file; messages.golden is what it prints. Read that when a message changes.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

--- What the calls in `fn` print, and the error that ends them.
local function show(title, fn)
  print("\n## " .. title)
  local ok, problem = pcall(fn)
  if not ok then
    print("error: " .. tostring(problem))
  end
end

--- Compiles `fn` and calls it.
local function broken(title, fn, ...)
  local f, arguments = triage.compile(fn, {name = "repair"}), table.pack(...)
  show(title, function() f(table.unpack(arguments, 1, arguments.n)) end)
end

print("# Graph breaks: the warning of the first call that meets one")

local function largest(x)
  return x:max():item()
end

broken("A number is read", function(x)
  if largest(x) > 3 then
    return x:clamp({max = 3})
  end
  return x
end, z)

broken("A tensor as a condition", function(x)
  if (x > 0):all() then
    return x
  end
  return -x
end, z)

broken("The shape depends on values", function(x)
  return x:masked_select(x > 0)
end, z)

broken("Samples are taken out", function(x)
  return err.take_ok(flag_nan(x), x)
end, z)

broken("Printing", function(x)
  print("rows:", x:size(0))
  return x * 2
end, z)

broken("The clock", function(x)
  return x * os.time() * 0
end, z)

local calls = {count = 0}
broken("A variable from outside", function(x)
  calls.count = calls.count + 1
  return x * calls.count
end, z)

local count = 0
show("A variable that is new in every call: one warning", function()
  local f = triage.compile(function(x)
    count = count + 1
    return x * count
  end, {name = "repair"})
  for _ = 1, 6 do
    f(z)
  end
end)

broken("A file is read", function(x)
  for line in io.lines("size_of_param.lua") do
    x = x + #line
  end
  return x
end, z)

broken("triage.graph_break", function(x)
  x = x * 2
  triage.graph_break("the table of limits is large")
  return x + 1
end, z)

local look_up = triage.disable(function(x) return x + 1 end)
broken("A disabled function", function(x)
  return look_up(x) * 2
end, z)

local too_large = triage.disable(function(x) return x + 1 end, {reason = "its table is too large"})
broken("A disabled function, with the reason", function(x)
  return too_large(x) * 2
end, z)

broken("Random numbers in a branch", function(x)
  return IF(x:sum(1):gt(0), function() return torch.rand_like(x) end):ELSE(function() return x end)

end, z)

broken("An input is written to", function(x)
  x:clamp_({max = 3})
  return x * 2
end, z:clone())

broken("A view is written to", function(x)
  local y = x * 1
  y:t():add_(1)
  return y
end, z)

broken("Gradients", function(x)
  local y = (x * x):sum()
  y:backward()
  return x * 2
end, torch.ones({2}, {requires_grad = true}))

broken("Autocast", function(x)
  return torch.autocast("cpu", function() return torch.einsum("ij,jk->ik", {x, x}) end)
end, z)

broken("Gradient mode is left off", function(x)
  torch.set_grad_enabled(false)
  return x * 2
end, z)
torch.set_grad_enabled(true)

broken("A result that is not a tensor", function(x)
  return x * 2, "two"
end, z)

local path = os.tmpname()
triage.export(function(x) return x:relu() end, {z}):to_torchscript(path)
local module = nn.load(path)
os.remove(path)
local function scaled(x, options) return x * options.factor end
show("An argument that is a table", function()
  local f = triage.compile(scaled, {name = "repair"})
  f(z, {factor = 2})
  f(z, {factor = 3})   -- says nothing more
end)

broken("A sparse tensor", function(x) return x + x end, z:to_sparse())

broken("A TorchScript module", function(x)
  return module(x) * 2
end, z)

broken("A layer is made", function(x)
  return nn.Linear(2, 2)(x)
end, z)

broken("A tensor is marked", function(x)
  triage.mark_dynamic(x, 0)
  return x * 2
end, z)

broken("An error is caught", function(x)
  local ok, y = pcall(function() return x:expand({7, 7}) end)
  return ok and y or x
end, z)

local program = triage.export(function(x) return x:relu() end, {z})
broken("An exported program", function(x)
  return program(x) * 2
end, z)

broken("The seed", function(x)
  torch.manual_seed(1)
  return torch.rand_like(x)
end, z)

broken("A branch that is not taken", function(x)
  return (IF((x > 1e9):all(), function() error("not for this batch") end):ELSE(function() return x * 2 end))
end, z)

print("\n# Graph breaks as errors")

local function reads(x)
  if x:sum():item() > 0 then
    return x
  end
  return -x
end

show("fullgraph", function() triage.compile(reads, {fullgraph = true})(z) end)
show("error_on_graph_break", function() triage.error_on_graph_break(true, triage.compile(reads))(z) end)
show("fullgraph, with an argument that is not a tensor", function()
  triage.compile(scaled, {fullgraph = true})(z, {factor = 2})
end)
show("fullgraph, with a sparse tensor", function()
  triage.compile(function(x) return x + x end, {fullgraph = true})(z:to_sparse())
end)

print("\n# Captured again")

local function again(title, fn, ...)
  local f, lists = triage.compile(fn, {name = "repair"}), {...}
  show(title, function()
    triage.set_logs({recompiles = true})
    for _, list in ipairs(lists) do
      f(table.unpack(list))
    end
  end)
  triage.set_logs({recompiles = false})
end

local function doubled(x) return x * 2 end
local function by_rows(x)
  for _ = 1, x:size(0) do
    x = x + 1
  end
  return x
end
local typed = tensorcheck(function(x, y) return x + y end, {
  name = "add", args = {x = Tensor(float32_t, {"N", "D"}), y = Tensor(float32_t, {"N", "D"})},
})
again("Another rank", doubled, {z}, {z[0]})
again("Another dtype", doubled, {z}, {z:to(torch.float64)})
again("Gradients", doubled, {z}, {torch.ones({2, 2}, {requires_grad = true})})
again("A size that the script reads", by_rows, {z}, {torch.ones({3, 2})})
again("Sizes that must be equal", typed, {z, z}, {z, torch.ones({1, 2})})
local function times(x, n) return x * n end
again("A plain argument", times, {z, 2}, {z, 3})
again("A plain argument of another type", times, {z, 2}, {z, 2.0}, {z, "2"})
again("Numbers that Lua prints alike", times, {z, 0.3}, {z, 0.1 + 0.2})
again("A tensor that is given twice", times, {z, z}, {z, z:clone()})
show("A function without a name", function()
  local f = triage.compile(times)
  triage.set_logs({recompiles = true})
  f(z, 1)
  f(z, 2)
end)
triage.set_logs({recompiles = false})
local factor
show("A variable from outside", function()
  local f = triage.compile(function(x) return x * factor end, {name = "repair"})
  triage.set_logs({recompiles = true})
  for i = 1, 2 do
    factor = i
    f(z)
  end
end)
triage.set_logs({recompiles = false})

local function with_config(settings, fn)
  local before = {}
  for name, value in pairs(settings) do
    before[name] = triage.config[name]
    triage.config[name] = value
  end
  pcall(fn)
  for name, value in pairs(before) do
    triage.config[name] = value
  end
end

local function by_size(x) for _ = 1, #x do x = x * 2 end return x end
for _, fails in ipairs({false, true}) do
  with_config({recompile_limit = 2, fail_on_recompile_limit_hit = fails}, function()
    show(fails and "The limit as an error" or "The limit", function()
      local f = triage.compile(by_size, {name = "repair"})
      for columns = 1, 4 do
        f(torch.ones({columns}))
      end
    end)
  end)
end
with_config({accumulated_recompile_limit = 2}, function()
  show("The limit for all variants of a function: one warning", function()
    local f = triage.compile(function(x, n) return x * n end, {name = "repair"})
    for n = 1, 100 do
      f(z, n)
    end
  end)
  show("The same, of a variable from outside", function()
    local f = triage.compile(function(x) return x * factor end, {name = "repair"})
    for n = 1, 100 do
      factor = n
      f(z)
    end
  end)
end)
with_config({accumulated_recompile_limit = 2}, function()
  show("The limit as an error, later: with the reason of this call", function()
    local f = triage.compile(times, {name = "repair"})
    for n = 1, 5 do
      f(z, n)
    end
    triage.config.fail_on_recompile_limit_hit = true
    f(z, 6)
  end)
  triage.config.fail_on_recompile_limit_hit = false
end)
show("An unknown setting", function() triage.config.recompile_limits = 3 end)
show("A setting with a wrong value", function() triage.config.recompile_limit = 0 end)

print("\n# Stances")

show("fail_on_recompile, before any graph", function()
  triage.set_stance("fail_on_recompile")
  triage.compile(doubled, {name = "repair"})(z)
end)
triage.set_stance("default")
show("fail_on_recompile", function()
  local f = triage.compile(doubled, {name = "repair"})
  f(z)
  triage.set_stance("fail_on_recompile")
  f(z[0])
end)
triage.set_stance("default")
show("fail_on_recompile, for another plain argument", function()
  local f = triage.compile(times, {name = "repair"})
  f(z, 1)
  triage.set_stance("fail_on_recompile")
  f(z, 2)
end)
triage.set_stance("default")
show("An unknown stance", function() triage.set_stance("fast") end)
show("A stance that is set in captured code", function()
  triage.compile(function(x) triage.set_stance("force_eager") return x end)(z)
end)

print("\n# Backends that fail")

local function refuses() error("it takes no graph of this kind", 0) end
show("A warning, and the interpreter", function() triage.compile(doubled, {name = "repair", backend = refuses})(z) end)
show("Between two breaks", function()
  local function halves(x) triage.graph_break("here") return x * 2 end
  local f = triage.compile(halves, {name = "repair", backend = refuses})
  triage.set_logs({graph_breaks = false})
  f(z)
end)
triage.set_logs({graph_breaks = true})
show("An error, with fail_on_backend_error", function()
  triage.compile(doubled, {name = "repair", backend = refuses, fail_on_backend_error = true})(z)
end)
show("An unknown backend", function() triage.compile(doubled, {backend = "fusd"}) end)

print("\n# The guards that explain shows")

show("Variables from outside and plain arguments", function()
  local limit, weight, table_of, apply = 3, torch.ones({2}), {scale = 2}, doubled
  local report = triage.explain(function(x, n, name, on)
    return on and apply(x) * weight * table_of.scale * n + #name + limit
  end, z, 5, "five", true)
  print(report.guards[1])
end)
show("Where the script runs on every call", function()
  print((tostring(triage.explain(reads, z)):match("\nOut Guards:\n(.-)\nCompile Times:\n")))
end)
show("A call that is not captured", function() print(triage.explain(scaled, z, {factor = 2}).break_reasons[1]) end)

print("\n# Exports that fail")

show("A number is read", function() triage.export(reads, {z}) end)
show("A dynamic size is read", function()
  triage.export(by_rows, {z}, {dynamic_shapes = "batch"})
end)
show("Two dynamic sizes must be equal", function()
  triage.export(function(x, y) return typed(x, y) end, {z, z}, {dynamic_shapes = {x = {[0] = "a"}, y = {[0] = "b"}}})
end)
show("One name, two sizes", function()
  triage.export(function(x, y) return x:sum(0) + y:sum(0) end, {z, torch.ones({3, 2})},
    {dynamic_shapes = {x = {[0] = "n"}, y = {[0] = "n"}}})
end)
show("Out of its own bounds", function()
  triage.export(doubled, {z}, {dynamic_shapes = {x = {[0] = {name = "n", min = 4, max = 8}}}})
end)
show("An input that is not a tensor", function() triage.export(doubled, {z, 3}) end)
show("A result that is not a tensor", function() triage.export(function(x) return x, 1 end, {z}) end)
show("Operators inside pcall", function()
  triage.export(function(x) local _, y = pcall(function() return x * 2 end) return y end, {z})
end)

print("\n# Constraints that do not hold")

local fixed = triage.export(doubled, {z})
local batched = triage.export(function(x, y) return x + y end, {z, z},
  {dynamic_shapes = {x = {[0] = {name = "n", min = 1, max = 8}}, y = {[0] = "n"}}})
show("A size that was fixed", function() fixed(torch.ones({3, 2})) end)
show("Another dtype", function() fixed(z:to(torch.int64)) end)
show("Another number of inputs", function() fixed(z, z) end)
show("A size out of its bounds", function() batched(torch.ones({9, 2}), torch.ones({9, 2})) end)
show("Two sizes that must be equal", function() batched(torch.ones({3, 2}), torch.ones({4, 2})) end)
show("A mark that the size does not fit", function() triage.mark_dynamic(z, 0, {min = 5}) end)
show("A mark that the script contradicts", function()
  local x = torch.ones({3, 2})
  triage.mark_dynamic(x, 0)
  triage.compile(by_rows, {name = "repair"})(x)
end)
show("A check of a plain number", function()
  local n = 7
  triage.check(n <= 5, "n is a count of rows")
end)
show("A check of a tensor in a graph", function()
  local f = triage.compile(function(x)
    triage.check((x > 0):all(), "x is positive")
    return x * 2
  end, {name = "repair"})
  f(torch.ones({2}))
  f(-torch.ones({2}))
end)
with_config({capture_scalar_outputs = true}, function()
  show("A check of a number in a graph", function()
    local f = triage.compile(function(x)
      local n = x:sum():int():item()
      triage.check(n <= 5, "n is a count of rows")
      return x * n
    end, {name = "repair"})
    f(torch.ones({2}))
    f(torch.ones({9}))
  end)
end)
with_config({capture_scalar_outputs = true}, function()
  show("A check that cannot hold", function()
    triage.export(function(x)
      local n = x:sum():int():item()
      triage.check(n <= 5)
      triage.check(n >= 6, "n is a count of rows")
      return x * n
    end, {torch.ones({2})})
  end)
  show("An impossible range", function()
    triage.compile(function(x)
      local n = x:sum():int():item()
      triage.constrain_as_value(n, {min = 0, max = 5})
      triage.constrain_as_value(n, {min = 7})
      return x * n
    end, {fullgraph = true})(torch.ones({2}))
  end)
end)

print("\n# How functions are named")

show("A wrapped function keeps its name", function()
  triage.set_logs({recompiles = true})
  for _, stands_for in ipairs({triage.allow_in_graph, triage.assume_constant_result, as_result, tensorcheck,
    function(fn) return triage.error_on_graph_break(true, fn) end,
    function(fn) return triage.substitute_in_graph(doubled, fn) end}) do
    local fn = stands_for(doubled)
    local f = triage.compile(fn)
    f(z)
    f(z[0])
  end
end)
show("A wrapped function that is disabled", function()
  triage.compile(triage.disable(triage.error_on_graph_break(true, doubled)), {name = "repair"})(z)
end)
show("A module of the script", function()
  local net = nn.Module("Net", {forward = function(_, x) return x * 2 end})
  local f = triage.compile(net)
  f(z)
  f(z[0])
end)
show("A module of the library: named by the line that compiles it", function()
  local f = triage.compile(nn.Linear(2, 2))
  f(z)
  f(z[0])
end)
triage.set_logs({recompiles = false})

print("\n# Text that is loaded")

local text = "local function largest(x)\n  return x:max():item()\nend\nreturn function(x) return x * largest(x) end"
show("With a name", function() triage.compile(load(text, "=loaded")())(z) end)
show("Without a name", function() triage.compile(load(text)())(z) end)

print("\n# Natural Lua: a branch that runs for every sample")

local function in_branch(title, statement)
  local head = "--!tensor\nlocal z, outer = ...\nif z:sum(-1) > 100 then\n  "
  show(title, function() assert(load(head .. statement .. "\nend", "=natural"))(z, z:clone()) end)
end
in_branch("An error", "error('too large')")
in_branch("An assertion", "assert(false, 'too large')")
in_branch("A file to write to", "io.open('not_there.txt', 'w')")
in_branch("What requires gradients", "outer:requires_grad_()")
in_branch("A mark", "triage.mark_dynamic(outer, 0)")
in_branch("A substitute", "triage.substitute_in_graph(math.abs, math.floor)")
in_branch("A location", "ErrorLocation.register('not.there.before')")

print("\n# Wrong arguments")

show("set_stance", function() triage.set_stance() end)
show("graph_break", function() triage.graph_break({}) end)
show("set_logs", function() triage.set_logs("recompiles") end)
show("check", function() triage.check() end)
show("register_backend", function() triage.register_backend() end)
show("assume_constant_result", function() triage.assume_constant_result("f") end)
show("Called through another name", function() local f = triage.mark_dynamic f(z, "rows") end)
