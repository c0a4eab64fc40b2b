-- Training in bfloat16 with scaled losses, clipped gradients and a schedule, where some samples and batches are bad.
-- A bad sample is repaired before the first weight and left out of the loss; where the gradients of a batch overflow,
-- the scaler leaves out the step. The weights are those of a run that never saw the bad samples and batches.
--
--   triage exec examples/training/mixed_precision.lua [DIGITS.npy]
-- Without it: ../data/digits.npy beside this script.
local path = arg[1] or (arg[0]:match("^.*/") or "") .. "../data/digits.npy"
local good_rows <const>, bad_rows <const>, steps <const> = 56, 8, 120

--- A matrix of bytes as numpy.save writes it.
local function read_bytes(file_name)
  local file <close> = assert(io.open(file_name, "rb"))
  local text = file:read("a")
  local start = 10 + string.unpack("<I2", text, 9)
  local rows, columns = text:match("'shape': %((%d+), (%d+)%)")
  local matrix = {}
  for row = 1, tonumber(rows) do
    matrix[row] = {text:byte(start + (row - 1) * columns + 1, start + row * columns)}
  end
  return torch.tensor(matrix)
end

local digits = read_bytes(path)
local images, labels = digits[{":", {0, 64}}]:float() / 16, digits[{":", 64}]:long()
local broken = torch.tensor({0 / 0, math.huge, 1e38})

--- The model looks for bad samples at its input, and repairs them there. Its layers compute in bfloat16, its weights
--- are float32.
local function Model()
  local model = nn.Module("Model")
  model.body = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 10))
  function model:forward(x)
    local f = flag_nan_and_inf(x, "input")
    f = push(f, err.OUT_OF_BOUNDS, "input", {where = (x:abs() > 1e6):any(-1)})
    x, f = fix(x, f, "input")
    return torch.autocast("cpu", {dtype = torch.bfloat16}, self.body, x), f
  end
  return model
end

--- The mean over the good samples, in float32.
local function loss_of(logits, targets, good)
  local losses = torch.cross_entropy(logits:float(), targets, {reduction = "none"})
  return torch.where(good, losses, 0.0):sum() / good:sum():clamp({min = 1})
end

--- One training run. `plant` is "nothing", "samples" (eight bad ones behind the good ones of each batch) or "batches"
--- (one more behind every tenth, whose weight makes the gradients overflow).
local function train(plant)
  torch.manual_seed(0)
  local model = Model()
  local forward = triage.compile(model, {name = "mixed_precision"})
  local optimizer = optim.AdamW(model:parameters(), {lr = 0.01})
  local schedule = optim.lr_scheduler.OneCycleLR(optimizer, 0.02, steps + 1)
  local scaler = optim.GradScaler({init_scale = 65536.0, growth_interval = 50})
  local last, flagged = 0, 0

  local function step(x, targets, weight)
    local logits, f = forward(x)
    local loss = loss_of(logits, targets, err.is_ok(f)) * weight
    optimizer:zero_grad()
    scaler:scale(loss):backward()
    scaler:unscale_(optimizer)
    nn.clip_grad_norm_(model:parameters(), 1.0)
    local made = scaler:step(optimizer)       -- not where a gradient is NaN or Inf
    scaler:update()
    if made then
      schedule:step()
    end
    last, flagged = loss:item(), flagged + err.is_err(f):sum():item()
    return made
  end

  for number = 1, steps do
    local rows = torch.randint(0, #images, {good_rows + bad_rows})
    local x, targets = images[rows], labels[rows]
    if plant == "samples" then
      x[{{good_rows, good_rows + bad_rows}, 5}] = broken[torch.arange(bad_rows) % 3]
    else
      x, targets = x[{{0, good_rows}}], targets[{{0, good_rows}}]
    end
    assert(step(x, targets, 1.0), "a step was left out")
    if plant == "batches" and number % 10 == 0 then
      assert(not step(x, targets, 1e38), "the gradients did not overflow")
    end
  end
  return {model = model, loss = last, flagged = flagged, skipped = scaler:skipped_steps(), scale = scaler:get_scale()}
end

local function largest_difference(a, b)
  local largest, same = 0, true
  for name, weight in pairs(a.model:state_dict()) do
    local other = b.model:state_dict()[name]
    largest = math.max(largest, (weight - other):abs():max():item())
    same = same and weight:eq(other):all():item()
  end
  return same and "the same bits" or ("at most %.1e apart"):format(largest)
end

local without = train("nothing")
local samples = train("samples")
local batches = train("batches")
print(("loss %.3f after %d steps in bfloat16"):format(without.loss, steps))
print(("with %d bad samples: %s"):format(samples.flagged, largest_difference(samples, without)))
print(("with %d bad batches left out: %s; the scale fell from %g to %g"):format(batches.skipped,
  largest_difference(batches, without), without.scale, batches.scale))

local model = samples.model:eval()
local right = torch.no_grad(function() return ((model(images)):argmax(-1) == labels):sum():item() end)
print(("%.1f%% of the digits are read right"):format(100 * right / #images))
