-- Ranges of values, for all policies of the folder.
local ranges = {}

--- Pulls values into [-limit, limit], and records VALUE_CLAMPED for samples that had others.
function ranges.clip(z, limit, f, location)
  local far = z:abs() > limit
  f = push(f, err.VALUE_CLAMPED, location, {where = far:any(-1)})
  return torch.where(far, torch.sign(z) * limit, z), f
end

return ranges
