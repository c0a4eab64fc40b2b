-- Training where some samples are bad. Every eighth digit comes with a broken pixel: NaN, Inf, or a number so large
-- that the square of an activation overflows. The model finds the bad samples where they show and repairs them there,
-- and the loss is that of the good ones: no parameter ever becomes NaN, and the good samples have the gradients they
-- would have without the bad ones.
--
--   triage exec examples/training/train.lua [DIGITS.npy]     (without it: ../data/digits.npy beside this script)
local path = arg[1] or (arg[0]:match("^.*/") or "") .. "../data/digits.npy"
local batch_size <const>, steps <const> = 64, 200

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

-- The model: a location for each place where errors may show

local function SafeModel()
  local model = nn.Module("SafeModel")
  model.hidden = nn.Linear(64, 32)
  model.head = nn.Linear(32, 10)

  function model:forward(x)
    local f = flag_nan_and_inf(x, "input")
    x, f = fix(x, f, "input")              -- before the first weight: 0 * NaN would be NaN in its gradient
    local h = torch.relu(self.hidden(x)):square()
    f = flag_nan_and_inf(h, "hidden", f)
    h, f = fix(h, f, "hidden")             -- what overflowed on the way
    return self.head(h), f
  end
  return model
end

--- The mean over the good samples.
local function loss_of(logits, targets, good)
  local losses = torch.cross_entropy(logits, targets, {reduction = "none"})
  return torch.where(good, losses, 0.0):sum() / good:sum():clamp({min = 1})
end

-- The data

local digits = read_bytes(path)
local images, labels = digits[{":", {0, 64}}]:float() / 16, digits[{":", 64}]:long()
local broken_pixels = torch.tensor({0 / 0, math.huge, 1e25})

--- Every eighth sample gets a broken pixel, of each kind in turn. Returns the batch, and which samples are good.
local function with_bad_samples(x)
  local broken = x:clone()
  local bad = torch.arange(0, #x, 8)
  broken[{bad, bad % 64}] = broken_pixels[torch.arange(#bad) % 3]
  return broken, torch.arange(#x) % 8 ~= 0
end

torch.manual_seed(0)
local model = SafeModel()
local forward = triage.compile(model, {name = "SafeModel", fullgraph = true})
local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
print(model)

-- The good samples' gradients, with the bad ones in the batch and without

local function input_gradient(x, targets)
  x = x:detach():requires_grad_()
  local logits, f = forward(x)
  return torch.autograd.grad(loss_of(logits, targets, err.is_ok(f)), x)
end

do
  local x, good = with_bad_samples(images[{{0, batch_size}}])
  local y = labels[{{0, batch_size}}]
  local difference = input_gradient(x, y)[good] - input_gradient(x[good], y[good])
  print(("gradients of good samples, with and without the bad ones: at most %.1e apart"):format(difference:abs():max()))
  print("gradients of bad samples are zero: " .. tostring(input_gradient(x, y)[~good]:eq(0):all():item()))

  -- What goes wrong where the bad samples are only left out of the loss:
  local careless = nn.Linear(64, 10)
  loss_of(careless(x), y, good):backward()
  print("masking the loss alone: NaN in the weight's gradient: " .. tostring(careless.weight.grad:isnan():any():item()))
end

-- Training

local first, last
local seen, flagged = 0, 0
for step = 1, steps do
  local rows = torch.randint(0, #images, {batch_size})
  local x = with_bad_samples(images[rows])
  local logits, f = forward(x)
  local loss = loss_of(logits, labels[rows], err.is_ok(f))
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()

  last = loss:item()
  first = first or last
  seen, flagged = seen + batch_size, flagged + err.is_err(f):sum():item()
  if step == 1 or step % 50 == 0 then
    print(("step %3d  loss %.3f  %s"):format(step, last, flags.repr(f)))
  end
  for _, parameter in ipairs(model:parameters()) do
    assert(torch.isfinite(parameter):all():item(), "a parameter became NaN or Inf")
  end
end

local right = torch.no_grad(function() return (model(images):argmax(-1) == labels):sum():item() end)
print(("%d steps: loss %.3f -> %.3f; %d of %d samples were bad; %.1f%% of the digits are read right")
  :format(steps, first, last, flagged, seen, 100 * right / #images))
print(forward)
