-- Sizes, and comparisons of sizes, go into functions that want numbers, booleans and text: the graph then holds
-- for these sizes only. No function sees that they stand for more (D19).
local x, y = torch.ones({3, 2}), torch.ones({2, 2})
local inputs = {x, x, y, x}

local function outcomes(text, form)
  local list = {}
  local fn = form(assert(load("return function(z) local n = z:size(0) " .. text .. " end", "=program.lua"))())
  for i, z in ipairs(inputs) do
    torch.manual_seed(0)
    list[i] = table.pack(pcall(fn, z))
  end
  return list
end

local programs = {
  -- Lua
  "return z, table.concat({z:size(0), 'a', n})", "return z, table.concat({1, 2, 3}, n)",
  "return z, table.concat({1, 2, n}, ',', 1, n)", "return z, table.concat({[0] = n, 2, 3, 4}, ',', 0, 2)",
  "local t = table.move({1, 2, 3, 4}, 1, n, 2, {}) return z * t[2], #t",
  "math.randomseed(5) return z, math.random(n), math.random(1, n), math.random(n, n + 3)",
  "return z, string.format('%q %s', n, n > 2)", "return z, ('%c%x %d %5.1f'):format(n + 64, n, n, n)",
  "return z, os.date('!%Y', n)", "return z, os.time {year = 2000 + n, month = n, day = n}",
  "return z, (('a b'):gsub('%a', function() return n end))", "return z, (('a b'):gsub('%a', {a = n, b = 'x'}))",
  "return z, pcall(string.gsub, 'a b', '%a', function() return n > 2 end)",
  "return z, (('aaaa'):gsub('a', 'b', n))", "return z, (('aaaa'):gsub('a', n))",
  "return z, (('ab'):gsub('(a)(b)', function(a, b) return b .. a end))",
  "return z, pcall(string.gsub, 'a', 'a', function() return {} end)",
  "return z, ('ab'):rep(n, n)", "return z, select(n, 1, 2, 3, 4)", "return z, select(-n, 1, 2, 3, 4)",
  "return z, tostring(n), tostring(n > 2), tostring(n / 2)", "return z, utf8.char(n + 64, 66), string.char(n + 64)",
  "return z, ('abcdef'):sub(n), ('abcdef'):byte(n), #(n .. 'x')", "return z, table.unpack({1, 2, 3, 4}, n)",
  "local t = {1, 2, 3, 4} table.insert(t, n, 9) return z, t[n], table.remove(t, n), #t",
  "local t = {n, 2, 9} table.sort(t, function(a, b) return a > b end) return z, t[1], t[2], t[3]",
  "return z, pcall(error, 'a', n)", "return z, pcall(error, n)", "return z, pcall(error, n > 2)",
  "return z, pcall(function() error('a', n - 1) end)", "return z, pcall(assert, n > 2, n)",
  "return z, load('return ' .. n)()", "return z, pcall(load, n)",
  "local k = 0 return z, pcall(load(function() k = k + 1 if k == 1 then return 'return ' end if k == 2 then " ..
    "return n end end))",
  "return z, xpcall(function(a) error(a) end, function(e) return e + 1 end, n)",
  "return z, math.tointeger(n), math.type(n), math.ult(n, 3), type(n), type(n > 2), tonumber('10', n)",
  "local t = {[n] = 5, [n > 2] = 6} return z, t[3], t[true], rawget(t, n), next(t, nil) ~= nil",
  -- operators and options
  "return z:sum(-1, n > 1)", "return z:sum({dim = -1, keepdim = n > 2})", "return z:mean(-1, {keepdim = n == 3})",
  "return z:std(0, n > 2), z:size(n - 3), z:stride(n - 3)",
  "return (z > 0):any(-1, n > 2), z:sort(-1, n > 2), (z:topk(1, -1, n > 2, n > 1))",
  "return torch.where(z > 0, n > 2, false), z == (n > 2), torch.full({2}, n > 2)", "return torch.dropout(z, " ..
    "0.0, n > 2)",
  "return torch.tensor({1.0}, {requires_grad = n > 2}) * 1, torch.zeros({2}, {requires_grad = n > 2})",
  "local w = z * 2 w:requires_grad_(n > 2) return w, w.requires_grad",
  "local w = z * 2 w.requires_grad = n > 2 return w, w.requires_grad", "return z:to(torch.float64, {copy = n > 2})",
  "local _ <close> = torch.autocast('cpu', {enabled = n > 5}) return z",
  "return torch.set_grad_enabled(n > 2, function() return z, torch.is_grad_enabled() end)",
  -- flags
  "return find(n, err.new(z)), IS(n, err.new(z)), err.has_code(err.new(z), n), err.has_domain(err.new(z), n - 2)",
  "return err.from_code(n, 'x', n, {severity = n - 1})", "return err.get_slot(err.new_t(n), n - 2)",
  "local f = push(err.new(z), err.NAN, n) return fix(z, f, n, {fallback = n})",
  "local f = push(err.new(z), n - 1, 'x', {severity = n - 1}) " ..
    "return fix(z, f, 'x', {fallback = n + 0.5, codes = {n - 1}, min_severity = n - 2})",
  "return err.replace(z, n, {n - 2, 'nan'})", "return z, ErrorCode.name(n), ErrorLocation.name(n)",
  "return z, flags.unpack(err.from_code(n, nil, n), n - 1)[1].code_name",
  "return z, triage.error_on_graph_break(n > 5, function() return 1 end)()", "return z, #nn.Linear(n, 2).weight",
}

for _, text in ipairs(programs) do
  test("D19: sizes for functions that want plain values: " .. text, function()
    eq(outcomes(text, function(fn) return triage.compile(fn, {backend = "eager"}) end),
      outcomes(text, function(fn) return fn end))
  end)
end

test("`pairs` gives the `next` that scripts know", function()
  assert(rawequal(next, (pairs({}))))
  assert(next == pairs({}))
  eq({pairs({5})}, {next, {5}})
  eq(select("#", pairs({})), 3)
  local sum = 0
  for _, v in pairs({1, 2, a = 3}) do sum = sum + v end
  eq(sum, 6)
  local own = setmetatable({}, {__pairs = function(t) return "iterator", t end})
  eq({pairs(own)}, {"iterator", own})
  fails(function() pairs() end, "bad argument #1 to 'pairs'")
  fails(function() for _ in pairs(5) do sum = sum + 1 end end, "table expected, got number")
end)
