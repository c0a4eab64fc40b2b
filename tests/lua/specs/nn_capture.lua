-- Modules in compiled functions: a graph holds the parameters themselves, so it sees what an optimizer makes of them.

local function perceptron()
  return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
end

local function graphs(fn, ...)
  return triage.explain(fn, ...).graph_count
end

test("T31: a captured module is a graph of its operators", function()
  local model = perceptron()
  local report = triage.explain(function(x) return model(x) end, torch.randn({3, 4}))
  eq(report.graph_break_count, 0)
  eq(report.op_count, 3)
  assert(report.guards[1]:find("4 tensors that existed before the capture", 1, true), report.guards[1])
  -- As inputs: others may be there in the next call.
  assert(report.graphs[1]:find('%model_1: "f32[8]"', 1, true), report.graphs[1])
end)

test("T31: a training step needs no new graph, and is never answered with old weights", function()
  local model = perceptron()
  local compiled = triage.compile(function(x) return model(x) end, {name = "step", fullgraph = true})
  local x = torch.randn({6, 4})
  for _, make in ipairs({optim.SGD, optim.Adam}) do
    local optimizer, losses = make(model:parameters(), {lr = 0.01}), {}
    for step = 1, 12 do
      local y = compiled(x)
      eq(y, model(x))
      optimizer:zero_grad()
      local loss = y:square():sum()
      loss:backward()
      optimizer:step()
      losses[step] = loss:item()
    end
    assert(losses[12] < losses[1])
  end
  eq(tostring(compiled), "compiled function step (1 graph)")
end)

test("T31: gradients through a captured module are those of the module", function()
  local model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))
  local attention = nn.MultiheadAttention(4, 2, {batch_first = true})
  local image = nn.Conv2d(1, 2, 3, {padding = 1})
  local function forward(x)
    return model(attention(x, {need_weights = false}):mean(1) + image(x:unsqueeze(1)):mean({1, 2}))
  end
  local compiled = triage.compile(forward, {fullgraph = true})
  local by_autograd = triage.compile(forward, {fullgraph = true, backend = "eager"})
  for _, rows in ipairs({3, 1, 2, 31, 32, 33}) do
    local gradients = {}
    for way, fn in ipairs({forward, by_autograd, compiled}) do
      torch.manual_seed(rows)
      local x = torch.randn({rows, 5, 4}):requires_grad_()
      model:zero_grad()
      fn(x):sum():backward()
      gradients[way] = {x.grad, model[0].weight.grad:clone(), attention.in_proj_weight.grad:clone()}
      attention:zero_grad()
      image:zero_grad()
    end
    eq(gradients[2], gradients[1])
    for i, gradient in ipairs(gradients[3]) do assert(torch.allclose(gradient, gradients[1][i], 1e-4, 1e-5)) end
  end
  eq(tostring(compiled):match("%((%d+) graph"), "1")
end)

test("nothing is computed ahead from what may change: weights frozen, plain tensors and buffers", function()
  local model = nn.Module()
  model.w = nn.Parameter(torch.ones({3}), {requires_grad = false})
  model:register_buffer("mean", torch.zeros({3}))
  local offset, same = torch.ones({3}), torch.ones({3})
  function model:forward(x) return x * (self.w * 2) + (offset + 1) - (same + 1) + self.mean:exp() end
  local compiled = triage.compile(model, {fullgraph = true})
  local x = torch.randn({2, 3})
  eq(compiled(x), model(x))
  model.w:mul_(3)
  eq(compiled(x), model(x))
  close_to(compiled(x), x * 6 + 1, 1e-5)
  offset:add_(5)
  eq(compiled(x), model(x))
  same:add_(1)
  eq(compiled(x), model(x))
  model.mean:fill_(1)
  eq(compiled(x), model(x))
end)

test("what the script wrote down itself is still computed ahead", function()
  local report = triage.explain(function(x) return x * (torch.tensor({1.0, 2.0}) * 2) end, torch.ones({1, 2}))
  eq(report.op_count, 1)
end)

