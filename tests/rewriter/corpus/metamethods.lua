-- Metamethods of comparison and concatenation (§2.4), yields inside of them included.
local mt = {}
mt.__index = mt
local function box(v) return setmetatable({ v = v }, mt) end
local calls = {}
local function note(name, a, b)
  calls[#calls + 1] = name .. ":" .. (type(a) == "table" and a.v or tostring(a)) .. ":" .. (type(b) == "table" and b.v or tostring(b))
end
local function val(x) return type(x) == "table" and x.v or x end
function mt.__lt(a, b) note("lt", a, b) return val(a) < val(b) end
function mt.__le(a, b) note("le", a, b) return val(a) <= val(b) end
function mt.__eq(a, b) note("eq", a, b) return val(a) == val(b) end
function mt.__concat(a, b) note("cat", a, b) return box(val(a) .. val(b)) end
function mt.__len(a) note("len", a) return 42 end
local a, b = box(1), box(2)
print(a < b, a > b, a <= b, a >= b, a == b, a ~= b, a == a, a == box(1), a ~= box(1))
print(a < 5, 5 < a, a > 0, 0 > a, a >= 1, 1 <= a, #a)
print((a .. b).v, (a .. "x").v, ("x" .. a).v, (1 .. a .. 2).v, ("p" .. "q" .. a .. "r" .. "s").v, (a .. b .. a).v)
print(table.concat(calls, " "))
-- results become booleans
local odd = setmetatable({}, { __lt = function() return nil end, __le = function() return 0 end, __eq = function() return "x" end })
print(odd < 1, odd > 1, odd <= 1, odd >= 1, odd == setmetatable({}, getmetatable(odd)), odd ~= {}, odd == 1, odd ~= nil)
-- equality never asks across types, nor for the same object
local never = setmetatable({}, { __eq = function() error("asked") end })
print(never == 1, never == "x", never ~= print, never == never, rawequal(never, {}))
print(pcall(function() return never == {} end))
-- only __lt
local only = setmetatable({ k = 1 }, { __lt = function(x, y) return x.k < y.k end })
print(pcall(function() return only < only end), pcall(function() return only > only end))
print((pcall(function() return only <= only end)))
-- not callable, and callable tables
print(pcall(function() return setmetatable({}, { __lt = {} }) < 1 end))
print(pcall(function() return setmetatable({}, { __concat = 5 }) .. "x" end))
print(setmetatable({}, { __lt = setmetatable({}, { __call = function(self, x, y) return y == 3 end }) }) < 3)
-- yields
local y = setmetatable({}, { __lt = function() return coroutine.yield("in lt") end, __eq = function() return coroutine.yield("in eq") end,
  __concat = function(p, q) coroutine.yield("in concat") return "joined" end, __le = function() coroutine.yield("in le") return true end })
local co = coroutine.wrap(function()
  local r = { y < 1, y == setmetatable({}, getmetatable(y)), y <= 1, 1 > y, "a" .. y .. "b" .. "c" .. "", not (y ~= setmetatable({}, getmetatable(y))) }
  if y < 2 then r[#r + 1] = "then" else r[#r + 1] = "else" end
  return table.unpack(r)
end)
local resume = nil
for i = 1, 12 do
  local r = table.pack(co(resume))
  print(i, table.unpack(r, 1, r.n))
  if r.n > 1 then break end
  resume = ({ "truthy", false, nil, 7 })[i % 4 + 1]
end
-- errors in metamethods keep their place
local bad = setmetatable({}, { __lt = function() error("boom") end, __concat = function() error("bang", 2) end, __eq = function() error({ code = 7 }) end })
print(pcall(function() return bad < 1 end))
print(pcall(function() return bad .. 1 end))
print(select(2, pcall(function() return bad == setmetatable({}, getmetatable(bad)) end)).code)
print(pcall(function() return setmetatable({}, { __name = "My Type" }) < 1 end))
print(pcall(function() return setmetatable({}, { __name = "My Type" }) .. "x" end))
print(pcall(function() return setmetatable({}, { __name = 5 }) < {} end))
