-- Ids of tokens outside of the vocabulary, which an embedding or a detokenizer would raise for, or read stray memory
-- with.
-- Use it on what a sampler, a draft model or a client gives, before it enters the embedding or the history.
-- Returns the ids as int64, the verdicts (0 go on, 2 end this request), and the flags: NEGATIVE_IDX, OUT_OF_BOUNDS,
-- for both FALLBACK_VALUE. A row with such an id ends, and the id becomes `eos`; the other ids stay.
-- Samples: each on its own.

local rows = require "rows"

local function any(mask) return mask:unsqueeze(-1):flatten(1):any(-1) end

return policy {
  name = "token_range",
  inputs = {"ids"},
  signature = {ids = Tensor(integer_t, {"rows", "..."}), verdict = Tensor(int8_t, {"rows"})},
  outputs = {"ids", "verdict", "f"},
  params = {
    vocabulary = {default = 50257, min = 1, help = "tokens of the vocabulary"},
    eos = {default = 0, min = 0, help = "the token that ends a request"},
  },
  fullgraph = true,
  run = function(ids, p)
    rows.check_eos(p.eos, p.vocabulary)
    ids = ids:to(torch.int64)   -- a smaller dtype may not hold the size
    local below, beyond = ids < 0, ids >= p.vocabulary
    local f = push(err.new(ids), err.NEGATIVE_IDX, "token_range", {where = any(below)})
    f = push(f, err.OUT_OF_BOUNDS, "token_range", {where = any(beyond)})
    local ending = any(below | beyond)
    f = push(f, err.FALLBACK_VALUE, "token_range", {where = ending})
    return torch.where(below | beyond, p.eos, ids), rows.verdict(ending, 0), f
  end,
  verify = true,
  tests = {
    {
      name = "an id outside of the vocabulary becomes eos, and its row ends",
      args = function() return torch.tensor({{1, 50256}, {-1, 7}, {3, 50257}, {-5, 90000}}) end,
      check = function(ids, verdict, f)
        return ids:equal(torch.tensor({{1, 50256}, {0, 7}, {3, 0}, {0, 0}}))
          and verdict:equal(torch.tensor({0, 2, 2, 2}, {dtype = torch.int8}))
          and err.has_code(f, err.NEGATIVE_IDX):equal(torch.tensor({false, true, false, true}))
          and err.has_code(f, err.OUT_OF_BOUNDS):equal(torch.tensor({false, false, true, true}))
          and err.has_fallback(f):equal(verdict > 0)
      end,
    },
    {
      name = "the tokens of one step, another vocabulary and eos",
      params = {vocabulary = 200, eos = 2},
      args = function() return torch.tensor({199, 200, 5}, {dtype = torch.uint8}) end,
      check = function(ids, verdict)
        return ids:equal(torch.tensor({199, 2, 5})) and verdict:equal(torch.tensor({0, 2, 0}, {dtype = torch.int8}))
      end,
    },
  },
}
