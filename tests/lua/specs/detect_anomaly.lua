-- torch.autograd.detect_anomaly: which operation's derivative made a NaN or Inf of gradients that were fine.

local function root_of_zero(w)
  local y = torch.ones({ 4, 2 }) * w
  local root = torch.sqrt(y)            -- line 5: its derivative is 1 / 0 in samples 1 and 3
  return root:sum()
end

local function weight()
  local w = torch.ones({ 4, 2 })
  w[1], w[3] = 0, 0
  return w:requires_grad_(true)
end

test("the operation, its line and the samples; nothing is written", function()
  local w = weight()
  fails(function()
    torch.autograd.detect_anomaly(function() root_of_zero(w):backward() end)
  end, "x:backward: gradients became bad where gradients that were fine came in, and none was written:\n" ..
    "  INF  derivative of aten::sqrt  specs/detect_anomaly.lua:5  samples 1, 3 of 4")
  assert(rawequal(w.grad, nil))
  root_of_zero(w):backward()   -- outside, all is as before
  assert(not rawequal(w.grad, nil))
end)

test("without an anomaly, gradients and results are the same", function()
  local w = torch.ones({ 4, 2 }, { requires_grad = true })
  local result = torch.autograd.detect_anomaly(function(scale)
    local loss = root_of_zero(w) * scale
    loss:backward()
    return loss
  end, 2.0)
  eq(result:detach(), torch.tensor(16.0))
  eq(w.grad, torch.ones({ 4, 2 }))
end)

test("torch.autograd.grad, a block, and what is checked", function()
  local w = weight()
  do
    local _ <close> = torch.autograd.detect_anomaly({ samples = 4 })
    fails(function() torch.autograd.grad(root_of_zero(w), w) end, "torch.autograd.grad: gradients became bad")
  end
  torch.autograd.detect_anomaly({ check_inf = false }, function() root_of_zero(w):backward() end)
  local masked = function()
    local y = torch.ones({ 4, 2 }) * w
    return torch.where(y > 0, torch.sqrt(y), torch.zeros_like(y)):sum()
  end
  fails(function()
    torch.autograd.detect_anomaly({ check_inf = false }, function() masked():backward() end)
  end, "NAN  derivative of aten::sqrt  specs/detect_anomaly.lua")   -- 0 * Inf behind where
  fails(function()
    torch.autograd.detect_anomaly(function() masked():backward() end)
  end, "samples 1, 3 of 4")
end)

test("compiled functions run line by line in it", function()
  local w = weight()
  local compiled = triage.compile(root_of_zero)
  compiled(w)
  fails(function()
    torch.autograd.detect_anomaly(function() compiled(w):backward() end)
  end, "aten::sqrt  specs/detect_anomaly.lua:5")
  eq(triage.get_stance(), "default")
end)

test("wrong arguments", function()
  fails(function() torch.autograd.detect_anomaly(3) end,
    "torch.autograd.detect_anomaly: expected a function, got int 3")
  fails(function() torch.autograd.detect_anomaly({ check = true }) end,
    "torch.autograd.detect_anomaly: unknown option 'check' or wrong value (boolean true)")
  fails(function() torch.autograd.detect_anomaly({ samples = 0 }) end, "unknown option 'samples' or wrong value")
end)

test("what a branch keeps out is no anomaly: gradients that arrive are fine", function()
  local x = torch.tensor({4.0, -1.0, 0.0})
  local repairs = {
    function(w) return WHERE(w > 0, function() return w:log() end, 0.0) end,
    function(w) return IF(w > 0, function() return w:sqrt() end):ELSE(function() return w * 0 end) end,
    triage.compile(function(w) return IF(w > 0, function() return w:log() end):ELSE(function() return w * 0 end) end),
  }
  for _, repair in ipairs(repairs) do
    local w = x:clone():requires_grad_(true)
    torch.autograd.detect_anomaly(function() repair(w):sum():backward() end)
    assert(w.grad:isfinite():all():item())
  end
  local w = x:clone():requires_grad_(true)
  fails(function()
    torch.autograd.detect_anomaly(function() torch.where(w > 0, w:log(), 0.0):sum():backward() end)
  end, "derivative of aten::log")
end)
