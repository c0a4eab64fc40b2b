-- Names: shadowed locals and globals, parameters, nested captures; which variable a write reaches.
local x, log = 1, {}
local function outer(x) local function inner() x = x + 1 return x end local y = inner() do local x = x * 10 x = x + y log[#log + 1] = x end return x, inner() end
print(outer(5)) print(x, log[1])
local print = print do local print = function(...) return ... end print("hidden") end print("shown")
local a = a or "no global a" print(a) local x = x + 1 print(x) local x, x = 7, 8 print(x)
local f = function() return f == nil end print(f()) local function g() return g ~= nil end print(g())
for x = 1, 2 do local x = x .. "!" print(x) end for _, x in ipairs { "it" } do x = x .. x print(x) end print(x)
local fns = {} for i = 1, 3 do local j = i * 2 fns[i] = function(d) j = j + d i = i + d return i, j end end print(fns[1](1)) print(fns[1](1)) print(fns[2](0))
local shared = 0 local function add() shared = shared + 1 end local function get() return shared end add() shared = shared * 10 add() print(get(), shared)
local function deep() local v = 1 return function() return function() return function() v = v * 2 shared = v return v end end end end print(deep()()()(), deep()()()(), shared)
while true do local shared = "inner" if shared == "inner" then break end end repeat local shared = shared + 1 until shared > 0 print(shared)
local function params(a, b, ...) local a, c = b, a return a, c, select("#", ...) end print(params(1, 2, 3, 4)) local self = "not a method" local obj = { n = 1 } function obj:m() return self.n, self == obj end print(obj:m()) print(self)
local n = 0 local co = coroutine.wrap(function() while n < 3 do n = n + 1 coroutine.yield(n) end return "end" end) print(co(), co(), n, co(), co())
