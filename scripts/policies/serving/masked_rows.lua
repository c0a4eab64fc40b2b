-- Rows in which masks have left no token: a softmax makes NaN of them, and a sampler fails for the whole batch.
-- Use it behind everything that masks: grammars, banned words, top-k and top-p, `nan_rows`.
-- Returns the logits, the verdicts (0 go on, 2 end this request), and the flags: EMPTY_INPUT, FALLBACK_VALUE. A row of
-- nothing but -Inf ends: `eos` has all of its probability. Other rows keep their bits.
-- Samples: each on its own.

local rows = require "rows"
local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "masked_rows",
  inputs = {"logits"},
  signature = {logits = Tensor(floating_t, {"rows", "vocabulary"}), verdict = Tensor(int8_t, {"rows"})},
  outputs = {"logits", "verdict", "f"},
  params = {eos = {default = 0, min = 0, help = "the token that ends a request"}},
  fullgraph = true,
  run = function(logits, p)
    local ended = rows.ended(logits, p.eos)
    local ending = logits:amax(-1) == -Inf
    local f = push(err.new(logits), err.EMPTY_INPUT, "masked_rows", {where = ending})
    f = push(f, err.FALLBACK_VALUE, "masked_rows", {where = ending})
    return torch.where(ending:unsqueeze(1), ended, logits), rows.verdict(ending, 0), f
  end,
  verify = {finite = false},
  tests = {
    {
      name = "a row without a token ends; one token is enough, also the smallest",
      params = {eos = 1},
      args = function() return torch.tensor({{1.0, 2.0}, {-Inf, -Inf}, {-Inf, -3.4e38}, {-Inf, NaN}, {Inf, -Inf}}) end,
      check = function(logits, verdict, f)
        return logits[1]:equal(torch.tensor({-Inf, 0.0})) and logits[2]:equal(torch.tensor({-Inf, -3.4e38}))
          and verdict:equal(torch.tensor({0, 2, 0, 0, 0}, {dtype = torch.int8}))
          and err.has_code(f, err.EMPTY_INPUT):equal(verdict > 0) and err.has_fallback(f):equal(verdict > 0)
      end,
    },
  },
}
