-- Random programs in which chains on flags and masks, random numbers, scopes, and conditions on sizes and ranks stand
-- in one another, run as scripts, compiled, exported, and as TorchScript, at every batch size: the same bits, errors,
-- gradients and generators. TRIAGE_DIFFERENTIAL=N makes N programs, TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(60, 86028121)

local Program = {}
Program.__index = Program

function Program:line(text, ...)
  self.lines[#self.lines + 1] = ("  "):rep(self.depth) .. (select("#", ...) > 0 and text:format(...) or text)
end

local function data() return pick({"x", "x", "y"}) end
local function number() return pick({"0", "1", "-2", "3", "0.5"}) end

--- A condition on samples.
local function mask(depth)
  local kind = random(depth > 1 and 7 or 10)
  if kind <= 2 then
    return ("(%s:flatten(1):%s(-1) %s %s)"):format(data(), pick({"amax", "amin"}), pick({"<", "<=", ">", "~="}),
      number())
  elseif kind == 3 then
    return ("(%s %s %s):flatten(1):%s(-1)"):format(data(), pick({"<", ">="}), number(), pick({"any", "all"}))
  elseif kind == 4 then
    return pick({"err.is_ok(f)", "err.is_err(f)", "err.has_inf(f)"})
  elseif kind == 5 then
    return pick({"err.has_nan(f)", "find(err.OOB, f)", "err.has_code(f, err.SATURATED)", "err.has_fallback(f)"})
  elseif kind == 6 then
    return pick({"(err.count_errors(f) > 1)", "(err.max_severity(f) >= err.ERROR)", "(err.get_first_code(f) ~= 0)"})
  elseif kind == 7 then
    return "torch.isnan(x):flatten(1):any(-1)"
  elseif kind == 8 then
    return ("~(%s)"):format(mask(depth + 1))
  end
  return ("(%s %s %s)"):format(mask(depth + 1), pick({"&", "|", "~"}), mask(depth + 1))
end

local function condition()
  if random(4) > 1 then return mask(0) end
  return pick({"HAS(f)", "IS(err.NAN, f)", "(x > 1):any()", "(y < 0):all()", "AND(HAS(f), (x > 0):any())",
    "NOT(err.all_ok(f))"})
end

--- On sizes, ranks and what else a script may read of a tensor.
local function plain_condition()
  return pick({"x:size(0) > 2", "x:dim() == 3", "x:numel() == 0", "#x.shape > 2 and n > 1", "n % 2 == 0",
    "x.requires_grad",
    "x:size(0) == y:size(0)", "torch.is_grad_enabled()", "n < 2 or x:size(-1) == 4", "f:size(0) > 3"})
end

--- Local tensors that are written to in place, by their order in memory, and the writes.
local memory = {"(%s + 0)", "%s:clone()", "%s:transpose(0, -1):clone():transpose(0, -1)", "%s:abs()",
  "torch.empty_like(%s):copy_(x)", "(%s:transpose(0, -1) * 2)", "torch.zeros_like(%s)", "%s:contiguous():neg()",
  "%s:dropout(0.5, true)", "(%s > 0):to(torch.float32)"}
local writes = {"%s:copy_(%s)", "%s:masked_fill_(%s > 0, 2)", "%s[%s > 0] = 1", "%s:cumsum_(0)", "%s:cumsum_(-1)",
  "%s:tril_()", "%s:triu_()", "%s:index_add_(-1, two, %s:narrow(-1, 0, 2))",
  "%s:index_copy_(-1, two, %s:narrow(-1, 0, 2))", "%s:index_fill_(-1, two, 3)", "%s:masked_scatter_(%s > 0, %s)",
  "%s:add_(%s)", "%s:mul_(2)", "%s:lt_(%s)", "%s:clamp_({min = 0})", "%s:relu_()", "%s:neg_()", "%s:fill_(3)",
  "%s:zero_()", "%s[{':', 0}] = 2", "%s[{{}, 0}] = %s[{{}, 0}]", "%s:cumprod_(-1)", "%s:addcmul_(%s, %s)",
  "%s:scatter_(-1, torch.zeros_like(%s):to(torch.int64), %s)", "%s:nan_to_num_(0.5)", "%s:sign_()",
  "%s:index_put_({torch.tensor({0})}, %s[0])", "%s:transpose_(0, -1)", "%s:logical_and_(%s)"}

local drawn = {"torch.rand_like(%s)", "torch.randn_like(%s)", "torch.randn({4})",
  "torch.rand({n, 1, 1})[{':', 0}]:view({n}):sum():clamp(0, 1)",
  "torch.randint(0, 5, {4}):to(torch.float32)", "%s:dropout(0.5, true)", "%s:dropout(0.5, false)",
"torch.randperm(4):to(torch.float32)", "torch.rand({1})"}

--- What one program may hold. Much of it breaks a graph, and one that holds everything would hardly ever be captured.
local may

--- An expression of the shape of `x`.
local function expression(depth)
  local kind = random(15)
  if kind <= 3 then
    return ("%s %s %s"):format(data(), pick({"+", "-", "*"}), pick({number(), "w", data(), "n"}))
  elseif kind <= 5 then
    return ("%s:%s()"):format(data(), pick({"abs", "neg", "relu", "square", "clone", "detach", "contiguous", "floor"}))
  elseif kind == 6 then
    return ("%s:clamp(-3, 3)"):format(data())
  elseif kind == 7 then
    return ("torch.where(%s > %s, %s, %s)"):format(data(), number(), data(), data())
  elseif kind == 8 then
    return ("%s:nan_to_num(0.5)"):format(data())
  elseif kind <= 10 and may.draw and (depth == 1 or may.break_graphs) then
    local numbers = may.break_graphs and random(5) == 1 and "torch.rand({4}, {generator = g})" or pick(drawn)
    return data() .. " + " .. numbers:gsub("%%s", data())
  elseif kind == 11 then
    return ("err.map_ok(f, %s, function(v) return v * 2 end)"):format(data())
  elseif kind == 12 then
    return ("err.take_ok_p(f, %s%s)"):format(data(), pick({"", ", 1"}))
  elseif kind == 13 then
    return ("err.replace(%s, %s, {err.NAN%s})"):format(data(), number(), pick({"", ", err.INF", ", 'neginf'"}))
  elseif kind == 14 then
    return ("err.map_err(f, %s, function(v) return v:nan_to_num() + 1 end)"):format(data())
  end
  return ("torch.where(%s:view({-1}):view(rows), %s, %s)"):format(mask(0), data(), data())
end

local function flags_expression()
  local place = pick({"'in'", "'hidden'", "'out'"})
  local kind = random(7)
  if kind <= 2 then
    return ("err.merge(f, %s(%s, %s))"):format(pick({"flag_nan", "flag_inf", "flag_nan_and_inf"}), data(), place)
  elseif kind == 3 then
    return ("push(f, %s, %s)"):format(pick({"err.OOB", "err.SATURATED"}), place)
  elseif kind == 4 then
    return ("err.clear(f, %s)"):format(pick({"err.NAN", "err.OOB"}))
  elseif kind == 5 then
    return ("err.ensure_mask(f, %s, err.OOB, %s)"):format(mask(0), place)
  elseif kind == 6 then
    return ("torch.where((%s):unsqueeze(-1), f, err.new(x))"):format(mask(0))
  end
  return ("err.map_err_flags(f, function(v) return push(v, err.OVERFLOW, %s) end)"):format(place)
end

function Program:block(statements)
  self.depth = self.depth + 1
  for _ = 1, statements do self:statement() end
  self.depth = self.depth - 1
end

--- A branch of a chain: what it assigns is its own, and comes back.
function Program:branch(head)
  self:line(head)
  self:line("  local x, y, f = x0, y0, f0")
  self:block(random(2))
  self:line("  return x, y, f")
end

function Program:chain()
  self:line("do local x0, y0, f0 = x, y, f")
  self:branch(("x, y, f = IF(%s, function()"):format(condition()))
  if random(3) == 1 then self:branch(("end):ELIF(%s, function()"):format(condition())) end
  self:branch("end):ELSE(function()")
  self:line("end) end")
end

function Program:scope()
  local block = pick({"torch.no_grad()", "torch.enable_grad()", "torch.set_grad_enabled(n > 2)", "torch.no_grad()",
    "triage.error_on_graph_break(false)"})
  if random(3) == 1 then
    self:line("x, y, f = torch.no_grad(function()")
    self:block(random(2))
    self:line("return x, y, f end)")
  elseif random(5) == 1 and may.break_graphs then
    self:line("do local _ <close> = torch.autocast('cpu', {dtype = torch.bfloat16})")
    self:block(1)
    self:line("  x = x:nan_to_num(0, 0, 0):matmul(m):to(torch.float32)")
    self:line("end")
  else
    self:line("do local _ <close> = %s", block)
    self:block(random(2))
    self:line("end")
  end
end

--- A tensor of the function's own that is written to; it, views of it and what is drawn like it are results.
function Program:write()
  self.extras = self.extras or {}
  local name = ("m%d"):format(#self.extras + 1)
  local function named(text) return (text:gsub("%%s", data)) end
  self:line("local %s = %s", name, named(pick(memory)))
  for _ = 1, random(2) do
    local write, first = pick(writes), true
    self:line((write:gsub("%%s", function()
      if first then first = false return name end
      return random(3) == 1 and name or name .. ":detach():neg():view_as(" .. name .. ")"
    end)))
  end
  self.extras[#self.extras + 1] = pick({"%s", "%s", "%s:transpose(0, -1)", "%s, %s:transpose(0, -1)",
    "torch.rand_like(%s)", "%s:dropout(0.5, true), %s", "%s, %s * 2", "%s[{{}, 0}], torch.randn_like(%s)"})
    :gsub("%%s", name)
end

function Program:statement()
  if self.depth == 1 and may.write and random(4) == 1 then return self:write() end
  local kind = random(16)
  if kind <= 5 or self.depth > 4 then
    self:line("%s = %s", data(), expression(self.depth))
  elseif kind <= 8 then
    self:line("f = " .. flags_expression())
  elseif kind == 9 then
    self:line("x, f = fix(x, f, 'out')")
  elseif kind <= 11 then
    self:chain()
  elseif kind <= 13 then
    self:scope()
  elseif kind == 14 and may.read_sizes then
    self:line("if %s then", plain_condition())
    self:block(random(2))
    if random(2) == 1 then
      self:line("else")
      self:block(1)
    end
    self:line("end")
  elseif kind == 15 and may.read_sizes then
    self:line("for i = 1, %s do", pick({"2", "n % 3", "x:dim() - 1"}))
    self:block(1)
    self:line("end")
  elseif may.break_graphs and random(2) == 1 then
    self:line(pick({"triage.graph_break('here')", "if x:sum():item() > 0 then y = y + 1 end"}))
  elseif may.break_graphs then
    self:line("do local ok, v = pcall(function() return x:view({%s, -1}) end) if ok then y = y + v:size(1) end end",
      pick({"n", "3", "n * 4"}))
  end
end

local function source()
  may = {draw = random(2) == 1, break_graphs = random(3) == 1, read_sizes = random(2) == 1, write = random(2) == 1}
  local program = setmetatable({lines = {}, depth = 1}, Program)
  for _ = 1, 2 + random(4) do program:statement() end
  local extras = program.extras and ", " .. table.concat(program.extras, ", ") or ""
  return ([[
local w, m, g = ...
return function(x, y)
  local n, rows, two = x:size(0), {-1}, torch.tensor({1, 0})
  for i = 2, x:dim() do rows[i] = 1 end
  local f = flag_nan_and_inf(x, "in")
%s
  return x, y, f%s
end]]):format(table.concat(program.lines, "\n"), extras)
end

local odd = {0 / 0, 1 / 0, -1 / 0, -0.0}
--- Row-major, or in another order of dims.
local function values(shape, requires_grad)
  local x = torch.randn(shape):mul(3):floor():div(2)
  if x:numel() > 0 and random(3) > 1 then
    local flat = x:view({-1})
    for _ = 1, random(3) do flat[random(flat:size(0)) - 1] = pick(odd) end
  end
  if random(3) == 1 then x = x:transpose(0, -1):contiguous():transpose(0, -1) end
  return requires_grad and x:requires_grad_() or x
end

local function make_world(seed, text)
  torch.manual_seed(seed)
  local world = {w = torch.randn({4}):mul(2):floor(), m = torch.eye(4), g = torch.Generator(seed)}
  world.f = assert(load(text, "=program.lua"))(world.w, world.m, world.g)
  return world
end

--- Of the dims that have more than one element.
local function strides_of(value)
  local strides = {}
  for d = 0, value:dim() - 1 do strides[d + 1] = value:size(d) > 1 and value:numel() > 0 and value:stride(d) or 1 end
  return strides
end

--- Dims that have more than one element, from the largest stride to the smallest.
local function order_of(value)
  local dims = {}
  for d = 0, value:dim() - 1 do
    if value:size(d) > 1 and value:numel() > 0 and value:stride(d) > 0 then dims[#dims + 1] = d end
  end
  table.sort(dims, function(a, b)
    if value:stride(a) ~= value:stride(b) then return value:stride(a) > value:stride(b) end
    return a < b
  end)
  return dims
end

--- Results, gradients and what the generators give next; of an error, that it is one.
local function outcome(fn, world, seed, x, y)
  x, y = x:detach():clone():requires_grad_(x.requires_grad), y:clone()   -- which keep their order in memory
  torch.manual_seed(seed)
  world.w.grad = nil
  local results = table.pack(pcall(fn, x, y))
  local list = {ok = results[1], why = results[2], next = {torch.rand({2}), torch.rand({2}, {generator = world.g})}}
  if not results[1] then return list end
  for i = 2, results.n do
    local value = results[i]
    list[i - 1] = {value:detach(), requires_grad = value.requires_grad, strides = strides_of(value),
      order = order_of(value),
      value:is_floating_point() and value:detach():masked_fill(value:isnan(), 0):signbit()}
  end
  if results[2].requires_grad then
    pcall(function() results[2]:nan_to_num(0, 0, 0):sum():backward() end)
    list.gradients = {x.grad or false, world.w.grad or false}
  end
  return list
end

--- None, and all of them 0, is the same: see `same`.
local function same_gradients(got, expected)
  for i, gradient in ipairs(expected) do
    local other = got[i] or (gradient and torch.zeros_like(gradient))
    gradient = gradient or (other and torch.zeros_like(other))
    local fine, why = pcall(eq, other, gradient, "gradient " .. i)
    if not fine then return false, why end
  end
  return true
end

local function finite(gradients)
  for _, gradient in ipairs(gradients) do
    if gradient and not gradient:isfinite():all():item() then return false end
  end
  return true
end

--- `layout`: what must be the script's, `strides` or the `order` of dims alone; TorchScript has strides of its own.
local function same(got, expected, gradients, signs, layout)
  if got.ok ~= expected.ok then
    return false, ("one failed: script %s / %s"):format(tostring(expected.why), tostring(got.why))
  end
  local fine, why = pcall(eq, got.next, expected.next, "generators")
  if not fine or not got.ok then return fine, why end
  for i, value in ipairs(expected) do
    for k = 1, signs and 2 or 1 do
      local expected_value = value[k]
      fine, why = pcall(eq, got[i][k], expected_value, "result " .. i)
      if not fine then return false, why end
    end
    if layout then
      fine, why = pcall(eq, got[i][layout], value[layout], layout .. " of result " .. i)
      if not fine then return false, why end
    end
    -- captured, every branch of a chain runs: what comes out of it requires grad where any of them does
    if value.requires_grad and not got[i].requires_grad then return false, ("result %d: requires_grad"):format(i) end
  end
  if gradients and expected.gradients and finite(expected.gradients) then
    return same_gradients(got.gradients, expected.gradients)
  end
  return true
end

local function batches(seed)
  local requires_grad, list = seed % 3 == 0, {}
  for position, rows in ipairs(pick({{4, 1, 33, 0}, {3, 2, 31, 3}, {32, 0, 1, 2}, {2, 1000, 1, 4}})) do
    local shape = {rows, 4}
    if seed % 2 == 0 and position % 2 == 0 then shape = {rows, 2, 4} end
    list[position] = {values(shape, requires_grad), values(shape)}
  end
  list[5], list[6] = list[1], list[2]
  return list
end

local function run(world, fn, calls, seed)
  local list = {}
  for position, call in ipairs(calls) do list[position] = outcome(fn, world, seed + position, call[1], call[2]) end
  return list
end

local function check(what, got, expected, text, gradients, signs, layout)
  for position, one in ipairs(expected) do
    local fine, why = same(got[position], one, gradients, signs ~= false, layout)
    if not fine then error(("%s, call %d: %s\n%s"):format(what, position, tostring(why), text), 0) end
  end
end

--- Those that have the rank of the first; a program is held to it.
local function of_one_rank(calls)
  local list = {}
  for _, call in ipairs(calls) do
    if call[1]:dim() == calls[1][1]:dim() then list[#list + 1] = call end
  end
  return list
end

local function check_twins(seed, text, calls)
  local world, path = make_world(seed, text), os.tmpname()
  local given = {calls[1][1]:detach(), calls[1][2]}
  local exported, program = pcall(triage.export, world.f, given,
    {dynamic_shapes = given[1]:size(0) > 1 and "batch" or nil})
  if not exported then return false end
  local fitting = {}
  for _, call in ipairs(of_one_rank(calls)) do
    if given[1]:size(0) > 1 or call[1]:size(0) == given[1]:size(0) then
      fitting[#fitting + 1] = {call[1]:detach(), call[2]}
    end
  end
  local script = make_world(seed, text)
  local expected = run(script, script.f, fitting, seed)
  check("seed " .. seed .. ", exported", run(world, program, fitting, seed), expected, text, false, true, "strides")
  if pcall(program.to_torchscript, program, path) then
    local twin, loaded = make_world(seed, text), nn.load(path)
    local got = run(twin, function(x, y) return loaded(x, y) end, fitting, seed)
    check("seed " .. seed .. ", TorchScript", got, expected, text, false, false)   -- which turns `x + 0` into `x`
  end
  os.remove(path)
  return true
end

test("programs of flags, masks, random numbers, scopes and sizes do the same compiled and exported", function()
  for seed in seeds() do
    local text = source()
    torch.manual_seed(seed)
    local calls = batches(seed)
    local plain = make_world(seed, text)
    local expected = {run(plain, plain.f, calls, seed), run(plain, plain.f, calls, seed)}
    for _, backend in ipairs(seed % 4 == 0 and {"eager", "aot_eager", "fused"} or {"eager"}) do
      local world = make_world(seed, text)
      local compiled = triage.compile(world.f, {backend = backend})
      for round = 1, 2 do
        if round == 2 and backend == "fused" and seed % 24 == 0 then compiled:finish_compiling() end
        local what = ("seed %d, %s, round %d"):format(seed, backend, round)
        check(what, run(world, compiled, calls, seed), expected[round], text, backend == "eager", true,
          backend == "fused" and "order" or "strides")   -- loops leave no gaps
      end
    end
    check_twins(seed, text, calls)
  end
end)

test("a graph that draws, and whose errors the script handles, draws as often as the script", function()
  local function f(x)
    x = x + torch.rand({1})
    local ok, v = pcall(function() return x:view({3, -1}) end)
    return ok and v or x
  end
  local compiled = triage.compile(f, {backend = "eager"})
  for _, rows in ipairs({3, 6, 4, 3, 1}) do
    torch.manual_seed(rows)
    local expected, next_one = f(torch.ones({rows, 4})), torch.rand({1})
    torch.manual_seed(rows)
    eq({compiled(torch.ones({rows, 4})), torch.rand({1})}, {expected, next_one})
  end
end)
