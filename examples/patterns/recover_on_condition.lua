-- Recover on a condition: what is done depends on what went wrong, inside one captured graph.
--     triage exec examples/patterns/recover_on_condition.lua
-- Each line marked with an arrow is what the program prints.

local function show(label, z)
  print(label .. ": " .. table.concat(z:squeeze(-1):totable(), " "))
end

-- A condition of one value a sample selects by sample: NaN becomes zero, Inf a limit, the rest goes on.
local by_sample = triage.compile(function(z)
  local f = flag_nan_and_inf(z, "layer")
  return IF(err.has_nan(f), function() return fix(z, f, "layer", {fallback = 0.0}) end)
    :ELIF(err.has_inf(f), function() return z:clamp(-100, 100), f end)
    :ELSE(function() return z * 2, f end)
end, {fullgraph = true})

-- A condition of one value for the batch selects the whole batch: here a bad sample is a reason to distrust all.
local whole_batch = triage.compile(function(z)
  local f = flag_nan_and_inf(z, "layer")
  return IF(OR(IS(err.NAN, f), IS(err.INF, f)), function() return torch.zeros_like(z), f end)
    :ELSE(function() return z * 2, f end)
end, {fullgraph = true})

local mixed = torch.tensor({{1.0}, {0 / 0}, {math.huge}, {4.0}})
local clean = torch.tensor({{1.0}, {2.0}})
show("by sample", (by_sample(mixed)))              --> by sample: 2.0 0.0 100.0 8.0
show("by sample, all clean", (by_sample(clean)))   --> by sample, all clean: 2.0 4.0
show("whole batch", (whole_batch(mixed)))          --> whole batch: 0.0 0.0 0.0 0.0
show("whole batch, all clean", (whole_batch(clean)))    --> whole batch, all clean: 2.0 4.0
local captured = triage.explain(function(z) return by_sample(z) end, mixed)
print(captured.graph_count .. " graph, " .. captured.graph_break_count .. " breaks")    --> 1 graph, 0 breaks
