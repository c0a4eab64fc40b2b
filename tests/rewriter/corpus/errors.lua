-- Errors (§2.3): positions, levels, tracebacks of calls, error objects, handlers.
local function attempt(f, ...) print(pcall(f, ...)) end
attempt(function() error("plain") end) attempt(function() error("level 0", 0) end) attempt(function() error("level 2", 2) end) attempt(function() error() end) attempt(function() error(nil) end) attempt(function() error(42) end) attempt(function() error("42", 1) end)
attempt(error, "direct") attempt(error) print(select("#", pcall(error))) attempt(function() local e = setmetatable({}, { __tostring = function() return "obj" end }) error(e == e and "same" or e) end)
local function thrower(level) error("thrown", level) end local function caller(level) thrower(level) end
attempt(caller, 1) attempt(caller, 2) attempt(caller, 3)
attempt(function() assert(false) end) attempt(function() assert(nil, "message") end) print(type(select(2, pcall(assert, false, { 1 })))) attempt(function() return assert(1, 2, 3) end) attempt(function() assert() end) attempt(function() assert(1 == 2, "one is not two") end) attempt(function() return assert(1 < 2, "unused") end)
print(xpcall(function() error("E") end, function(m) return "handled " .. m end)) print(xpcall(function(a, b) return a + b end, print, 1, 2)) print(xpcall(function() local x = nil; x() end, function(m) return m:upper() end)) print(xpcall(function() error("a") end, function(m) error("b") end)) print(pcall(xpcall)) print(pcall(pcall))
attempt(function() local t = {} t.x.y.z = 1 end) attempt(function() local t = {} t:method() end) attempt(function() ("x")() end) attempt(function() local a = {} a.b.c() end) attempt(function() return math.nofun() end) attempt(function() return #undefined_thing end) attempt(function() return -undefined_thing end)
attempt(function()
  local value = 5
  local result = value
    .field
    .other
end)
attempt(function()
  undefined_function(
    1,
    2
  )
end)
attempt(function()
  local t = {
    a = 1,
    b = nil + 1,
  }
end)
attempt(function() return ("x"):rep(1 < 2) end) attempt(function() string.rep("x", {}, 1) end) attempt(function() return setmetatable({}, 1 == 1) end) attempt(function() ipairs() end) attempt(function() return tostring() end) attempt(function() for i = 1, "x" == "x" do end end)
print(pcall(string.format, "%d", "1.5")) print(select(2, pcall(load, nil))) print(load("x =", "=name")) print(load("x = = 1", "@file.lua")) print(load("for", "short text")) print(load("x = 'unfinished", "=s")) print(load("--[[ never closed", "=s")) print(load("a\nb\nc d", "line one\nline two"))
print(load("return 1", "=ok")()) print(type(load(function() return nil end))) print(pcall(load(function() error("reader", 0) end) or print, 1)) print(load("\27Lua", "=b", "t")) print(load("return 1", "=t", "b")) print(load("return ...", "=v")(1, 2)) print(load("return x", "=env", "t", { x = "in env" })()) print(pcall(load("x.y = 1", "=env", "t", {}))) print(pcall(load("local a = b < c", "=cmp"))) print(load("x = 5; return x", "=e", "bt", {})(), x)
local pieces, n = { "return ", "1 ", "< 2", nil }, 0 print(load(function() n = n + 1 return pieces[n] end)()) print(pcall(load, function() return {} end)) print(load(function() return 5 end == nil and "" or "return 'str'")())
local ok, e = pcall(error, setmetatable({ code = 1 }, { __eq = function() return true end })) print(e.code, e == setmetatable({}, getmetatable(e)), e ~= 1) local depth = 0 local function recurse() depth = depth + 1 return 1 + recurse() end local ok, m = pcall(recurse) print(ok, m:match("stack overflow"), depth > 1000)
print(pcall(function() local a <const> = 1; return a.b.c end)) print(pcall(function() local up = nil; return (function() return up.x end)() end)) print(pcall(function() local up = nil; return (function() up.x = 1 end)() end)) print(pcall(function() return (nil)[1] end)) print(pcall(function() return ({})[nil].x end)) print(pcall(function() return (1).x.y end))
error("last words")
