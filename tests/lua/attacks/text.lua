--- pack of a huge fixed string | budget
return string.pack("c2000000000", "")
--- pack of many huge fixed strings | budget
return string.pack(("c2000000000"):rep(4), "", "", "", "")
--- pack with a size beyond all | budget
return string.pack("c99999999999999999999", "")
--- pack in a loop that forgets | budget
while true do pcall(string.pack, "c1000000", "") end
--- pack in a loop that keeps | budget
local t = {} while true do t[#t + 1] = string.pack("c1000000", "") end
--- pack of a string given | budget
local s = ("x"):rep(500000) return string.pack("sss", s, s, s)
--- pack with a long format | budget
while true do pcall(string.pack, ("!16 i16"):rep(50000)) end
--- packsize of a long format | budget
while true do pcall(string.packsize, ("c2000000000"):rep(50000)) end
--- unpack to many values | too many
return string.unpack(("b"):rep(20000), ("x"):rep(20000))
--- byte of a long string | too many|overflow
return ("x"):rep(1000000):byte(1, -1)
--- byte in a loop | budget
local s = ("x"):rep(1000000) while true do pcall(s.byte, s, 1, -1) end
--- codepoint of a long string | too many|overflow
return utf8.codepoint(("x"):rep(1000000), 1, -1)
--- char in a loop | budget
local t = {} for i = 1, 5000 do t[i] = 65 end while true do string.char(table.unpack(t)) end
--- utf8.char in a loop | budget
local t = {} for i = 1, 5000 do t[i] = 0x10ffff end while true do utf8.char(table.unpack(t)) end
--- rep to a huge string | budget
return ("x"):rep(1 << 40)
--- rep with a separator | budget
return (""):rep(1 << 30, "ab")
--- rep of nothing | ok
return #(""):rep(1 << 62)
--- format of a wide field | invalid
return string.format("%99999d", 1)
--- format with long strings | budget
local s = ("x"):rep(500000) return string.format("%s%s%s", s, s, s)
--- format with quotes | budget
local s = ("\0"):rep(500000) return string.format("%q", s)
--- format of wide numbers | budget
local f, t = ("%99.99f"):rep(4000), {} for i = 1, 4000 do t[i] = 1e300 end
while true do local s = f:format(table.unpack(t)) end
--- concatenation that doubles | budget
local s = "x" while true do s = s .. s end
--- concatenation of many | budget
local s = ("x"):rep(100000) return s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s .. s
--- table.concat of many | budget
local t = {} for i = 1, 100000 do t[i] = "xxxxxxxxxxxxxxxxxxxx" end return table.concat(t)
--- table.concat of an endless list | budget
return table.concat(setmetatable({}, {__len = function() return 1 << 60 end, __index = function() return "x" end}))
--- table.concat of empty strings | budget
local e = setmetatable({}, {__index = function() return "" end}) return table.concat(e, "", 1, 1 << 60)
--- gsub that grows | budget
return ("x"):rep(100000):gsub("x", ("y"):rep(1000))
--- gsub with captures that grow | budget
return ("x"):rep(10000):gsub("(.*)", ("%1"):rep(1000))
--- gsub with a table of long strings | budget
return ("x"):rep(100000):gsub("x", {x = ("y"):rep(1000)})
--- a pattern that backtracks | budget
return ("x"):rep(200000):find((".-"):rep(5) .. "y")
--- a balanced pattern from everywhere | budget
return ("("):rep(300000):find("%b()")
--- a frontier pattern | budget
local s = ("x"):rep(1000000) while true do s:gsub("%f[y]", "") end
--- plain find from everywhere | budget
local s = ("x"):rep(500000) for i = 1, #s do s:find("xy", i, true) end
--- gmatch over captures | budget
while true do for a in ("x"):rep(200000):gmatch("()") do end end
--- upper in a loop | budget
local s = ("x"):rep(1000000) while true do s:upper() end
--- comparing long strings | budget
local a, b = ("x"):rep(1000000), ("x"):rep(999999) .. "x" while true do local same = a == b end
--- ordering strings of zeros | budget
local a, b = ("\0"):rep(1000000), ("\0"):rep(999999) .. "\0" while true do local less = a < b end
--- long strings as keys | budget
local a, b, t = ("x"):rep(1000000), ("x"):rep(999999) .. "x", {} t[a] = 1 while true do local v = t[b] end
--- arithmetic on long strings | budget
local s = ("1"):rep(1000000) while true do local n = s + 1 end
--- bits of long strings | budget
local s = (" "):rep(1000000) .. "1" while true do pcall(function() return s | 1 end) end
--- tonumber of long strings | budget
local s = ("1"):rep(1000000) while true do tonumber(s) end
--- tonumber in a base | budget
local s = ("z"):rep(1000000) while true do tonumber(s, 36) end
--- a loop bound that is a long string | budget
local s = ("1"):rep(1000000) while true do pcall(function() for i = s, 2 do end end) end
--- utf8.len of a long string | budget
local s = ("\u{80}"):rep(500000) while true do utf8.len(s) end
--- utf8.codes over continuation bytes | budget
local s = "a" .. ("\x80"):rep(1000000) while true do pcall(function() for p in utf8.codes(s) do end end) end
--- printing for ever | printed text
local s = ("x"):rep(100000) while true do print(s) end
--- printing many empty lines | printed text|budget
while true do print() end
--- error messages of long strings | budget
local s = ("x"):rep(1000000) while true do pcall(error, s) end
--- names in error messages | budget
local s = ("x"):rep(200000) while true do pcall(function() torch.zeros(2)[s]() end) end
--- text of a large tensor | budget
local x = torch.zeros({1000, 1000}) while true do local s = tostring(x) end
--- text of a tensor of many dimensions | budget
local x = torch.zeros({2, 2, 2, 2, 2, 2, 2, 2, 2}) while true do local s = tostring(x) end
--- text of a tensor of many dimensions at the edges | budget
local x = torch.zeros({7, 7, 7, 7, 7, 7, 7}) while true do local s = tostring(x) end
