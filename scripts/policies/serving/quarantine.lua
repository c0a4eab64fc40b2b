-- Requests that are bad again and again end, whatever row they are in.
-- Use it behind the other policies of a step, with the verdict of a row that they agree on (the largest) and its
-- request.
-- Returns the logits, the verdicts (as they came, 2 where the request ends), and the flags (UNKNOWN at CRITICAL,
-- FALLBACK_VALUE). A step is bad if its verdict is above 0. A request ends with `most` bad steps among its last
-- `steps`, at most 64; then `eos` has all of the row's probability. Rows are not requests: ids say which are, from one
-- step to the next (a negative id is a row without a request). The state is a table of 1,024 requests: a new one takes
-- the place of the one that has been away for longest. Where a batch has more requests than the table, those without a
-- place are flagged as EMPTY_INPUT, and only judged as they came.
-- Samples: across the batch, by the request: the rows of one, and which have no place if there are too many.

local rows = require "rows"
local Inf <const> = math.huge
local places <const>, window <const> = 1024, 64

return policy {
  name = "quarantine",
  inputs = {"logits", "verdict", "request_ids"},
  signature = {
    logits = Tensor(floating_t, {"rows", "vocabulary"}),
    verdict = Tensor(integer_t, {"rows"}),
    request_ids = Tensor(integer_t, {"rows"}),
  },
  outputs = {"logits", "verdict", "f"},
  params = {
    eos = {default = 0, min = 0, help = "the token that ends a request"},
    most = {default = 3, min = 1, help = "a request ends with this many bad steps"},
    steps = {default = 16, min = 1, max = window, help = "among this many of its last steps"},
  },
  state = {
    ids = {shape = {places}, dtype = torch.int64, init = -1},        -- of the request in each place
    bad = {shape = {places}, dtype = torch.int64},                   -- a bit for each bad step, the newest lowest
    used = {shape = {places}, dtype = torch.int64},                  -- the step that the request was last in
    step = {shape = {}, dtype = torch.int64},
  },
  fullgraph = true,
  run = function(logits, verdict, request_ids, p, s)
    local ended = rows.ended(logits, p.eos)
    triage.check(p.steps <= window, "expected at most 64 as the param `steps`: so many are remembered")
    local device <const> = {device = logits.device}
    local ids = request_ids:to(torch.int64)
    local id, named = ids:unsqueeze(1), ids >= 0

    -- Who is new takes the place that was used longest ago: the n-th new request the n-th of these places.
    local known = id:eq(s.ids) & named:unsqueeze(1)   -- (rows, places)
    local busy = known:any(0)
    local row, place = torch.arange(ids:size(0), device), torch.arange(places, device)
    local again = (id:eq(ids) & (row < row:unsqueeze(1))):any(1)
    local new = named & ~known:any(1) & ~again
    local most = math.min(ids:size(0), places)
    local _, oldest = torch.where(busy, torch.iinfo(torch.int64).max, s.used * places + place):topk(most, -1, false)
    local nth = new:cumsum(0) - 1
    local turn = oldest[nth:clamp(0, most - 1)]:unsqueeze(1)
    local takes = (new & (nth < most)):unsqueeze(1) & (turn == place) & ~busy
    local taken = takes:any(0)
    local table_ids = torch.where(taken, (takes * id):sum(0), s.ids)

    local at = id:eq(table_ids) & named:unsqueeze(1)
    local here = at:any(0)
    local bad = (at & (verdict > 0):unsqueeze(1)):any(0)
    local past = torch.where(taken, 0, s.bad)
    local history = torch.where(here, (past << 1) | bad, past)
    local bits = ((at * history):sum(1, {keepdim = true}) >> torch.arange(window, device)) & 1   -- (rows, window)
    local often = (bits * (torch.arange(window, device) < p.steps)):sum(1) >= p.most
    local step = s.step + 1

    local ending = at:any(1) & often
    local f = push(err.new(logits), err.UNKNOWN, "quarantine", {where = ending, severity = err.CRITICAL})
    f = push(f, err.FALLBACK_VALUE, "quarantine", {where = ending})
    f = push(f, err.EMPTY_INPUT, "quarantine", {where = named & ~at:any(1), severity = err.WARN})
    return torch.where(ending:unsqueeze(1), ended, logits), rows.verdict(ending, verdict:clamp({min = 0, max = 2})), f,
      {ids = table_ids, bad = history, used = torch.where(here, step, s.used), step = step}
  end,
  verify = {finite = false, unchanged = {"logits"}, isolated = false, order = false},
  tests = {
    {
      name = "a bad step ends a request, not a row",
      params = {most = 1, steps = 1, eos = 1},
      args = function()
        return torch.zeros({5, 2}), torch.tensor({0, 1, 2, 0, 1}, {dtype = torch.int8}), torch.tensor({7, 8, 9, 8, -1})
      end,
      check = function(logits, verdict, f, s)
        return verdict:equal(torch.tensor({0, 2, 2, 2, 1}, {dtype = torch.int8}))
          and logits[1]:equal(torch.tensor({-Inf, 0.0})) and logits[4]:eq(0):all()
          and err.has_code(f, err.UNKNOWN):equal(torch.tensor({false, true, true, true, false}))
          and not err.has_code(f, err.EMPTY_INPUT):any():item()
          and s.ids:sort():select(0, places - 1):item() == 9 and s.ids:ge(0):sum():item() == 3
      end,
    },
    {
      name = "bad steps of before count, as far as they are remembered, and not those of who had the place",
      params = {most = 2, steps = 2},
      state = {ids = torch.arange(places), bad = -1, step = 5},   -- all steps were bad
      args = function()
        return torch.zeros({4, 2}), torch.tensor({0, 1, 1, 0}, {dtype = torch.int8}), torch.tensor({5, 6, 5000, 7})
      end,
      check = function(_, verdict, _, s)
        return verdict:equal(torch.tensor({0, 2, 1, 0}, {dtype = torch.int8}))
          and s.ids[0]:item() == 5000 and s.bad[0]:item() == 1 and s.bad[5]:item() == -2
          and s.used:eq(6):sum():item() == 4
      end,
    },
    {
      name = "more requests than places",
      args = function()
        return torch.zeros({places + 2, 1}), torch.zeros({places + 2}, {dtype = torch.int8}), torch.arange(places + 2)
      end,
      check = function(_, verdict, f)
        return verdict:eq(0):all() and err.has_code(f, err.EMPTY_INPUT):sum():item() == 2
      end,
    },
  },
}
