--- keys that collide when the table grows | keys
local k = 17 local m = (1 << (k + 1)) - 1 local t = {} for i = 1, 1 << k do t[i * m] = true end t[0.5] = 1
--- keys that collide, by rawset | keys
local k = 17 local m = (1 << (k + 1)) - 1 local t = {} for i = 1, 1 << k do rawset(t, i * m, true) end t[0.5] = 1
--- keys that collide, by table.insert | keys
local k = 17 local m = (1 << (k + 1)) - 1 local at, t = 0, setmetatable({}, {__len = function() return 0 end})
local mt = {__len = function() at = at + m return at end} setmetatable(t, mt)
for i = 1, 1 << k do table.insert(t, true) end setmetatable(t, nil) t[0.5] = 1
--- keys that collide, by table.move | keys
local k = 17 local m = (1 << (k + 1)) - 1 local t, one = {}, {true}
for i = 1, 1 << k do table.move(one, 1, 1, i * m, t) end t[0.5] = 1
--- keys that collide, in a constructor | keys
local m, s = (1 << 14) - 1, {} for i = 1, 4500 do s[i] = "[" .. (i * m << 14) .. "]=1," end
local t = load("return {" .. table.concat(s) .. "}")() for i = 1, 9000 do t[-i] = 1 end
--- fractions that collide | keys
local t = {} for i = 1, 1 << 20 do t[1 + i / (1 << 52)] = true end
--- small keys that collide | budget
while true do local t = {} local m = (1 << 17) - 1 for i = 1, 511 do t[i * m] = true end for i = 1, 1 << 16 do t[-i] = true end end
--- weak keys | weak
setmetatable({}, {__mode = "k"})
--- weak keys set later | __mode
local mt = {} setmetatable({}, mt) mt.__mode = "k"
--- weak keys set later by a string | __mode
local mt = {} setmetatable({}, mt) mt["__mode"] = "k"
--- weak keys set later by a made up string | __mode
local mt = {} setmetatable({}, mt) mt["__mo" .. "de"] = "k"
--- weak keys set later by a variable | __mode
local mt, key = {}, "__mo" .. "de" setmetatable({}, mt) mt[key] = "k"
--- weak keys set later by rawset | __mode
local mt = {} setmetatable({}, mt) rawset(mt, "__mo" .. "de", "k")
--- weak keys set later by a chunk | __mode
local mt = {} setmetatable({}, mt) assert(load("__mode = 'k'", "=c", "t", mt))()
--- weak keys set later by a chunk's key | __mode
local mt = {} setmetatable({}, mt) assert(load("_ENV['__mo' .. 'de'] = 'k'", "=c", "t", mt))()
--- weak keys set later through a table | __mode
local mt = {} setmetatable({}, mt) local t = setmetatable({}, {__newindex = mt}) t["__mo" .. "de"] = "k"
--- chains of weak keys | weak
local n, es = 20000, {} for i = 1, n do es[i] = setmetatable({}, {__mode = "k"}) end
--- tables of weak keys and values | budget
local t = {} while true do t[#t + 1] = setmetatable({{}, [{}] = {}}, {__mode = "kv"}) end
--- a large table with weak values | budget
local t = setmetatable({}, {__mode = "v"}) while true do t[#t + 1] = {} end
--- metatables in a ring | budget
while true do local t = {} for i = 1, 1000 do t = setmetatable({}, {__index = t}) end local v = t.x end
--- a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t}) end while true do local v = t.x end
--- table.move along a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t}) end table.move(t, 1, 1e7, 1, {})
--- table.insert along a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t, __len = function() return 1e7 end}) end table.insert(t, 1, 1)
--- table.remove along a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t, __len = function() return 1e7 end}) end table.remove(t, 1)
--- table.sort along a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t, __len = function() return 1e7 end}) end table.sort(t)
--- table.unpack along a long chain of __index | budget
local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t}) end while true do table.unpack(t, 1, 9000) end
--- table.concat along a long chain of __index | budget
local t = setmetatable({}, {__index = function() return "" end}) for i = 1, 1900 do t = setmetatable({}, {__index = t}) end
table.concat(t, "", 1, 1e7)
--- table.unpack to very many | too many
return table.unpack({}, 1, 900000)
--- lists of arguments that grow | ok|budget|overflow
local function grow(...) return grow(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...) end grow()
--- lists of arguments that grow and are kept | ok|budget|overflow
local keep = {} local function grow(...) keep[#keep + 1] = {...} return grow(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...) end grow()
--- select from long lists | budget
local t = {} for i = 1, 9000 do t[i] = i end local function f(...) while true do local n = select(-1, ...) end end f(table.unpack(t))
--- tables of long lists | budget
local t, keep = {}, {} for i = 1, 9000 do t[i] = i end local function f(...) while true do keep[#keep + 1] = {...} end end f(table.unpack(t))
--- table.pack of long lists | budget
local t, keep = {}, {} for i = 1, 9000 do t[i] = i end while true do keep[#keep + 1] = table.pack(table.unpack(t)) end
--- sorting a large list | budget
local t = {} for i = 1, 400000 do t[i] = i * 7919 % 1000003 end while true do table.sort(t) t[1], t[#t] = t[#t], t[1] end
--- sorting long strings | budget
local t = {} for i = 1, 24 do t[i] = ("\0"):rep(900000) .. i end while true do table.sort(t) t[1], t[24] = t[24], t[1] end
--- sorting with an order that is none | invalid order|budget
local t = {} for i = 1, 100000 do t[i] = i end table.sort(t, function() return true end)
--- sorting with a function of the library | budget|invalid order
local t = {} for i = 1, 400000 do t[i] = i * 7919 % 1000003 end while true do table.sort(t, math.ult) end
--- sorting a list of endless length | budget
table.sort(setmetatable({}, {__len = function() return 1 << 30 end}))
--- next over a table that was emptied | budget
local t = {} for i = 1, 200000 do t[i] = i end for i = 1, 200000 do t[i] = nil end while true do next(t) end
--- taking the first key for ever | budget
local t = {} for i = 1, 300000 do t["k" .. i] = i end for k in pairs(t) do t[k] = nil next(t) end
--- the border of a table with holes | budget
local t = {} for i = 1, 1 << 18 do t[i] = i end for i = 1, 1 << 18, 2 do t[i] = nil end while true do local n = #t end
--- tables that are kept | budget
local t = {} while true do t[#t + 1] = {{}, {}} end
--- garbage near the bound | budget
local t = {} pcall(function() while true do t[#t + 1] = {} end end) while true do local s = ("x"):rep(1000000) end
--- closures that are kept | budget
local t = {} while true do local a, b, c t[#t + 1] = function() return a, b, c end end
--- deep structures | budget
local t = {} while true do t = {t} end
--- recursion | overflow|budget
local function f() return 1 + f() end f()
--- recursion through pcall | budget|overflow
local function f() pcall(f) pcall(f) end f()
--- recursion through metamethods | overflow|budget
local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k + 1] end return t[1]
--- levels of an error | budget
local function deep(n) if n > 0 then return 1 + deep(n - 1) end while true do pcall(error, "x", 1 << 40) end end deep(100000)
--- error levels below many calls | budget
local function deep(n) if n > 0 then return 1 + deep(n - 1) end while true do pcall(function() error("x", 90000) end) end end deep(100000)
--- errors in a loop | budget
while true do pcall(error) end
--- errors in error handlers | budget
while true do xpcall(error, function() error("x") end) end
--- <close> variables that loop | budget
local t <close> = setmetatable({}, {__close = function() while true do end end}) while true do end
--- <close> variables without end | budget
local mt = {__close = function() end} while true do local a <close> = setmetatable({}, mt) end
--- a finalizer | __gc
setmetatable({}, {__gc = function() while true do end end})
--- pcall in a loop | budget
while true do pcall(function() while true do end end) end
--- an error value with a loop in it | error object
error(setmetatable({}, {__tostring = function() while true do end end}))
--- tostring in a loop | budget
while true do tostring({}) end
--- tostring that loops | budget
tostring(setmetatable({}, {__tostring = function() while true do end end}))
--- random numbers | budget
while true do math.random(1, 1 << 60) end
