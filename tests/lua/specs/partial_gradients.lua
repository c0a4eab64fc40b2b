-- Backward runs over some of the outputs, in any order, again and again: the gradients, which of them there are, and
-- the errors are
-- those of the script by itself. Random functions with random runs; TRIAGE_DIFFERENTIAL=N makes N of them,
-- TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(60, 15485863)

local unary = {"%s:exp()", "%s:tanh()", "%s:relu()", "%s * 2", "%s + 1", "%s:neg()", "%s:sigmoid()", "%s:t():t()",
  "%s:reshape({-1}):view({-1, 3})", "%s:detach()", "%s:square()", "%s[{{0, 1}}]:expand_as(%s)", "%s - %s:mean()",
  "%s:sum(0)", "%s:clamp({min = 0})", "%s:flip({1})", "%s:expand({-1, -1})", "%s:contiguous()",
  "torch.no_grad(function() return %s * 3 end)", "%s:mul(0)", "%s:sum(-1, {keepdim = true})"}
local binary = {"%s + %s", "%s * %s", "%s - %s", "torch.where(%s > 0, %s, x)", "torch.maximum(%s, %s)", "%s + b", "%s * w", -- luacheck: ignore 631
  "%s + w", "%s * b", "%s + x + y", "torch.cat({%s, %s}):narrow(0, 0, 1)", "torch.linear(%s, m)"}
-- Products of views of what is computed; most have the sizes of `x` again.
local products = {"torch.linear(%s, torch.cat({m, m, m})):narrow(-1, 2, 3)",
  "torch.matmul(%s:unsqueeze(0), %s:unsqueeze(0):transpose(-2, -1)):matmul(x):squeeze(0)",
  "torch.matmul(torch.stack({x, %s}):transpose(0, 1), m):select(1, 0)",
  "torch.matmul(torch.linear(x, torch.cat({m, m})):unflatten(-1, {2, 3}):transpose(-2, -3), m):flatten(0, 1):narrow(0, 0, 1) + %s", -- luacheck: ignore 631
  "torch.bmm(torch.stack({%s, x}):narrow(0, 0, 1), torch.stack({m, m}):narrow(0, 1, 1)):squeeze(0)",
  "torch.matmul(%s:unfold(-1, 2, 1):tanh(), torch.ones({3, 2, 1})):permute({1, 0, 2}):reshape({-1, 3})",
  "torch.cat({%s, x}, -1):unflatten(-1, {2, 3}):diagonal(0, 1, 2):matmul(m:narrow(0, 0, 2))",
  "attend(%s:unsqueeze(0), 0.5)", "attend(torch.stack({%s, x}), 1)", "attend(torch.stack({x, %s, x}):transpose(0, 1), 2):narrow(0, 0, 1) + x", -- luacheck: ignore 631
  "torch.matmul(%s:t(), x):t():matmul(m)", "torch.matmul(%s:transpose(-2, -1), %s):matmul(m)"}

local function expression(locals)
  local text = pick(({unary, unary, binary, binary, products})[random(5)])
  if text:find("%%s.*%%s") and random(4) == 1 then
    local one = pick(locals)
    return (text:gsub("%%s", function() return one end))
  end
  return (text:gsub("%%s", function() return pick(locals) end))
end

local function source()
  local lines, locals, results = {}, {"x", "y", "x"}, {}
  local breaks = random(3) == 1
  for i = 1, 1 + random(5) do
    local before = breaks and random(2) == 1 and "  triage.graph_break('b')\n" or ""
    lines[i] = before .. ("  local v%d = %s"):format(i, expression(locals))
    table.insert(locals, "v" .. i)
    if i > 1 then table.insert(locals, "v" .. i) end
  end
  for i = 1, 1 + random(3) do
    results[i] = random(6) == 1 and pick({"x", "w", "v1:argmax()", "b", "v1 > 0"}) or pick(locals)
  end
  return ([[
local w, b, m = ...
local function attend(v, factor)
  local l = torch.linear(v, torch.cat({m, m, m})):tanh() * factor
  local q, k = l:narrow(-1, 0, 3), l:narrow(-1, 3, 3)
  return torch.matmul(torch.matmul(q, k:transpose(-2, -1)), l:narrow(-1, 6, 3)):select(0, 0) * factor
end
local function f(x, y)
%s
  return %s
end
return f
]]):format(table.concat(lines, "\n"), table.concat(results, ", "))
end

