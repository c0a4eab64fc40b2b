-- Bad steps of a series become the nearest good step before them, or after them where there is none before.
-- Use it for series with gaps: sensor readings, frames, audio features.
-- Returns the series and the flags. A sample without any good step becomes zero.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge
local none <const> = 1 << 31   -- behind every step

return policy {
  name = "repair_neighbour",
  inputs = {"z"},   -- T steps of D features; a step with one bad feature is bad
  signature = {z = Tensor(floating_t, {"N", "T", "D"})},
  outputs = {"z", "f"},
  fullgraph = true,
  run = function(z)
    local f = flag_nan_and_inf(z, "repair_neighbour")
    local good = torch.isfinite(z):all(-1)                                    -- (N, T)
    local step = torch.ones_like(good, {dtype = torch.int64}):cumsum(1) - 1   -- 0, 1, ...
    local before = (step + 1 - (~good) * none):cummax(1) - 1                  -- the last good one, or less than 0
    local after = (step + (~good) * none):flip(1):cummin(1):flip(1)
    local found = good:any(1, true)
    local nearest = torch.where(before >= 0, before, after)
    nearest = torch.where(found, nearest, 0)
    local filled = z:gather(1, nearest:unsqueeze(-1):expand_as(z))
    f = push(f, err.FALLBACK_VALUE, "repair_neighbour", {where = ~good:all(1)})
    return torch.where(found:unsqueeze(-1), filled, 0.0), f
  end,
  verify = true,
  tests = {
    {
      name = "gaps take the previous step, gaps at the start the next one",
      args = function()
        return torch.tensor({
          {{1.0, 2.0}, {NaN, 9.0}, {5.0, Inf}, {7.0, 8.0}},
          {{NaN, 0.0}, {NaN, 0.0}, {3.0, 4.0}, {5.0, 6.0}},
          {{1.0, 1.0}, {2.0, 2.0}, {3.0, 3.0}, {4.0, 4.0}},
          {{NaN, 0.0}, {NaN, 0.0}, {NaN, 0.0}, {NaN, 0.0}},
        })
      end,
      check = function(z, f)
        return z:equal(torch.tensor({
          {{1.0, 2.0}, {1.0, 2.0}, {1.0, 2.0}, {7.0, 8.0}},
          {{3.0, 4.0}, {3.0, 4.0}, {3.0, 4.0}, {5.0, 6.0}},
          {{1.0, 1.0}, {2.0, 2.0}, {3.0, 3.0}, {4.0, 4.0}},
          {{0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}},
        })) and err.has_fallback(f):equal(torch.tensor({true, true, false, true}))
      end,
    },
  },
}
