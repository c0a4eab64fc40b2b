-- Assignment (§3.3.3): order, swaps, upvalues, globals, tables, errors of writes.
local a, b, c = 1, 2 a, b = b, a print(a, b, c) a, b, c = (function() return 7, 8, 9 end)() print(a, b, c) a, b, c = 0, (function() return 1, 2, 3 end)() print(a, b, c)
local t = { 1, 2, 3 } local i = 1 i, t[i] = i + 1, 20 print(i, t[1], t[2]) t[1], t[2], t[3] = t[3], t[1], t[2] print(t[1], t[2], t[3])
local u = { v = { w = {} } } u.v.w.x, u.v.y, u.z = 1, 2, 3 print(u.v.w.x, u.v.y, u.z) u.v, u.v.y = { y = "new" }, "old" print(u.v.y)
g1, g2 = 1, 2 g1, g2 = g2, g1 print(g1, g2, _G.g1, _ENV.g2) _G.g3 = "three" print(g3) _ENV["g4"] = 4 print(g4) g1 = nil print(g1)
local function up() a = a + 1 local function inner() a = a * 2 b = a return function() a = -a c = b end end inner()() return a, b, c end print(up()) print(a, b, c)
local log = {} local function key(k) log[#log + 1] = "k" .. k return k end local function tab(n) log[#log + 1] = "t" .. n return t end local function val(x) log[#log + 1] = "v" .. x return x end
tab(1)[key(1)] = val(1) tab(2)[key(2)], tab(3)[key(3)] = val(2), val(3) print(table.concat(log, " "))
local calls = 0 local function once() calls = calls + 1 return u end once().field = 1 once().v.y = 2 once()["k" .. 1] = calls print(calls, u.field, u.v.y, u.k1)
local proxy = setmetatable({}, { __newindex = function(_, k, v) rawset(_, k, v and v * 2) end, __index = function(_, k) return "missing " .. tostring(k) end }) proxy.x = 4 proxy[1] = 5 print(proxy.x, proxy[1], proxy.nothing)
local function attempt(f, ...) print(pcall(f, ...)) end
attempt(function() local n n.x = 1 end) attempt(function() undefined_g.x = 1 end) attempt(function() u.missing.x = 1 end) attempt(function() u.missing.deeper.x = 1 end)
attempt(function() a.b.c = 1 end) attempt(function() t[nil] = 1 end) attempt(function() t[0/0] = 1 end) attempt(function() (nil).x = 1 end) attempt(function() print.x = 1 end) attempt(function() u["quo\"ted"].x = 1 end)
attempt(function() u.missing[1]
  .z = 1 end)
attempt(function() u
  .missing
  .z =
  5
end)
attempt(function() u.v[print].q = "x" end) attempt(function() t[10].x, t[11].y = 1, 2 end) attempt(function() ("s").x.y = 1 end) attempt(function() once().nope.x = 1 end) attempt(function() _ENV.nothing.x = 1 end)
local s = { f = function(self) return self end } s:f().name = "named" s.f(s)["other"] = "o" print(s.name, s.other); (s).paren = 1 print(s.paren) do (function() return s end)().called = true print(s.called) end
local x <const> = 10 local y <const>, z = x + 1, x * 2 print(x, y, z) do local x = x + 1 print(x) end
for _, text in ipairs { "local x <const> = 1 x = 2", "local x <close> = nil x = 1", "local x <const> = 1 function x() end", "local x <const> = 1; (function() x = 3 end)()", "local x <bad> = 1", "local a <close>, b <close> = 1, 2", "f() = 1", "a.b:c() = 1", "(a) = 1", "a, f() = 1, 2", "a + b = 1", "a", "a.b", "'x' = 1", "local function t.x() end", "local a.b = 1", "for a.b = 1, 2 do end" } do print(text, select(2, load(text, "=text"))) end
