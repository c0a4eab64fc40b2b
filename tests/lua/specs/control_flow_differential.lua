-- Random programs of branches with effects, errors, pcall, coroutines, closing variables and functions of sizes,
-- plain and in natural Lua, run as scripts and compiled: the same bits, errors and effects, call after call.
-- TRIAGE_DIFFERENTIAL=N makes N programs, TRIAGE_DIFFERENTIAL_SEED begins elsewhere; a program that differs is in
-- the message.
local random, pick, seeds = random_programs(100, 15485863)

local Program = {}
Program.__index = Program

function Program:line(text, ...)
  self.lines[#self.lines + 1] = ("  "):rep(self.depth) .. text:format(...)
end

local function batch_condition()
  return pick({"(x > %d):all()", "(x < %d):any()", "(x:sum() > %d)", "(a > %d):any()"}):format(random(5) - 3)
end

local function sample_condition()
  return pick({"x:sum(-1) > %d", "a:amax(-1) < %d", "(x > %d):any(-1)"}):format(random(5) - 3)
end

local function expression()
  return pick({"x * 2", "x + a", "a:relu()", "x - n", "a * (n / 2)", "x:neg()", "a + #s", "x:clamp(-3, " ..
    "n)", "torch.where(x > 0, a, x)",
    "x + x:mean(-1, {keepdim = n >= 0})", "x * k"})
end

--- What fails on batches of some sizes, or has as many rows as the batch on some alone.
local function expression_of_size()
  return pick({"x - x:max()", "x + a[1]", "x * a:narrow(0, 1, 1)", "(x:view({2, -1}) * 2):view_as(x)",
    "x:mean(0, {keepdim = true})",
    "torch.cat({x, a}, 0)", "torch.matmul(torch.ones({2, 2}), a)", "a:index_select(0, torch.tensor({0, 1}))",
    "x[-1] + a",
    "x + x:argmax(0)", "a:roll(1, 0) + x:chunk(2, 0)[2]", "x:sort(0)[1] * a:median()"})
end

--- What gives text or a number of a size.
local function of_size()
  return pick({"tostring(n)", "('ab'):rep(n)", "table.concat({n, k, n + 1}, '-')", "('%d'):format(n)", "n .. ''",
    "(('xyz'):gsub('%a', function() return n end))", "select(n > 1 and 1 or 2, 'one', " ..
      "'two')", "string.format('%q', n > 2)",
    "('abcdef'):sub(n)", "tostring(math.max(n, 2))", "utf8.char(64 + n)", "tostring(n == 2)"})
end

function Program:body(statements)
  self.depth = self.depth + 1
  for _ = 1, statements do self:statement() end
  self.depth = self.depth - 1
end

--- Something that a graph cannot hold, or that fails.
function Program:odd()
  self:line("%s", pick({
    "k = k + math.random(9)", "x = x * x:sum():item()", "triage.graph_break('asked for')", "x = x:view({7, 3})",
    "x = x + nothing.here", "error('on purpose')", "error('level', 1)", "error({n})", "x = x + torch.rand({1, 2})",
    "io.write('')", "count = count + 1", "pcall(io.write, '')", "pcall(x.view, x, {7, n})", "table.sort({n, 2, 1})",
    "do local t = {n} t[n] = k k = k + #t end", "k = k + tonumber(s:match('%d') or 1)",
  }))
end

function Program:chain()
  local condition = random(3) > 1 and batch_condition() or sample_condition()
  self:line("do local x0, a0 = x, a")
  self:line("x, a = IF(%s, function()", condition)
  self:line("  local x, a = x0, a0")
  self:body(random(3))
  self:line("  return x, a")
  if random(3) == 1 then
    self:line("end):ELIF(%s, function()", batch_condition())
    self:line("  local x, a = x0, a0")
    self:body(random(2))
    self:line("  return x, a")
  end
  self:line("end):ELSE(function()")
  self:line("  local x, a = x0, a0")
  self:body(random(2))
  self:line("  return x, a")
  self:line("end) end")
end

function Program:natural_if()
  self:line("if %s then", random(3) > 1 and batch_condition() or sample_condition())
  self:body(random(3))
  if random(3) == 1 then
    self:line("elseif %s then", batch_condition())
    self:body(random(2))
  end
  if random(2) == 1 then
    self:line("else")
    self:body(random(2))
  end
  self:line("end")
end

function Program:protected()
  if random(2) == 1 then
    self:line("do local ok, e = pcall(function()")
    self:body(random(3))
    self:line("end) if not ok then s = s .. #tostring(type(e) == 'string' and e or 't') end end")
  else
    self:line("do local ok = xpcall(function()")
    self:body(random(3))
    self:line("end, function(e) handled = handled + 1 return type(e) end) if not ok then s = s .. handled end end")
  end
end

function Program:statement()
  local kind = random(14)
  if kind <= 4 or self.depth > 5 then
    local fails_on_some = self.depth > 2 and random(4) == 1
    self.sized = self.sized or fails_on_some
    self:line("%s = %s", pick({"x", "a"}), fails_on_some and expression_of_size() or expression())
  elseif kind <= 6 then
    self:line("s = s .. %s", of_size())
  elseif kind == 7 then
    self:odd()
  elseif kind == 8 then
    self:protected()
  elseif kind == 9 then
    self:line("do local k0 <close> = setmetatable({}, {__close = function(_, e) closed = closed + (e and 10 or " ..
      "1) end})")
    self:body(random(2))
    self:line("end")
  elseif kind == 10 and random(2) == 1 then
    self:line("do local next_one = coroutine.wrap(function() for i = 1, n + 1 do coroutine.yield(i) end return " ..
      "0 end)")
    self:body(1)
    self:line("k = k + next_one() end")
  elseif kind <= 12 and self.natural then
    self:natural_if()
  else
    self:chain()
  end
end

local function source(natural)
  local program = setmetatable({lines = {}, depth = 1, natural = natural}, Program)
  for _ = 1, 1 + random(3) do program:statement() end
  if random(3) > 1 then program:odd() end
  program:statement()
  return ([[%s
local count = 0
return function(x)
  local n, k, s, handled, closed = %s, 1, "", 0, 0
  local a = x - 1
%s
  return x + k + #s + handled + closed, a + count
end]]):format(natural and "--!tensor" or "", pick({"x:size(0)", "x:size(0)", "x:size(1)"}),
    table.concat(program.lines, "\n")), program.sized
end

local inputs = {
  torch.tensor({{-1.0, 2.0}, {3.0, -4.0}}),
  torch.tensor({{1.0, 2.0}, {3.0, 4.0}}),
  torch.tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}}),
  torch.tensor({{-1.0, -2.0}, {-3.0, -4.0}}),
  torch.tensor({{-1.0, -2.0}, {-3.0, -4.0}, {-5.0, 0.5}}),
  torch.ones({1, 2}),
  torch.ones({0, 2}),
  -torch.ones({1, 2}),
  torch.arange(64):to(torch.float32):view({32, 2}) - 7,
}

