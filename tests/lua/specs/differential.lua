-- Random programs, run as scripts and compiled, several calls each with changing shapes, dtypes, numbers and
-- upvalues: the same bits, the same side effects, an error where there was one. TRIAGE_DIFFERENTIAL=N makes N programs,
-- TRIAGE_DIFFERENTIAL_SEED begins elsewhere; a program that differs is in the message.
local random, pick, seeds = random_programs(120, 7919)

local unary = {"relu", "abs", "tanh", "neg", "square", "sigmoid", "contiguous", "clone", "exp", "floor", "isnan"}
local compared = {"n", "k", "x:size(0)", "#x.shape", "#x", "x:numel() // 3", "x.shape[1] * 2 - n", "(#x + 3) % 4",
  "10 - #x"}
local numbers = {"2", "0.5", "-1", "3", "k", "n", "limits.high", "k * 2", "n + 1", "#x", "x:numel()", "x.shape[1]"}
local masks = {"%s > 0", "%s < k", "%s >= limits.high", "%s ~= %s", "torch.isnan(%s)", "%s:isfinite()"}

--- One program: its statements, and how many locals it has.
local Program = {}
Program.__index = Program

local function new_program()
  return setmetatable({lines = {}, locals = {"x"}, depth = 0}, Program)
end

function Program:line(text, ...)
  self.lines[#self.lines + 1] = ("  "):rep(self.depth + 1) .. text:format(...)
end

function Program:value() return pick(self.locals) end

function Program:fresh()
  self.count = (self.count or 0) + 1
  return "v" .. self.count
end

function Program:mask()
  local text = pick(masks)
  return (text:gsub("%%s", function() return self:value() end))
end

--- An expression of the shape of `x`.
function Program:expression()
  local kind = random(13)
  if kind <= 3 then
    return ("%s:%s()"):format(self:value(), pick(unary))
  elseif kind <= 6 then
    return ("(%s %s %s)"):format(self:value(), pick({"+", "-", "*"}), pick(numbers))
  elseif kind <= 8 then
    return ("(%s %s %s)"):format(self:value(), pick({"+", "-", "*"}), self:value())
  elseif kind == 9 then
    return ("torch.where(%s, %s, %s)"):format(self:mask(), self:value(), self:value())
  elseif kind == 10 then
    return ("(%s - %s:mean(-1, {keepdim = true, dtype = torch.float32}))"):format(self:value(), self:value())
  elseif kind == 11 then
    return ("%s:clamp({max = %s})"):format(self:value(), pick(numbers))
  elseif kind == 12 then
    return ("helper(%s)"):format(self:value())
  end
  return ("fix(%s + 0.0, flag_nan_and_inf(%s + 0.0))"):format(self:value(), self:value())
end

function Program:assign()
  if #self.locals > 1 and random(3) == 1 and self.depth > 0 then
    self:line("%s = %s", self.locals[random(#self.locals - 1) + 1], self:expression())
    return
  end
  if self.depth > 0 then   -- a local of a block would be gone behind it
    self:line("x = %s", self:expression())
    return
  end
  local name = self:fresh()
  self:line("local %s = %s", name, self:expression())
  self.locals[#self.locals + 1] = name
end

function Program:block(head, tail)
  self:line("%s", head)
  self.depth = self.depth + 1
  for _ = 1, random(2) do
    self:statement()
  end
  self.depth = self.depth - 1
  self:line("%s", tail or "end")
end

function Program:statement()
  local kind = random(26)
  if kind <= 12 or self.depth > 2 then
    self:assign()
  elseif kind == 13 then
    self:block(("if %s:sum():item() > %s then"):format(self:value(), pick(numbers)))
  elseif kind == 14 then
    self:block(("for i = 1, %s do"):format(pick({"2", "n", "x:size(0) %% 3"}):gsub("%%%%", "%%")))
  elseif kind == 15 then
    self:block(("if %s > 2 then"):format(pick(compared)))
  elseif kind == 16 then
    self:line("triage.graph_break(%q)", "asked for")
  elseif kind == 17 then
    self:line("calls = calls + 1")
  elseif kind == 18 then
    self:line("log[#log + 1] = calls")
  elseif kind == 19 then
    self:line("log[#log + 1] = %s:sum():item()", self:value())
  elseif kind == 20 then
    local name = self:fresh()
    self:line("local %s = x * 1.5", name)
    self:line("%s:%s", name, pick({"add_(1)", "mul_(x)", "clamp_({min = 0})", "t():mul_(2)"}))
    self:line("x = %s", name)
  elseif kind == 21 then
    self:line("kept = %s", self:value())
  elseif kind == 22 then
    self:line("if kept and kept:size(0) == x:size(0) then x = x + kept end")
  elseif kind == 23 then
    self:line("do local ok, y = pcall(function() return %s:view({%s, -1}) end) if ok then x = x + y:sum() end end",
      self:value(), pick({"2", "3", "n"}))
  elseif kind == 24 then
    self:line("do local t = {a = %s, b = {%s}} t.c = t.a + t.b[1] x = t.c end", self:value(), self:value())
  elseif kind == 25 then
    self:line("x = IF((%s):flatten(1):any(-1), function() return x * 2.0 end):ELSE(function() return x + 1.0 end)",
      self:mask())
  else
    self:line("x = x + #log + (limits.low or 0)")
  end
end

local function source()
  local program = new_program()
  for _ = 1, 2 + random(6) do
    program:statement()
  end
  local results = {}
  for i = 1, random(3) do
    results[i] = program:value()
  end
  return ([[
local k, limits, calls, log, kept = 2, {high = 3}, 0, {}, nil
local function helper(y) return y * k + calls end
local function f(x, n)
%s
  return %s
end
local function change(step)
  if step %% 3 == 0 then k = k + 1 end
  if step %% 4 == 0 then limits.high = limits.high - 0.5 end
  if step == 5 then limits.low = 1 end
  if step == 6 then k = 2.5 end
end
return f, change, log
]]):format(table.concat(program.lines, "\n"), table.concat(results, ", "))
end

local inputs = {
  torch.tensor({{-1.0, 2.0, 0.5}, {3.0, 0 / 0, -4.0}}),
  torch.tensor({{1.0, -2.0, 0.5}, {3.0, 1.0, 4.0}}),
  torch.zeros({0, 3}),
  torch.ones({1, 3}) * 3,
  (torch.arange(15):to(torch.float32):reshape({3, 5}) - 7):t(),
  torch.arange(12):to(torch.float64):reshape({4, 3}) - 5,
  torch.tensor({{1.0, 1 / 0, -2.0}, {0.0, 5.0, 6.0}}),
  torch.arange(6):reshape({2, 3}) - 3,
}

local function outcome(fn, x, n)
  local results = table.pack(pcall(fn, x:clone(), n))
  return results
end

local function same(a, b)
  if a[1] ~= b[1] then
    return false, ("one failed: %s / %s"):format(a[2], b[2])
  elseif not a[1] then
    return true
  elseif a.n ~= b.n then
    return false, "another number of results"
  end
  for i = 2, a.n do
    local x, y = a[i], b[i]
    if x.dtype ~= y.dtype or #x.shape ~= #y.shape then
      return false, "another dtype or rank"
    end
    local plain, message = pcall(eq, y, x)
    if not plain then
      return false, message
    end
  end
  return true
end

local function differ(text, backend)
  local plain, change_plain, log_plain = assert(load(text))()
  local fn, change, log = assert(load(text))()
  local compiled = triage.compile(fn, {backend = backend})
  for step = 1, 12 do
    local x, n = inputs[(step * 5) % #inputs + 1], step % 3 + 1
    local fine, why = same(outcome(plain, x, n), outcome(compiled, x, n))
    if fine and #log_plain ~= #log then
      fine, why = false, "other side effects"
    end
    for i = 1, fine and #log or 0 do
      local a, b = log_plain[i], log[i]
      if a ~= b and (a == a or b == b) then   -- NaN is NaN
        fine, why = false, "other side effects"
      end
    end
    if not fine then
      return ("call %d: %s"):format(step, why)
    end
    change_plain(step)
    change(step)
  end
end

test("N01: random programs do the same compiled and as scripts", function()
  for seed in seeds() do
    local text = source()
    for _, backend in ipairs({"eager"}) do
      local why = differ(text, backend)
      if why then
        error(("program %d differs with backend %s: %s\n%s"):format(seed, backend, why, text))
      end
    end
  end
end)
