-- A policy that calls a function which its host defines (host.cpp).
-- luacheck: globals look_up
return function(z)
  local y = z * 2
  return look_up(y) + 1
end
