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
  fails(function() optim.SGD({w}).momentum = 0.5 end, "only `lr` can be set")
  fails(function() return optim.SGD({w}).rate end, "there are step, zero_grad and lr")
end)
