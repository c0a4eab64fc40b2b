--!tensor
-- Readings of sensors are brought to a common scale, and each kind of bad sample is repaired in its own way.
-- Use it in front of a model that takes features of mean 0 and deviation 1. In natural Lua: see docs/natural-lua.md.
-- Returns the features and the flags. A sample with NaN or Inf becomes zero. One that does not move (a frozen sensor)
-- becomes zero and is flagged as constant. Others are scaled; where some then lie further out than the limit, they are
-- kept within it.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "robust_scale",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "D"})},
  outputs = {"z", "f"},
  params = {limit = 3.0},   -- in deviations of the sample
  fullgraph = true,
  lua = "tensor",
  run = function(z, p)
    local f = flag_nan_and_inf(z, "features")
    local spread = z:amax(-1) - z:amin(-1)
    if err.is_err(f) then
      z = torch.zeros_like(z)
      f = push(f, err.FALLBACK_VALUE, "features")
    elseif spread == 0 then
      z = torch.zeros_like(z)
      f = push(f, err.CONSTANT_OUTPUT, "features")
    else
      local centred = z - z:mean(-1, true)
      z = centred / centred:square():mean(-1, true):sqrt()
      if z:abs():amax(-1) > p.limit then
        z = z:clamp(-p.limit, p.limit)
        f = push(f, err.VALUE_CLAMPED, "features")
      end
    end
    return z, f
  end,
  tests = {
    {
      name = "NaN and Inf become zero, a frozen sensor too, the rest is scaled",
      args = function() return torch.tensor({{1.0, 3.0}, {NaN, 2.0}, {5.0, 5.0}, {Inf, 1.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{-1.0, 1.0}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}}))
          and err.has_fallback(f):equal(torch.tensor({false, true, false, true}))
          and err.has_code(f, err.CONSTANT_OUTPUT):equal(torch.tensor({false, false, true, false}))
      end,
    },
    {
      name = "what lies far out is kept within the limit",
      params = {limit = 0.5},
      args = function() return torch.tensor({{0.0, 2.0}, {4.0, 4.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{-0.5, 0.5}, {0.0, 0.0}}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, false}))
      end,
    },
  },
}
