-- Numeric for loops, subtypes in comparisons, and keys (§3.3.5, §3.4.3).
for _, pair in ipairs { { 1, 1.0 }, { 2^53, 2^53 + 1 }, { math.maxinteger, 2^63 }, { math.mininteger, -2^63 }, { 0, -0.0 }, { 1, 1.5 }, { -1, -0.5 }, { 3, 0/0 }, { 1/0, math.maxinteger }, { -1/0, math.mininteger } } do
  local a, b = pair[1], pair[2]
  print(a < b, a <= b, a > b, a >= b, a == b, a ~= b, b < a, b <= a)
end
local t = {} t[1] = "int" t[1.0] = "float" t[2^53] = "big" t["1"] = "string" print(#t, t[1], t[2^53 | 0], t["1"], next({ [1.0] = true }))
for i = 1, 3 do for j = 1.0, 2 do if i == j then print(i, j, i == j, math.type(i), math.type(j)) end end end
for i = 10, 1, -3 do if i < 5 and i % 2 == 0 or i > 8 then print(i) end end
for x = 0.1, 0.45, 0.1 do if x >= 0.2 then print(string.format("%.2f", x)) end end
local steps = 0 for _ = math.maxinteger - 2, math.maxinteger do steps = steps + 1 end print(steps) for _ = 3, 2.9 do steps = steps + 1 end print(steps)
print(7 // 0.5 == 14, 7 % 2.5 == 2, 2^2 == 4, 10 / 2 == 5, "10" + 0 == 10, "0x10" * 1 == 16, 1e2 == 100, 0x7fffffffffffffff + 1 == math.mininteger)
