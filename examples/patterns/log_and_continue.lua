-- Log and continue: nothing is repaired or dropped, but somebody hears of it.
--     triage exec examples/patterns/log_and_continue.lua
-- Each line marked with an arrow is what the program prints.

local function sorted(counts)
  local names = {}
  for name in pairs(counts) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local function warn_of(step, f)
  if not has_err(f) then
    return
  end
  print(("step %d: %s"):format(step, flags.repr(f)))
  for location, codes in pairs(flags.summary(f)) do
    for _, code in ipairs(sorted(codes)) do
      print(("  %s: %d x %s"):format(location, codes[code], code))
    end
  end
end

local watch = triage.compile(function(z) return flag_nan_and_inf(z, "encoder") end)
local batches = {
  torch.tensor({{1.0, 2.0}, {3.0, 4.0}}),
  torch.tensor({{0 / 0, 2.0}, {0 / 0, 4.0}, {-math.huge, 1.0}}),
  torch.tensor({{5.0, 6.0}}),
}
local steps = 0
for step, z in ipairs(batches) do
  warn_of(step, watch(z))
  steps = steps + 1
end
--> step 2: ErrorFlags(3 samples, 3 errors: 2xNAN, 1xINF @ encoder)
-->   encoder: 1 x INF
-->   encoder: 2 x NAN
print(steps .. " steps, none lost")    --> 3 steps, none lost
