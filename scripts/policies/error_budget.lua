-- Bad samples become zero, as long as they are few: more than `most` of them in the last `batches` batches are told.
-- Use it where some bad samples are usual, and many mean that something upstream is broken.
-- Returns the batch, whether the budget is spent (one boolean), and the flags: while it is spent, bad samples also have
-- `UNKNOWN` at CRITICAL. The counts of the last 64 batches are the policy's state, for each state key of the host.
-- Samples: across the batch, by the count.

local NaN <const>, Inf <const> = 0 / 0, math.huge
local window <const> = 64   -- batches that are remembered

return policy {
  name = "error_budget",
  inputs = {"z"},
  signature = {z = Tensor(floating_t, {"N", "..."})},
  outputs = {"z", "spent", "f"},
  params = {
    most = {default = 100, min = 0, help = "the budget is spent with more bad samples than this"},
    batches = {default = 10, min = 1, max = window, help = "how many of the last batches count"},
  },
  state = {counts = {shape = {window}, dtype = torch.int64}},   -- of bad samples, the newest first
  fullgraph = true,
  run = function(z, p, s)
    local f = flag_nan_and_inf(z, "error_budget")
    local bad = err.is_err(f)
    local counts = torch.cat({bad:sum():reshape({1}), s.counts[{{0, window - 1}}]})
    local counted = torch.arange(window, {device = z.device}) < p.batches
    local spent = (counts * counted):sum() > p.most
    z, f = fix(z, f, "error_budget")
    f = push(f, err.UNKNOWN, "error_budget", {where = bad & spent, severity = err.CRITICAL})
    return z, spent, f, {counts = counts}
  end,
  verify = {isolated = false, order = false},
  tests = {
    {
      name = "within the budget, bad samples become zero",
      params = {most = 2},
      args = function() return torch.tensor({{1.0, 2.0}, {NaN, 5.0}, {Inf, 6.0}}) end,
      check = function(z, spent, f, s)
        return z:equal(torch.tensor({{1.0, 2.0}, {0.0, 0.0}, {0.0, 0.0}})) and not spent:item()
          and not err.has_code(f, err.UNKNOWN):any():item() and s.counts:ge(0):all()
      end,
    },
    {
      name = "bad samples of earlier batches count",
      params = {most = 127, batches = 64},
      state = {counts = 2},
      args = function() return torch.tensor({{1.0, 2.0}, {NaN, 5.0}, {Inf, 6.0}}) end,
      check = function(z, spent, f, s)
        return spent:item() and err.has_code(f, err.UNKNOWN):equal(torch.tensor({false, true, true}))
          and s.counts:sum():item() == 128
      end,
    },
    {
      name = "those of longer ago do not",
      params = {most = 4, batches = 2},
      state = {counts = 2},
      args = function() return torch.tensor({{NaN}, {Inf}}) end,
      check = function(z, spent, f, s) return not spent:item() and s.counts[0]:item() == 2 end,
    },
  },
}
