-- A policy that one graph holds (host.cpp).
return function(z)
  return z + z
end
