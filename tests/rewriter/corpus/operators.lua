-- Precedence and associativity of all operators together (§3.4.8): what binds how is visible in the metamethods called.
local mt = {} local function show(x) return type(x) == "table" and x.s or type(x) == "string" and x or tostring(x) end
local function sym(s) return setmetatable({ s = s }, mt) end
for name, op in pairs { add = "+", sub = "-", mul = "*", div = "/", mod = "%", pow = "^", idiv = "//", band = "&", bor = "|", bxor = "~", shl = "<<", shr = ">>", concat = ".." } do mt["__" .. name] = function(a, b) return sym("(" .. show(a) .. op .. show(b) .. ")") end end
mt.__unm = function(a) return sym("(-" .. a.s .. ")") end mt.__bnot = function(a) return sym("(~" .. a.s .. ")") end mt.__len = function(a) return sym("(#" .. a.s .. ")") end
local log = {} mt.__lt = function(a, b) log[#log + 1] = show(a) .. "<" .. show(b) return true end mt.__le = function(a, b) log[#log + 1] = show(a) .. "<=" .. show(b) return false end mt.__eq = function(a, b) log[#log + 1] = show(a) .. "==" .. show(b) return false end
local a, b, c, d = sym "a", sym "b", sym "c", sym "d"
print((a + b * c - d).s, (a * b + c * d).s, (a ^ b ^ c).s, (-a ^ b).s, (a .. b .. c).s, (a .. b + c .. d).s, (a << b + c).s, (a & b | c ~ d).s, (a | b & c << d .. a).s, (-a * b).s, (~a & b).s, (#a + b).s, (a - b - c).s, (a / b // c % d).s, (a .. -b).s, (2 ^ -a).s, (a >> b << c).s)
print(a < b, a + b < c * d, a .. b <= c .. d, a | b > c, a << b >= c, a == b, -a ~= #b, not (a < b), a < b and c <= d or a == c, (a < b) == true, a + b == c + d == false) print(table.concat(log, "  "))
print(not a == b, not (a == b), #"abc" + 1 == 4, -2 ^ 2 == -4, 2 ^ 3 ^ 2 == 512, 1 .. 2 == "12", "a" < "b" and "b" < "c", 1 + 1 == 2 and not false, 5 - -3 == 8)
