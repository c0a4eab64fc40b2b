-- A small model answers where the large one gave nothing usable. Given by the host: `small`, a TorchScript module that
-- takes the features of the batch, and `means`, the usual features, for samples whose features are bad, too.
--   triage test examples/given --define small=small.pt --define means=means.npy
return policy {
  inputs = {"y", "x"},
  outputs = {"y", "f"},
  fullgraph = true,
  run = function(y, x)
    local f = flag_nan_and_inf(y, "large_model")
    local seen = flag_nan_and_inf(x, "features")
    x = torch.where(err.is_ok(seen):unsqueeze(-1), x, means)
    y = torch.where(err.is_ok(f):unsqueeze(-1), y, small(x))
    return y, push(f, err.FALLBACK_VALUE, "large_model", {where = err.is_err(f)})
  end,
  tests = {
    {
      name = "good samples keep their answer, bad ones have that of the small model",
      args = function()
        return torch.tensor({{1.0, 2.0}, {0 / 0, 1.0}, {0 / 0, 1.0}}),
          torch.tensor({{0.0, 1.0}, {0.5, 0.5}, {1 / 0, 0.0}})
      end,
      check = function(y, f)
        return y:isfinite():all() and y[0]:equal(torch.tensor({1.0, 2.0}))
          and err.has_code(f, err.FALLBACK_VALUE):equal(torch.tensor({false, true, true}))
      end,
    },
  },
}