test("train and eval, replaced parameters, modules and dtypes are seen", function()
  local model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
  local compiled = triage.compile(function(x) return model(x) end, {fullgraph = true})
  local x = torch.ones({64, 4})
  assert(compiled(x):eq(0):any():item())
  model:eval()
  eq(compiled(x), model[0](x))
  model:train()
  assert(compiled(x):eq(0):any():item())
  model:eval()
  model[0].weight = nn.Parameter(torch.zeros({4, 4}))
  eq(compiled(x), model[0].bias:expand({64, 4}))
  model[0].bias = nil
  eq(compiled(x):detach(), torch.zeros({64, 4}))
  model["0"] = nn.Identity()
  eq(compiled(x), x)
  local line = nn.Linear(4, 2):to(torch.float64)
  local f = triage.compile(function(z) return line(z) end)
  eq(f(x:double()).dtype, torch.float64)
  line:to(torch.float32)
  eq(f(x).dtype, torch.float32)
  line:requires_grad_(false)
  assert(not f(x).requires_grad)
  line:requires_grad_(true)
  assert(f(x).requires_grad)
end)

test("changes behind the script's back are guarded: data of another shape, requires_grad", function()
  local w = torch.ones({3})
  local f = triage.compile(function(x) return x * w:sum() end)
  eq(f(torch.ones({2})), torch.full({2}, 3.0))
  w:resize_({5}):fill_(2.0)
  eq(f(torch.ones({2})), torch.full({2}, 10.0))
end)

test("in captured code that asks for one graph, what changes a module is refused", function()
  local model, x = perceptron(), torch.ones({1, 4})
  local function refused(fn, text)
    fails(function() triage.compile(fn, {fullgraph = true})(x) end, text)
  end
  refused(function(z) model:eval() return z end, "graph break: a write to a table that existed before the call")
  refused(function(z) return nn.Linear(4, 4)(z) end, "graph break: a new layer draws its weights")
  refused(function(z) model:to(torch.float64) return z end, "graph break: `to` of a module")
  refused(function(z) model[0].weight:add_(1) return z end,
    "graph break: `add_` writes to a tensor that existed before the call")
  refused(function(z) model:zero_grad() return z end, "graph break: `zero_grad`")
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  refused(function(z) optimizer:step() return z end, "graph break: `step` of an optimizer")
  model:train()
  eq(graphs(function(z) return nn.ReLU()(z) end, x), 1)   -- nothing drawn, nothing broken
end)

test("a tensor made of another one is no constant", function()
  local f = triage.compile(function(x) return torch.tensor(x) + 1 end)
  eq(f(torch.zeros({2})), torch.ones({2}))
  eq(f(torch.ones({2})), torch.full({2}, 2.0))
end)

test("T31: autocast is guarded, and captured inside", function()
  local model = nn.Linear(4, 4)
  local f = triage.compile(function(x) return model(x) end, {fullgraph = true})
  local x = torch.randn({2, 4})
  for _ = 1, 2 do
    eq(f(x).dtype, torch.float32)
    eq(torch.autocast("cpu", f, x).dtype, torch.bfloat16)
    do
      local _ <close> = torch.autocast()
      eq(f(x).dtype, torch.bfloat16)
      eq(f(x), model(x))
      eq(torch.autocast({enabled = false}, f, x).dtype, torch.float32)
    end
  end
  local cast = function(z) return torch.autocast(function() return model(z) end) end
  local inside = triage.compile(cast, {fullgraph = true})
  for _ = 1, 2 do eq(inside(x), torch.autocast(model, x)) end
  fails(function() torch.autocast("cpu", {dtype = torch.float64}) end, "options are dtype")
  pcall(torch.autocast, function() error("x") end)
  eq(model(x).dtype, torch.float32)
end)

test("a stack of transformer layers is one graph for all batches", function()
  local encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, {batch_first = true}), 2)
  local fast = triage.compile(encoder, {fullgraph = true})
  for _, rows in ipairs({2, 3, 5}) do
    local x = torch.randn({rows, 4, 8})
    close_to(fast(x):detach(), encoder(x):detach())
  end
  eq(tostring(fast), "compiled function TransformerEncoder (1 graph)")
end)

test("running statistics move once a call on every backend", function()
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local plain, captured = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    captured:load_state_dict(plain:state_dict())
    local fast = triage.compile(function(x) return captured(x * 2) + 1 end, {backend = backend})
    for _ = 1, 4 do
      local x = torch.randn({5, 3})
      local loss = fast(x):square():sum()
      loss:backward()
      eq(fast(x):detach(), (plain(x * 2) + 1):detach())
      plain(x * 2)
    end
    eq(captured:state_dict(), plain:state_dict())
    eq(captured.num_batches_tracked:item(), 8)
    captured:eval()
    plain:eval()
    local x = torch.randn({5, 3})
    eq(fast(x):detach(), (plain(x * 2) + 1):detach())
    eq(captured.num_batches_tracked:item(), 8)
  end
end)
