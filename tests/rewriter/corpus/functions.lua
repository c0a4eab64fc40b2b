-- Functions (§3.4.10, 3.4.11): recursion, closures, methods, varargs, tail calls, adjusted results.
local function fact(n) if n <= 1 then return 1 end return n * fact(n - 1) end print(fact(10), fact(20))
local function even(n) if n == 0 then return true end return odd(n - 1) end print(pcall(even, 1)) function odd(n) if n == 0 then return false end return even(n - 1) end
print(even(10), odd(7), even(7))
local fib fib = function(n) return n < 2 and n or fib(n - 1) + fib(n - 2) end print(fib(15))
local function va(...) local a, b = ... return select("#", ...), a, b, ... end print(va()) print(va(nil, nil)) print(va(1, 2, 3)) print((va(1, 2, 3)))
print(#{ va(1, 2) }, #{ va(1), va(2) }, (function(...) return #{ ... }, ... end)(1, 2, 3))
local obj = { n = 0, list = {} } function obj:add(k) self.n = self.n + (k or 1) self.list[#self.list + 1] = k return self end function obj.static(x) return x end
print(obj:add(5):add():add(2).n, obj.static(3), #obj.list)
local deep = { a = { b = {} } } function deep.a.b.f(x) return "f" .. x end function deep.a.b:g(x) return self == deep.a.b and "g" .. x end
function deep.a.b:none() return self ~= nil end
print(deep.a.b.f(1), deep.a.b:g(2), deep.a.b:none())
print(pcall(function() function deep.x.y.f() end end)) print(pcall(function() function deep.n.f() end end)) print(pcall(function() local l function l.f() end end))
print(pcall(function() function undefined_table.f() end end)) print(pcall(function() obj:missing() end)) print(pcall(function() obj.list.x.y() end)) print(pcall(function() undefined_fn() end))
local function counter() local c = 0 return function() c = c + 1 return c end, function() return c end end local inc, get = counter() inc() inc() print(get())
local function loop(n, acc) if n == 0 then return acc end return loop(n - 1, acc + 1) end print(loop(100000, 0))
local function three() return 1, 2, 3 end local function two() return three(), 10 end print(two()) print(three(), three()) print(({ three(), three() })[4], (three()))
print(type(function() end), (function(a, b) return b, a end)(1, 2), (function(...) local t = { n = select("#", ...), ... } return t.n end)(nil, nil, nil))
local f = function(t) return t[1] end print(f { 9 }, f { f { 8, 7 } }, ("x"):rep(3), ("%d"):format(5), #"str", f { [1] = "k" })
print(type "x", tostring { } ~= nil, select("#", table.unpack { 1, nil, 3 }), (("a"):upper()))
do local function g(x, ...) if x then return x .. #{ ... }, g(...) end return "end" end print(g("a", "b", "c")) end
do local t = {} for i = 1, 3 do t[i] = function(...) return i, ... end end print(t[1](t[2](t[3]()))) end
local function default(a, b) a = a or "A" b = b == nil and "B" or b return a, b end print(default()) print(default(1, false)) print(default(false, 2))
local function named(opts) local t = opts or {} return (t.x or 0) + (t.y or 0) end print(named { x = 1, y = 2 }, named {}, named())
function global_function(a) return a and a * 2 end print(global_function(4), global_function()) local local_override = global_function function local_override() return "replaced" end print(local_override(), global_function(1))
print(pcall(string.rep)) print(pcall(setmetatable, 1)) print(pcall(function() local s = "x" s.y.z = 1 end)) print(pcall(function() ("x").y = 1 end))
print(pcall(function() function
  deep.no.such.thing()
  end -- its first line
end))
print(pcall(function()
  function deep.none.f()
    return 1
  end
end))
return fact
