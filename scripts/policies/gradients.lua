-- Gradients of single samples, fit for an optimiser: bad ones are dropped, long ones are shortened.
-- Use it on gradients by sample (private training, per-sample clipping), before they are summed up.
-- Returns the gradients and the flags: zero and FALLBACK_VALUE for a sample with NaN or Inf, VALUE_CLAMPED for one that
-- was longer than `max_norm` and now is that long.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "gradients",
  inputs = {"g"},   -- row i is the gradient of sample i
  signature = {g = Tensor(floating_t, {"N", "..."})},
  outputs = {"g", "f"},
  params = {max_norm = {default = 1.0, min = 0, help = "the longest gradient of a sample, in the 2-norm"}},
  fullgraph = true,
  run = function(g, p)
    local f = flag_nan_and_inf(g, "gradients")
    for d = 1, g:dim() - 1 do   -- one by one: their product would be a size that graphs cannot follow
      if g:size(d) == 0 then return g, f end
    end
    g, f = fix(g, f, "gradients", {fallback = 0.0})
    local values = g:unsqueeze(-1):flatten(1)
    local x = g.dtype == torch.float64 and values or values:float()
    local top = x:abs():amax(-1, true)
    local unit = torch.where((top > 1e15) | ((top < 1e-15) & (top > 0)), top, 1.0)   -- so that squares stay finite
    x = x / unit
    local norm = x:square():sum(-1, true):sqrt()
    local long = norm > p.max_norm / unit
    f = push(f, err.VALUE_CLAMPED, "gradients", {where = long:squeeze(-1)})
    local scale = WHERE(long, function() return p.max_norm / norm end, 1.0)
    return torch.where(long, (x * scale):to(g.dtype), values):reshape_as(g), f
  end,
  verify = {stable = false},
  tests = {
    {
      name = "bad gradients are dropped, long ones shortened",
      args = function() return torch.tensor({{0.3, 0.4}, {NaN, 1.0}, {Inf, 1.0}, {3.0, 4.0}}) end,
      check = function(g, f)
        return (g - torch.tensor({{0.3, 0.4}, {0.0, 0.0}, {0.0, 0.0}, {0.6, 0.8}})):abs():lt(1e-6):all()
          and err.has_fallback(f):equal(torch.tensor({false, true, true, false}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({false, false, false, true}))
      end,
    },
    {
      name = "gradients of any length",
      args = function() return torch.tensor({{1e20, 2e20, -2e20}, {3e38, -3e38, 3e38}, {1e-30, 0.0, 0.0}}) end,
      check = function(g, f)
        local third = 1 / math.sqrt(3)
        local wanted = torch.tensor({{1 / 3, 2 / 3, -2 / 3}, {third, -third, third}})
        return (g[{{0, 2}}] - wanted):abs():lt(1e-6):all() and g[2]:equal(torch.tensor({1e-30, 0.0, 0.0}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, true, false}))
      end,
    },
    {
      name = "gradients of any shape",
      args = function() return torch.full({2, 2, 3}, 10.0) end,
      check = function(g) return (g:pow(2):sum({1, 2}) - 1):abs():lt(1e-5):all() end,
    },
    {
      name = "a larger limit keeps longer gradients",
      params = {max_norm = 5.0},
      args = function() return torch.tensor({{3.0, 4.0}, {6.0, 8.0}}) end,
      check = function(g, f)
        return (g - torch.tensor({{3.0, 4.0}, {3.0, 4.0}})):abs():lt(1e-5):all()
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({false, true}))
      end,
    },
  },
}
