-- Samples whose values mostly stand at the limit of their range are flagged as SATURATED.
-- Use it behind tanh or sigmoid, or for sensors and audio that clip: nothing is NaN, and yet the sample says little.
-- Returns the batch as it came, and the flags (NaN and Inf are flagged as well).
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "saturation",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  params = {
    limit = {default = 0.99, min = 0, help = "values of at least this size count as saturated"},
    share = {default = 0.5, min = 0, max = 1, help = "a sample with a larger share of such values is flagged"},
  },
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "saturation")
    local at_limit = (z:abs() >= p.limit):unsqueeze(-1):flatten(1)
    return z, push(f, err.SATURATED, "saturation", {where = at_limit:to(torch.float32):mean(-1) > p.share})
  end,
  verify = true,
  tests = {
    {
      name = "most values at the limit",
      args = function()
        return torch.tensor({
          {1.0, -1.0, 0.999, 0.1}, {1.0, 0.2, -1.0, 0.1}, {0.0, 0.0, 0.0, NaN}, {0.0, 0.1, 0.2, Inf},
        })
      end,
      check = function(z, f)
        return err.has_code(f, err.SATURATED):equal(torch.tensor({true, false, false, false}))
          and err.has_nan(f):equal(torch.tensor({false, false, true, false}))
          and z[0]:equal(torch.tensor({1.0, -1.0, 0.999, 0.1}))
      end,
    },
    {
      name = "another limit and share",
      params = {limit = 2.0, share = 0.25},
      args = function() return torch.tensor({{1.0, 1.0, 1.0, 1.0}, {2.0, -2.0, 0.0, 0.0}, {2.0, 0.0, 0.0, 0.0}}) end,
      check = function(_, f) return err.has_code(f, err.SATURATED):equal(torch.tensor({false, true, false})) end,
    },
  },
}
