-- Table constructors (§3.4.9) and the table library.
local function two() return "a", "b" end
local t = { 1, two(), x = 1, two(), ["y z"] = 2, [1 + 2] = "three?", two(), }
print(#t, t[1], t[2], t[3], t[4], t[5], t.x, t["y z"])
print(#{ two() }, #{ two(), nil }, #{ (two()) }, #{ two(), two() }, next({}), #{ n = 1 }, #{ [1] = 1, [2] = 2 })
local nested = { { 1, 2 }, { a = { b = { c = "deep" } } }, f = function(self) return self[1][2] end; { } , } print(nested[2].a.b.c, nested:f(), #nested)
print(({ 1, 2, 3 })[2], ({ x = 5 }).x, #{ ... }, { 1 } == { 1 }, ({ ... })[1] == nil)
table.insert(t, "end") table.insert(t, 1, "begin") print(t[1], t[#t], table.remove(t), table.remove(t, 1), #t, table.remove({}), table.remove({}, 0))
print(table.concat({ 1, 2, 3 }, ", "), table.concat({}, "x"), table.concat({ "a", "b", "c" }, "-", 2, 3), pcall(table.concat, { {}, 1 }))
print(table.unpack({ 1, 2, 3 }, 2), table.unpack({ 1, 2 }, 1, 3), table.pack(1, nil, 3).n, select(-1, 1, 2, 3), select("#"), pcall(select, 0))
print(table.concat(table.move({ 1, 2, 3, 4 }, 2, 4, 1), " "), #table.move({ 1, 2 }, 1, 2, 3, { 9, 9 }))
local words = { "pear", "apple", "fig", "banana" } table.sort(words) print(table.concat(words, " ")) table.sort(words, function(a, b) return #a < #b or (#a == #b and a < b) end) print(table.concat(words, " "))
table.sort(words, function(a, b) return a > b end) print(table.concat(words, " ")) print(pcall(table.sort, { 1, "x", 2 })) print(pcall(table.sort, { 3, 2, 1, 4 }, function(a, b) return a < nil end)) print(pcall(table.sort, { 1, 2, 3 }, "x")) print(pcall(table.sort, { 3, 1, 2, 5, 4, 7, 6, 9, 8 }, function() return true end))
local sorted = {} for i = 1, 100 do sorted[i] = (i * 37) % 101 end table.sort(sorted) local ok = true for i = 2, 100 do ok = ok and sorted[i - 1] <= sorted[i] end print(ok)
print(pcall(table.insert, 1)) print(pcall(table.insert, {}, 5, 1)) print(pcall(table.insert, {}, 1, 2, 3)) print(pcall(table.remove, {}, 5)) print(pcall(table.unpack, {}, 1, 1e8)) print(pcall(table.concat, nil))
print(pcall(function() table.insert(nil, 1) end)) print(pcall(function() local t = table t.insert({}, "x", "y") end)) print(pcall(rawset, 1, 2, 3)) print(rawset({}, "k", 1).k, rawget({ 5 }, 1))
local keys = {} for k in pairs { a = 1, b = 2, [3] = 3, [true] = 4 } do keys[#keys + 1] = tostring(k) end table.sort(keys) print(table.concat(keys, " "))
local d = {} for i = 1, 10 do d[i] = i end for k in pairs(d) do if k % 2 == 0 then d[k] = nil end end local left = {} for k in pairs(d) do left[#left + 1] = k end table.sort(left) print(table.concat(left, " "))
local weak = setmetatable({}, { __mode = "k" }) weak[{}] = 1 collectgarbage() print(next(weak)) local p = setmetatable({}, { __pairs = function(x) return function(_, k) if not k then return 1, "once" end end, x, nil end }) for k, v in pairs(p) do print(k, v) end
print(#setmetatable({}, { __len = function() return 3 end }), setmetatable({}, { __call = function(self, a, b) return a, b end })(1, 2), tostring(setmetatable({}, { __tostring = function() return "shown" end })), getmetatable(setmetatable({}, { __metatable = "locked" })), pcall(setmetatable, setmetatable({}, { __metatable = 1 }), {}))
print(pcall(function() return { [nil] = 1 } end)) print(pcall(function() local k return { [k] = 1 } end)) print(pcall(next, {}, "nokey")) print(pcall(ipairs)) print((pcall(ipairs, nil)))
local idx = setmetatable({}, { __index = function(t, i) if i < 4 then return i * i end end }) for i, v in ipairs(idx) do print(i, v) end
