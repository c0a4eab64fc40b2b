-- Flags ride along with a model: every sample comes out, and the record says in which layer a bad one went wrong.
--     triage exec examples/patterns/follow_the_layers.lua
-- Each line marked with an arrow is what the program prints.

local first = torch.tensor({{1.0, -1.0}, {2.0, 0.5}})
local second = torch.tensor({{1.0}, {1.0}})

local model = triage.compile(function(x)
  local f = flag_nan(x, "input")
  local h = x:mm(first):log()                       -- the log of a negative number is NaN
  f = flag_nan_and_inf(h, "hidden", f)
  local y = h:mm(second):exp()
  f = push(f, err.OVERFLOW, "output", {where = (y > 1e6):any(-1)})
  return fix(y, f, "output", {fallback = 0.0})
end, {fullgraph = true})

local x = torch.tensor({{1.0, 4.0}, {4.0, 1.0}, {0 / 0, 1.0}, {1e4, 1e5}})
local y, f = model(x)
print(("%d samples in, %d out, all finite: %s"):format(#x, #y, y:isfinite():all():item()))
--> 4 samples in, 4 out, all finite: true
for i = 0, #x - 1 do
  local names = {}
  for _, entry in ipairs(flags.unpack(f, i)) do
    names[#names + 1] = entry.code_name .. " at " .. entry.location_name
  end
  print(("sample %d: %s"):format(i, #names > 0 and table.concat(names, ", ") or "fine"))
end
--> sample 0: fine
--> sample 1: NAN at hidden, FALLBACK_VALUE at output
--> sample 2: NAN at input, NAN at hidden, FALLBACK_VALUE at output
--> sample 3: OVERFLOW at output, FALLBACK_VALUE at output
