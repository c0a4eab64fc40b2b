-- and, or, not: value semantics, short circuits, truncation of several results (§3.4.5).
local log = {}
local function v(x, ...) log[#log + 1] = tostring(x) return x, ... end
local function flush(...) print(table.concat(log, ","), ...) log = {} end
for _, a in ipairs { 0, false, "x" } do
  for _, b in ipairs { 1, false, "y" } do
    flush(v(a) and v(b)) flush(v(a) or v(b)) flush(not v(a)) flush(v(a) and v(b) or v("c")) flush(v(a) or v(b) and v("c"))
    flush(not (v(a) and v(b)) == (not a or not b)) flush(not not v(a))
  end
end
flush(v(nil) and v(1), v(nil) or v(2), nil and undefined.x, false or nil, nil or false)
local function many() return 1, 2, 3 end
print(many() and many()) print((many() and many())) print(nil or many()) print(({ nil or many() })[1], #{ many() and many() })
local function tail(...) return ... and select("#", ...) or "none" end
print(tail(1, 2, 3), tail(nil, 2), tail())
local function pass(...) return ... or "default" end
print(pass(nil, 1), pass(5, 6), pass())
local function f() return false and many() end
local function g() return true and many() end
local function h() return (many()) end
print(f()) print(g()) print(h())
local x = false x = x or {} print(type(x)) local y = x and #x == 0 and "empty" or "full" print(y)
if not (1 == 2 or 3 == 4) and not nil then print("then") else print("else") end
if v(nil) then elseif v(false) then elseif v(0) then flush("third") else flush("else") end
while v(false) or v(nil) do end flush("while")
local n = 0 repeat n = n + 1 local done = n >= 3 until done or n > 10 flush(n)
print(1 and 2 or 3, nil and 2 or 3, (nil and 2) or (nil or 3), not 1 == 2, not (1 == 2), not nil == true)
print(pcall(function() return nil and (nil).x or undefined.field end))
print(pcall(function() local t return t and t.x, t or "t is nil", t.x end))
local t = setmetatable({}, { __index = function(_, k) log[#log + 1] = k return k ~= "no" end })
flush(t.a and t.no or t.b) flush(t.no and t.a) flush(not t.no and t.c)
print(true and nil, true and 1 and "s" and {} and nil, false or nil or "last" or v("never"))
flush()
