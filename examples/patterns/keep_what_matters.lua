-- Keep what matters: when a sample's record is full, the configuration says which errors stay.
--     triage exec examples/patterns/keep_what_matters.lua
-- Each line marked with an arrow is what the program prints.

local function twenty_layers(accumulation)
  local config = ErrorConfig{num_slots = 4, accumulation = accumulation}
  local f = err.new_t(1, {config = config})
  for layer = 1, 20 do
    local severity = layer == 7 and err.CRITICAL or err.WARN
    f = push(f, err.NAN, "layer" .. layer, {severity = severity, config = config})
  end
  local names = {}
  for _, entry in ipairs(flags.unpack(f, 0)) do
    names[#names + 1] = entry.location_name .. (entry.severity == err.CRITICAL and " (critical)" or "")
  end
  return ("20 errors, room for %d: %s"):format(config.num_slots, table.concat(names, ", "))
end

local Chrono <const>, Severest <const> = Priority.CHRONO, Priority.SEVERITY

-- The first ones: where it began. The default.
print("the first: " .. twenty_layers(AccumulationConfig{priority = Chrono, order = Order.FIRST}))
--> the first: 20 errors, room for 4: layer1, layer2, layer3, layer4
-- The last ones: how it stands now.
print("the last:  " .. twenty_layers(AccumulationConfig{priority = Chrono, order = Order.LAST}))
--> the last:  20 errors, room for 4: layer20, layer19, layer18, layer17
-- The worst ones: what to wake somebody for.
print("the worst: " .. twenty_layers(AccumulationConfig{priority = Severest, order = Order.LAST}))
--> the worst: 20 errors, room for 4: layer7 (critical), layer2, layer3, layer4
