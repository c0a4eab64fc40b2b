-- Values are kept between two limits.
-- Use it when the range is known: pixels, normalised features, actions of a controller.
-- Returns the batch and the flags: VALUE_CLAMPED for a sample with a value beyond a limit (Inf is one); NAN and
-- FALLBACK_VALUE for one with NaN, which has no nearest limit: it becomes zero, then is clamped like the others.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

local function any(mask) return mask:unsqueeze(-1):flatten(1):any(-1) end

return policy {
  name = "clamp",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  params = {
    low = {default = -10.0, help = "values below become this"},
    high = {default = 10.0, help = "values above become this; where it is below `low`, all values become this"},
  },
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan(z, "clamp")
    z, f = fix(z, f, "clamp", {fallback = 0.0})
    f = push(f, err.VALUE_CLAMPED, "clamp", {where = any((z < p.low) | (z > p.high))})
    return z:clamp(p.low, p.high), f
  end,
  verify = true,
  tests = {
    {
      name = "values beyond the limits become the limits, NaN becomes zero",
      args = function() return torch.tensor({{1.0, -11.0}, {Inf, 2.0}, {NaN, 3.0}, {10.0, -10.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, -10.0}, {10.0, 2.0}, {0.0, 0.0}, {10.0, -10.0}}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, true, false, false}))
          and err.has_nan(f):equal(torch.tensor({false, false, true, false}))
      end,
    },
    {
      name = "other limits",
      params = {low = -1.5, high = 0.5},
      args = function() return torch.tensor({{1.0, -11.0}, {0.5, -1.5}, {NaN, 3.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{0.5, -1.5}, {0.5, -1.5}, {0.0, 0.0}}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, false, false}))
      end,
    },
  },
}
