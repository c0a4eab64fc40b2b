-- _ENV (§2.2) and globals.
x = 1 print(_ENV.x, _G.x, _ENV == _G, x == _ENV.x)
do local _ENV = { print = print, y = 2 } y = y + 1 z = "new" print(y, z, x == nil) function f() return y < 10 and "in env" or "no" end print(f()) end print(y, z, f)
local function with(_ENV) a = b .. "!" return a, b == "given" end print(with { b = "given" }) print(a)
local env = setmetatable({}, { __index = _G, __newindex = function(t, k, v) rawset(t, k, type(v) == "number" and v * 2 or v) end }) local chunk = load("q = 21 local r = q > 40 return q, r, print ~= nil", "=chunk", "t", env) print(chunk()) print(env.q, q)
local strict = setmetatable({}, { __index = function(_, k) error("undefined " .. k, 2) end, __newindex = function(_, k) error("assigning " .. k, 2) end }) print(pcall(load("return nothing", "=strict", "t", strict))) print(pcall(load("nothing = 1", "=strict", "t", strict))) print(pcall(load("function nothing() end", "=strict", "t", strict))) print(pcall(load("return nothing < 1", "=strict", "t", strict)))
print(pcall(load("return x.y", "=e", "t", {}))) print(pcall(load("x.y = 1", "=e", "t", {}))) print(pcall(load("local _ENV = nil; return x", "=e"))) print(pcall(load("local _ENV = 5; x = 1", "=e")))
local _ENV <const> = { print = print, pcall = pcall, n = 0 } for i = 1, 3 do n = n + i end print(n) print(pcall(function() return undefined.x end))
