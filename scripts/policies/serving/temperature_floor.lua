-- Logits are divided by the temperatures of their rows, of which clients send zero, negative numbers, NaN and Inf.
-- Use it in place of the division, behind `nan_rows`.
-- Returns the logits, the verdicts (0 go on, 1 repaired, 2 end this request), and the flags. A temperature from 0 to
-- below `floor` counts as `floor`, at which the first token is drawn nearly always, and the order of the tokens stays
-- (VALUE_CLAMPED). A negative temperature, NaN and Inf ask for nothing that a sampler could give: the row ends
-- (OUT_OF_BOUNDS, NAN, INF, for all FALLBACK_VALUE), and `eos` has all of its probability. Temperature 1 keeps the
-- bits. Where a quotient would be beyond the range of the dtype, the row is moved so that its first token is 0.
-- Samples: each on its own.

local rows = require "rows"
local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "temperature_floor",
  inputs = {"logits", "temperature"},
  signature = {
    logits = Tensor(floating_t, {"rows", "vocabulary"}),
    temperature = Tensor(floating_t, {"rows"}),
    verdict = Tensor(int8_t, {"rows"}),
  },
  outputs = {"logits", "verdict", "f"},
  params = {
    eos = {default = 0, min = 0, help = "the token that ends a request"},
    floor = {default = 0.01, min = 1e-6, help = "a lower temperature counts as this one"},
  },
  fullgraph = true,
  run = function(logits, temperature, p)
    local ended = rows.ended(logits, p.eos)
    triage.check(p.floor > 0, "expected a number above 0 as the param `floor`")
    local wide = logits.dtype == torch.float64 and logits or logits:float()
    local t = temperature:to(wide.dtype)
    local low, ending = (temperature >= 0) & (temperature < p.floor), ~((t >= 0) & (t < Inf))
    local f = push(err.new(logits), err.VALUE_CLAMPED, "temperature_floor", {where = low})
    f = push(f, err.OUT_OF_BOUNDS, "temperature_floor", {where = t < 0})
    f = push(f, err.NAN, "temperature_floor", {where = t:isnan()})
    f = push(f, err.INF, "temperature_floor", {where = t == Inf})
    f = push(f, err.FALLBACK_VALUE, "temperature_floor", {where = ending})
    local divisor = torch.where(ending, 1.0, t:clamp({min = p.floor})):unsqueeze(1)
    local top = wide:amax(-1, true)
    local beyond = ((top / divisor):abs() > torch.finfo(logits.dtype).max) & (top:abs() < Inf)
    local scaled = ((wide - torch.where(beyond, top, 0.0)) / divisor):to(logits.dtype)
    return torch.where(ending:unsqueeze(1), ended, scaled), rows.verdict(ending, low), f
  end,
  verify = {finite = false, unchanged = false, stable = false},
  tests = {
    {
      name = "low temperatures are raised, those that mean nothing end",
      params = {eos = 1},
      args = function()
        return torch.ones({9, 2}) * torch.tensor({1.0, 3.0}),
          torch.tensor({1.0, 0.5, 0.01, 0.0, 1e-30, -1.0, NaN, Inf, -Inf})
      end,
      check = function(logits, verdict, f)
        local ended = {-Inf, 0.0}
        return logits:sub(torch.tensor({
            {1.0, 3.0}, {2.0, 6.0}, {100.0, 300.0}, {100.0, 300.0}, {100.0, 300.0}, ended, ended, ended, ended,
          })):nan_to_num(0.0):abs():lt(1e-3):all()
          and logits[5]:equal(torch.tensor(ended))
          and verdict:equal(torch.tensor({0, 0, 0, 1, 1, 2, 2, 2, 2}, {dtype = torch.int8}))
          and err.get_first_code(f):equal(torch.tensor({
            err.OK, err.OK, err.OK, err.VALUE_CLAMPED, err.VALUE_CLAMPED,
            err.OUT_OF_BOUNDS, err.NAN, err.INF, err.OUT_OF_BOUNDS,
          }, {dtype = torch.int32}))
      end,
    },
    {
      name = "a higher floor, and logits whose quotients no dtype holds",
      params = {floor = 0.5},
      args = function()
        return torch.tensor({{1.0, 2.0}, {0x1p127, 0x1p126}, {-0x1p127, -Inf}, {0x1p127, 0x1p126}}),
          torch.tensor({0.25, 0.1, 0.5, 1.0})
      end,
      check = function(logits, verdict)
        return logits:equal(torch.tensor({{2.0, 4.0}, {0.0, -0x1p127}, {0.0, -Inf}, {0x1p127, 0x1p126}}))
          and verdict:equal(torch.tensor({1, 1, 0, 0}, {dtype = torch.int8}))
      end,
    },
  },
}
