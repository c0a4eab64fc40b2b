-- Requests that say the same over and over.
-- Use it on the logits of a step, with the history of each request, the newest token last.
-- Returns the logits, the verdicts (0 go on, 2 end this request), and the flags: CONSTANT_OUTPUT, FALLBACK_VALUE. A
-- row ends if the newest `tokens` tokens of its history are a block of 1 to 16 tokens, repeated (the first time may be
-- cut): each of them, but for the first block, is the token that many places before it. Then `eos` has all of the
-- row's probability. Shorter histories have negative ids in front, which count as no token. The cost follows the
-- length of the history: give the newest few hundred tokens.
-- Samples: each on its own.

local rows = require "rows"
local Inf <const> = math.huge
local longest <const> = 16   -- tokens of a block

return policy {
  name = "repetition",
  inputs = {"logits", "history"},
  signature = {
    logits = Tensor(floating_t, {"rows", "vocabulary"}),
    history = Tensor(integer_t, {"rows", "tokens"}),
    verdict = Tensor(int8_t, {"rows"}),
  },
  outputs = {"logits", "verdict", "f"},
  params = {
    eos = {default = 0, min = 0, help = "the token that ends a request"},
    tokens = {default = 64, min = 2 * longest, help = "so many of the newest tokens repeat a block"},
  },
  fullgraph = true,
  run = function(logits, history, p)
    local ended = rows.ended(logits, p.eos)
    triage.check(p.tokens >= 2 * longest, "expected at least 32 as the param `tokens`: two blocks of 16")
    history = history:to(torch.int64)
    -- A token beside those before it; in front of all, room for the first.
    local windows = torch.constant_pad_nd(history, {longest + 1, 0}, -1):unfold(1, longest + 1, 1)
    local token, before = windows:narrow(2, longest, 1), windows:narrow(2, 0, longest)
    local distance = torch.arange(longest, 0, -1, {device = history.device})
    local age = torch.arange(history:size(1), -1, -1, {device = history.device})   -- 0: the newest
    local counted = age:unsqueeze(1) < p.tokens - distance
    local alike = (before:eq(token) & token:ge(0) & counted):sum(1)
    local ending = (alike >= p.tokens - distance):any(-1)
    local f = push(err.new(logits), err.CONSTANT_OUTPUT, "repetition", {where = ending, severity = err.ERROR})
    f = push(f, err.FALLBACK_VALUE, "repetition", {where = ending})
    return torch.where(ending:unsqueeze(1), ended, logits), rows.verdict(ending, 0), f
  end,
  verify = {finite = false},
  tests = {
    {
      name = "runs and blocks of up to 16 tokens, 64 tokens long",
      params = {eos = 1},
      args = function()
        local n = torch.arange(70)
        local history = torch.stack({n, n * 0 + 7, n % 3, n % 16, n % 17, n * 0 + 7, n % 3, n * 0 - 1})
        history[{5, 5}], history[{6, 6}] = 8, 8   -- 64 tokens follow the one, and 63 the other
        return torch.zeros({8, 3}), history
      end,
      check = function(logits, verdict, f)
        return verdict:equal(torch.tensor({0, 2, 2, 2, 0, 2, 0, 0}, {dtype = torch.int8}))
          and logits[0]:equal(torch.tensor({0.0, 0.0, 0.0})) and logits[1]:equal(torch.tensor({-Inf, 0.0, -Inf}))
          and err.has_code(f, err.CONSTANT_OUTPUT):equal(verdict > 0) and err.has_fallback(f):equal(verdict > 0)
      end,
    },
    {
      name = "fewer tokens, and histories that are shorter than that",
      params = {tokens = 32},
      args = function()
        local n = torch.arange(34)
        local history = torch.stack({n * 0 + 7, n * 0 + 7, n % 2})
        history[{0, {0, 2}}], history[{1, {0, 3}}] = -1, -1   -- of 32 tokens, and of 31
        return torch.zeros({3, 2}), history
      end,
      check = function(_, verdict) return verdict:equal(torch.tensor({2, 0, 2}, {dtype = torch.int8})) end,
    },
    {
      name = "before the first token",
      args = function() return torch.zeros({2, 2}), torch.zeros({2, 0}, {dtype = torch.int64}) end,
      check = function(logits, verdict) return logits:eq(0):all() and verdict:eq(0):all() end,
    },
  },
}
