-- Training in several processes with mixed precision: a batch that is bad in one process is left out by all of them.
--
--   triage exec --ranks 4 examples/training/ranks.lua
--   torchrun --no-python --nproc-per-node=4 triage exec --ranks env examples/training/ranks.lua
local steps <const>, bad_step <const>, overflow_step <const> = 20, 5, 12

local rank, count = dist.rank():item(), dist.world_size():item()
local last <const> = count - 1

torch.manual_seed(0)                          -- the same weights in all processes
local model = nn.Linear(4, 1)
local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
local scaler = optim.GradScaler({init_scale = 1024.0, agree = dist.agree})
torch.manual_seed(100 + rank)                 -- and other data

local function next_batch(step)
  local x = torch.randn({16, 4})
  local target = x:sum(1, true)
  if rank == last and step == bad_step then
    x[{3, 1}] = 0 / 0
  end
  return x, target, rank == last and step == overflow_step and 1e38 or 1.0
end

--- The mean over all processes, as PyTorch's DistributedDataParallel computes it.
local function average_gradients()
  local gradients = {}
  for i, parameter in ipairs(model:parameters()) do
    gradients[i] = parameter.grad
  end
  local sums = {dist.all_reduce(table.unpack(gradients))}
  for i, gradient in ipairs(gradients) do
    gradient:copy_(sums[i] / count)
  end
end

local bad, totals = 0, torch.zeros({2}, {dtype = torch.int64})
for step = 1, steps do
  local x, target, weight = next_batch(step)
  local f = flag_nan_and_inf(x, "batch")
  local _, seen = dist.reduce_report(f)
  totals:add_(seen)
  if dist.agree(err.is_err(f)):item() then
    bad = bad + 1
  else
    optimizer:zero_grad()
    scaler:scale(torch.mse_loss(model(x), target) * weight):backward()
    scaler:unscale_(optimizer)                -- asks all: gradients that are NaN or Inf anywhere are left out by all
    average_gradients()
    scaler:step(optimizer)
    scaler:update()
  end
end

local weight = model.weight:detach()
local apart = (dist.all_reduce(weight) / count - weight):abs():max()
local differ = dist.agree(apart > 1e-6):item()
if rank == 0 then
  print(("%d samples, %d with errors"):format(totals[0]:item(), totals[1]:item()))
  print(("left out: %d bad batch, %d overflow; the scale is %g; the weights are %s"):format(bad, scaler:skipped_steps(),
    scaler:get_scale(), differ and "different" or "the same"))
end
