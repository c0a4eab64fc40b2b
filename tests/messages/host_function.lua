-- A policy that calls a function which its host defines (host.cpp).
return function(z)
  local y = z * 2
  return look_up(y) + 1
end
