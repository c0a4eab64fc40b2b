-- Layout: comments and line ends anywhere; messages must still name Lua's lines.
local function where(f) local ok, m = pcall(f) print(m) end
local a, t =
  1, -- comment
  { --[[ c ]] x
      = 5; [ -- inside
      "y" ] = 6 }
print( -- comment
  a
  < -- less
  2 --[==[ long
  comment ]==] and t.x
  == 5
  , not -- not
  t.y, t
  . y >= 6
)
where(function() local r = a --[[
  ]] < --[[
  ]] {} end)
where(function() return a
  .. -- first
  t
  .. -- second
  "x" end)
where(function() if
  a
  and
  t.x < t
  then end end)
where(function() local s = [[
multi
line]] < 1 end)
where(function() t.x
  = a
  < t end)
where(function()
  t.nothing
    .x
    .y = 1
end)
where(function() return t.nothing.x
  == 1 end)
where(function()
  local function inner(x)
    return x > 1 and
      x < {} or
      x
  end
  inner(
    5
  )
end)
where(function() repeat local u = 1 until
  u
  > "2" end)
where(function() while not
  (a <= t) do end end)
where(function() for i = 1, 2 do local q = i == 2 and
  nil .. "x" end end)
where(function() error(
  "at call" .. 1
) end)
local f = function
  (x)
  return x
end print(f
(1) == 1) function t
  .method
  (x) return x end function t
  : colon
  (x) return self == t end print(t.method(1), t:colon())
print((function(...) return ... end)( 1
  , 2 < 3
  , "a" .. "b" ), debug.getinfo(1, "l").currentline) print(debug.getinfo(f, "S").linedefined, debug.getinfo(f, "S").lastlinedefined)
local one = 1;local two = 2;local three = one<two;local four=one==two;local five=not(one>two)and"yes"or"no";print(three,four,five,one..two..'x'..3 ..4)
if(a)then print"paren"end if not(a)then else print[[else]]end while(a)and(a<0)do end for i=1,2 do if(i)==2 then print(i) end end
do return(a)<(2)and print"returned"or print(("x")=="x")end
