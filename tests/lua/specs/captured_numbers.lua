-- Numbers that captured code finds out anew in every call (sizes, items): under any scope, promoted as plain numbers,
-- and refused where plain code is refused.

--- The outcome of a call, told by what a host can see of it.
local function outcome(fn, ...)
  local results = table.pack(pcall(fn, ...))
  for i = 2, results.n do
    local value = results[i]
    if torch.is_tensor(value) then
      local detached = value:detach()
      local signs = value:is_floating_point() and detached:masked_fill(detached:isnan(), 0):signbit()
      results[i] = {tostring(value.dtype), value.requires_grad, detached, signs}
    elseif not results[1] then
      results[i] = "an error"
    end
  end
  return results
end

test("a condition on sizes may stand under any scope, whatever requires grad", function()
  local scopes = {
    {torch.no_grad, torch.no_grad},
    {torch.enable_grad, torch.enable_grad},
    {function() return torch.set_grad_enabled(false) end, function(fn) return torch.set_grad_enabled(false, fn) end},
    {function() return torch.autocast("cpu", {dtype = torch.bfloat16}) end,
     function(fn) return torch.autocast("cpu", {dtype = torch.bfloat16}, fn) end},
    {function() return triage.error_on_graph_break(false) end,
     function(fn) return triage.error_on_graph_break(false, fn)() end},
  }
  local conditions = {
    function(x) return x:size(0) > 2 end,
    function(x) return (x * 2):size(0) * 0.5 > 1.5 end,
    function(x) return x:numel() // 2 > 3 end,
    function(x) return math.max(x:size(0), x:size(1)) > 3 and math.sqrt(#x) < 9 end,
    function(x) return x.shape[1] / 2 == x.shape[2] and x:dim() == 2 end,
    function(x) return ("%d"):format(x:size(0)) == "4" end,
    function(x) triage.check(x:size(0) > 0) triage.check_is_size(x:size(0)) return -x:size(0) & 1 == 0 end,
    function(x) return x:sum():item() > x:size(0) end,
  }
  local outside = {function(fn, x) return fn(x) end, function(fn, x) return torch.no_grad(fn, x) end}
  local function compare(fn, scalar_outputs)
    triage.config.capture_scalar_outputs = scalar_outputs
    local compiled = triage.compile(fn, {backend = "eager"})
    for _, around in ipairs(outside) do
      for _, shape in ipairs({{4, 3}, {2, 3}, {4, 2}}) do
        for _, grad in ipairs({true, false}) do
          local x = torch.ones(shape, {requires_grad = grad})
          eq(outcome(around, compiled, x), outcome(around, fn, x))
        end
      end
    end
  end
  local before = triage.config.capture_scalar_outputs
  for number, scope in ipairs(scopes) do
    for position, holds in ipairs(conditions) do
      local scalar_outputs = (number + position) % 2 == 0
      compare(function(x)
        local y = x
        do
          local _ <close> = scope[1]()
          if holds(x) then y = x * 3 end
        end
        return y + x:size(0)
      end, scalar_outputs)
      compare(function(x)
        return scope[2](function() return holds(x) and x * 3 or x + x:size(1) end) + 1
      end, scalar_outputs)
    end
  end
  triage.config.capture_scalar_outputs = before
end)

test("a size that is read in another grad mode is no graph break", function()
  local f = triage.compile(function(x)
    local more
    do
      local _ <close> = torch.no_grad()
      if x:size(0) > 2 then more = (x > 0):any(-1, true) else more = x:isnan() end
    end
    return x * more
  end, {backend = "eager", fullgraph = true})
  local x = torch.ones({4, 3}, {requires_grad = true})
  f(x):sum():backward()
  eq(x.grad, torch.ones({4, 3}))
end)

test("numbers of the graph promote as plain numbers", function()
  local functions = {
    function(x, s) return s % x:size(0) end,
    function(x, s) return s // x:size(0) end,
    function(x, s) return s // -x:size(0) end,
    function(x, s) return torch.fmod(s, x:size(0)), s:div(x:size(0), {rounding_mode = "trunc"}) end,
    function(x, s) return x:size(0) // s, x:size(0) % s end,
    function(x, s) return torch.where(s > 1, s, x:size(0)), torch.where(s > 1, x:size(0), s) end,
    function(x, s) return s * (x:size(0) * 0.5), s / x:size(0), s ^ x:size(0), s + x:size(0) * 1.5 end,
    function(x, s) return torch.maximum(s, s + x:size(0)), s:clamp({max = x:size(0)}), s == x:size(0) end,
    function(x, s) return s:masked_fill(s > 1, x:size(0)), torch.full_like(s, x:size(0)) end,
    function(x, s) return torch.full({2}, x:size(0)), torch.full({2}, x:size(0) * 0.5) end,
    function(x, s, i) return s % i:item(), s // (i:item() * 2), s * (i:item() / 2) end,
  }
  local before = triage.config.capture_scalar_outputs
  triage.config.capture_scalar_outputs = true
  for _, fn in ipairs(functions) do
    for _, dtype in ipairs({torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32}) do
      local compiled = triage.compile(fn, {backend = "eager"})
      for _, shape in ipairs({{}, {2}}) do
        for _, rows in ipairs({3, 5}) do
          local x, s, i = torch.ones({rows}), torch.full(shape, 7, {dtype = dtype}), torch.tensor(3)
          eq(outcome(compiled, x, s, i), outcome(fn, x, s, i))
        end
      end
    end
  end
  triage.config.capture_scalar_outputs = before
end)

test("a number that has no room in the dtype is an error in fused code as in plain code", function()
  local functions = {
    function(x) return x:clamp({min = x:size(1)}) + 0 end,
    function(x) return x:clamp({max = x:size(1) - 400}) * 2 end,
    function(x) return x:clamp_min(x:size(0) * 100) + 0 end,
    function(x) return x:masked_fill(x > 1, x:size(1)) + 1 end,
    function(x) return torch.where(x > 1, x, x:size(1)) + 1 end,
    function(x) return (x + 1):threshold(x:size(1), 0) end,
    function(x, i) return (x + 1):clamp({min = i:item()}) + 1 end,
    function(x, i) return (x * 2):masked_fill(x > 1, i:item() * 2) + 1 end,
    function(x, i) return err.take_ok_p(flag_nan(x, "x"), x, i:item()) * 2 end,
    function(x, i) return err.take_err_p(flag_nan(x, "x"), x, i:item()) * 2 end,
    function(x, i) return err.replace(x * 2, i:item(), {1}) + 1 end,
    function(x, i)
      err.take_ok_p(flag_nan(x, "x"), x, i:item())
      return x * 2 + 1
    end,
  }
  local before = triage.config.capture_scalar_outputs
  triage.config.capture_scalar_outputs = true
  for _, fn in ipairs(functions) do
    local compiled = triage.compile(fn, {backend = "fused"})
    local calls = {{torch.ones({2, 5}, {dtype = torch.int8}), torch.tensor(3)},
                   {torch.ones({2, 300}, {dtype = torch.int8}), torch.tensor(3)},
                   {torch.ones({3, 5}, {dtype = torch.int8}), torch.tensor(300)}}
    for _ = 1, 2 do
      for _, call in ipairs(calls) do eq(outcome(compiled, table.unpack(call)), outcome(fn, table.unpack(call))) end
      compiled:finish_compiling()
    end
  end
  local function limited(x, i) return (x + 1):clamp({max = i:item()}) * 2 end
  local compiled, x = triage.compile(limited, {backend = "fused"}), torch.ones({2, 5})
  eq(compiled(x, torch.tensor(1.5, {dtype = torch.float64})), torch.full({2, 5}, 3.0))
  compiled:finish_compiling()
  eq(compiled(x, torch.tensor(1.5, {dtype = torch.float64})), torch.full({2, 5}, 3.0))
  fails(function() compiled(x, torch.tensor(1e300, {dtype = torch.float64})) end, "without overflow")
  triage.config.capture_scalar_outputs = before
end)

test("the number of tensors that one is cut into may not be one that a graph reads anew", function()
  local functions = {
    function(x, i) return x:chunk(i:item(), 1)[1] * 2 end,
    function(x, i) return x:split(i:item(), 1)[1] * 2 end,
    function(x, i) return x:tensor_split(i:item(), 1)[1] * 2 end,
    function(x, i) return x:tensor_split(i, 1)[1] * 2 end,
    function(x) return x:chunk(x:size(0), 1)[1] * 2 end,
    function(x, i) return x:split({i:item(), 4 - i:item()}, 1)[1] * 2 end,
  }
  local before = triage.config.capture_scalar_outputs
  triage.config.capture_scalar_outputs = true
  for _, fn in ipairs(functions) do
    local compiled = triage.compile(fn, {backend = "eager"})
    for _, count in ipairs({2, 4, 1, 3, 2}) do
      for _, rows in ipairs({3, count}) do
        local x, i = torch.arange(1, 4 * rows + 1):view({rows, 4}), torch.tensor(count)
        eq(outcome(compiled, x, i), outcome(fn, x, i))
      end
    end
  end
  triage.config.capture_scalar_outputs = before
end)

test("a whole number that comes of a real one has no negative zero when it is real again", function()
  local function cut(x)
    local whole = (x // 7):to(torch.int32)
    local long = x:to(torch.int64)
    return x - whole, x * whole, x - long, long:to(x.dtype), torch.where(x > 5, long, whole) * -1.0, whole / -3,
      whole:clamp({min = 0}) + x, (whole + long) * x
  end
  for _, dtype in ipairs({torch.float64, torch.float32}) do
    local x = torch.tensor({{-0.0, 1.0, -0.5}, {0.0, -3.0, 9.5}}, {dtype = dtype})
    local compiled = triage.compile(cut, {backend = "fused"})
    compiled(x)
    compiled:finish_compiling()
    eq(outcome(compiled, x), outcome(cut, x))
  end
end)

test("a number in a tensor's place is one when it is put off", function()
  local function f(x, i)
    local seen = i:item()                                     -- the graph ends here
    local a = torch.div(seen + 1, x)
    return torch.isin(x, x), a, torch.where(x > 1, 2.5, x), torch.atan2(x, 2)
  end
  local compiled = triage.compile(f, {backend = "eager"})
  for _ = 1, 3 do
    for _, rows in ipairs({4, 1, 33}) do
      local x, i = torch.ones({rows}), torch.tensor(2)
      eq(outcome(compiled, x, i), outcome(f, x, i))
    end
  end
end)

test("numbers that the text of TorchScript writes otherwise are the same there", function()
  local path = os.tmpname()
  local function f(x)
    return torch.add(x, 1e10, {alpha = 7}), x * 1e15, x - 123456789012.0, x * 1e300, x + 2.0,
      torch.where(x > 1, -0.0, x * 1.0)
  end
  local x = torch.tensor({1, 2, 3}, {dtype = torch.int8})
  triage.export(f, {x}):to_torchscript(path)
  local module = nn.load(path)
  os.remove(path)
  local got, expected = table.pack(module(x)), table.pack(f(x))
  if type(got[1]) == "table" then got = got[1] end
  for i = 1, expected.n do
    eq(got[i], expected[i])
    eq(got[i]:signbit(), expected[i]:signbit())
  end
end)
