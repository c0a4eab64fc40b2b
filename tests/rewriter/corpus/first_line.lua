# a first line that is no Lua
local line = debug.getinfo(1, "l").currentline
print(line, 1 < 2)
print(debug.getinfo(1, "l").currentline)
print(debug.getinfo(1, "l").currentline, pcall(function() return 1 < {} end)) -- no line end