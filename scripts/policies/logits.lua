-- Logits that a softmax or a loss could not take are repaired, each kind in its own way.
-- Use it between a classifier and what reads its logits.
-- Returns the logits and the flags. A sample with NaN says nothing: its logits become zero, all classes alike. One with
-- Inf is certain: its values are kept within the limits, and the order of its classes stays. Others keep their bits.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "logits",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "f"},
  params = {limit = {default = 1e4, min = 0, help = "the largest size of a logit of a sample with an Inf"}},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "logits")
    local y = IF(err.has_nan(f), function() return torch.zeros_like(z) end)
      :ELIF(err.has_inf(f), function() return z:clamp(-p.limit, p.limit) end)
      :ELSE(function() return z end)
    return y, push(f, err.FALLBACK_VALUE, "logits", {where = err.is_err(f)})
  end,
  verify = true,
  tests = {
    {
      name = "NaN becomes zero, Inf the limit, the rest stays",
      args = function() return torch.tensor({{1.0, -2.0}, {NaN, Inf}, {Inf, -Inf}, {2e5, 1.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{1.0, -2.0}, {0.0, 0.0}, {1e4, -1e4}, {2e5, 1.0}}))
          and err.has_fallback(f):equal(torch.tensor({false, true, true, false}))
      end,
    },
    {
      name = "another limit",
      params = {limit = 20.0},
      args = function() return torch.tensor({{Inf, 50.0}, {50.0, 1.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{20.0, 20.0}, {50.0, 1.0}})) and err.is_err(f):equal(torch.tensor({true, false}))
      end,
    },
  },
}