--- What is done with the outputs and gradients, as data: the same for both worlds.
local function steps()
  local list = {}
  for i = 1, 1 + random(5) do
    local kind = random(12)
    list[i] = {kind = kind, retain = random(2) == 1, one = random(4), two = random(4), both = random(3) == 1,
      leaf = random(5), other = random(5), scale = random(3), dense = random(2) == 1}
  end
  return list
end

--- Leaves and arguments of equal values. `layout` says which require grad and how they lie.
local function make(seed, layout)
  torch.manual_seed(seed)
  local rows = ({1, 2, 3, 31, 0})[layout % 5 + 1]
  local world = {w = torch.randn({3}), b = torch.randn({1, 3}), m = torch.randn({3, 3})}
  local x, y = torch.randn({rows, 3}), torch.randn({3, rows}):t()
  for _, name in ipairs({"w", "b", "m"}) do world[name]:requires_grad_(layout % 7 ~= 1 or name == "w") end
  if layout % 3 ~= 0 then x:requires_grad_() end
  if layout % 2 == 0 then y = y:contiguous():requires_grad_() end
  world.leaves = {world.w, world.b, world.m, x, y}
  world.x, world.y = x, y
  if layout % 11 == 3 then world.x = x * 1.5 end   -- no leaf
  if layout % 11 == 5 then world.y = x end         -- one tensor twice
  if layout % 11 == 7 then world.x = (x + 0):view({-1}):view({-1, 3}) end
  return world
end

