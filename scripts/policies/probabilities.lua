-- Rows that should be probabilities are made so again.
-- Use it behind a softmax of low precision, or where probabilities come from another program.
-- Returns the rows and the flags. A row with NaN, Inf or a negative value, or without anything above zero, becomes the
-- uniform distribution (FALLBACK_VALUE); one that does not add up to 1 is divided by its sum (VALUE_CLAMPED).
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "probabilities",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "C"})},
  outputs = {"z", "f"},
  params = {tolerance = {default = 1e-3, min = 0, help = "the sum of a row may miss 1 by this much"}},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "probabilities")
    f = push(f, err.OUT_OF_BOUNDS, "probabilities", {where = (z < 0):any(-1)})
    f = push(f, err.ZERO_OUTPUT, "probabilities", {where = z:eq(0):all(-1)})
    local uniform = torch.zeros_like(z):softmax(-1)
    z, f = fix(z, f, "probabilities", {fallback = uniform})
    local x = z.dtype == torch.float64 and z or z:float()
    local huge = (x > 1e15):any(-1, true)
    x = torch.where(huge, x * 0x1p-64, x)   -- the sum stays finite; it is not 1 either way
    local total = x:sum(-1, true)
    local off = ((total - 1):abs() > p.tolerance) | huge
    f = push(f, err.VALUE_CLAMPED, "probabilities", {where = off:squeeze(-1)})
    return torch.where(off, (x / total):to(z.dtype), z), f
  end,
  verify = {stable = false},   -- a tolerance of 0 is less than the rounding of a sum
  tests = {
    {
      name = "a sample that is not a distribution becomes one",
      args = function()
        return torch.tensor({{0.25, 0.75}, {1.0, 3.0}, {NaN, 0.5}, {Inf, 0.5}, {-0.5, 1.5}, {0.0, 0.0}})
      end,
      check = function(z, f)
        local even = {0.5, 0.5}
        return z:equal(torch.tensor({{0.25, 0.75}, {0.25, 0.75}, even, even, even, even}))
          and err.has_fallback(f):equal(torch.tensor({false, false, true, true, true, true}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({false, true, false, false, false, false}))
      end,
    },
    {
      name = "a sum beyond the range",
      args = function() return torch.tensor({{3e38, 3e38}, {1e30, 3e30}}) end,
      check = function(z, f)
        return (z - torch.tensor({{0.5, 0.5}, {0.25, 0.75}})):abs():lt(1e-6):all()
          and err.has_code(f, err.VALUE_CLAMPED):all()
      end,
    },
    {
      name = "a sum may miss 1 by the tolerance",
      params = {tolerance = 0.25},
      args = function() return torch.tensor({{0.5, 0.625}, {1.0, 3.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{0.5, 0.625}, {0.25, 0.75}})) and err.is_err(f):equal(torch.tensor({false, true}))
      end,
    },
  },
}
