-- Attention weights from scores in which -Inf is a mask and nothing else is out of order.
-- Use it in place of the softmax of masked attention.
-- Returns the weights and the flags. -Inf is benign. A sample with NaN or +Inf among its scores attends to everything
-- alike (FALLBACK_VALUE); a query that may look at nothing gets weights of zero, not NaN (EMPTY_INPUT, as a warning).
-- Samples: each on its own.

local NaN <const>, Inf <const> = 0 / 0, math.huge

return policy {
  name = "masked_attention",
  inputs = {"scores"},
  signature = {scores = Tensor(floating_t, {"N", "...", "queries", "keys"})},
  outputs = {"weights", "f"},
  fullgraph = true,
  run = function(scores)
    local f = flag_nan(scores, "masked_attention")
    f = push(f, err.INF, "masked_attention", {where = scores:eq(Inf):flatten(1):any(-1)})
    scores, f = fix(scores, f, "masked_attention", {fallback = 0.0})
    local blind = scores:eq(-Inf):all(-1, true)
    f = push(f, err.EMPTY_INPUT, "masked_attention", {where = blind:flatten(1):any(-1), severity = err.WARN})
    local weights = scores:masked_fill(blind, 0.0):softmax(-1)
    return weights:masked_fill(blind, 0.0), f
  end,
  verify = true,
  tests = {
    {
      name = "masks are benign, bad scores and blind queries are not",
      args = function()
        return torch.tensor({
          {{0.0, -Inf}, {0.0, 0.0}},
          {{NaN, 0.0}, {5.0, -Inf}},
          {{Inf, 0.0}, {1.0, 1.0}},
          {{-Inf, -Inf}, {-Inf, 3.0}},
        })
      end,
      check = function(weights, f)
        return weights:equal(torch.tensor({
          {{1.0, 0.0}, {0.5, 0.5}},
          {{0.5, 0.5}, {0.5, 0.5}},
          {{0.5, 0.5}, {0.5, 0.5}},
          {{0.0, 0.0}, {0.0, 1.0}},
        })) and err.get_first_code(f):equal(
          torch.tensor({err.OK, err.NAN, err.INF, err.EMPTY_INPUT}, {dtype = torch.int32}))
      end,
    },
  },
}
