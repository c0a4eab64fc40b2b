-- Work on clean samples only, or on bad ones only; shapes stay, and one graph holds it.
--     triage exec examples/patterns/clean_samples_only.lua
-- Each line marked with an arrow is what the program prints.

local function show(label, z)
  local rows = {}
  for _, row in ipairs(z:totable()) do
    rows[#rows + 1] = ("%.1f %.1f"):format(row[1], row[2])
  end
  print(label .. ": " .. table.concat(rows, " | "))
end

local normalise = triage.compile(function(h)
  local f = flag_nan(h, "features")
  -- True is fine. A NaN is not below a limit either: that sample gets both entries.
  f = err.guard(f, h, function(x) return (x:abs() < 1e3):all(-1) end, err.OVERFLOW, "features")
  h = err.map_ok(f, h, function(x) return x / x:norm(2, {-1}, true) end)
  h = err.map_err(f, h, function(x) return torch.zeros_like(x) end)
  return h, err.map_err_flags(f, function(g) return err.push(g, err.FALLBACK_VALUE, "features") end)
end, {fullgraph = true})

local h, f = normalise(torch.tensor({{3.0, 4.0}, {0 / 0, 1.0}, {0.0, 5e4}}))
show("normalised", h)       --> normalised: 0.6 0.8 | 0.0 0.0 | 0.0 0.0
print(flags.repr(f))        --> ErrorFlags(3 samples, 5 errors: 2xOVERFLOW, 2xFALLBACK_VALUE, 1xNAN @ features)
