-- Optimizers: LibTorch's, with options as a table.

local function minimise(make)
  torch.manual_seed(0)
  local w = torch.tensor({3.0, -2.0}, {requires_grad = true})
  local optimizer = make({w})
  for _ = 1, 100 do
    optimizer:zero_grad()
    local loss = (w * w):sum()
    loss:backward()
    optimizer:step()
  end
  return w:detach():abs():max():item()
end

test("T31: SGD and Adam go downhill", function()
  assert(minimise(function(p) return optim.SGD(p, {lr = 0.1}) end) < 1e-3)
  assert(minimise(function(p) return optim.SGD(p, {lr = 0.05, momentum = 0.5, nesterov = true}) end) < 1e-3)
  assert(minimise(function(p) return optim.Adam(p, {lr = 0.2, betas = {0.8, 0.9}, eps = 1e-7}) end) < 0.1)
end)

test("one step is the formula's", function()
  local w = torch.tensor({2.0}, {requires_grad = true})
  local sgd = optim.SGD({w}, {lr = 0.1, momentum = 0.9, weight_decay = 0.5})
  local value, velocity = 2.0, 0.0
  for step = 1, 3 do
    sgd:zero_grad()
    local loss = (w * 3):sum()
    loss:backward()
    sgd:step()
    local slope = 3 + 0.5 * value
    velocity = step == 1 and slope or 0.9 * velocity + slope
    value = value - 0.1 * velocity
    close_to(w:item(), value, 1e-5)
  end
end)

test("the learning rate can be read and set", function()
  local w = torch.tensor({1.0}, {requires_grad = true})
  local sgd = optim.SGD({w}, {lr = 0.5})
  eq(sgd.lr, 0.5)
  sgd.lr = 0.25
  w:sum():backward()
  sgd:step()
  eq(w:detach(), torch.tensor({0.75}))
  eq(tostring(sgd), "SGD(1 parameters, lr = 0.25)")
  eq(optim.Adam({w}).lr, 0.001)
end)

test("groups have options of their own", function()
  local a, b = torch.tensor({1.0}, {requires_grad = true}), torch.tensor({1.0}, {requires_grad = true})
  local sgd = optim.SGD({{params = {a}}, {params = {b}, lr = 0.5}}, {lr = 0.25})
  local loss = (a + b):sum()
  loss:backward()
  sgd:step()
  eq(a:detach(), torch.tensor({0.75}))
  eq(b:detach(), torch.tensor({0.5}))
end)

test("a closure computes the loss anew", function()
  local w = torch.tensor({1.0}, {requires_grad = true})
  local sgd = optim.SGD({w}, {lr = 0.5})
  local loss = torch.no_grad(function()
    return sgd:step(function()
      sgd:zero_grad()
      local value = (w * 2):sum()
      value:backward()
      return value
    end)
  end)
  eq(loss:item(), 2.0)
  eq(w:detach(), torch.tensor({0.0}))
end)

test("wrong use says what is expected", function()
  local w = torch.tensor({1.0}, {requires_grad = true})
  fails(function() optim.SGD({}, {lr = 0.1}) end, "optim.SGD: expected a list of parameters, as in model:parameters()")
  fails(function() optim.SGD(w, {lr = 0.1}) end, "expected a list of parameters")
  fails(function() optim.SGD({3}) end, "parameter 1 is int 3, expected a tensor")
  fails(function() optim.SGD({w * 2}) end, "parameter 1 is the result of an operation")
  fails(function() optim.SGD({w, w}) end, "parameter 2 is in the list twice")
  fails(function() optim.SGD({w}, {lr = -1}) end, "option 'lr': expected a finite number of at least 0, got int -1")
  fails(function() optim.SGD({w}, {momentun = 1}) end, "there is no option 'momentun'; did you mean 'momentum'")
  fails(function() optim.SGD({w}, {nesterov = true}) end, "option 'nesterov' needs a momentum")
  fails(function() optim.Adam({w}, {betas = {0.9}}) end, "option 'betas': expected two numbers")
  fails(function() optim.Adam({w}):step() end, "no parameter has a gradient, so nothing would change")
  fails(function() optim.SGD({w}).momentum = 0.5 end, "only `lr` can be set, not 'momentum'")
  fails(function() return optim.SGD({w}).rate end,
    "there are step, zero_grad, state_dict, load_state_dict, lr and param_groups")
end)

