-- Features that all models of a service share: the limits of values are those of lib/ranges.lua.
local ranges = require "ranges"

return policy {
  outputs = {"z", "f"},
  params = {limit = 3.0},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "features")
    z, f = fix(z, f, "features", {fallback = 0.0})
    return ranges.clip(z, p.limit, f, "features")
  end,
  tests = {
    {
      name = "clamps what is far, and says so",
      args = function() return torch.tensor({{1.0, -9.0}, {0.0, 2.0}, {0/0, 1.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, -3.0}, {0.0, 2.0}, {0.0, 0.0}}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, false, false}))
      end,
    },
  },
}
