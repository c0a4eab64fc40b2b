-- Bad samples become zero.
-- Use it when zero is a harmless answer: logits before a softmax, embeddings that are summed up, images.
-- Returns the batch, in which a sample with NaN or Inf anywhere is zero as a whole, and the flags.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "repair_zero",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  fullgraph = true,
  run = function(z)
    local f = flag_nan_and_inf(z, "repair_zero")
    return fix(z, f, "repair_zero", {fallback = 0.0})
  end,
  verify = true,
  tests = {
    {
      name = "samples with NaN or Inf become zero, the others keep their bits",
      args = function() return torch.tensor({{1.0, 2.0}, {NaN, 1.0}, {1.0, -Inf}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, 2.0}, {0.0, 0.0}, {0.0, 0.0}}))
          and err.has_nan(f):equal(torch.tensor({false, true, false}))
          and err.has_fallback(f):equal(torch.tensor({false, true, true}))
      end,
    },
    {
      name = "one number per sample",
      args = function() return torch.tensor({NaN, 3.0}) end,
      check = function(z) return z:equal(torch.tensor({0.0, 3.0})) end,
    },
  },
}
