-- Gradients and their modes.

test("backward and grad", function()
  local w = torch.tensor({ 1.0, 2.0 }, { requires_grad = true })
  local loss = (w * w):sum()
  loss:backward()
  eq(w.grad, torch.tensor({ 2.0, 4.0 }))
  w.grad = nil
  assert(rawequal(w.grad, nil))
  assert(w.is_leaf and not loss.is_leaf)
end)

test("torch.autograd.grad", function()
  local a = torch.tensor(3.0, { requires_grad = true })
  local b = torch.tensor(4.0, { requires_grad = true })
  local da, db = torch.autograd.grad(a * b, { a, b })
  eq(da, torch.tensor(4.0))
  eq(db, torch.tensor(3.0))
  local unused = torch.tensor(1.0, { requires_grad = true })
  local first, second = torch.autograd.grad(a * 2, { a, unused }, nil, { allow_unused = true })
  eq(first, torch.tensor(2.0))
  assert(rawequal(second, nil))
  local again = torch.autograd.grad(a ^ 3, a, { create_graph = true })
  close_to(torch.autograd.grad(again, a), torch.tensor(18.0))
end)

test("modes as functions and as blocks", function()
  local w = torch.ones(2, { requires_grad = true })
  eq(torch.no_grad(function(k) return (w * k).requires_grad end, 2), false)
  assert((w * 2).requires_grad)
  do
    local _ <close> = torch.no_grad()
    assert(not (w * 2).requires_grad)
    assert(torch.enable_grad(function() return (w * 2).requires_grad end))
    assert(not torch.is_grad_enabled())
  end
  assert(torch.is_grad_enabled())
  pcall(torch.no_grad, function() error("x") end)
  assert(torch.is_grad_enabled())
end)

test("requires_grad and detach", function()
  local w = torch.zeros(2)
  assert(rawequal(w:requires_grad_(), w) and w.requires_grad)
  assert(not w:detach().requires_grad)
  w.requires_grad = false
  assert(not w.requires_grad)
  fails(function() torch.tensor({ 1 }):requires_grad_() end, "floating point")
end)
