-- Bad rows that go through layers before they are masked leave no trace in the gradients of weights (aot_eager, fused).
local bad_values <const> = {0 / 0, math.huge, -math.huge}
local backends <const> = {"aot_eager", "fused"}

--- Whole numbers: sums of their products are exact, so gradients can be compared in every bit.
local function whole(shape, salt)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return ((torch.arange(count) * 7 + salt) % 9 - 4):to(torch.float32):view(shape)
end

--- Ways to keep rows out after a layer; `ok` marks the rows that are fine.
local repairs = {
  fix = function(y) return (fix(y, flag_nan_and_inf(y, "hidden"), "hidden")) end,
  take_ok_p = function(y) return err.take_ok_p(flag_nan_and_inf(y, "hidden"), y) end,
  recover = function(y) return (err.recover_with_fallback(flag_nan_and_inf(y, "hidden"), y, 0.0, "hidden")) end,
  where = function(y, ok) return torch.where(ok:unsqueeze(1), y, 0.0) end,
  IF = function(y, ok) return IF(ok, function() return y end):ELSE(function() return torch.zeros_like(y) end) end,
  map_ok = function(y, ok)
    return err.take_ok_p(push(err.new(y), err.NAN, "hidden", {where = ~ok}), y)
  end,
}

local function gradients(f, x, ok, weights)
  local own = {}
  for i, w in ipairs(weights) do own[i] = w:detach():clone():requires_grad_() end
  local y = f(x, ok, table.unpack(own));
  (y * whole({y:size(0), y:size(1)}, 2)):sum():backward()
  local found = {}
  for i, w in ipairs(own) do found[i] = w.grad end
  return found
end

local function each(run)
  for name, repair in pairs(repairs) do
    for _, backend in ipairs(backends) do run(name, repair, backend) end
  end
end

each(function(name, repair, backend)
  local what = ("D04: a bad row that %s masks behind layers leaves weights the gradients of the others, %s")
  test(what:format(name, backend), function()
    local function model(x, ok, w, b, v)
      return repair(torch.linear(torch.relu(torch.linear(x, w, b)), v), ok)
    end
    local weights = {whole({4, 3}, 1), whole({4}, 2), whole({2, 4}, 3)}
    local compiled = triage.compile(model, {backend = backend, fullgraph = true, name = name})
    local ok = torch.tensor({true, false, true, false, true})
    local healthy = torch.tensor({0, 2, 4})
    for _ = 1, 3 do
      for _, bad in ipairs(bad_values) do
        local x = whole({5, 3}, 4)
        x[{1, 0}], x[{3, 2}] = bad, bad
        local got = gradients(compiled, x, ok, weights)
        local rows = whole({5, 2}, 2)   -- the factors of the loss, of the healthy rows
        local own = {}
        for i, w in ipairs(weights) do own[i] = w:detach():clone():requires_grad_() end
        local alone = model(x:index_select(0, healthy), ok:index_select(0, healthy), table.unpack(own));
        (alone * rows:index_select(0, healthy)):sum():backward()
        for i, gradient in ipairs(got) do eq(gradient, own[i].grad, ("%s of %s, weight %d"):format(name, bad, i)) end
      end
    end
  end)
end)

test("D04: a batch without bad rows has the gradients that it has without a graph, bit for bit", function()
  each(function(name, repair, backend)
    local function model(x, ok, w, b, v)
      return repair(torch.linear(torch.relu(torch.linear(x, w, b)), v), ok)
    end
    local compiled = triage.compile(model, {backend = backend, fullgraph = true})
    for _, rows in ipairs({1, 2, 31, 32, 33, 33}) do
      local x, ok = torch.randn({rows, 3}), torch.ones({rows}, {dtype = torch.bool})
      local weights = {torch.randn({4, 3}), torch.randn({4}), torch.randn({2, 4})}
      local got, expected = gradients(compiled, x, ok, weights), gradients(model, x, ok, weights)
      for i, gradient in ipairs(got) do eq(gradient, expected[i], name) end
    end
  end)
end)

