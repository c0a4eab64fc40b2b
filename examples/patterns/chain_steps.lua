-- Chain steps that may each go wrong. `and_then` leaves a sample alone from its first error on; `bind` keeps its value,
-- too, and goes on to record what else is wrong.
--     triage exec examples/patterns/chain_steps.lua
-- Each line marked with an arrow is what the program prints.

local function root(z)
  local y = z:sqrt()
  return y, flag_nan(y, "root")
end

local function inverse(z)
  local y = 1 / (z - 2)
  return y, flag_inf(y, "inverse")
end

local function bounded(z)
  return z, push(err.new(z), err.OVERFLOW, "bounded", {where = (z > 100):any(-1)})
end

local function run(combine)
  return triage.compile(function(z)
    local f = err.new(z)
    for _, step in ipairs({root, inverse, bounded}) do
      z, f = combine(f, z, step)
    end
    return z, f
  end, {fullgraph = true})
end

local z = torch.tensor({{9.0}, {-1.0}, {4.0}})    -- fine; no root; an infinite inverse
for _, name in ipairs({"and_then", "bind"}) do
  local y, f = run(err[name])(z)
  print(("%s: %g of the first sample"):format(name, y[{0, 0}]:item()))
  for i, entries in ipairs(flags.unpack_all(f)) do
    local names = {}
    for _, entry in ipairs(entries) do names[#names + 1] = entry.location_name end
    print(("  sample %d: %s"):format(i - 1, #names > 0 and table.concat(names, ", ") or "fine"))
  end
end
--> and_then: 1 of the first sample
-->   sample 0: fine
-->   sample 1: root
-->   sample 2: inverse
--> bind: 1 of the first sample
-->   sample 0: fine
-->   sample 1: root
-->   sample 2: inverse, bounded
