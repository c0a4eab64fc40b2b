-- Scopes of autocast inside captured code: part of the graph, as casts of what operators take.

torch.manual_seed(5)
local backends = {"eager", "aot_eager", "fused"}
local x, y = torch.randn({4, 4}), torch.randn({4, 4})

local function bits(value) return value:detach():float():view(torch.int32) end

--- Outputs and gradients of `fn`, captured in one graph by each backend, are those of the plain function.
local function agrees(name, fn, inputs)
  local function run(f)
    local given = {}
    for i, input in ipairs(inputs) do given[i] = input:detach():clone():requires_grad_(input.requires_grad) end
    local results = table.pack(f(table.unpack(given)))
    local seen = {}
    for i = 1, results.n do
      seen[#seen + 1] = tostring(results[i].dtype) .. tostring(results[i].requires_grad)
      seen[#seen + 1] = bits(results[i])
    end
    if results[1].requires_grad then
      local total = results[1]:float():sum()
      for i = 2, results.n do total = total + results[i]:float():sum() end
      total:backward()
      for i, input in ipairs(given) do
        if input.requires_grad and input.grad then seen["grad" .. i] = bits(input.grad) end
      end
    end
    return seen
  end
  local expected = run(fn)
  for _, backend in ipairs(backends) do
    local compiled = triage.compile(fn, {fullgraph = true, backend = backend})
    for _ = 1, 3 do eq(run(compiled), expected, name .. ", " .. backend) end
    if backend == "fused" then
      compiled:finish_compiling()
      eq(run(compiled), expected, name .. ", compiled")
    end
    eq(compiled:cache().graphs, 1, name)
  end
end

local model = nn.Sequential(nn.Linear(4, 8), nn.Module({forward = function(_, v) return v:relu() end}), nn.Linear(8, 4))

local programs = {
  call = function(a, b) return torch.autocast("cpu", function() return a:mm(b) end) end,
  block = function(a, b)
    local c
    do
      local _ <close> = torch.autocast("cpu", {dtype = torch.bfloat16})
      c = a:matmul(b)
    end
    return c + a, a:matmul(b)
  end,
  used_twice = function(a, b)
    return torch.autocast(function() return a:mm(b) + (a * 1):mm(b) + a:mm(a) + (b * 2):mm(a) end)
  end,
  nested = function(a, b)
    return torch.autocast(function()
      local low = a:mm(b)
      local high = torch.autocast({enabled = false}, function() return a:mm(b) end)
      return low, high, low:mm(b)
    end)
  end,
  promoted = function(a, b)
    return torch.autocast(function() return torch.cat({a:mm(b), a}), torch.stack({a:mm(b), b}) end)
  end,
  layers = function(a) return torch.autocast(model, a) end,
  written = function(a, b)
    return torch.autocast(function()
      local c = a:mm(b)
      c:add_(1)
      c[0] = 2
      return c:relu()
    end)
  end,
  in_branches = function(a, b)
    local chosen = torch.autocast(function()
      return IF(a:sum(-1) > 0, function() return a:mm(b) end):ELSE(function() return b:mm(a) end)
    end)
    local f = flag_nan(a, "here")
    return chosen, f
  end,
  two_scopes = function(a, b)
    local c = torch.autocast(function() return a:mm(b) end)
    return c, torch.autocast(function() return a:mm(b) end)
  end,
}

test("a scope of autocast is captured, and gives the bits of the script on every backend", function()
  for name, fn in pairs(programs) do
    agrees(name, fn, {x, y})
    agrees(name .. " with gradients", fn, {x:clone():requires_grad_(), y:clone():requires_grad_()})
  end
  agrees("one dtype", programs.call, {x:double(), y:double()})
end)

test("gradients of weights under autocast are those of the script", function()
  local function gradients(f)
    model:zero_grad()
    local total = 0
    for _ = 1, 2 do total = total + f(x):float():sum() end
    total:backward()
    local list = {}
    for i, parameter in ipairs(model:parameters()) do list[i] = bits(parameter.grad) end
    return list
  end
  local function twice(a) return torch.autocast(function() return model(a) + model(a * 2) end) end
  local expected = gradients(twice)
  for _, backend in ipairs(backends) do
    local compiled = triage.compile(twice, {fullgraph = true, backend = backend})
    for _ = 1, 3 do eq(gradients(compiled), expected, backend) end
  end
  model:zero_grad()
end)

test("the casts stand in the graph, its text and exported programs", function()
  local program = triage.export(programs.call, {x, y})
  local text = tostring(program)
  assert(text:find("aten::to.dtype", 1, true) and text:find("bf16", 1, true), text)
  eq(program(x, y), programs.call(x, y))
  eq(program:verify()(x, y), programs.call(x, y))
  local path = os.tmpname()
  program:save(path)
  eq(triage.load_exported(path)(x, y), programs.call(x, y))
  program:to_torchscript(path)
  eq(nn.load(path)(x, y), programs.call(x, y))
  os.remove(path)
end)

test("captured code is called with autocast on, and has a scope of its own", function()
  local compiled = triage.compile(programs.block)
  local expected = torch.autocast(function() return (programs.block(x, y)) end)
  for _ = 1, 3 do eq((torch.autocast(compiled, x, y)), expected) end
  for _ = 1, 3 do eq((compiled(x, y)), (programs.block(x, y))) end
  local off = triage.compile(function(a, b) return torch.autocast({enabled = false}, function() return a:mm(b) end) end,
    {warn = false})
  for _ = 1, 3 do eq(torch.autocast(off, x, y), x:mm(y)) end
  local strict = triage.compile(programs.nested, {fullgraph = true})
  fails(function() torch.autocast(strict, x, y) end, "in another autocast mode than the captured code was called in")
end)

test("what autocast does inside of an operator is a graph break, and no other result", function()
  local function fn(a, b) return torch.autocast(function() return torch.einsum("ij,jk->ik", {a, b}) end) end
  fails(function() triage.compile(fn, {fullgraph = true})(x, y) end, "`einsum` in an autocast scope")
  local compiled = triage.compile(fn, {warn = false})
  for _ = 1, 3 do eq(compiled(x, y), fn(x, y)) end
end)

test("a scope that the captured function leaves open is a graph break", function()
  --- What `fn` gives; a coroutine that fails leaves no mode behind.
  local function contained(fn)
    local result
    coroutine.resume(coroutine.create(function()
      result = fn()
      error("done")
    end))
    return result
  end
  local function leaves(a)
    torch.autocast()
    return a:mm(a)
  end
  local strict = triage.compile(leaves, {fullgraph = true})
  local why = contained(function() return select(2, pcall(strict, x)) end)
  assert(tostring(why):find("the function returns with a different autocast mode", 1, true), tostring(why))
  local compiled = triage.compile(leaves, {warn = false})
  for _ = 1, 3 do
    local dtypes = contained(function() return {compiled(x).dtype, x:mm(y).dtype} end)
    eq(dtypes, {torch.bfloat16, torch.bfloat16})
    eq(x:mm(y).dtype, torch.float32)
  end
end)

test("scopes in functions of several graphs", function()
  local functions = {
    function(a, b)
      local c = a * 2
      triage.graph_break("meant")
      local d = torch.autocast(function() return c:mm(b) end)
      triage.graph_break("meant")
      return d:float() + c
    end,
    function(a, b)
      local _ <close> = torch.autocast()
      local c = a:mm(b)
      triage.graph_break("meant")
      return c:mm(a), c + 1
    end,
    function(a, b)
      local c = torch.autocast(function()
        local low = a:mm(b)
        if low:sum():item() > 1e9 then return low end
        return low:mm(b)
      end)
      return c, a:mm(b)
    end,
  }
  for number, fn in ipairs(functions) do
    for _, backend in ipairs(backends) do
      local compiled = triage.compile(fn, {backend = backend, warn = false})
      for _ = 1, 4 do eq({compiled(x, y)}, {fn(x, y)}, number .. ", " .. backend) end
    end
  end
end)
