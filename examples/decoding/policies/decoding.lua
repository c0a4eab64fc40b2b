-- `nan_rows` and then `temperature_floor` of the library as one graph: it reads the logits of a step once for both.
-- Returns the logits, divided by the temperatures of their rows, the verdicts (0 go on, 1 repaired, 2 end this
-- request), and the flags. A row with more than `most_nan` NaN ends, too. An ended row draws `eos`.

local NaN <const>, Inf <const> = 0 / 0, math.huge
local most_nan <const> = 64

return policy {
  inputs = {"logits", "temperature"},
  signature = {
    logits = Tensor(floating_t, {"rows", "vocabulary"}),
    temperature = Tensor(floating_t, {"rows"}),
    verdict = Tensor(int8_t, {"rows"}),
  },
  outputs = {"logits", "verdict", "f"},
  params = {eos = 0, floor = 0.01},
  fullgraph = true,
  run = function(logits, temperature, p)
    local token = torch.arange(logits:size(1), {device = logits.device})
    local ended = torch.where(token == p.eos, 0.0, -Inf):to(logits.dtype)

    local nan = logits:isnan()
    local f = push(err.new(logits), err.NAN, "logits", {where = nan:any(-1)})
    logits = torch.where(nan, -Inf, logits)
    local top = logits:amax(-1)
    f = push(f, err.INF, "logits", {where = top == Inf})
    local ending = (top == Inf) | (nan:sum(-1) > most_nan) | (nan:any(-1) & (top == -Inf))

    local wide = logits.dtype == torch.float64 and logits or logits:float()
    local t = temperature:to(wide.dtype)
    local low, wrong = (temperature >= 0) & (temperature < p.floor), ~((t >= 0) & (t < Inf))
    f = push(f, err.VALUE_CLAMPED, "temperature", {where = low})
    f = push(f, err.OUT_OF_BOUNDS, "temperature", {where = wrong})
    ending = ending | wrong
    t = torch.where(ending, 1.0, t:clamp({min = p.floor}))
    top = top:to(wide.dtype)
    local beyond = ((top / t):abs() > torch.finfo(logits.dtype).max) & (top:abs() < Inf)   -- then the first becomes 0
    local moved = wide - torch.where(beyond, top, 0.0):unsqueeze(1)
    local scaled = (moved / t:unsqueeze(1)):to(logits.dtype)
    return torch.where(ending:unsqueeze(1), ended, scaled), torch.where(ending, 2, nan:any(-1) | low):to(torch.int8), f
  end,
  tests = {
    {
      name = "NaN and temperatures, each alone and both",
      args = function()
        local huge = {0x1p127, 0x1p126}
        return torch.tensor({{1.0, 2.0}, {NaN, 2.0}, {NaN, NaN}, {Inf, 1.0}, {1.0, 2.0}, {1.0, 2.0}, huge}),
          torch.tensor({0.5, 0.5, 0.5, 0.5, 0.0, -1.0, 0.5})
      end,
      check = function(logits, verdict, f)
        local repaired = most_nan > 0 and 1 or 2
        return logits[0]:equal(torch.tensor({2.0, 4.0})) and logits[2]:equal(torch.tensor({0.0, -Inf}))
          and logits[6]:equal(torch.tensor({0.0, -0x1p127}))
          and verdict:equal(torch.tensor({0, repaired, 2, 2, 1, 2, 0}, {dtype = torch.int8}))
          and err.is_err(f):equal(verdict > 0)
      end,
    },
  },
}
