-- A classifier's probabilities: each class has a threshold of its own, measured on a validation set.
-- thresholds.npy: float32, one number for each of 4 classes. A new file is a new version of this policy.
local thresholds = torch.load("thresholds.npy")

return policy {
  inputs = {"z"},
  signature = {z = Tensor(float32_t, {"N", thresholds:size(0)})},
  outputs = {"z", "f"},
  fullgraph = true,
  run = function(z)
    local f = flag_nan_and_inf(z, "classes")
    z, f = fix(z, f, "classes", {fallback = 0.0})
    local needed = thresholds:index_select(0, z:argmax(-1))
    return z, push(f, err.OUT_OF_BOUNDS, "classes", {where = z:amax(-1) < needed, severity = err.WARN})
  end,
  tests = {
    {
      name = "each class has its threshold",
      args = function()
        return torch.tensor({{0.8, 0.2, 0.0, 0.0}, {0.2, 0.8, 0.0, 0.0}, {0.0, 0.0, 0.4, 0.6}, {0.0, 0.0, 0.0, 0/0}})
      end,
      check = function(z, f)
        return err.has_code(f, err.OUT_OF_BOUNDS):equal(torch.tensor({true, false, true, true}))
          and err.has_nan(f):equal(torch.tensor({false, false, false, true}))
      end,
    },
  },
}
