-- Train through a batch with bad samples: the step counts the good ones, and no NaN reaches the weights.
--     triage exec examples/patterns/train_safely.lua
-- Each line marked with an arrow is what the program prints.

local w = torch.tensor({{1.0}, {1.0}}, {requires_grad = true})

local forward = triage.compile(function(x, weight, target)
  local f = flag_nan_and_inf(x, "input")
  local guarded = fix(x, f, "input", {fallback = 0.0})
  local out = guarded:mm(weight):squeeze(-1)
  local losses = (out - target):pow(2)
  return err.take_ok_p(f, losses), f
end, {fullgraph = true})

local x = torch.tensor({{1.0, 2.0}, {0 / 0, 1.0}, {3.0, math.huge}, {2.0, 1.0}})
local target = torch.tensor({5.0, 0.0, 0.0, 4.0})    -- 1 * x[0] + 2 * x[1]
for step = 1, 60 do
  local losses, f = forward(x, w, target)
  local loss = losses:sum() / err.is_ok(f):sum()
  loss:backward()
  if step == 1 then
    print(("step 1: loss %.2f over %d of %d samples"):format(loss:item(), err.is_ok(f):sum():item(), #x))
    print("gradient finite: " .. tostring(w.grad:isfinite():all():item()))
  end
  torch.no_grad(function() w:sub_(0.1 * w.grad) end)
  w.grad = nil
end
--> step 1: loss 2.50 over 2 of 4 samples
--> gradient finite: true
print(("learned %.2f %.2f"):format(w[{0, 0}]:item(), w[{1, 0}]:item()))    --> learned 1.00 2.00