for _, backend in ipairs(backends) do
  test("D04: training with a bad row in every batch learns what the others teach, " .. backend, function()
    torch.manual_seed(1)
    local model = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1))
    local forward = triage.compile(function(x)
      local y = model(x)
      return fix(y, flag_nan_and_inf(y, "out"), "out")
    end, {backend = backend, fullgraph = true})
    local optimizer = optim.SGD(model:parameters(), {lr = 0.05})
    local first, last
    for step = 1, 60 do
      local x = torch.randn({16, 3})
      local target = x:sum(1, true)
      x[{step % 16, 0}] = bad_values[step % 3 + 1]
      local y, f = forward(x)
      local good = err.get_first_code(f):eq(err.OK):unsqueeze(1)
      local loss = torch.where(good, (y - target):pow(2), 0.0):mean()
      optimizer:zero_grad()
      loss:backward()
      optimizer:step()
      for _, p in ipairs(model:parameters()) do assert(torch.isfinite(p):all():item(), "step " .. step) end
      first, last = first or loss:item(), loss:item()
    end
    assert(last < first / 4, ("loss %f -> %f"):format(first, last))
  end)
end

local sized = {
  ["a mean by the batch size"] = function(x, w, repair) return repair(torch.linear(x, w)):sum() / x:size(0) end,
  ["a mean by #x"] = function(x, w, repair) return (repair(torch.linear(x, w)) / (#x * 2 + 1)):sum() end,
  ["a view by the batch size"] = function(x, w, repair)
    return repair(torch.linear(x, w):view({x:size(0), -1})):sum()
  end,
  ["a size of what was computed"] = function(x, w, repair)
    local y = torch.linear(x, w)
    return (repair(y):reshape({y:size(0) * y:size(1)}) * y:size(1)):sum()
  end,
}
for name, fn in pairs(sized) do
  for _, backend in ipairs(backends) do
    test(("D04: %s does not keep a graph from having its gradients as one, %s"):format(name, backend), function()
      local compiled = triage.compile(function(x, w) return fn(x, w, repairs.take_ok_p) end,
        {backend = backend, fullgraph = true, fail_on_backend_error = true})
      for round = 1, 3 do
        for _, rows in ipairs({1, 2, 5, 31, 32, 33}) do
          local w, twin = whole({2, 3}, round):requires_grad_(), whole({2, 3}, round):requires_grad_()
          local x, healthy = whole({rows, 3}, 4), whole({rows, 3}, 4)
          compiled(x, w):backward()
          fn(x, twin, repairs.take_ok_p):backward()
          eq(w.grad, twin.grad, rows)   -- every bit, where all is well
          x[{0, 1}], w.grad, twin.grad = 0 / 0, nil, nil
          healthy[0] = whole({3}, 5)
          compiled(x, w):backward()
          local keep = torch.ones({rows, 1}, {dtype = torch.bool})
          keep[0] = false
          fn(healthy, twin, function(y) return torch.where(keep, y, 0.0) end):backward()
          assert(torch.allclose(w.grad, twin.grad), ("%d rows: %s, not %s"):format(rows, w.grad, twin.grad))
        end
      end
    end)
  end
end

test("D04: a number that the host gives and one made of it and of sizes are part of the layout", function()
  local p = triage.compile(function(x, w, k) return torch.linear(x, w) / (x:size(0) * k) end, {backend = "aot_eager"})
  for _, k in ipairs({2, 3, 2.5}) do
    local x, w = whole({4, 3}, 1), whole({2, 3}, 2):requires_grad_()
    p(x, w, k):sum():backward()
    local twin = w:detach():clone():requires_grad_();
    (torch.linear(x, twin) / (4 * k)):sum():backward()
    eq(w.grad, twin.grad, tostring(k))
  end
end)

-- Operations after a layer that take rows, or parts of them, to other places. Each leaves a row for each sample.
local moves = {
  index = function(y) return y[{":", {0, 2}}] end,
  ["index by a list of features"] = function(y) return y[{":", torch.tensor({3, 0, 0})}] end,
  ["index by lists of places"] = function(y)
    return y[{torch.arange(y:size(0)), torch.arange(y:size(0)) % 4}]:unsqueeze(1)
  end,
  ["index_select of features"] = function(y) return y:index_select(1, torch.tensor({2, 1, 2})) end,
  ["index_select of rows"] = function(y)
    local turned = torch.arange(y:size(0)):flip({0})
    return y:index_select(0, turned):exp():index_select(0, turned)
  end,
  ["index by a list of rows"] = function(y)
    local turned = torch.arange(y:size(0)):flip({0})
    return y[{turned}]:sin()[{turned}]
  end,
  gather = function(y) return y:gather(1, torch.zeros({y:size(0), 3}, {dtype = torch.int64})) end,
  chunk = function(y)
    local parts = y:chunk(2, 1)
    return parts[1] * 2 + parts[2]
  end,
  ["one of two chunks"] = function(y) return y:chunk(2, 1)[2] end,
  split = function(y) return y:split(1, 1)[3] end,
  unbind = function(y) return y:unbind(1)[2]:unsqueeze(1) end,
  ["rows apart and together"] = function(y) return torch.cat({y[{{0, 1}}]:exp(), y[{{1, y:size(0)}}]:sin()}, 0) end,
  sort = function(y) return (y:sort(1)) end,
  topk = function(y) return (y:topk(2, 1)) end,
  ["dropout of none"] = function(y) return torch.dropout(y, 0.0, true) end,
  ["dropout outside of training"] = function(y) return torch.dropout(y, 0.5, false) end,
}
for name, move in pairs(moves) do
  for _, backend in ipairs(backends) do
    test(("D04: masked rows are followed through %s, %s"):format(name, backend), function()
      local function model(x, w, ok) return torch.where(ok:unsqueeze(1), move(torch.linear(x:sqrt(), w)), 0.0) end
      local compiled = triage.compile(model, {backend = backend, fullgraph = true})
      for _, rows in ipairs({2, 5, 33}) do
        for _ = 1, 3 do
          local healthy = torch.rand({rows, 3}) + 0.5
          local ok = torch.ones({rows}, {dtype = torch.bool})
          ok[rows - 1] = false
          local dirty = healthy:clone()
          dirty[{rows - 1, 1}] = 0 / 0
          local w = whole({4, 3}, 1) * 0.25
          local found = {}
          for i, case in ipairs({{model, healthy}, {compiled, dirty}}) do
            local x, own = case[2]:clone():requires_grad_(), w:clone():requires_grad_();
            (case[1](x, own, ok) * 2):sum():backward()
            found[i] = {x.grad, own.grad}
          end
          for i = 1, 2 do
            local whose = i == 1 and "input" or "weight"
            assert(torch.allclose(found[1][i], found[2][i], 1e-5, 1e-6), ("%s of %d rows: %s, not %s"):format(whose,
              rows, found[2][i], found[1][i]))
          end
        end
      end
    end)
  end
end

test("D20: places that count from the end, behind a layer", function()
  for _, backend in ipairs({"aot_eager", "fused"}) do
    local w = torch.ones({2, 2}, {requires_grad = true})
    local places = torch.tensor({0, -1, -2, 1})
    local ok = torch.tensor({true, true, false, true})
    local function model(x)
      local y = torch.linear(x, w)[{places}]
      return torch.where(ok:unsqueeze(1), y, 0.0):sum()
    end
    local x = torch.tensor({{1.0, 2.0}, {3.0, 4.0}, {0 / 0, 1.0}, {5.0, 6.0}})
    local compiled = triage.compile(model, {fullgraph = true, backend = backend})
    local clean = x:clone()
    clean[2] = 0.0
    local expected = torch.autograd.grad(model(clean), w)
    for _ = 1, 3 do eq(torch.autograd.grad(compiled(x), w), expected) end
  end
end)
