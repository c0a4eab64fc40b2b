-- Samples in which nothing varies are flagged: ZERO_OUTPUT where all is zero, else CONSTANT_OUTPUT.
-- Use it behind a layer that can die or collapse (ReLU, a decoder, a GAN), and on inputs from a source that can freeze.
-- Returns the batch as it came, and the flags (NaN and Inf are flagged as well).
-- Samples: each on its own.

local NaN <const> = 0 / 0

return policy {
  name = "constant_output",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "values", "..."})},
  outputs = {"z", "f"},
  params = {tolerance = {default = 0.0, min = 0, help = "the largest minus the smallest value may be this much"}},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "constant_output")
    local values = z:flatten(1)
    if values:size(1) == 0 then return z, f end   -- of no values none is zero or constant
    local zero = values:eq(0):all(-1)
    local constant = values:amax(-1) - values:amin(-1) <= p.tolerance
    f = push(f, err.ZERO_OUTPUT, "constant_output", {where = zero})
    return z, push(f, err.CONSTANT_OUTPUT, "constant_output", {where = constant & ~zero})
  end,
  verify = true,
  tests = {
    {
      name = "zero, constant, neither, and bad",
      args = function() return torch.tensor({{0.0, 0.0}, {2.5, 2.5}, {1.0, 2.0}, {NaN, 0.0}}) end,
      check = function(z, f)
        return err.get_first_code(f):equal(
          torch.tensor({err.ZERO_OUTPUT, err.CONSTANT_OUTPUT, err.OK, err.NAN}, {dtype = torch.int32}))
      end,
    },
    {
      name = "samples without values are left as they are",
      args = function() return torch.zeros({2, 0}) end,
      check = function(z, f) return z:size(0) == 2 and z:size(1) == 0 and err.all_ok(f) end,
    },
    {
      name = "a sample that varies within the tolerance is constant",
      params = {tolerance = 0.5},
      args = function() return torch.tensor({{1.0, 1.5}, {1.0, 1.75}, {0.0, 0.0}}) end,
      check = function(_, f)
        return err.get_first_code(f):equal(
          torch.tensor({err.CONSTANT_OUTPUT, err.OK, err.ZERO_OUTPUT}, {dtype = torch.int32}))
      end,
    },
  },
}
