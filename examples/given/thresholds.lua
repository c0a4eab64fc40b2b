-- A classifier with several labels a sample: each label has a threshold, which the host may change in production.
-- Another number of labels needs another list, and makes another graph.
--   triage run examples/given/thresholds.lua --input z=rand:8x3,seed=1 --param thresholds=0.2,0.4,0.9
return policy {
  inputs = {"z"},
  outputs = {"labels", "f"},
  params = {thresholds = {0.3, 0.5, 0.7}},
  fullgraph = true,
  run = function(z, p)
    local f = flag_nan_and_inf(z, "scores")
    z, f = fix(z, f, "scores", {fallback = 0.0})
    return z > p.thresholds, f
  end,
  tests = {
    {
      name = "each label has its threshold; a bad sample has no label",
      args = function() return torch.tensor({{0.4, 0.4, 0.4}, {0.9, 0.9, 0.9}, {0.9, 0 / 0, 0.9}}) end,
      check = function(labels, f)
        return labels:equal(torch.tensor({{true, false, false}, {true, true, true}, {false, false, false}}))
          and err.is_err(f):equal(torch.tensor({false, false, true}))
      end,
    },
    {
      name = "other thresholds",
      params = {thresholds = {0.5, 0.1, 1.0}},
      args = function() return torch.tensor({{0.4, 0.4, 0.4}, {0.9, 0.9, 0.9}}) end,
      check = function(labels) return labels:equal(torch.tensor({{false, true, false}, {true, true, false}})) end,
    },
  },
}