test("AdamW, RMSprop and LBFGS go downhill, LBFGS by calls of the closure", function()
  assert(minimise(function(p) return optim.AdamW(p, {lr = 0.2}) end) < 0.1)
  assert(minimise(function(p) return optim.RMSprop(p, {lr = 0.05, momentum = 0.5}) end) < 0.1)
  local w = torch.tensor({3.0, -2.0}, {requires_grad = true})
  local lbfgs = optim.LBFGS({w}, {line_search_fn = "strong_wolfe"})
  local calls = 0
  local first = lbfgs:step(function()
    calls = calls + 1
    lbfgs:zero_grad()
    local loss = (w - torch.tensor({1.0, 4.0})):pow(2):sum()
    loss:backward()
    return loss
  end)
  eq(first:item(), 40.0)   -- the loss before the step
  assert(calls > 1)
  close_to(w:detach(), torch.tensor({1.0, 4.0}))
  fails(function() lbfgs:step() end, "optim.LBFGS: step: expected a function")
  fails(function() lbfgs:step(function() return 3 end) end, "expected the loss, a tensor of one element")
  fails(function() lbfgs:step(function() error("in the closure") end) end, "in the closure")
  fails(function() optim.LBFGS({w}, {max_iter = 0}) end, "option 'max_iter': expected an integer of at least 1")
  fails(function() optim.LBFGS({w}, {line_search_fn = "wolfe"}) end, "expected \"strong_wolfe\"")
  fails(function() optim.LBFGS({{params = {w}}, {params = {w:clone():detach()}}}) end, "several groups")
  fails(function() optim.RMSprop({w}, {alfa = 0.5}) end, "did you mean 'alpha'")
end)

