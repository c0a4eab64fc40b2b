-- Random programs of natural Lua, run on a batch, captured, and sample by sample as plain Lua, where a condition is the
-- truth value of the one sample: the same bits. TRIAGE_DIFFERENTIAL=N makes N programs, TRIAGE_DIFFERENTIAL_SEED begins
-- elsewhere; a program that differs is in the message.
local random, pick, seeds = random_programs(80, 104729)

local Program = {}
Program.__index = Program

local function new_program()
  return setmetatable({lines = {}, depth = 1, names = {"a", "b", "c"}, count = 0}, Program)
end

function Program:line(text, ...)
  self.lines[#self.lines + 1] = ("  "):rep(self.depth) .. text:format(...)
end

function Program:value() return pick(self.names) end

--- Operations whose bits do not depend on how many samples there are.
function Program:expression()
  local kind = random(9)
  if kind <= 2 then
    return ("%s %s %s"):format(self:value(), pick({"+", "-", "*"}), self:value())
  elseif kind <= 4 then
    return ("%s %s %s"):format(self:value(), pick({"+", "-", "*"}), pick({"1", "2", "0.5", "n"}))
  elseif kind == 5 then
    return ("%s:%s()"):format(self:value(), pick({"abs", "neg", "relu", "square"}))
  elseif kind == 6 then
    return ("choose(%s, %s)"):format(self:value(), self:value())
  elseif kind == 7 then
    return ("%s:clamp(-4, 4)"):format(self:value())
  end
  return self:value()
end

function Program:comparison()
  return ("%s %s %s"):format(self:value(), pick({"<", "<=", ">", ">=", "==", "~="}),
    random(2) == 1 and self:value() or pick({"0", "1", "-2", "n"}))
end

function Program:condition(nesting)
  local kind = random(nesting > 2 and 4 or 9)
  if kind <= 3 then
    return self:comparison()
  elseif kind == 4 then
    return pick({"n > 1", "n == 2", "true", "false", "w:size(0) > 1", "w:size(0) == n - 1", "#w > 0"})
  elseif kind <= 6 then
    return ("(%s and %s)"):format(self:condition(nesting + 1), self:condition(nesting + 1))
  elseif kind <= 8 then
    return ("(%s or %s)"):format(self:condition(nesting + 1), self:condition(nesting + 1))
  end
  return ("not (%s)"):format(self:condition(nesting + 1))
end

function Program:block(statements)
  local known = #self.names
  self.depth = self.depth + 1
  for _ = 1, statements do self:statement() end
  self.depth = self.depth - 1
  for i = #self.names, known + 1, -1 do self.names[i] = nil end
end

function Program:branches()
  self:line("if %s then", self:condition(1))
  self:block(random(3))
  for _ = 1, random(3) - 1 do
    self:line("elseif %s then", self:condition(1))
    self:block(random(2))
  end
  if random(2) == 1 then
    self:line("else")
    self:block(random(3))
  end
  self:line("end")
end

function Program:statement()
  local kind = random(12)
  if kind <= 4 or self.depth > 4 then
    self:line("%s = %s", pick({"a", "b", "c"}), self:expression())
  elseif kind == 5 then
    self.count = self.count + 1
    self:line("local v%d = %s", self.count, self:expression())
    self.names[#self.names + 1] = "v" .. self.count
  elseif kind == 6 then
    self:line("a, b = %s, %s", self:expression(), self:expression())
  elseif kind == 7 then
    self:line("for i = 1, 2 do")
    self:block(random(2))
    self:line("end")
  elseif kind == 8 then
    self:line("do local function set() %s = %s end set() end", pick({"a", "b", "c"}), self:expression())
  else
    self:branches()
  end
end

local function source()
  local program = new_program()
  for _ = 1, 2 + random(4) do program:statement() end
  program:branches()
  return ([[
local function choose(x, y)
  if x > y and not (x == 0) then x = x - y elseif x < -8 or y < -8 then x = y * 0 end
  return x
end
return function(a, b, n, w)
  local c = a - b
%s
  return a, b, c
end
]]):format(table.concat(program.lines, "\n"))
end

local function samples(n)
  local i = torch.arange(n):to(torch.float32)
  return (i % 7) - 3, ((i * 3) % 5) - 2
end

local function bits(x) return x:contiguous():view(torch.int32) end

local function one_by_one(fn, a, b, n, w)
  local results = {{}, {}, {}}
  for i = 0, a:size(0) - 1 do
    local one = {{i, i + 1}}
    for k, value in ipairs({fn(a[one]:clone(), b[one]:clone(), n, w)}) do results[k][i + 1] = value end
  end
  for k = 1, 3 do results[k] = torch.cat(results[k]) end
  return results
end

local function differ(text, backend)
  local scalar = assert(load(text, "=scalar.lua"))()
  local natural = assert(load("--!tensor\n" .. text, "=natural.lua"))()
  local captured = triage.compile(natural, {fullgraph = true, backend = backend})
  for step, size in ipairs({7, 1, 2, 35, 0}) do
    local n = step % 3
    local a, b = samples(size)
    local w = torch.zeros({(step * 2) % 3})   -- of which programs ask the size
    local expected = size > 0 and one_by_one(scalar, a, b, n, w)
    for name, fn in pairs({natural = natural, captured = captured}) do
      local results = {fn(a:clone(), b:clone(), n, w)}
      for k = 1, 3 do
        if results[k]:size(0) ~= size then return ("%s: result %d has another size"):format(name, k) end
        local fine, why = pcall(eq, bits(results[k]), bits(expected and expected[k] or a))
        if not fine then return ("%s, batch %d, result %d: %s"):format(name, size, k, why) end
      end
    end
  end
end

test("natural Lua: random programs of natural Lua do for a batch what plain Lua does for each sample", function()
  for seed in seeds() do
    local text = source()
    local backend = seed % 3 == 0 and "fused" or "eager"
    local ran, why = pcall(differ, text, backend)
    if not ran or why then error(("program %d, on %s: %s\n%s"):format(seed, backend, why, text)) end
  end
end)
