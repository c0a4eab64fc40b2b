-- Comparisons: order of evaluation, chains, results as values, errors with their words and lines.
local log = {}
local function v(x) log[#log + 1] = tostring(x) return x end
local function flush(...) print(table.concat(log, ","), ...) log = {} end
flush(v(1) < v(2)) flush(v(1) > v(2)) flush(v(1) <= v(2)) flush(v(1) >= v(2)) flush(v(1) == v(2)) flush(v(1) ~= v(2))
flush((v(1) < v(2)) == v(true)) flush(v(3) > v(2) and v(2) > v(1)) flush(not (v(1) < v(2)))
flush(1 < 2 == true, 1 + 1 == 2 and "yes" or "no", "a" .. "b" == "ab", -1 < - -1, #"abc" > 2)
local function many() return 1, 2, 3 end
flush(many() < 2, (many()) == 1, many() == many(), 1 < many())
print((function(...) return ... == 1, ... ~= 1, ... < 2 end)(1, 5))
print(select("#", 1 < 2, many() > 0), select("#", (function() return 1 < 2 end)()))
local function attempt(f, ...) print(pcall(f, ...)) end
attempt(function() return 1 < "2" end)
attempt(function() return "1" < 2 end)
attempt(function() return {} < {} end)
attempt(function() return {} <= 1 end)
attempt(function() return nil > 1 end)
attempt(function() return 1 > nil end)
attempt(function() return print >= true end)
attempt(function(a) local b = a
  < 3 return b end)
attempt(function(a)
  return a

    <= -- a comment

    "x"
end, 5)
attempt(function(t) if t.x.y
  > t.z then return 1 end end, { x = { y = {} }, z = 2 })
attempt(function(t) return t.x.y.z < 1 end, { x = {} })
attempt(function(t) return 1 < t.x.y.z end, { x = {} })
attempt(function() return undefined_global < 1 end)
attempt(function() while 1 < {} do end end)
attempt(function() for i = 1, 3 do if i >= 2 and i < "x" then return i end end end)
print(pcall(load, "return 1 < "))
local co = coroutine.wrap(function() return 1 < print end)
print(pcall(co))
