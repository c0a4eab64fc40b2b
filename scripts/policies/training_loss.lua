-- The loss of a batch from the losses of its samples, of which bad ones do not count, and get the gradient 0.
-- Use it in a training loop in place of the mean: one bad sample then costs that sample, not the step. It promises
-- nothing for what happens inside a model that is outside of its graph: a gradient of 0 times a NaN is NaN again, in
-- the weights too. Repair bad samples before the model as well.
-- Returns the mean over the good samples (0 where there is none), of shape (), and the flags: who was left out.
-- Samples: across the batch, by the mean.

local NaN <const>, Inf <const> = 0 / 0, math.huge
local given   -- the losses of a test

return policy {
  name = "training_loss",
  inputs = {"losses"},   -- as a loss function with reduction "none" gives them
  signature = {losses = Tensor(floating_t, {"N"})},
  outputs = {"loss", "f"},
  fullgraph = true,
  run = function(losses)
    local f = flag_nan_and_inf(losses, "training_loss")
    local kept = err.take_ok_p(f, losses)
    kept = losses.dtype == torch.float64 and kept or kept:float()
    local count = err.is_ok(f):sum():clamp({min = 1})
    local huge = (kept:abs() > 1e15):any()
    local unit = torch.where(huge, torch.full_like(count, 0x1p64, {dtype = kept.dtype}), 1.0)   -- the sum stays finite
    local most <const> = torch.finfo(losses.dtype).max
    return ((kept / unit):sum() / count * unit):clamp(-most, most):to(losses.dtype), f
  end,
  verify = {isolated = false, gradients = true},
  tests = {
    {
      name = "the mean of the good ones",
      args = function() return torch.tensor({1.0, NaN, 3.0, Inf}) end,
      check = function(loss, f)
        return loss:item() == 2.0 and err.is_ok(f):equal(torch.tensor({true, false, true, false}))
      end,
    },
    {
      name = "bad samples send no gradient",
      args = function()
        given = torch.tensor({1.0, NaN, 3.0, Inf}, {requires_grad = true})
        return given
      end,
      check = function(loss)
        loss:backward()
        return given.grad:equal(torch.tensor({0.5, 0.0, 0.5, 0.0}))
      end,
    },
    {
      name = "losses whose sum is beyond the range have a mean",
      args = function() return torch.tensor({3e38, 3e38, NaN, 3e38}) end,
      check = function(loss, f) return (loss / 3e38 - 1):abs():lt(1e-6) and err.count_errors(f):sum():item() == 1 end,
    },
    {
      name = "no good sample",
      args = function() return torch.tensor({NaN, Inf}) end,
      check = function(loss) return loss:item() == 0.0 end,
    },
  },
}
