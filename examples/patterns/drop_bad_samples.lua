-- Drop bad samples: compute the loss of a training step on the clean ones only.
--     triage exec examples/patterns/drop_bad_samples.lua
-- Each line marked with an arrow is what the program prints.

local logits = torch.tensor({{2.0, 0.0}, {0 / 0, 1.0}, {0.0, 2.0}, {math.huge, 0.0}})
local targets = torch.tensor({0, 1, 1, 0})
local f = flag_nan_and_inf(logits, "classifier")

-- At the boundary, where shapes may change: fewer rows go on.
local clean_logits, clean_targets = err.take_ok(f, logits), err.take_ok(f, targets)
print(("%d of %d samples are clean"):format(#clean_logits, #logits))    --> 2 of 4 samples are clean
print(("loss %.4f"):format(torch.cross_entropy(clean_logits, clean_targets):item()))    --> loss 0.1269

-- In captured code the batch keeps its shape: bad rows are filled, and count as nothing in the mean.
local step = triage.compile(function(z, y)
  local flags_of_z = flag_nan_and_inf(z, "classifier")
  local losses = -err.take_ok_p(flags_of_z, z, 0.0):log_softmax(-1):gather(1, y:unsqueeze(-1)):squeeze(-1)
  local ok = err.is_ok(flags_of_z)
  return torch.where(ok, losses, 0.0):sum() / ok:sum(), flags_of_z
end, {fullgraph = true})
print(("loss %.4f in one graph"):format((step(logits, targets)):item()))    --> loss 0.1269 in one graph
