-- Literals (§3.1) and the string library, whose functions call back.
print("\a\b\f\n\r\t\v\\\"\'" == '\7\8\12\10\13\9\11\92\34\39', "\x41\u{41}\65\065\z
   B", '\
newline', "\u{7FFFFFFF}" == "\xFD\xBF\xBF\xBF\xBF\xBF", #"\0\00\000x", [[
first newline skipped]], [==[a]]b]=]c]==], #[[

]])
print(("hello world"):find("o w"), ("hello"):find("l+"), ("hello"):match("(h)(.)"), ("key = value"):match("^(%w+)%s*=%s*(%w+)$"), ("x"):find("y"), ("a.b"):find(".", 1, true), ("abc"):find("b", -1))
print(("hello world"):gsub("o", "0"), ("abc"):gsub("%w", "%0%0"), ("abc"):gsub("", "-"), ("hello"):gsub("l", { l = "L" }), ("abc"):gsub("%w", function(c) if c == "b" then return nil elseif c > "b" then return c:upper() end return false end), ("abc"):gsub("b", "%%"), pcall(string.gsub, "x", "x", "%2"))
for k, v in ("a=1, b=2"):gmatch("(%w+)=(%w+)") do print(k, v) end for pos in ("abab"):gmatch("()b") do print(pos) end
print(string.format("%5d|%-5d|%05d|%+d|%x|%X|%o|%c|%e|%g|%.3f|%10.2f|%s|%q|%%|%i|%a", 42, 42, 42, 42, 255, 255, 8, 65, 12345.678, 0.0001, 1 / 3, 2.5, "str", 'quo"te\n\0', 7, 1.0)) print(pcall(string.format, "%d", 1.5)) print(pcall(string.format, "%d", "x")) print(pcall(string.format, "%y", 1)) print(pcall(string.format, "%d")) print(string.format("%s %s %s", nil, true, setmetatable({}, { __tostring = function() return "T" end })))
print(("abc"):rep(3, "-"), ("abc"):reverse(), ("abc"):sub(-2), ("abc"):sub(2, 10), ("abc"):byte(1, -1), string.char(72, 105), ("x"):rep(0), ("aBc"):upper(), ("aBc"):lower(), #("x"):rep(1000), ("abc"):len())
print(tostring(1), tostring(1.0), tostring(-0.0), tostring(1e15), tostring(1e16), tostring(2^63), tostring(nil), tostring(true), 1e300 * 1e10, -1e300 * 1e10, 100000000000000, 0.1, 1 / 3, 123456.789e3)
print(tonumber("10"), tonumber("0x1p4"), tonumber(" 5 "), tonumber("5x"), tonumber("z", 36), tonumber("ff", 16), tonumber("8", 8), tonumber(""), tonumber("1e"), tonumber(nil == nil), pcall(tonumber), tonumber("1_0"), math.tointeger("8"), math.tointeger(3.0), 3 | 0)
print(string.pack("<i4", 100):byte(1, -1), string.unpack("<i4", "\1\2\3\4"), string.packsize("i4i8"), utf8.char(228, 8364), utf8.len("äö"), #utf8.charpattern, utf8.codepoint("ä", 1)) for p, c in utf8.codes("aä") do print(p, c) end
print(("x"):rep(3) == "xxx", "10" + 1, "abc" < "abd", ("%d items"):format(3), #"日本", ("a,b,,c"):gsub(",", ";"), (" trim "):match("^%s*(.-)%s*$") .. "|") print(pcall(string.rep, "x", -1)) print(pcall(("x").bad)) print(pcall(function() return ("x"):bad() end)) print(pcall(function() return #nil end))
print(math.max(1, 2.5), math.min(3, 1), math.floor(-1.5), math.ceil(1.2), math.fmod(-7, 3), math.ult(1, -1), math.abs(math.mininteger), math.pi > 3.14, math.sqrt(16), math.tointeger("x"), pcall(math.floor, "a"), math.type("1"), 7 // 1 | 0)
