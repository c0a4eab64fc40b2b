-- Partition: good and bad samples go separate ways, and come together again.
--     triage exec examples/patterns/partition.lua
-- Each line marked with an arrow is what the program prints.

local ids = torch.tensor({101, 102, 103, 104})
local z = torch.tensor({{1.0, 1.0}, {0 / 0, 2.0}, {3.0, 3.0}, {4.0, math.huge}})
local f = flag_nan_and_inf(z, "output")

local ok, bad = err.partition(f, z)
print(("%d good, %d bad"):format(#ok, #bad))    --> 2 good, 2 bad

-- Several tensors at once, so that ids stay beside their samples.
local good, rest = err.partition_many(f, ids, z)
print("good: " .. table.concat(good[1]:totable(), " "))    --> good: 101 103
print("to look at: " .. table.concat(rest[1]:totable(), " "))    --> to look at: 102 104

-- The bad ones are worked on (here: cut to a range), and take their places again.
local mended = rest[2]:nan_to_num(0.0, 10.0, -10.0)
local whole = torch.empty_like(z)
whole[err.is_ok(f)] = good[2]
whole[err.is_err(f)] = mended
print("row 1: " .. table.concat(whole[1]:totable(), " "))    --> row 1: 0.0 2.0
print("row 3: " .. table.concat(whole[3]:totable(), " "))    --> row 3: 4.0 10.0

-- In captured code both halves keep the shape of the batch, the other half filled.
local halves = triage.compile(function(x)
  local g = flag_nan_and_inf(x, "output")
  return err.take_ok_p(g, x, 0.0), err.take_err_p(g, x, 0.0)
end, {fullgraph = true})
local kept, set_aside = halves(z)
print(kept:sum():item(), set_aside:isfinite():all(-1):sum():item())    --> 8.0	2
