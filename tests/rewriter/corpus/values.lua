-- Values and types (§2.1): what `type`, equality and truth say of each.
local values = { 1, 1.0, -0.0, 0, "1", "", true, false, print, {}, coroutine.create(print), math.huge, 0/0, 2^53, 1 << 62 }
for i = 1, #values do
  local a = values[i]
  local row = { i, type(a), math.type(a) or "-" }
  for j = 1, #values do
    local b = values[j]
    row[#row + 1] = (a == b) and "=" or "."
    row[#row + 1] = (a ~= b) and "!" or "."
  end
  print(table.concat(row, " "))
end
print(1 == 1.0, math.type(1), math.type(1.0), 0 == -0.0, 1/0 == 1/-0.0)
print(0/0 == 0/0, 0/0 ~= 0/0, not (0/0 < 0/0), "a" == "a", "a" == 'a', [[a]] == "a")
print(nil == nil, nil == false, not nil, not 0, not "", #"" == 0)
print(math.maxinteger + 1 == math.mininteger, math.maxinteger + 0.0 == 2^63, math.maxinteger == 2^63, math.maxinteger < 2^63)
print(rawequal("x", "x"), rawequal({}, {}), rawlen({ 1, 2 }), rawlen("abc"))
print(1 < 1.5, 1.5 < 2, -1 < 0, "a" < "b", "a" < "B", "" < "a", "a\0b" < "a\0c", "Z" < "a")
print(2^63 > math.maxinteger, -2^63 >= math.mininteger, math.mininteger <= -2^63, 1 <= 1.0, 1 >= 1.0)