local function outcome(fn, x)
  local results = {pcall(fn, x:clone())}
  results.random = math.random(1000000)
  results.drawn = torch.rand({1})
  return results
end

local function is_of_graph(problem) return type(problem) == "string" and problem:find(" in graph `", 1, true) end

local function same(a, b)
  if a[1] ~= b[1] then
    return false, ("one failed: %s / %s"):format(a[2], b[2])
  elseif not a[1] and type(a[2]) == "string" and not is_of_graph(a[2]) and not is_of_graph(b[2]) then
    return pcall(eq, {b[2], b.random, b.drawn}, {a[2], a.random, a.drawn})
  elseif not a[1] then
    return pcall(eq, {type(b[2]), b.random, b.drawn}, {type(a[2]), a.random, a.drawn})
  end
  return pcall(eq, b, a)
end

local function run(text, backend, order)
  local fn = assert(load(text, "=program.lua"))()
  local form = backend and triage.compile(fn, {backend = backend}) or fn
  torch.manual_seed(0)
  math.randomseed(0)
  local list = {}
  for step = 1, 11 do
    list[step] = outcome(form, inputs[(step * order) % #inputs + 1])
  end
  return list
end

local function differ(text, order, sized, backend)
  local plain, compiled = run(text, nil, order), run(text, backend, order)
  for step = 1, #plain do
    -- An operator that fails on a size, and whose result nobody uses, is in no graph; one put off may fail behind
    -- another. What the script can answer, the graph answers.
    if sized and not plain[step][1] then return nil end
    local fine, why = same(plain[step], compiled[step])
    if not fine then
      return ("call %d: %s"):format(step, why)
    end
  end
end

test("N01: random programs of branches with effects and errors do the same compiled and as scripts", function()
  for seed in seeds() do
    local text, sized = source(seed % 2 == 0)
    local backend = seed % 3 == 0 and "fused" or "eager"
    local why = differ(text, seed % 5 + 1, sized, backend)
    if why then
      error(("program %d differs on %s: %s\n%s"):format(seed, backend, why, text))
    end
  end
end)
