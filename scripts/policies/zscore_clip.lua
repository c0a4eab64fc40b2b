-- Outliers of a sample are pulled in to so many standard deviations from the sample's own mean.
-- Use it for features with rare spikes, where the limits are not known beforehand.
-- Returns the batch and the flags: VALUE_CLAMPED for a sample with an outlier; a sample with NaN or Inf becomes zero.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "zscore_clip",
  inputs = {"z"},   -- each sample's D features are compared with each other
  signature = {z = Tensor(floating_t, {"N", "D"})},
  outputs = {"z", "f"},
  params = {deviations = {default = 3.0, min = 0, help = "how many standard deviations from the mean a value may lie"}},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "zscore_clip")
    z, f = fix(z, f, "zscore_clip", {fallback = 0.0})
    if z:size(-1) == 0 then return z, f end
    local x = z.dtype == torch.float64 and z or z:float()
    local top = x:abs():amax(-1, true)
    local unit = torch.where((top > 1e15) | ((top < 1e-10) & (top > 0)), top, 1.0)   -- so that squares stay finite
    x = x / unit
    local mean, reach = x:mean(-1, true), p.deviations * x:std(-1, false, true)
    local far = (x - mean):abs() > reach
    f = push(f, err.VALUE_CLAMPED, "zscore_clip", {where = far:any(-1)})
    local most <const> = torch.finfo(z.dtype).max
    local pulled = ((mean + reach * torch.sign(x - mean)) * unit):clamp(-most, most)
    return torch.where(far, pulled:to(z.dtype), z), f
  end,
  verify = {stable = false, order = false},   -- the rounding of `std` may depend on the size of the batch
  tests = {
    {
      name = "a spike is pulled in",
      args = function()
        local z = torch.zeros({4, 20})
        z[{0, 3}] = 20.0    -- mean 1, deviation sqrt(19)
        z[{1, 0}] = NaN
        z[{2, 0}] = Inf
        return z
      end,
      check = function(z, f)
        local spike = 1 + 3 * math.sqrt(19)
        return (z[{0, 3}] - spike):abs():lt(1e-4) and z[{{1, 4}}]:eq(0):all()
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, false, false, false}))
          and err.has_fallback(f):equal(torch.tensor({false, true, true, false}))
      end,
    },
    {
      name = "without a spike nothing changes",
      args = function() return torch.arange(12.0):reshape({2, 6}) end,
      check = function(z, f) return z:equal(torch.arange(12.0):reshape({2, 6})) and not has_err(f) end,
    },
    {
      name = "nothing changes at either end of the range",
      args = function() return torch.tensor({{1.2e38, 1.5e38, 1.8e38}, {3e38, -3e38, 1.0}, {1e-40, 2e-40, 3e-40}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.2e38, 1.5e38, 1.8e38}, {3e38, -3e38, 1.0}, {1e-40, 2e-40, 3e-40}}))
          and not has_err(f)
      end,
    },
    {
      name = "a spike at the end of the range",
      args = function()
        local z = torch.zeros({2, 20})
        z[{0, 3}], z[{1, 3}] = 3e38, 2e-30    -- mean 1/20, deviation sqrt(19)/20 of it
        return z
      end,
      check = function(z, f)
        local spike = (1 + 3 * math.sqrt(19)) / 20
        return (z[{0, 3}] / 3e38 - spike):abs():lt(1e-5) and (z[{1, 3}] / 2e-30 - spike):abs():lt(1e-5)
          and err.has_code(f, err.VALUE_CLAMPED):all()
      end,
    },
    {
      name = "nearer limits",
      params = {deviations = 1.0},
      args = function() return torch.tensor({{-1.0, 1.0, -1.0, 1.0}, {0.0, 0.0, 0.0, 8.0}}) end,   -- means 0 and 2
      check = function(z, f)
        return (z[{1, 3}] - (2 + math.sqrt(12))):abs():lt(1e-5) and z[0]:equal(torch.tensor({-1.0, 1.0, -1.0, 1.0}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({false, true}))
      end,
    },
  },
}
