-- Rows whose distribution says next to nothing: a broken cache or a lost prompt often gives almost the same logit for
-- all.
-- Use it on the logits of the model, before temperatures and masks, which change the distribution.
-- Returns the logits, the verdicts (0 go on, 2 end this request), and the flags: CONSTANT_OUTPUT at
-- `flat_distribution.entropy` and `flat_distribution.margin`, and FALLBACK_VALUE. A row ends if its entropy is above
-- the share `most` of the entropy of all tokens alike, or the first token is ahead of the second by less than the
-- probability `margin` (0: never); then `eos` has all of its probability. So does a row with NaN or +Inf, or of -Inf
-- alone: it has no entropy. Other rows keep their bits.
-- Samples: each on its own.

local rows = require "rows"
local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "flat_distribution",
  inputs = {"logits"},
  signature = {logits = Tensor(floating_t, {"rows", "vocabulary"}), verdict = Tensor(int8_t, {"rows"})},
  outputs = {"logits", "verdict", "f"},
  params = {
    eos = {default = 0, min = 0, help = "the token that ends a request"},
    most = {default = 0.9, min = 0, help = "a row ends above this share of the largest entropy"},
    margin = {default = 0.0, min = 0, max = 1, help = "the first token must be ahead by this probability; 0: need not"},
  },
  fullgraph = true,
  run = function(logits, p)
    local ended = rows.ended(logits, p.eos)
    local wide = logits.dtype == torch.float64 and logits or logits:float()
    local x = wide - wide:amax(-1, true)
    local e = x:exp()
    local total = e:sum(-1)
    local entropy = total:log() - (e * x:clamp({min = -1000})):sum(-1) / total   -- not 0 * -Inf
    local second = torch.where(x == 0, 0.0, e):amax(-1)
    local ahead = torch.where((x == 0):sum(-1) > 1, 0.0, (1 - second) / total)
    local flat = ~(entropy <= p.most * math.log(logits:size(1)))   -- NaN is neither below nor above
    local close = ~(ahead >= p.margin)
    local f = err.new(logits)
    f = push(f, err.CONSTANT_OUTPUT, "flat_distribution.entropy", {where = flat, severity = err.ERROR})
    f = push(f, err.CONSTANT_OUTPUT, "flat_distribution.margin", {where = close, severity = err.ERROR})
    local ending = flat | close
    f = push(f, err.FALLBACK_VALUE, "flat_distribution", {where = ending})
    return torch.where(ending:unsqueeze(1), ended, logits), rows.verdict(ending, 0), f
  end,
  verify = {finite = "nan"},
  tests = {
    {
      name = "a row of almost equal logits ends, and one without an entropy",
      params = {eos = 3},
      args = function()
        return torch.tensor({
          {9.0, 1.0, 1.0, 1.0}, {1.0, 1.1, 1.0, 1.0}, {1e4, 1e4, 1e4, 1e4}, {5.0, 5.0, -Inf, -Inf},
          {-Inf, 5.0, -Inf, -Inf}, {NaN, 1.0, 1.0, 1.0}, {Inf, 1.0, 1.0, 1.0}, {-Inf, -Inf, -Inf, -Inf},
        })
      end,
      check = function(logits, verdict, f)
        return verdict:equal(torch.tensor({0, 2, 2, 0, 0, 2, 2, 2}, {dtype = torch.int8}))
          and logits[0]:equal(torch.tensor({9.0, 1.0, 1.0, 1.0}))
          and logits[1]:equal(torch.tensor({-Inf, -Inf, -Inf, 0.0}))
          and err.has_fallback(f):equal(verdict > 0)
      end,
    },
    {
      name = "the first two tokens are too close; a tie is",
      params = {margin = 0.25},
      args = function()
        return torch.tensor({{8.0, 1.0, 0.0}, {2.0, 2.1, -9.0}, {7.0, 7.0, -9.0}, {7.0, -Inf, -Inf}})
      end,
      check = function(_, verdict, f)
        return verdict:equal(torch.tensor({0, 2, 2, 0}, {dtype = torch.int8}))
          and err.get_first_location(f)[1]:item() == ErrorLocation.get("flat_distribution.margin")
      end,
    },
    {
      name = "a lower share of the entropy; of one token there is none",
      params = {most = 0.5},
      args = function() return torch.tensor({{0.0, 0.0, -9.0, -9.0}, {0.0, -4.0, -9.0, -9.0}}) end,
      check = function(_, verdict, f)
        return verdict:equal(torch.tensor({2, 0}, {dtype = torch.int8}))
          and err.get_first_location(f)[0]:item() == ErrorLocation.get("flat_distribution.entropy")
      end,
    },
    {
      name = "a vocabulary of one token",
      args = function() return torch.tensor({{3.0}, {-2.0}}) end,
      check = function(logits, verdict) return logits:equal(torch.tensor({{3.0}, {-2.0}})) and verdict:eq(0):all() end,
    },
  },
}
