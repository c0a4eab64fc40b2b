-- Bad samples become the mean of the good ones of their batch.
-- Use it when zero would stand out: features that a normalisation follows, targets of a regression.
-- Returns the batch and the flags. In a batch without any good sample the bad ones become zero.
-- Samples: across the batch, by the mean; what a good sample holds is never changed.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "repair_mean",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  fullgraph = true,
  run = function(z)
    local f = flag_nan_and_inf(z, "repair_mean")
    local good = err.take_ok_p(f, z)
    good = z.dtype == torch.float64 and good or good:float()
    local count = err.is_ok(f):sum():clamp({min = 1})
    local huge = (good:abs() > 1e15):any(0, true)
    local unit = torch.where(huge, torch.full_like(count, 0x1p64, {dtype = good.dtype}), 1.0)   -- sums stay finite
    local most <const> = torch.finfo(z.dtype).max
    local mean = ((good / unit):sum(0, true) / count * unit):clamp(-most, most)
    return fix(z, f, "repair_mean", {fallback = mean:to(z.dtype)})
  end,
  verify = {isolated = false},
  tests = {
    {
      name = "bad samples become the mean of the good ones",
      args = function() return torch.tensor({{1.0, 2.0}, {NaN, 9.0}, {3.0, 4.0}, {Inf, 0.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, 2.0}, {2.0, 3.0}, {3.0, 4.0}, {2.0, 3.0}}))
          and err.count_errors(f):equal(torch.tensor({0, 2, 0, 2}, {dtype = torch.int32}))
      end,
    },
    {
      name = "values whose sum is beyond the range have a mean",
      args = function() return torch.tensor({{3e38, 1.0}, {3e38, 2.0}, {NaN, 1.0}, {Inf, 0.0}}) end,
      check = function(z) return ((z[{{2, 4}}] / torch.tensor({3e38, 1.5})) - 1):abs():lt(1e-6):all() end,
    },
    {
      name = "no good sample: zero",
      args = function() return torch.tensor({{NaN, 1.0}, {Inf, 2.0}}) end,
      check = function(z) return z:equal(torch.zeros({2, 2})) end,
    },
  },
}
