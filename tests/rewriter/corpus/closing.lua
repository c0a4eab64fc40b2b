-- To-be-closed variables (§3.3.8) and attribs.
local log = {}
local function closer(name, extra) return setmetatable({ name = name }, { __close = function(self, e) log[#log + 1] = self.name .. (e and " after " .. tostring(e) or "") if extra then extra(e) end end }) end
local function flush(...) print(table.concat(log, "; "), ...) log = {} end
do local a <close> = closer "a" local b <close> = closer "b" log[#log + 1] = "body" end flush()
local function f(fail) local x <close> = closer "x" local y <const> = 5 if fail then error("failed", 0) end return y, #log end flush(f()) flush(pcall(f, true))
for i = 1, 2 do local c <close> = closer("c" .. i) if i == 2 then break end end flush()
local function g() for i = 1, 3 do local d <close> = closer("d" .. i) if i >= 2 then return "returned", i end end end flush(g())
do local n <close> = nil local m <close> = false log[#log + 1] = "nil and false" end flush()
flush(pcall(function() local bad <close> = 5 end)) flush(pcall(function() local bad <close> = {} end))
flush(pcall(function() local e <close> = closer("e", function(e) error("in close of e", 0) end) error("first", 0) end))
local co = coroutine.wrap(function() local k <close> = closer("k", function() coroutine.yield("yielded in close") end) coroutine.yield(1) return 2 end) flush(co(), co(), co())
local w = coroutine.create(function() local z <close> = closer "z" coroutine.yield() end) coroutine.resume(w) flush(coroutine.close(w), coroutine.status(w))
for k in (function() return next, { 1 }, nil, closer "iterator" end)() do log[#log + 1] = "k" .. k end flush()
do local i = 0 ::again:: local v <close> = closer("v" .. i) i = i + 1 if i < 3 then goto again end end flush()
local function tail() local q <close> = closer "q" return (function() return #log == 0 and "before close" end)() end flush(tail())
local K <const> = 3 local S <const>, N <const>, B <const> = "s", nil, true print(K + 1, S .. "x", N, not B, -K, K < 4, K == 3, S == "s", N == nil, (function() return K, S, N end)())
print(pcall(function() return "x" .. N end)) repeat local r <close> = closer "r" local done = true until done flush() while true do local s <close> = closer "s" break end flush()
