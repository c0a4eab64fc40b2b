-- What the policies for language models share.
local Inf <const> = math.huge
local rows = {}

function rows.check_eos(eos, vocabulary)
  triage.check(eos >= 0, "expected a token as the param eos, got a number below 0")
  triage.check(eos < vocabulary, "expected a token as the param eos, got one beyond the vocabulary")
  triage.check(eos % 1 == 0, "expected a token as the param eos, got a fraction")
end

--- The logits of a request that ends, (vocabulary,): all probability is that of `eos`, so a sampler of the whole batch
--- draws it and nothing else. Call it before what reads the logits: the rest is then one loop.
function rows.ended(logits, eos)
  local vocabulary = logits:size(1)
  rows.check_eos(eos, vocabulary)
  local token = torch.arange(vocabulary, {device = logits.device})
  return torch.where(token == eos, 0.0, -Inf):to(logits.dtype)
end

--- 0 go on, 1 repaired, 2 end this request: int8 (rows,). `repaired` is a mask, or 0 where nothing is repaired.
function rows.verdict(ending, repaired)
  return torch.where(ending, 2, repaired):to(torch.int8)
end

return rows
