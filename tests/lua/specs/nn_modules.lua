-- Modules: what they hold, in which order, and what can be done with it.

local function names(list)
  local found = {}
  for position, pair in ipairs(list) do found[position] = pair[1] end
  return found
end

local function classifier()
  local model = nn.Module("Classifier")
  model.stem = nn.Linear(4, 3)
  model.width = 3
  model.act = nn.ReLU()
  model.scale = nn.Parameter(torch.ones({3}))
  model.blocks = nn.Sequential(nn.Linear(3, 3, {bias = false}), nn.Dropout(0.1))
  function model:forward(x)
    return self.blocks(self.act(self.stem(x))) * self.scale
  end
  return model
end

test("T31: children and parameters come in the order in which they were assigned", function()
  local model = classifier()
  eq(names(model:named_children()), {"stem", "act", "blocks"})
  eq(names(model:named_modules()), {"", "stem", "act", "blocks", "blocks.0", "blocks.1"})
  eq(names(model:named_parameters()), {"scale", "stem.weight", "stem.bias", "blocks.0.weight"})
  eq(#model:parameters(), 4)
  assert(rawequal(model:modules()[1], model) and rawequal(model:children()[3], model.blocks))
  assert(rawequal(model:parameters()[2], model.stem.weight))
  model.stem = nn.Linear(4, 3, {bias = false})   -- keeps its place
  eq(names(model:named_children()), {"stem", "act", "blocks"})
  model.stem = nil
  eq(names(model:named_parameters()), {"scale", "blocks.0.weight"})
  model.stem = nn.Identity()                     -- goes to the end
  eq(names(model:named_children()), {"act", "blocks", "stem"})
end)

test("a module is called like a function, and forward is what it runs", function()
  local model = classifier():eval()
  local x = torch.randn({5, 4})
  local hidden = torch.relu(torch.linear(x, model.stem.weight, model.stem.bias))
  eq(model(x), torch.linear(hidden, model.blocks[0].weight) * model.scale)
  fails(function() nn.Module("Empty")(x) end, "Empty: it has no forward; write one")
  local pass = nn.Module()
  function pass:forward(a, b) return b, a end
  local b, a = pass(1, 2)
  eq({b, a}, {2, 1})
end)

test("fields can be given at once, and are then in the order of their names", function()
  local model = nn.Module("Net", {
    second = nn.Linear(3, 2),
    first = nn.Linear(4, 3),
    forward = function(self, x) return self.second(self.first(x)) end,
  })
  eq(names(model:named_children()), {"first", "second"})
  eq(model(torch.randn({5, 4})).shape, {5, 2})
  eq(tostring(nn.Module({act = nn.ReLU()})), "Module(\n  (act): ReLU()\n)")
end)

test("what is met twice is listed once", function()
  local shared = nn.Linear(2, 2)
  local model = nn.Sequential(shared, nn.ReLU(), shared)
  eq(#model, 3)
  eq(names(model:named_parameters()), {"0.weight", "0.bias"})
  eq(names(model:named_modules()), {"", "0", "1"})
  local x = torch.randn({1, 2})
  eq(model(x), shared(torch.relu(shared(x))))
  local tied = nn.Module()
  tied.a = nn.Linear(2, 2, {bias = false})
  tied.b = nn.Linear(2, 2, {bias = false})
  tied.b.weight = tied.a.weight
  eq(names(tied:named_parameters()), {"a.weight"})
end)

test("a leaf that requires grad is a parameter where it is assigned, and stays one when it is frozen", function()
  local model = nn.Module()
  model.w = torch.ones({2}, {requires_grad = true})
  model.plain = torch.ones({2})
  model:register_buffer("mean", torch.zeros({2}))
  eq(names(model:named_parameters()), {"w"})
  eq(names(model:named_buffers()), {"mean"})
  model:requires_grad_(false)
  eq(names(model:named_parameters()), {"w"})
  assert(not model.w.requires_grad)
  assert(model:requires_grad_().w.requires_grad)
end)

test("train and eval reach every module", function()
  local model = classifier()
  assert(model.training and model.blocks[1].training)
  assert(rawequal(model:eval(), model))
  assert(not model.training and not model.blocks[1].training)
  model:train()
  assert(model.blocks[1].training)
  fails(function() model:train(1) end, "train: expected a boolean, got int 1")
end)

test("to changes data and gradients of the same tensors", function()
  local model = classifier():eval()
  local weight = model.stem.weight
  model(torch.randn({2, 4})):sum():backward()
  assert(rawequal(model:to(torch.float64), model))
  assert(rawequal(model.stem.weight, weight))
  eq(weight.dtype, torch.float64)
  eq(weight.grad.dtype, torch.float64)
  assert(weight.is_leaf and weight.requires_grad)
  eq(model(torch.randn({2, 4}, {dtype = torch.float64})).dtype, torch.float64)
  model:to("cpu", torch.float32)
  eq(weight.dtype, torch.float32)
  fails(function() model:to(torch.int64) end, "expected a floating point dtype")
  local moved = nn.Linear(2, 2, {dtype = torch.float64})
  eq(moved.weight.dtype, torch.float64)
end)

test("state_dict and load_state_dict", function()
  local a, b = classifier():eval(), classifier():eval()
  local x, before = torch.randn({3, 4}), b.stem.weight
  b:load_state_dict(a:state_dict())
  eq(b(x), a(x))
  assert(rawequal(b.stem.weight, before) and before.requires_grad)
  assert(not a:state_dict()["stem.weight"].requires_grad)
  local partial = {scale = torch.zeros({3})}
  fails(function() b:load_state_dict(partial) end,
    "Classifier:load_state_dict: missing: blocks.0.weight, stem.bias, stem.weight; unexpected: none")
  b:load_state_dict(partial, {strict = false})
  eq(b.scale:detach(), torch.zeros({3}))
  local wrong = a:state_dict()
  wrong.scale = torch.ones({4})
  fails(function() b:load_state_dict(wrong) end, "'scale' is Tensor float32[3], got Tensor float32[4]")
  wrong.scale, wrong.extra = torch.ones({3}), torch.ones({1})
  fails(function() b:load_state_dict(wrong) end, "unexpected: extra")
end)

test("apply goes from the leaves up; zero_grad drops gradients", function()
  local model, order = classifier(), {}
  model:apply(function(module) order[#order + 1] = rawequal(module, model) and "root" or tostring(module) end)
  eq(order[1], "Linear(in_features=4, out_features=3, bias=true)")
  eq(order[#order], "root")
  model(torch.randn({2, 4})):sum():backward()
  assert(torch.is_tensor(model.scale.grad))
  model:zero_grad()
  assert(rawequal(model.scale.grad, nil) and rawequal(model.stem.weight.grad, nil))
end)

test("tostring reads like PyTorch's", function()
  eq(tostring(classifier()), [[
Classifier(
  (stem): Linear(in_features=4, out_features=3, bias=true)
  (act): ReLU()
  (blocks): Sequential(
    (0): Linear(in_features=3, out_features=3, bias=false)
    (1): Dropout(p=0.1)
  )
)]])
  eq(tostring(nn.Module()), "Module()")
end)

test("T16: a module names its place once it has a path", function()
  local model = classifier()
  model.stem._fx_path = "stem"
  local f = flag_nan(torch.tensor({{0 / 0}}), model.stem)
  assert(flags.repr(f):find("1xNAN @ stem", 1, true), flags.repr(f))
end)

test("wrong use says what is expected", function()
  fails(function() nn.Module(3) end, "nn.Module: expected a name and a table of fields")
  fails(function() nn.Module({nn.ReLU()}) end, "nn.Module: expected fields with names, got int 1")
  fails(function() nn.Module()["a.b"] = 1 end, "the dot joins names to paths")
  fails(function() nn.Module().layers = {nn.ReLU()} end, "a plain table of modules")
  fails(function() nn.Sequential(nn.ReLU(), 3) end, "nn.Sequential: expected a module as `layer 1`, got int 3")
  fails(function() return nn.Sequential(nn.ReLU())[1] end, "there is no layer 1; it has 1, counted from 0")
  fails(function() local model = nn.ReLU() model.parameters() end, "call it with a colon, as in model:parameters()")
  fails(function() nn.Linear(4) end, "nn.Linear: expected an integer of at least 1 as `out_features`, got nil")
  fails(function() nn.Linear(4, 2, {bais = true}) end, "there is no option 'bais'; did you mean 'bias'")
  fails(function() nn.Parameter(3) end, "nn.Parameter: expected a tensor")
end)

test("losses of differences broadcast with a warning and the right gradient, in graphs of other sizes too", function()
  local losses = {nn.L1Loss(), nn.MSELoss(), nn.SmoothL1Loss({beta = 0.5}), nn.HuberLoss({delta = 0.7}),
    nn.MSELoss({reduction = "sum"}), nn.SmoothL1Loss({beta = 0.0})}
  local by_hand = {
    function(d) return d:abs():mean() end,
    function(d) return d:square():mean() end,
    function(d) return torch.where(d:abs() < 0.5, d:square(), d:abs() - 0.25):mean() end,
    function(d) return torch.where(d:abs() < 0.7, d:square() * 0.5, (d:abs() - 0.35) * 0.7):mean() end,
    function(d) return d:square():sum() end,
    function(d) return d:abs():mean() end,
  }
  local shapes = {{{3}, {3}}, {{3, 1}, {3}}, {{1}, {3}}, {{4}, {1}}, {{4}, {4}}, {{}, {2}}}
  for i, loss in ipairs(losses) do
    for _, backend in ipairs({"script", "eager", "fused"}) do
      local run = backend == "script" and loss or
        triage.compile(function(x, y) return loss(x, y) end, {backend = backend})
      for _, shape in ipairs(shapes) do
        torch.manual_seed(i)
        local x = torch.randn(shape[1]):requires_grad_(true)
        local y = torch.randn(shape[2])
        local got, want = run(x, y), by_hand[i](x - y)
        close_to(got, want, 1e-6)
        close_to(torch.autograd.grad(got, {x}), torch.autograd.grad(want, {x}), 1e-6)
      end
    end
  end
  local x = torch.ones({2}, {requires_grad = true})
  torch.autograd.grad(nn.MSELoss()(x, torch.tensor({1, 3})), {x})          -- a target of integers
  eq(nn.MSELoss()(x, torch.zeros({2}, {dtype = torch.float64})).dtype, torch.float64)
  local equal = torch.ones({2}, {requires_grad = true})
  eq(torch.autograd.grad(nn.SmoothL1Loss({beta = 0.0})(equal, torch.ones({2})), {equal}), torch.zeros({2}))
end)

test("layers refuse what PyTorch refuses", function()
  fails(function() nn.Hardtanh(2, 1) end, "expected a number above `min_val`, which is 2 as `max_val`")
  fails(function() nn.TripletMarginLoss({margin = 0.0}) end, "expected a number above 0 as `margin`")
  fails(function() nn.BCELoss()(torch.full({2, 3}, 0.5), torch.ones({1, 3})) end, "expected the sizes of the input")
  fails(function() nn.EmbeddingBag(3, 2, {mode = "max", scale_grad_by_freq = true}) end, "scale_grad_by_freq goes with")
  eq(nn.CircularPad1d({2, 1})(torch.arange(3):float():view({1, 3})), torch.tensor({{1.0, 2.0, 0.0, 1.0, 2.0, 0.0}}))
end)
