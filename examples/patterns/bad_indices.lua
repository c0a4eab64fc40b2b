-- Indices of the bad samples: to log them, to trace them back, to try them again.
--     triage exec examples/patterns/bad_indices.lua
-- Each line marked with an arrow is what the program prints.

local z = torch.zeros({6, 3})
z[{1, 0}] = 0 / 0
z[{4, 2}] = math.huge
z[{5, 1}] = 0 / 0
local f = flag_nan_and_inf(z, "decoder")

local bad = torch.nonzero(err.is_err(f)):squeeze(-1)
print("bad: " .. table.concat(bad:totable(), " "))    --> bad: 1 4 5

local nan = torch.nonzero(find(err.NAN, f)):squeeze(-1)
print("with NaN: " .. table.concat(nan:totable(), " "))    --> with NaN: 1 5

local names = {"cat.jpg", "dog.jpg", "owl.jpg", "fox.jpg", "elk.jpg", "ant.jpg"}
for _, i in ipairs(bad:totable()) do
  local first = flags.unpack(f, i)[1]
  print(("%s: %s at %s"):format(names[i + 1], first.code_name, first.location_name))
end
--> dog.jpg: NAN at decoder
--> elk.jpg: INF at decoder
--> ant.jpg: NAN at decoder
