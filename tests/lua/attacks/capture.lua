--- exports in a loop | budget
while true do pcall(triage.export, function(z) for i = 1, 20000 do z = z + 1 end return z end, {torch.ones({2})}) end
--- a large graph | at most|budget
return triage.export(function(z) for i = 1, 20000 do z = z + 1 end return z end, {torch.ones({2})})
--- a graph of many constants | at most|budget
local t = {} for i = 1, 12000 do t[i] = torch.zeros({1}) end
return triage.export(function(z) for i = 1, 12000 do z = z + t[i] end return z end, {torch.ones({1})})
--- a long list of tensors | at most|budget
local t = {} for i = 1, 12000 do t[i] = torch.zeros({1}) end
return triage.export(function(z) return torch.cat({z, torch.cat(t)}) end, {torch.ones({1})})
--- exports that are kept | budget
local keep = {} while true do keep[#keep + 1] = triage.export(function(z) for i = 1, 100 do z = z + i end return z end, {torch.ones({2})}) end
--- the text of a program in a loop | budget
local p = triage.export(function(z) for i = 1, 1000 do z = z + i end return z end, {torch.ones({2})})
while true do local s = tostring(p) end
--- a graph of foldable constants | budget
while true do triage.export(function(z) local c = torch.ones({1}) for i = 1, 500 do c = c + i z = z + c end return z end, {torch.ones({1})}) end
--- functions compiled for ever | budget
while true do triage.compile(function(z) return z end) end
--- functions compiled and called for ever | budget
local k, x = 0, torch.ones({4}) while true do k = k + 1 triage.compile(function(z) return z * k + 1 end)(x) end
--- one function recompiled for ever | budget
local x, f = torch.ones({4}), triage.compile(function(z, k) return z * k + 1 end) local k = 0 while true do k = k + 1 f(x, k) end
--- shapes for ever | budget
local f = triage.compile(function(z) return z * 2 + 1 end, {dynamic = false}) local n = 0 while true do n = n % 500 + 1 f(torch.ones({n})) end
--- explanations for ever | budget
while true do triage.explain(function(z) return z + 1 end, torch.ones({2})) end
--- an explanation of a large function | ok|budget|at most
return triage.explain(function(z) for i = 1, 9000 do z = z + i end return z end, torch.ones({2})).op_count
--- graph breaks for ever | budget
local f = triage.compile(function(z) for i = 1, 1000 do z = z + 1 if z:sum():item() < 0 then break end end return z end) while true do f(torch.ones({2})) end
--- many upvalues of a compiled function | budget
local t = {} for i = 1, 50000 do t[i] = i end local f = triage.compile(function(z) return z * t[1] end) local x = torch.ones({2})
while true do t[2] = t[2] + 1 f(x) end
--- deep tables of a compiled function | budget
local t = {1} for i = 1, 20000 do t = {t} end local f = triage.compile(function(z) local u = t return z + 1 end) local x = torch.ones({2})
while true do t[2] = {} f(x) end
--- many globals of a compiled function | budget
for i = 1, 5000 do _G["g" .. i] = i end local f = triage.compile(function(z) return z * g1 end) local x = torch.ones({2})
while true do g2 = g2 + 1 f(x) end
--- a table in a ring | budget
local t = {} t.t = t for i = 1, 2000 do t[i] = {t} end local f = triage.compile(function(z) local u = t return z + 1 end) local x = torch.ones({2})
while true do t.n = (t.n or 0) + 1 f(x) end
--- a function of long strings | budget
local s = ("x"):rep(1000000) local f = triage.compile(function(z) local u = s return z + 1 end) local x = torch.ones({2})
while true do s = s:sub(2) .. "y" f(x) end
--- strings as arguments | budget
local s = ("x"):rep(1000000) local f = triage.compile(function(z, s) return z + 1 end) local x = torch.ones({2})
while true do s = s:sub(2) .. "y" f(x, s) end
--- tensors that are kept | budget
local t = {} while true do t[#t + 1] = torch.zeros({}) end
--- tensors of nothing that are kept | budget
local t = {} while true do t[#t + 1] = torch.zeros({0}) end
--- views that are kept | budget
local x, t = torch.zeros({10}), {} while true do t[#t + 1] = x:view({2, 5}) end
--- tensors for ever | budget
while true do local x = torch.zeros({1000}) end
--- a tensor as a table | budget
local x = torch.zeros({1000000}) local t = {} while true do t[#t + 1] = x:totable() end
--- a tensor of many rows as a table | budget
local x = torch.zeros({100000, 1}) while true do local t = x:totable() end
--- a tensor of no elements as a table | budget
local x = torch.zeros({100000000, 0}) return x:totable()
--- a tensor of a large table | budget
local t = {} for i = 1, 500000 do t[i] = i end while true do torch.tensor(t) end
--- a tensor of a deep table | budget|torch.tensor
local t = {1} for i = 1, 100000 do t = {t} end while true do torch.tensor(t) end
--- a tensor of a table in a ring | budget|torch.tensor
local t = {} t[1] = t torch.tensor(t)
--- a tensor of a table of endless length | ok
torch.tensor(setmetatable({}, {__len = function() return 1 << 40 end, __index = function() return 1 end}))
--- sizes from a table of endless length | ok
torch.zeros(setmetatable({}, {__len = function() return 1 << 40 end, __index = function() return 1 end}))
--- a list of a million tensors | budget
local t = {} local x = torch.zeros({1}) for i = 1, 1000000 do t[i] = x end while true do torch.cat(t) end
--- many dimensions | budget|dim|at most
local n = {} for i = 1, 5000 do n[i] = 1 end local x = torch.zeros(n) while true do tostring(x) end
--- operators on small tensors for ever | budget
local x = torch.zeros({2}) while true do x = x + 1 end
--- a long chain of gradients | budget
local x = torch.zeros({2}, {requires_grad = true}) local y = x while true do y = y + 1 end
--- locations with long names | budget|bytes
local f = err.new(torch.zeros({2, 2})) push(f, err.NAN, ("x"):rep(500000))
--- locations for ever | locations
local f = err.new(torch.zeros({2, 2})) for i = 1, 1e9 do push(f, err.NAN, "attack.place" .. i) end
--- a tree of long paths | bytes
LocationTree():add_path(("a."):rep(100000) .. "a")
--- a tree of many paths | components|budget
local t = LocationTree() for i = 1, 1e9 do t:add_path("a" .. i .. ".b.c") end
--- a tree that changes for ever | budget
local t, i = LocationTree(), 0 while true do i = i + 1 t:add_path("a" .. i) t:build_ids() t:get_location("a1") end
--- a tree with many weights | budget|components
local t = WeightedLocationTree() for i = 1, 2000 do t:add_path("a" .. i .. ".b") end for i = 1, 2000 do t:set_weight("*" .. i .. "*b", i) end
while true do t:add_path("x") t:build_ids() end
--- patterns that backtrack | budget|bytes
local t = WeightedLocationTree() for i = 1, 200 do t:add_path(("a"):rep(900) .. i) end for i = 1, 200 do t:set_weight(("*a"):rep(300) .. "b" .. i, i) end
local i = 0 while true do i = i + 1 t:add_path("x" .. i) t:build_ids() end
--- typed functions for ever | budget
while true do local T = Tensor(float32_t, {"N", "D"}) end
--- a type with many dimensions | budget|dim|Tensor
local n = {} for i = 1, 9000 do n[i] = "D" .. i end while true do Tensor(float32_t, n) end
--- configurations for ever | budget
while true do ErrorConfig({num_slots = 4}) end
--- flags in words for ever | budget
local f = flag_nan(torch.zeros({1000, 2}) / 0, 1) while true do local s = flags.repr(f) end
--- branches for ever | budget
local x = torch.zeros({4, 4}) while true do IF(x:sum(-1) > 0, function() return x end):ELSE(function() return x end) end
--- branches in branches | overflow|budget
local x = torch.zeros({4, 4}) local function f() return IF(x:sum(-1) > 0, f):ELSE(f) end f()
--- modules in modules | budget|overflow
local m = nn.Linear(1, 1) while true do m = nn.Sequential(m) end
--- text of modules in modules | budget|overflow
local m = nn.Linear(1, 1) for i = 1, 150 do m = nn.Sequential(m) end while true do tostring(m) end
--- a tensor of a table that holds itself twice over | budget
local t = {1} for i = 1, 40 do t = {t, t} end torch.tensor(t)
--- text of an expanded tensor | budget
local x = torch.zeros({1}):expand({7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}) while true do local s = tostring(x) end
--- error messages about large tables | budget
local t = {} for i = 1, 150000 do t["k" .. i] = i end while true do pcall(torch.zeros, 2, t) end
--- texts that many places hold | budget
local s, t = ("x"):rep(1000000), {} for i = 1, 15000 do t[i] = s end
local f, x = triage.compile(function(z) local u = t return z + 1 end), torch.ones({2}) while true do t[1] = {} f(x) end
--- operators that are none | budget
local x, i = torch.zeros({1}), 0 while true do i = i + 1 pcall(function() return x["no_operator" .. i] end) end
