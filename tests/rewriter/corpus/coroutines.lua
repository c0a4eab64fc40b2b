-- Coroutines (§2.6) across rewritten operators.
local gen = coroutine.wrap(function(a) local b = coroutine.yield(a * 2) while b and b < 100 do b = coroutine.yield(b .. "!") or 200 end return "done", b end)
print(gen(5), gen(7), gen(50), gen(), pcall(gen))
local function producer(n) return coroutine.create(function() for i = 1, n do if i % 2 == 0 then coroutine.yield(i) end end return "end" end) end
local p = producer(6) while true do local ok, v = coroutine.resume(p) print(ok, v, coroutine.status(p)) if coroutine.status(p) == "dead" then break end end print(coroutine.resume(p))
print(coroutine.isyieldable(), coroutine.running() ~= nil, select(2, coroutine.running()), coroutine.wrap(function() return coroutine.isyieldable() end)())
local function tree(t) if t then tree(t.l) coroutine.yield(t.v) tree(t.r) end end local values = {} for v in coroutine.wrap(function() tree { v = 2, l = { v = 1 }, r = { v = 4, l = { v = 3 } } } end) do values[#values + 1] = v end print(table.concat(values, " "))
print(coroutine.wrap(function() return pcall(function() local x = coroutine.yield() return x < 1 end) end)()) local e = coroutine.create(function() local t = nil return t.x end) print(coroutine.resume(e)) print(coroutine.status(e), coroutine.close(e))
print(select(2, pcall(coroutine.wrap(function() error({ code = 5 }) end))).code) print(select(2, pcall(coroutine.wrap(function() error("text") end)))) print(pcall(coroutine.resume, 5)) print(pcall(coroutine.create, 5))
local co co = coroutine.wrap(function() return pcall(co) end) print(co()) print(pcall(coroutine.yield, 1)) local sorter = coroutine.wrap(function() return pcall(table.sort, { 2, 1 }, function(a, b) coroutine.yield() return a < b end) end) print(sorter())
local mt = { __index = function(t, k) return coroutine.yield(k) end, __call = function(self, x) return coroutine.yield(x) end, __add = function(a, b) return coroutine.yield("add") end } local o = setmetatable({}, mt) local c = coroutine.wrap(function() local a = o.field or "none" local b = o(5) and o.x == 3 return a, b, o + 1 end) print(c()) print(c(nil)) print(c(true)) print(c(3)) print(c("sum"))
