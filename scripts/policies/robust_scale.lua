--!tensor
-- Readings of sensors are brought to a common scale, and each kind of bad sample is repaired in its own way.
-- Use it in front of a model that takes features of mean 0 and deviation 1. In natural Lua: see docs/natural-lua.md.
-- Returns the features and the flags. A sample with NaN or Inf becomes zero. One that does not move (a frozen sensor)
-- becomes zero and is flagged as constant. Others are scaled; where some then lie further out than the limit, they are
-- kept within it.
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "robust_scale",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "D"})},
  outputs = {"z", "f"},
  params = {limit = {default = 3.0, min = 0, help = "the largest size of a scaled value, in deviations of the sample"}},
  fullgraph = true,
  lua = "tensor",
  run = function(z, p)
    local f = flag_nan_and_inf(z, "features")
    if z:size(1) == 0 then return z, f end   -- of no readings none is frozen or far out
    if err.is_err(f) then
      z = torch.zeros_like(z)
      f = push(f, err.FALLBACK_VALUE, "features")
    elseif z:amax(-1) == z:amin(-1) then
      z = torch.zeros_like(z)
      f = push(f, err.CONSTANT_OUTPUT, "features")
    else
      local x = z.dtype == torch.float64 and z or z:float()   -- float16 has no room for squares
      local top = x:abs():amax(-1, true)
      x = x / torch.where(top > 1e15, top, 1.0)               -- nor has float32 for those of 1e20,
      x = x - x:mean(-1, true)
      top = x:abs():amax(-1, true)
      x = x / torch.where(top < 1e-15, top, 1.0)              -- or of 1e-25
      z = (x / x:square():mean(-1, true):sqrt()):to(z.dtype)
      if z:abs():amax(-1) > p.limit then
        z = z:clamp(-p.limit, p.limit)
        f = push(f, err.VALUE_CLAMPED, "features")
      end
    end
    return z, f
  end,
  verify = {unchanged = false, stable = false},
  tests = {
    {
      name = "NaN and Inf become zero, a frozen sensor too, the rest is scaled",
      args = function() return torch.tensor({{1.0, 3.0}, {NaN, 2.0}, {5.0, 5.0}, {Inf, 1.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{-1.0, 1.0}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}}))
          and err.has_fallback(f):equal(torch.tensor({false, true, false, true}))
          and err.has_code(f, err.CONSTANT_OUTPUT):equal(torch.tensor({false, false, true, false}))
      end,
    },
    {
      name = "samples without readings are left as they are",
      args = function() return torch.zeros({2, 0}) end,
      check = function(z, f) return z:size(0) == 2 and z:size(1) == 0 and err.all_ok(f) end,
    },
    {
      name = "the scale of a sensor does not matter",
      args = function()
        local readings = torch.tensor({{1.0, 3.0}, {-3.0, -1.0}, {0.5, 1.0}, {1.0, 1.0}}, {dtype = torch.float64})
        return torch.cat({readings * 1e38, readings * 1e20, readings, readings * 1e-25, readings * 1e-38}):float()
      end,
      check = function(z, f)
        local scaled = torch.tensor({{-1.0, 1.0}, {-1.0, 1.0}, {-1.0, 1.0}, {0.0, 0.0}})
        return (z - torch.cat({scaled, scaled, scaled, scaled, scaled})):abs():lt(1e-5):all()
          and err.get_first_code(f):reshape({5, 4}):eq(
            torch.tensor({err.OK, err.OK, err.OK, err.CONSTANT_OUTPUT})):all()
      end,
    },
    {
      name = "outliers are clamped to the limit",
      params = {limit = 0.5},
      args = function() return torch.tensor({{0.0, 2.0}, {4.0, 4.0}}) end,
      check = function(z, f)
        return z:equal(torch.tensor({{-0.5, 0.5}, {0.0, 0.0}}))
          and err.has_code(f, err.VALUE_CLAMPED):equal(torch.tensor({true, false}))
      end,
    },
  },
}
