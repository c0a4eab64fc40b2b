-- Training with flags: recorded in forward, repaired where they are found, loss over the good samples, backward, step.

local function safe_model()
  local model = nn.Module("SafeModel")
  model.linear = nn.Linear(32, 16)
  function model:forward(x)
    local f = flag_nan(x, "input")
    x, f = fix(x, f, "input")
    local out = self.linear(x)
    f = push(f, err.NAN, 1, {where = torch.isnan(out):any(-1)})
    return IF(err.has_nan(f), function() return torch.zeros_like(out), f:clone() end)
      :ELSE(function() return out:clone(), f:clone() end)
  end
  return model
end

local function batch(rows, bad)
  local x = torch.randn({rows, 32})
  for _, row in ipairs(bad) do x[{row, row % 32}] = 0 / 0 end
  return x
end

test("T01 T15 T31: SafeModel trains, compiled, and no parameter is ever NaN", function()
  torch.manual_seed(0)
  local model = safe_model()
  local compiled = triage.compile(model, {fullgraph = true})
  local optimizer = optim.SGD(model:parameters(), {lr = 0.05})
  local target = torch.randn({32, 16})
  local first, last
  for _ = 1, 100 do
    local x = batch(8, {1, 6})
    local out, f = compiled(x)
    eq(out[{torch.tensor({1, 6})}]:detach(), torch.zeros({2, 16}))
    eq(err.is_err(f):totable(), {false, true, false, false, false, false, true, false})
    local losses = (out - torch.matmul(x, target)):square():mean(-1)
    local loss = torch.where(err.is_ok(f), losses, 0.0):sum()
    optimizer:zero_grad()
    loss:backward()
    optimizer:step()
    for _, parameter in ipairs(model:parameters()) do assert(torch.isfinite(parameter):all():item()) end
    last = loss:item()
    first = first or last
  end
  assert(last < first / 4, ("%g -> %g"):format(first, last))
  eq(tostring(compiled):match("%((%d+) graph"), "1")
end)

test("T31: eager and compiled training end at the same weights, bit for bit", function()
  local ends = {}
  for way = 1, 2 do
    torch.manual_seed(3)
    local model = safe_model()
    local forward = way == 1 and model or triage.compile(model, {fullgraph = true})
    local optimizer = optim.Adam(model:parameters(), {lr = 0.01})
    for rows = 2, 12 do
      local out = forward(batch(rows, {1}))
      optimizer:zero_grad()
      out:square():sum():backward()
      optimizer:step()
    end
    ends[way] = model.linear.weight:detach()
  end
  eq(ends[2], ends[1])
end)

test("T31: bad samples change no bit of the gradients of others through operations on rows", function()
  local scale = torch.rand({6}) + 0.5
  local function rows_only(x)
    local f = flag_nan_and_inf(x, "x")
    x = err.map_ok(f, x, function(v) return v / (v * v):sum(-1, true):sqrt() end)
    x, f = fix(x, f, "x", {fallback = 1.0})
    local y = IF(err.is_ok(f), function() return (x * scale):tanh():exp() end):ELSE(function() return x * 0 end)
    return torch.where(err.is_ok(f), y:softmax(-1):square():sum(-1), 0.0):sum()
  end
  local compiled = triage.compile(rows_only, {fullgraph = true})
  for _, rows in ipairs({1, 2, 31, 32, 33}) do
    local clean = torch.randn({rows, 6})
    local dirty, bad = clean:clone(), torch.arange(rows) % 3 == 1
    dirty[bad] = 0 / 0
    for _, fn in ipairs({rows_only, compiled, compiled}) do
      local gradients = {}
      for i, x in ipairs({clean, dirty}) do
        x = x:clone():requires_grad_()
        gradients[i] = torch.autograd.grad(fn(x), x)
      end
      eq(gradients[2][~bad], gradients[1][~bad])
      eq(gradients[2][bad], torch.zeros_like(gradients[2][bad]))
    end
  end
end)

test("T31: through a layer they change nothing but the rounding", function()
  local model = safe_model()
  local x, bad = batch(16, {}), torch.arange(16) % 4 == 2
  local dirty = x:clone()
  dirty[bad] = 0 / 0
  local good = ~bad
  for _, forward in ipairs({model, triage.compile(model, {fullgraph = true})}) do
    local function gradients(input)
      model:zero_grad()
      input = input:clone():requires_grad_()
      local out, f = forward(input)
      torch.where(err.is_ok(f):unsqueeze(1), out:tanh(), 0.0):sum():backward()
      return input.grad, model.linear.weight.grad
    end
    local with, weight_with = gradients(dirty)
    local without, weight_without = gradients(x[good])
    close_to(with[good], without, 1e-6)
    close_to(weight_with, weight_without, 1e-5)
    eq(with[bad], torch.zeros({4, 32}))
  end
end)
