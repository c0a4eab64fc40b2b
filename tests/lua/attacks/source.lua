--- a chain of fields | at most
assert(load("local x = a" .. (".x"):rep(16000)))
--- chains of fields in a loop | budget
local s = ("local x = a" .. (".x"):rep(200) .. " "):rep(800) while true do load(s) end
--- gotos | at most
assert(load(("goto e "):rep(40000) .. "::e::"))
--- gotos in many functions | budget
local s = ("f(function() " .. ("goto e "):rep(900) .. "::e:: end) "):rep(50) while true do load(s) end
--- breaks | at most
assert(load("while x do " .. ("if y then break end "):rep(15000) .. "end"))
--- a long `and` | at most
assert(load("local z = 1 local x = " .. ("z>0 and "):rep(50000) .. "z"))
--- many long `and`s | budget
local s = "local z = 1 " .. ("x = " .. ("z>0 and "):rep(999) .. "z "):rep(24) while true do load(s) end
--- many long `or`s | budget
local s = "local z = 1 " .. ("x = " .. ("z or "):rep(999) .. "z "):rep(40) while true do load(s) end
--- a long `elseif` | at most
assert(load("if z then " .. ("elseif z then "):rep(20000) .. "end"))
--- many long `elseif`s | budget
local s = ("if z then " .. ("elseif z then "):rep(1000) .. "end "):rep(30) while true do load(s) end
--- parentheses | levels
assert(load("return " .. ("("):rep(100000)))
--- nested functions | levels
assert(load(("return function() "):rep(10000)))
--- nested tables | levels
assert(load("return " .. ("{"):rep(100000)))
--- minus signs | levels
assert(load("return " .. ("- "):rep(100000) .. "1"))
--- a chain of powers | levels
assert(load("return " .. ("2^"):rep(40000) .. "1"))
--- a chain of concatenations | levels
assert(load("return " .. ("x.."):rep(40000) .. "x"))
--- a chain of calls | at most
assert(load("return f" .. ("()"):rep(40000)))
--- too many bytes | at most
assert(load((" "):rep(600000)))
--- too many tokens | at most
assert(load((";"):rep(150000)))
--- a long name | at most
assert(load("local " .. ("x"):rep(1000)))
--- many names in nested functions | budget
local s = {} for d = 1, 90 do s[d] = "local function f" .. d .. "() local " for i = 1, 100 do s[d] = s[d] .. "a" .. d .. "_" .. i .. "," end s[d] = s[d] .. "z " end
local text = table.concat(s) .. ("x() "):rep(12000) .. ("end "):rep(90) while true do load(text) end
--- upvalues of nested functions | budget
local s = "local a = 1 " .. ("local function f() "):rep(90) .. ("a = a "):rep(20000) .. ("end "):rep(90) while true do load(s) end
--- many functions | budget
local s = ("f = function() end "):rep(9000) while true do load(s) end
--- many constants | budget
local t = {} for i = 1, 40000 do t[i] = i .. ".5," end local s = "return {" .. table.concat(t) .. "}" while true do load(s) end
--- many small chunks | budget
local i = 0 while true do i = i + 1 load("return " .. i) end
--- many small chunks that are kept | budget
local t = {} while true do t[#t + 1] = load("return " .. #t) end
--- a reader that never ends | budget
load(function() return "x = 1 " end)
--- a reader of small pieces | budget
local n = 0 load(function() n = n + 1 return n < 1e9 and " " or nil end)
--- long strings and comments | budget
local s = "--[==[" .. ("]]"):rep(200000) .. "]==]" while true do load(s) end
--- an unfinished block after many | budget
local s = ("do end "):rep(30000) .. "\nwhile x do" while true do load(s) end
--- blocks on one line behind much space | budget
local s = (" "):rep(200000) .. ("do end "):rep(30000) .. "\ndo\n do\nend" while true do load(s) end
--- natural Lua with nested branches | budget
local s = "--!tensor\nlocal a " .. ("if a then "):rep(60) .. ("a = 1 "):rep(5000) .. ("end "):rep(60) while true do load(s) end
--- natural Lua with many variables | at most 50
local names = {} for i = 1, 150 do names[i] = "a" .. i end
assert(load("--!tensor\nlocal " .. table.concat(names, ",") .. " if c then " .. table.concat(names, "=1 ") .. "=1 end"))
--- natural Lua with many gotos | budget
local s = "--!tensor\nlocal a if a then " .. ("goto e "):rep(900) .. ("a = 1 "):rep(10000) .. " ::e:: end" while true do load(s) end
--- a syntax error with a long token | budget
local s = "x = = [[" .. ("y"):rep(400000) .. "]]" while true do load(s) end
--- a long number | budget
local s = "return " .. ("1"):rep(400000) while true do load(s) end
