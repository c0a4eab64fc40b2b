-- Concatenation (§3.4.6): numbers, precedence, long chains, errors that name the operand.
print("a" .. "b", 1 .. 2, 1.5 .. "x", -1 .. "", 2^53 .. "", 1e100 .. "", 10 // 3 .. "r", "a" .. 1 + 2 .. "b", "x" .. 2 ^ 2 .. "y")
print(("a" .. "b"):rep(2), #("a" .. "bc"), -("1" .. "0"), "1" .. "0" + 5, "a" .. "b" == "ab", "a" .. "b" < "b" .. "a")
local s = "" for i = 1, 20 do s = s .. i .. "," end print(s)
local function many() return "m", "n" end
print("<" .. many() .. many() .. ">", many() .. "!", (many()) .. "?")
print((function(...) return "v" .. ... end)("w", "x"))
local g = "up"
local t = { k = nil, s = "str", n = { m = nil } }
local function attempt(f, ...) print(pcall(f, ...)) end
attempt(function() local x return "a" .. x end)
attempt(function() local x return x .. "a" end)
attempt(function() return "a" .. t.k .. "b" end)
attempt(function() return "a" .. t.n.m end)
attempt(function() return "a" .. undefined_global .. "b" end)
attempt(function() return t .. "b" end)
attempt(function() return "a" .. "b" .. {} end)
attempt(function() return 1 .. print .. 2 end)
attempt(function() return nil .. "x" end)
attempt(function() return g .. (nil) end)
attempt(function() return g .. t[1] .. "x" end)
attempt(function() return g .. t["k"] end)
attempt(function() local k = "k" return g .. t[k] end)
attempt(function() return g .. t.s:upper() .. true end)
attempt(function(a, b, c)
  return a ..
    b ..
    c
end, "x", "y")
attempt(function(a, b, c)
  return a
    .. b
    .. c
    .. "z"
end, "x", nil, "y")
local parts = {} for i = 1, 150 do parts[i] = "'" .. i .. "'" end
print(#load("return " .. table.concat(parts, " .. "))())
print("long" .. [[
line]] .. 'esc\z
      aped\x41\65\u{48}' --[[ comment ]] .. --[==[ another
comment ]==] "end")