local function loss_of(world, index, step)
  local o = world.outputs[(index - 1) % #world.outputs + 1]
  local factor = step.dense and o:detach():to(torch.float32):mul(0):add(step.scale) or step.scale
  return (o * factor):sum()
end

local function kind_of(message)
  message = type(message) == "table" and message.message or tostring(message)
  for _, known in ipairs({"second time", "inplace", "in%-place", "does not require grad", "leaf",
    "appears to not have been used", "One of the differentiated Tensors"}) do
    if message:find(known) then return known == "in%-place" and "inplace" or known end
  end
  return message
end

--- One step; what it gives, or the kind of error.
local function run(world, step)
  local kind, results = step.kind, {}
  local ok, message = pcall(function()
    local loss
    if kind <= 8 then
      loss = loss_of(world, step.one, step)
      if step.both then loss = loss + loss_of(world, step.two, step) end
    end
    if kind <= 4 then
      loss:backward({retain_graph = step.retain})
    elseif kind == 5 then
      local o = world.outputs[(step.one - 1) % #world.outputs + 1]
      o:backward(torch.ones_like(o) * step.scale, {retain_graph = step.retain})
    elseif kind <= 7 then
      local wanted = {world.leaves[step.leaf]}
      if step.leaf ~= step.other then wanted[2] = world.leaves[step.other] end
      results = table.pack(torch.autograd.grad(loss, wanted, nil, {retain_graph = step.retain, allow_unused = true}))
    elseif kind == 8 then
      local leaf = world.leaves[step.leaf]
      local g = torch.autograd.grad(loss, {leaf}, nil, {create_graph = true, allow_unused = true})
      results = {g and g:detach()}
      world.twice = true
      if g ~= nil and g.requires_grad then (g * g):sum():backward({retain_graph = step.retain}) end
    elseif kind == 9 then
      local o = world.outputs[(step.one - 1) % #world.outputs + 1]
      local arguments, before = {world.x, world.y, world.w, world.b, world.m}, {}
      for k, argument in ipairs(arguments) do before[k] = argument:detach():clone() end
      torch.no_grad(function() o:add_(1) end)
      world.wrote_argument = world.wrote_argument or world.breaks   -- it may be one of a graph behind a break
      for k, argument in ipairs(arguments) do
        world.wrote_argument = world.wrote_argument or argument:numel() == 0 or not torch.equal(before[k], argument)
      end
    elseif kind == 10 then
      local leaf = world.leaves[step.leaf]
      if leaf.grad then leaf.grad:add_(step.scale) end
    elseif kind == 11 then
      local leaf = world.leaves[step.leaf]
      if leaf.grad then leaf.grad = nil end
    else
      world.outputs = table.pack(world.f(world.x, world.y))   -- a further call, while the first is not done with
      world.outputs.n = nil
    end
  end)
  return ok or kind_of(message), results
end

--- What cancels has the rounding of its terms: the largest value of the tensor says how much that may be.
local function near(a, b, bound)
  local finite = a:nan_to_num(0, 0, 0):abs()
  local largest = a:numel() > 0 and finite:max():item() or 0
  return torch.allclose(a, b, bound, bound * math.max(1, largest), true)
end

local function agree(a, b, what, bound)
  local none, other_none = rawequal(a, nil), rawequal(b, nil)
  if none or other_none then
    if none ~= other_none then return what .. (other_none and " is missing" or " is there, and is not in the script") end -- luacheck: ignore 631
    return
  end
  if a.requires_grad ~= b.requires_grad then return what .. ": requires_grad" end
  a, b = a:detach(), b:detach()
  local same, why
  if bound and a:is_floating_point() then
    same = a.dtype == b.dtype and pcall(eq, b.shape, a.shape) and near(a, b, bound)
    why = ("values: the script: %s; compiled: %s"):format(tostring(a), tostring(b))
  else
    same, why = pcall(eq, b, a)
  end
  if not same then return what .. ": " .. tostring(why) end
end

local function compare(plain, world, bound)
  for i, o in ipairs(plain.outputs) do
    local why = agree(o, world.outputs[i], "output " .. i, bound)
    if why then return why end
  end
  for i, leaf in ipairs(plain.leaves) do
    local why = agree(leaf, world.leaves[i], "leaf " .. i, bound)
      or agree(leaf.grad, world.leaves[i].grad, "gradient of leaf " .. i, bound)
    if why then return why end
  end
end

local function differ(text, seed, backend, wait)
  local bound = ({fused = 1e-4, aot_eager = 1e-5})[backend]   -- the order of sums: docs/backends.md
  local layout, compiled = random(1000), nil
  for round = 1, 4 do
    local plain, world = make(seed + round, layout), make(seed + round, layout)
    if compiled then   -- the weights are the function's own: the same ones, with other values
      for _, name in ipairs({"w", "b", "m"}) do
        compiled[name].grad = nil
        torch.no_grad(function() compiled[name]:copy_(world[name]) end)
        world[name] = compiled[name]
      end
      for i, name in ipairs({"w", "b", "m"}) do world.leaves[i] = world[name] end
    end
    plain.f = assert(load(text))(plain.w, plain.b, plain.m)
    compiled = compiled or {w = world.w, b = world.b, m = world.m,
      f = triage.compile(assert(load(text))(world.w, world.b, world.m), {backend = backend})}
    world.f, world.breaks = compiled.f, text:find("graph_break") or text:find("no_grad")
    local list, script = steps(), {}
    local a, b = table.pack(pcall(plain.f, plain.x, plain.y)), table.pack(pcall(world.f, world.x, world.y))
    if a[1] ~= b[1] then return "one failed: " .. tostring(a[2]) .. " / " .. tostring(b[2]) end
    if not a[1] then return end
    plain.outputs, world.outputs = {table.unpack(a, 2, a.n)}, {table.unpack(b, 2, b.n)}
    local why = compare(plain, world, bound)
    for i, step in ipairs(list) do
      if why then break end
      script[i] = ("%d%s(%d,%d%s)"):format(step.kind, step.retain and "r" or "", step.one, step.two, step.both and "+" or "") -- luacheck: ignore 631
      local one, given = run(plain, step)
      local other, got = run(world, step)
      if one ~= other and other == "inplace" and backend ~= "eager" and world.wrote_argument then
        break   -- where nothing is prepared for the run, the graph is computed again: docs/backends.md, aot_eager
      elseif one == "inplace" and other == true and backend ~= "eager" and step.kind == 8 then
        break   -- a gradient that is differentiated is computed again from the arguments, which nobody wrote to
      elseif one == true and other == "second time" and backend ~= "eager" and world.breaks then
        break   -- what ATen computed in front of a graph is freed with the graph: docs/backends.md
      elseif one == "second time" and other == true and backend ~= "eager" and world.twice then
        break   -- a gradient that is differentiated comes from a graph of its own, which alone is freed
      elseif one ~= other then
        why = ("the script: %s; compiled: %s"):format(tostring(one), tostring(other))
      elseif one ~= true then
        break   -- how far a run came that failed is not said
      else
        for k = 1, math.max(#given, given.n or 0) do
          why = why or agree(given[k], got[k], "result " .. k, bound)
        end
        why = why or compare(plain, world, bound)
      end
    end
    if why then
      return ("round %d, layout %d, after %s: %s"):format(round, layout, table.concat(script, " "), why)
    end
    if wait and round == 2 then compiled.f:finish_compiling() end
  end
end

test("A02: gradients of partial, repeated and ordered backward runs are those of the script", function()
  for seed in seeds() do
    local text = source()
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      local why = differ(text, seed, backend, backend == "fused" and seed % 8 == 0)
      if why then error(("program %d differs with backend %s: %s\n%s"):format(seed, backend, why, text)) end
    end
  end
end)

test("A02: the call that is captured sums gradients in the order of the script", function()
  local function body(x) return x * x, x end
  for _, leaf in ipairs({true, false}) do
    local compiled = triage.compile(body, {backend = "eager"})
    local function gradient(f)
      torch.manual_seed(1)
      local x = torch.randn({31, 3}, {requires_grad = true})
      local squares, same = f(leaf and x or x / 3)
      return torch.autograd.grad((squares * 3):sum() + (same * 3):sum(), x)
    end
    for _ = 1, 2 do eq(gradient(compiled), gradient(body)) end
  end
end)

test("A02: gradients share memory where those of the script do, and nowhere else", function()
  for _, body in ipairs({"x * 2 + y * 2", "(x * 2):t() + (y * 2):t()", "(x + y):exp()", "x:t() + y:t()"}) do
    for _, backend in ipairs({"aot_eager", "fused"}) do
      local f = assert(load("return function(x, y) return " .. body .. " end"))()
      local compiled = triage.compile(f, {backend = backend})
      local function written(call)
        local x, y = torch.ones({2, 2}, {requires_grad = true}), torch.ones({2, 2}, {requires_grad = true})
        local a, b = torch.autograd.grad((call(x, y) * 3):sum(), {x, y})
        if a:is_contiguous() and b:is_contiguous() then a:add_(1) end
        return b:clone()
      end
      for _ = 1, 3 do
        if body:find("exp") then written(compiled) else eq(written(compiled), written(f), body) end
      end
    end
  end
end)

test("A02: of two equal calls, a backward run through one leaves the other to be gone through", function()
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(function(x) return x:exp() * 2, x:exp() * 3 end, {backend = backend})
    for _ = 1, 3 do
      local x = torch.ones({2, 2}, {requires_grad = true})
      local a, b = f(x)
      a:sum():backward()
      b:sum():backward()
      close_to(x.grad, torch.ones({2, 2}):exp() * 5, 1e-5)
    end
  end
end)
