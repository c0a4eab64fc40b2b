-- Arithmetic and bitwise operators, precedence, integer division and overflow (§3.4.1-3.4.3, 3.4.8).
print(7 // 2, -7 // 2, 7 // -2, 7.0 // 2, -7 % 3, 7 % -3, 5.5 % 2, -5.5 % 2, 1e308 * 10, -1e308 * 10)
print(2 ^ 3 ^ 2, -2 ^ 2, (-2) ^ 2, 2 ^ -1, not nil == true, #"ab" + 1, - - 3, ~5, ~~5, -~-1)
print(1 + 2 * 3 - 4 / 2, (1 + 2) * 3, 1 << 2 + 1, 1 | 2 & 3 ~ 4, 5 & 3 | 8, 1 << 62 << 1, 1 << 64, 1 >> 1, -1 >> 63, 3 ~ 5)
print("10" + 5, "0x10" + 0, "1e1" * 1, 10 .. 20, "3" * "4", pcall(function() return "a" + 1 end))
print(math.maxinteger + 1, math.mininteger - 1, math.maxinteger * 2, math.mininteger // -1, pcall(function() return 1 // 0 end))
print(1 // 0.0, -1 // 0.0, 0.0 / 0.0 ~= 0.0 / 0.0, 1 % math.huge, -1 % math.huge, pcall(function() return 1 % 0 end))
print(pcall(function() return 1.5 | 1 end)) print(pcall(function() return "a" | 1 end)) print(pcall(function() return {} + 1 end))
print(pcall(function() local t = {} return t.x + 1 end)) print(pcall(function() return -{} end)) print(pcall(function() return #5 end))
print(0x10, 0xA.8p0, 0x.1p4, 1e-2, .5, 3., 0xffffffffffffffff, 9223372036854775807, 9223372036854775808, 1E+2, 0x1P-2)
local ops = setmetatable({}, { __index = function(_, k) return k end })
local mt = {}
for _, name in ipairs { "add", "sub", "mul", "div", "mod", "pow", "unm", "idiv", "band", "bor", "bxor", "shl", "shr", "bnot" } do
  mt["__" .. name] = function(a, b) return name .. (rawequal(a, b) and "=" or "") .. type(a):sub(1, 1) .. type(b):sub(1, 1) end
end
local o = setmetatable({}, mt)
print(o + 1, 1 - o, o * o, o / 2, o % 2, 2 ^ o, -o, o // 1, o & 1, 1 | o, o ~ 3, o << 1, 1 >> o, ~o)
for i = -3, 3 do print(i // 2, i % 2, i << 1, i >> 1, i & 3, i ~ 1, i * 1.5, i / 2, i ^ 2, i // 0.7) end
print(1 < 2 and 2 < 3, 1 + 1 < 3, 5 // 2 == 2, (3 | 4) == 7, "a" < "b" == true, 2 * 3 == 6 and 6 ~= 7)
