-- goto and labels (§3.3.4).
local out = {}
local function add(...) out[#out + 1] = table.concat({ ... }, " ") end
do local i = 1 ::top:: if i <= 3 then add("i", i) i = i + 1 goto top end end
for i = 1, 3 do for j = 1, 3 do if j == 2 then goto next_i end add(i, j) end ::next_i:: end
do goto skip; local unused; ::skip:: ; end
do local k = 0 ::a:: k = k + 1 if k < 3 then goto a elseif k == 3 then goto b end ::b:: add("k", k) end
local function machine(s) local i, state = 0, ""
  ::start:: i = i + 1 local c = s:sub(i, i)
  if c == "" then goto finish elseif c == "x" then state = state .. "X" goto start else state = state .. "_" goto start end
  ::finish:: return state end
add(machine("axbxx"))
local closures = {}
do local i = 0 ::again:: local x = i closures[#closures + 1] = function() x = x + 1 return x end i = i + 1 if i < 3 then goto again end end
for k = 1, #closures do add(closures[k](), closures[k]()) end
for i = 1, 2 do repeat if i == 1 then goto done end add("not first") ::done:: until true end
while true do do goto out_of_while end end ::out_of_while::
do do ::same:: end ::same2:: do goto same3 ::same3:: end end
print(table.concat(out, "; "))
for _, text in ipairs { "goto nowhere", "do ::x:: end goto x", "goto x; local a; ::x:: print(a)", "::a:: ::a::", "break", "if true then break end",
  "while true do local function f() break end end", "do goto x; local y; ::x:: ; end return 1", "repeat goto c; local z; ::c:: until z",
  "::a:: do ::a:: end", "goto =", "for i = 1, 2 do ::l:: end goto l", "goto f; local function g() ::f:: end" } do
  print(text, select(2, load(text, "=text")))
end
