-- Bad samples become what stood in their place in the call before.
-- Use it for streams: sample i of each call is the next reading of source i (sensors, frames, sessions).
-- Give the `z` that one call returns to the next one as `last`, and zeros to the first.
-- Returns the batch and the flags. What is not finite in `last` counts as zero.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "repair_last_good",
  inputs = {"z", "last"},   -- of one shape and dtype
  signature = {z = Tensor(floating_t, {"N", "..."}), last = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  fullgraph = true,
  run = function(z, last)
    local f = flag_nan_and_inf(z, "repair_last_good")
    local usable = err.replace(last, 0.0, {err.NAN, err.INF})
    return fix(z, f, "repair_last_good", {fallback = usable})
  end,
  verify = true,
  tests = {
    {
      name = "a bad reading becomes the previous reading",
      args = function()
        return torch.tensor({{1.0, 2.0}, {NaN, 5.0}, {Inf, 6.0}}), torch.tensor({{7.0, 7.0}, {3.0, 4.0}, {NaN, 8.0}})
      end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, 2.0}, {3.0, 4.0}, {0.0, 8.0}}))
          and err.is_err(f):equal(torch.tensor({false, true, true}))
      end,
    },
  },
}
