-- Logits with NaN or +Inf, of which a sampler would draw anything or nothing, are repaired where something is left to
-- draw.
-- Use it first on the logits of a step, before masks, temperatures and the sampler.
-- Returns the logits, the verdicts (0 go on, 1 repaired, 2 end this request), and the flags: NAN, INF, for both
-- FALLBACK_VALUE. NaN become -Inf: those tokens cannot be drawn. A row with +Inf, or without a number that can be
-- drawn once its NaN are gone, ends: `eos` has all of its probability. Other rows keep their bits; -Inf is a mask, and
-- benign.
-- Samples: each on its own.

local rows = require "rows"
local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "nan_rows",
  inputs = {"logits"},
  signature = {logits = Tensor(floating_t, {"rows", "vocabulary"}), verdict = Tensor(int8_t, {"rows"})},
  outputs = {"logits", "verdict", "f"},
  params = {eos = {default = 0, min = 0, help = "the token that ends a request"}},
  fullgraph = true,
  run = function(logits, p)
    local ended = rows.ended(logits, p.eos)
    local f = flag_nan(logits, "nan_rows")
    local has_nan = err.has_nan(f)
    local kept = torch.where(logits:isnan(), -Inf, logits)
    local top = kept:amax(-1)
    f = push(f, err.INF, "nan_rows", {where = top == Inf})
    local ending = (top == Inf) | (has_nan & (top == -Inf))
    f = push(f, err.FALLBACK_VALUE, "nan_rows", {where = ending | has_nan})
    return torch.where(ending:unsqueeze(1), ended, kept), rows.verdict(ending, has_nan), f
  end,
  verify = {finite = "nan"},
  tests = {
    {
      name = "some NaN are repaired; all NaN, +Inf, or NaN beside masks alone end",
      params = {eos = 2},
      args = function()
        return torch.tensor({
          {1.0, 2.0, 3.0}, {1.0, -Inf, 3.0}, {NaN, 2.0, -Inf}, {NaN, NaN, NaN}, {Inf, 2.0, 3.0}, {Inf, NaN, 3.0},
          {NaN, -Inf, -Inf}, {-Inf, -Inf, -Inf},
        })
      end,
      check = function(logits, verdict, f)
        local ended = {-Inf, -Inf, 0.0}
        return logits:equal(torch.tensor({
          {1.0, 2.0, 3.0}, {1.0, -Inf, 3.0}, {-Inf, 2.0, -Inf}, ended, ended, ended, ended, {-Inf, -Inf, -Inf},
        })) and verdict:equal(torch.tensor({0, 0, 1, 2, 2, 2, 2, 0}, {dtype = torch.int8}))
          and err.has_nan(f):equal(torch.tensor({false, false, true, true, false, true, true, false}))
          and err.has_inf(f):equal(torch.tensor({false, false, false, false, true, true, false, false}))
          and err.has_fallback(f):equal(verdict > 0)
      end,
    },
    {
      name = "a vocabulary of one token",
      args = function() return torch.tensor({{3.0}, {NaN}, {Inf}, {-Inf}}) end,
      check = function(logits, verdict)
        return logits:equal(torch.tensor({{3.0}, {0.0}, {0.0}, {-Inf}}))
          and verdict:equal(torch.tensor({0, 2, 2, 0}, {dtype = torch.int8}))
      end,
    },
  },
}
