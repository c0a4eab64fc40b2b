-- Numbers that scripts compute of sizes, in fused loops: the bits of the script, for sizes that change, errors too.
local expressions = {
  "n", "-n", "n + m", "n - 2 * m", "n * m", "1 / n", "m / n", "n // 3", "n % 3", "(-n) // 3", "(-n) % 3", "n // 2.5",
  "n % 2.5", "n % (m + 0.5)", "n ^ 2", "n ^ 0.5", "2 ^ -n", "n & 6", "n | m", "n ~ 5", "~n", "n << 2", "n >> 1",
  "math.sqrt(n)", "math.log(n)", "math.log(n, 2)", "math.exp(-n)", "math.sin(n)", "math.floor(n * 0.37)",
  "math.ceil(n / 7)", "math.abs(3 - n)", "math.max(n, m)", "math.min(n, 4)", "math.max(n * 0.5, 2)",
  "math.fmod(n, 3)", "1 / math.sqrt(n + 1e-6)", "(n - 1) / n", "math.deg(n)", "n / (m + 1) - m / (n + 1)",
  "x:dim() * n", "x:numel() // m", "#x + 1",
}
local forms = {
  "torch.full_like(x, (%s)) + x", "x * (%s) - 1", "torch.where(x > (%s), x, 0.5) * 2", "x:clamp({min = %s}) * 2",
  "torch.full({n, m}, (%s)) * x", "x:masked_fill(x:gt(0), %s) + 1", "x:clone():fill_(%s) * x",
}

local function in_loops(report)
  for _, calls in ipairs(report.outside_loops or {}) do
    if #calls > 0 then return false, table.concat(calls, "\n") end
  end
  return report.cache.tapes + report.cache.kernels == 1, "no loops"
end

test("numbers made of sizes have the script's bits in loops", function()
  for k, expression in ipairs(expressions) do
    local form = forms[k % #forms + 1]
    local text = ("return function(x) local n, m = x:size(0), x:size(1) return %s end"):format(form:format(expression))
    local fn = assert(load(text))()
    local compiled = triage.compile(fn, {fullgraph = true, backend = "fused"})
    for _, sizes in ipairs({{7, 5}, {7, 5}, {12, 9}, {2, 64}, {33, 3}, {3, 3}}) do
      local x = torch.randn(sizes)
      eq(compiled(x), fn(x), expression .. " in " .. form)
    end
    local inside, why = in_loops(triage.explain(fn, torch.randn({7, 5})))
    assert(inside, text .. "\n" .. tostring(why))
  end
end)

test("a size that was another one's by chance", function()
  local function fn(x, w) return torch.where(x > 0, torch.full({x:size(0), w:size(0)}, 0.5), x * (1 / w:size(0))) end
  local compiled = triage.compile(fn, {backend = "fused"})
  for _, sizes in ipairs({{16, 8, 8}, {16, 8, 8}, {16, 8, 1}, {4, 3, 3}, {16, 1, 5}, {8, 8, 8}, {16, 8, 1}}) do
    local x, w = torch.randn({sizes[1], sizes[2]}), torch.zeros({sizes[3]})
    eq(compiled(x, w), fn(x, w))
  end
end)

test("numbers for which the script raises", function()
  for _, expression in ipairs({"math.floor(2.0 ^ (n * 20))", "n % (m - 3)", "n // (m - 3)"}) do
    local fn = assert(load(("return function(x) local n, m = x:size(0), x:size(1) return x * (%s) + 1 end"):format(
      expression)))()
    local compiled = triage.compile(fn, {backend = "fused"})
    for _, sizes in ipairs({{2, 5}, {2, 5}, {4, 3}, {2, 4}}) do
      local x = torch.randn(sizes)
      local ran, result = pcall(fn, x)
      local also, compiled_result = pcall(compiled, x)
      eq(also, ran, expression)
      if ran then eq(compiled_result, result, expression) end
    end
  end
end)

test("explain says why a call is in no loop", function()
  local function why(fn, ...)
    local report = triage.explain(fn, ...)
    local lines = {}
    for _, calls in ipairs(report.outside_loops) do lines[#lines + 1] = table.concat(calls, "\n") end
    return table.concat(lines, "\n")
  end
  local x = torch.randn({4, 8})
  local function has(text, words) assert(text:find(words, 1, true), text) end
  has(why(function(z) return ((z * 2 + 1):sort(-1)) end, x),
    "numbers_of_loops.lua:70: aten::sort: it puts elements in order")
  has(why(function(z) return (z * 2 + 1):sum(0) end, x), "it reduces the batch (dim 0); loops reduce the other dims")
  has(why(function(z) return (z * 2 + 1):sum() end, x), "it reduces the whole batch")
  has(why(function(z) return (z * 2 + 1):cumsum(-1) end, x), "each element depends on those before it")
  has(why(function(z) return torch.mm(z * 2 + 1, z:t()) end, x), "it multiplies matrices")
  eq(why(function(z) return torch.full_like(z, 1 / z:size(1)) * z + 1 end, x), "")
end)
