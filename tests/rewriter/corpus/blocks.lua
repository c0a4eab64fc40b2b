-- Statements and blocks (§3.3): scopes, all loops, break, nested functions.
local x = 1
do local x = 2 do local x = x + 1 print(x) end print(x) end print(x)
if x == 1 then local x = "inner" print(x) elseif x == 2 then print("no") else print("never") end
for i = 1, 3 do for j = 3, 1, -1 do if j == i then break end print(i, j) end end
for i = 1.0, 2, 0.5 do print(i) end for i = 3, 1 do print("never", i) end for i = math.maxinteger - 1, math.maxinteger do print(i) end
print(pcall(function() for i = 1, 10, 0 do end end)) print(pcall(function() for i = "a", 2 do end end)) print(pcall(function() for i = 1, {} do end end))
for k, v in pairs({ 10, 20, n = nil }) do print(k, v) end
for i, v in ipairs({ 1, 2, nil, 4 }) do print(i, v) end
for w in ("one two three"):gmatch("%a+") do if w == "three" then break end print(w) end
local function range(n) return function(limit, i) if i < limit then return i + 1 end end, n, 0 end
for i in range(3) do print("range", i) end
local i = 0 while i < 5 do i = i + 1 if i % 2 == 0 then goto continue end print("odd", i) ::continue:: end
repeat local stop = i <= 2 i = i - 1 until stop print(i)
repeat local a = i; i = i + 1; local f = function() return a end until f() >= 3 print(i)
while true do local n = i i = i - 1 if n < 0 then break end if n == 1 then print("one") end end
local fs = {} for k = 1, 3 do fs[k] = function() k = k + 10 return k end end print(fs[1](), fs[1](), fs[2](), fs[3]())
local t = {} for a = 1, 2 do for b = 1, 2 do t[#t + 1] = a * 10 + b end end print(table.concat(t, " "))
do ; ; local y <const> = 5; print(y) ; end
print((function() do return "from do" end end)()) print((function() for _ in pairs { 1 } do return "from for" end end)())
print((function() while true do do break end end return "after break" end)())
print((function() if nil then return 1 else end end)(), select("#", (function() end)()), select("#", (function() return end)()))
print(pcall(function() for _ in 5 do end end)) print(pcall(function() for _ in nil do end end)) print(pcall(function() local t = {} for _ in t.x.y do end end))
local t = {}
(function(a) t[1] = a end)(7) print(t[1])
local f = function() return "f" end
(print)("g")
local b = 1 < 2
(print)(b)
local n = not 5
(print)(n)
do local c = #t == 1
(print)(c) end
repeat local u = x == 1 until 1 == 1
(print)("after until")