test("options of groups are read and set", function()
  local a, b = torch.tensor({1.0}, {requires_grad = true}), torch.tensor({1.0}, {requires_grad = true})
  local adam = optim.Adam({{params = {a}}, {params = {b}, lr = 0.5}}, {lr = 0.25})
  local groups = adam.param_groups
  eq(#groups, 2)
  eq(groups[2].lr, 0.5)
  torch.no_grad(function() groups[2].params[1]:fill_(7) end)   -- the parameter itself
  eq(b:item(), 7.0)
  groups[2].lr, groups[1].betas = 0.75, {0.5, 0.9}
  eq(adam.param_groups[2].lr, 0.75)
  eq(groups[1].betas[1], 0.5)
  assert(rawequal(groups[1].momentum, nil))
  fails(function() groups[1].lr = -1 end, "optim.Adam: option 'lr': expected a finite number of at least 0")
  fails(function() groups[1].beta = 1 end, "there is no option 'beta'; did you mean 'betas'")
end)

-- Schedules

local function optimizer_of(rate)
  return optim.SGD({torch.tensor({1.0}, {requires_grad = true})}, {lr = rate, momentum = 0.9})
end

test("a schedule sets the rate when it is made and at each step", function()
  local sgd = optimizer_of(1.0)
  local schedule = optim.lr_scheduler.StepLR(sgd, 2, {gamma = 0.5})
  local rates = {}
  for step = 1, 5 do
    rates[step] = sgd.lr
    schedule:step()
  end
  eq(rates, {1.0, 1.0, 0.5, 0.5, 0.25})
  eq(schedule.last_epoch, 5)
  eq(schedule:get_last_lr(), {0.25})
  local warm = optim.lr_scheduler.LinearLR(optimizer_of(1.0), {start_factor = 0.5, total_iters = 2})
  eq(warm:get_last_lr(), {0.5})
end)

test("a schedule goes on from its state", function()
  local L = optim.lr_scheduler
  for _, make in ipairs({
    function(o) return L.CosineAnnealingLR(o, 5) end,
    function(o) return L.OneCycleLR(o, 1.0, 12) end,
    function(o) return L.CosineAnnealingWarmRestarts(o, 2, 2) end,
    function(o) return L.SequentialLR(o, {L.LinearLR(o, 0.5, 1.0, 3), L.ExponentialLR(o, 0.9)}, {3}) end,
  }) do
    local one = make(optimizer_of(0.1))
    for _ = 1, 4 do one:step() end
    local other = make(optimizer_of(0.1))
    other:load_state_dict(one:state_dict())
    eq(other:get_last_lr(), one:get_last_lr())
    for _ = 1, 6 do
      one:step()
      other:step()
      eq(other:get_last_lr(), one:get_last_lr())
    end
  end
  local plateau = L.ReduceLROnPlateau(optimizer_of(1.0), {patience = 0, factor = 0.5})
  plateau:step(1.0)
  plateau:step(torch.tensor(2.0))
  eq(plateau:get_last_lr(), {0.5})
  local second = L.ReduceLROnPlateau(optimizer_of(1.0), {patience = 0, factor = 0.5})
  second:load_state_dict(plateau:state_dict())
  second:step(0 / 0)   -- NaN is no improvement
  eq(second:get_last_lr(), {0.25})
end)

test("wrong use of schedules says what is expected", function()
  local L, sgd = optim.lr_scheduler, optimizer_of(1.0)
  fails(function() L.StepLR(3, 1) end, "optim.lr_scheduler.StepLR: expected an optimizer, got int 3")
  fails(function() L.StepLR(sgd) end, "expected an integer of at least 1 as `step_size`, got nil")
  fails(function() L.StepLR(sgd, 2, {gama = 1}) end, "there is no option 'gama'; did you mean 'gamma'")
  fails(function() L.StepLR(sgd, 2, 0.1, 3) end, "StepLR: expected at most 3 arguments")
  fails(function() L.LambdaLR(sgd, 3) end, "expected a function as `lr_lambda`")
  fails(function() L.LambdaLR(sgd, {math.sqrt, math.sqrt}) end, "expected one value or 1 as `lr_lambda`, got 2")
  fails(function() L.LinearLR(sgd, 0) end, "expected a number above 0, at most 1 as `start_factor`")
  fails(function() L.OneCycleLR(sgd, 1.0) end, "expected `total_steps`, or `epochs` and `steps_per_epoch`")
  fails(function() L.OneCycleLR(sgd, 1.0, 3, {anneal_strategy = "sine"}) end, 'expected "cos" or "linear"')
  fails(function() L.SequentialLR(sgd, {L.ExponentialLR(sgd, 0.9)}, {3}) end, "expected 0 milestones for 1 schedules")
  fails(function() L.SequentialLR(sgd, {L.ReduceLROnPlateau(sgd)}, {}) end, "no ReduceLROnPlateau")
  fails(function() L.ReduceLROnPlateau(sgd, "least") end, 'expected "min" or "max" as `mode`')
  fails(function() L.ReduceLROnPlateau(sgd):step() end, "a number or a tensor of one element, got nil")
  fails(function() L.ExponentialLR(sgd, 0.9):step(1.0) end, "expected no argument")
  fails(function() local schedule = L.ExponentialLR(sgd, 0.9) schedule.step() end, "call it with a colon")
  local cycle = L.OneCycleLR(sgd, 1.0, 2)
  cycle:step()
  cycle:step()
  fails(function() cycle:step() end, "it was made for 2 steps, and this is step 3")
  local seen = pcall(triage.compile(function(x) L.ExponentialLR(sgd, 0.9) return x end, {fullgraph = true}),
    torch.ones({1}))
  eq(seen, false)
end)

-- Clipping

local function with_gradients(...)
  local parameters = {}
  for position, gradient in ipairs({...}) do
    local parameter = torch.zeros_like(gradient):requires_grad_()
    local loss = (parameter * gradient):sum()
    loss:backward()
    parameters[position] = parameter
  end
  return parameters
end

test("clip_grad_norm_: the norm of all gradients together", function()
  local parameters = with_gradients(torch.tensor({3.0}), torch.tensor({4.0}))
  parameters[3] = torch.zeros({2}, {requires_grad = true})   -- without a gradient
  local norm, finite = nn.clip_grad_norm_(parameters, 1.0)
  eq({norm:item(), finite}, {5.0, true})
  close_to(parameters[1].grad, torch.tensor({0.6}))
  close_to(parameters[2].grad, torch.tensor({0.8}))
  eq((nn.clip_grad_norm_(with_gradients(torch.tensor({3.0}), torch.tensor({-4.0})), 10, math.huge)):item(), 4.0)
  eq((nn.clip_grad_norm_({}, 1.0)):item(), 0.0)
  local value = with_gradients(torch.tensor({-3.0, 0.5, 0 / 0}))
  nn.clip_grad_value_(value[1], 1)
  eq(value[1].grad, torch.tensor({-1.0, 0.5, 0 / 0}))
end)

test("clip_grad_norm_: a norm that is not finite", function()
  local bad = torch.tensor({1.0, 0 / 0})
  local kept = with_gradients(bad, torch.tensor({2.0}))
  local _, finite = nn.clip_grad_norm_(kept, 1.0)                       -- as PyTorch: all become NaN
  eq({finite, kept[2].grad:isnan():all():item()}, {false, true})
  local zero = with_gradients(bad, torch.tensor({2.0}))
  _, finite = nn.clip_grad_norm_(zero, 1.0, {nonfinite = "zero"})
  eq({finite, zero[1].grad:eq(0):all():item(), zero[2].grad:item()}, {false, true, 0.0})
  local skip = with_gradients(bad, torch.tensor({2.0}))
  _, finite = nn.clip_grad_norm_(skip, 1.0, {nonfinite = "skip"})
  eq(finite, false)
  assert(rawequal(skip[1].grad, nil) and rawequal(skip[2].grad, nil))
  fails(function() optim.SGD(skip):step() end, "no parameter has a gradient")
  for _, options in ipairs({{nonfinite = "error"}, {error_if_nonfinite = true}}) do
    local given = with_gradients(bad)
    fails(function() nn.clip_grad_norm_(given, 1.0, options) end, "nn.clip_grad_norm_: the norm of order 2.0 of the")
    eq(given[1].grad, bad)
  end
  fails(function() nn.clip_grad_norm_(kept, 1.0, {nonfinite = "drop"}) end,
    'option \'nonfinite\': expected "keep", "error", "zero" or "skip", got string "drop"')
  fails(function() nn.clip_grad_norm_(kept) end, "expected a number as `max_norm`, got nil")
  fails(function() nn.clip_grad_norm_(3, 1.0) end, "expected a list of parameters")
  fails(function() nn.clip_grad_norm_(kept, 1.0, {norm = 2}) end, "there is no option 'norm'")
end)

test("what another rank saw decides here, too", function()
  local asked = {}
  local function agree(bad)
    asked[#asked + 1] = bad:item()
    return torch.tensor(true)   -- another rank has a bad batch
  end
  local parameters = with_gradients(torch.tensor({3.0}))
  local _, finite = nn.clip_grad_norm_(parameters, 1.0, {nonfinite = "skip", agree = agree})
  eq(finite, false)
  assert(rawequal(parameters[1].grad, nil))
  local w = torch.tensor({1.0}, {requires_grad = true})
  local sgd, scaler = optim.SGD({w}, {lr = 0.5}), optim.GradScaler({init_scale = 4.0, agree = agree})
  scaler:scale(w:sum()):backward()
  eq(scaler:step(sgd), false)
  scaler:update()
  eq({w:item(), scaler:get_scale(), scaler:skipped_steps()}, {1.0, 2.0, 1})
  eq(asked, {false, false})
  fails(function() nn.clip_grad_norm_({}, 1.0, {agree = 3}) end, "expected a function as `agree`")
end)

-- GradScaler

test("the scale falls after a bad step, which is left out, and grows after good ones", function()
  local w = torch.tensor({1.0}, {requires_grad = true})
  local sgd = optim.SGD({w}, {lr = 0.5})
  local scaler = optim.GradScaler({init_scale = 8.0, growth_interval = 2})
  local scales, steps = {}, {}
  for step, factor in ipairs({1.0, 1.0, 0 / 0, 1.0, 1 / 0}) do
    sgd:zero_grad()
    local loss = (w * factor):sum()
    scaler:scale(loss):backward()
    steps[step] = scaler:step(sgd)
    scaler:update()
    scales[step] = scaler:get_scale()
  end
  eq(scales, {8.0, 16.0, 8.0, 8.0, 4.0})
  eq(steps, {true, true, false, true, false})
  eq(w:item(), -0.5)
  eq(scaler:skipped_steps(), 2)
  local other = optim.GradScaler()
  other:load_state_dict(scaler:state_dict())
  eq(other:state_dict(), scaler:state_dict())
  eq(optim.GradScaler({enabled = false}):scale(w):item(), -0.5)
end)

test("wrong use of the scaler says what is expected", function()
  local w = torch.tensor({1.0}, {requires_grad = true})
  local sgd, scaler = optim.SGD({w}, {lr = 0.5}), optim.GradScaler()
  fails(function() scaler:step(sgd) end, "optim.GradScaler: step: no loss was scaled yet")
  fails(function() scaler:unscale_(3) end, "expected an optimizer, got int 3")
  scaler:scale(w:sum())
  fails(function() scaler:step(sgd) end, "no parameter has a gradient")
  scaler = optim.GradScaler()
  local loss = scaler:scale(w:sum())
  loss:backward()
  fails(function() scaler:update() end, "no gradients were checked since the last update")
  scaler:unscale_(sgd)
  eq(w.grad:item(), 1.0)
  fails(function() scaler:unscale_(sgd) end, "unscaled already, since the last update")
  scaler:step(sgd)
  fails(function() scaler:step(sgd) end, "this optimizer made its step already")
  fails(function() scaler:unscale_(sgd) end, "it comes after the step of this optimizer")
  fails(function() scaler:step(sgd, function() end) end, "it takes no closure")
  fails(function() optim.GradScaler({growth_factor = 1.0}) end, "option 'growth_factor': expected a number above 1")
  fails(function() optim.GradScaler({growth_interval = 0.5}) end, "expected an integer of at least 1, got float 0.5")
  fails(function() optim.GradScaler({scale = 2}) end, "there is no option 'scale'")
  fails(function() scaler.step(sgd) end, "call it with a colon, as in scaler:step()")
  local half = torch.tensor({1.0}, {dtype = torch.float16, requires_grad = true})
  scaler = optim.GradScaler({init_scale = 2.0})
  loss = scaler:scale(half:sum())
  loss:backward()
  fails(function() scaler:unscale_(optim.SGD({half})) end, "a gradient is float16")
end)

-- State

local makers = {
  SGD = function(p) return optim.SGD(p, {lr = 0.1, momentum = 0.9}) end,
  Adam = function(p) return optim.Adam(p, {lr = 0.1, amsgrad = true}) end,
  AdamW = function(p) return optim.AdamW(p, {lr = 0.1}) end,
  RMSprop = function(p) return optim.RMSprop(p, {lr = 0.01, momentum = 0.5, centered = true}) end,
  LBFGS = function(p) return optim.LBFGS(p, {lr = 0.1}) end,
}

for name, make in pairs(makers) do
  test(name .. " goes on from its state as if it had never stopped", function()
    torch.manual_seed(1)
    local x, y = torch.randn({8, 3}), torch.randn({8, 2})
    local function step(model, optimizer)
      local function loss()
        optimizer:zero_grad()
        local computed = torch.mse_loss(model(x), y)
        computed:backward()
        return computed
      end
      optimizer:step(loss)
    end
    local model = nn.Linear(3, 2)
    local optimizer = make(model:parameters())
    for _ = 1, 4 do step(model, optimizer) end
    local other = nn.Linear(3, 2)
    other:load_state_dict(model:state_dict())
    local resumed, path = make(other:parameters()), os.tmpname() .. ".pt"
    torch.save(optimizer:state_dict(), path)
    resumed:load_state_dict(torch.load(path))
    os.remove(path)
    eq(resumed:state_dict().state, optimizer:state_dict().state)
    for _ = 1, 4 do
      step(model, optimizer)
      step(other, resumed)
    end
    eq(other.weight, model.weight)
    eq(other.bias, model.bias)
  end)
end

test("a state that does not fit is refused, and changes nothing", function()
  local model = nn.Linear(3, 2)
  local adam = optim.Adam(model:parameters(), {lr = 0.5})
  model(torch.ones({1, 3})):sum():backward()
  adam:step()
  local saved = adam:state_dict()
  eq(saved.param_groups[1].params, {0, 1})
  eq(saved.state[1].step, torch.tensor(1.0))
  local function refused(change, message)
    local wrong = adam:state_dict()
    change(wrong)
    fails(function() adam:load_state_dict(wrong) end, message)
    eq(adam:state_dict(), saved)
  end
  refused(function(s) s.param_groups[2] = s.param_groups[1] end,
    "expected what state_dict() gave for an optimizer of 1 groups, got that of 2 groups")
  refused(function(s) s.param_groups[1].params = {0} end, "group 1 has 2 parameters, and the one in the state has 1")
  refused(function(s) s.param_groups[1].lr = -1 end, "option 'lr': expected a finite number of at least 0, got int -1")
  refused(function(s) s.param_groups[1].lr, s.state[1].exp_avg = 0.25, "x" end,
    "`exp_avg` of a parameter: expected a tensor, got string \"x\"")
  refused(function(s) s.param_groups[1].maximize = true end, "group 1 has maximize = true")
  refused(function(s) s.param_groups[1].decoupled_weight_decay = true end, "has decoupled_weight_decay = true")
  fails(function() adam:load_state_dict(3) end, "of 1 groups, got int 3")
  fails(function() optim.SGD({{params = {model.weight}}, {params = {model.bias, model.weight}}}, {lr = 0.1}) end,
    "parameter 2 is in an earlier group, too; each step would change it twice")
end)

test("OneCycleLR goes on with the momentum, too", function()
  local function cycled()
    local w = torch.tensor({1.0}, {requires_grad = true})
    local sgd = optim.SGD({w}, {lr = 0.1, momentum = 0.9})
    return sgd, optim.lr_scheduler.OneCycleLR(sgd, 1.0, 12)
  end
  local sgd, schedule = cycled()
  for _ = 1, 4 do schedule:step() end
  local other, resumed = cycled()
  resumed:load_state_dict(schedule:state_dict())
  eq(other.param_groups[1].momentum, sgd.param_groups[1].momentum)
  assert(sgd.param_groups[1].momentum ~= 0.95)
end)
