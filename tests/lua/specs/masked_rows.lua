-- Rows that a function masks stay out of the gradients of weights and of other rows, or it is told that they may not.
local backends <const> = {"aot_eager", "fused"}
local nan <const> = 0 / 0

local function over_rows(m, x)
  local sizes = {}
  for i = 1, x:dim() do sizes[i] = i == 1 and -1 or 1 end
  return m:view(sizes)
end

--- The gradients of the weights and of the good rows, of a call of `f` whose row 1 holds `value`.
local function gradients(f, layer, x, bad, value)
  layer:zero_grad()
  x = x:clone()
  x[1] = value
  x:requires_grad_()
  local y = f(x, bad)
  y:sum():backward()
  local found = {}
  for _, weight in ipairs(layer:parameters()) do found[#found + 1] = weight.grad and weight.grad:clone() end
  found[#found + 1] = x.grad and x.grad:index_select(0, torch.tensor({0, 2}))
  return found
end

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    local equal = a[i]:eq(b[i]) | (a[i]:isnan() & b[i]:isnan())   -- NaN may come from good rows
    if not equal:all():item() then return false end
  end
  return true
end

--- Calls twice: the call that captures, and a warm one.
local function check_masked(name, make, shape)
  for _, backend in ipairs(backends) do
    torch.manual_seed(3)
    local layer = nn.Linear(4, 4)
    local options = {backend = backend, fullgraph = true, masked_rows = "require", name = "masked"}
    local f = triage.compile(make(layer), options)
    local x, bad = torch.rand(shape or {3, 4}) + 0.5, torch.tensor({false, true, false})
    for call = 1, 3 do
      torch.manual_seed(call)
      local want = gradients(f, layer, x, bad, 0.5)
      torch.manual_seed(call)
      local got = gradients(f, layer, x, bad, nan)
      assert(same(want, got), ("%s, %s, call %d: a masked row reaches gradients"):format(name, backend, call))
    end
  end
end

local function after_layer(unused)
  return function(layer)
    return function(x, bad)
      local y = layer(x)
      unused(x, y)
      return torch.where(over_rows(bad, y), 0.0, y)
    end
  end
end

test("D04: `linear` with a bias has a joint graph for any number of dimensions", function()
  for _, shape in ipairs({{3, 4}, {3, 2, 4}, {3, 2, 2, 4}, {3, 2, 1, 2, 4}}) do
    check_masked(("%d dims"):format(#shape), after_layer(function() end), shape)
  end
end)

local places <const> = torch.tensor({0, 2})
local unused <const> = {
  index_select = function(x) return x:index_select(0, places) end,
  gather = function(x) return x:gather(1, torch.zeros({3, 2}, {dtype = torch.int64})) end,
  scatter = function(x) return x:scatter(1, torch.zeros({3, 1}, {dtype = torch.int64}), 1.0) end,
  embedding = function() return torch.embedding(torch.ones({5, 2}), places) end,
  map_ok = function(x) return err.map_ok(err.new(x), x, function(z) return z * 2 end) end,
  check = function(x) triage.check(x:size(0) < 100, "too many") end,
}
for name, call in pairs(unused) do
  test(("D04: an unused %s leaves masked rows out of gradients"):format(name), function()
    check_masked(name, after_layer(call))
  end)
end

test("D04: a call that may raise still raises in a joint graph", function()
  for _, backend in ipairs(backends) do
    local layer = nn.Linear(4, 4)
    local f = triage.compile(function(x, i)
      local y = layer(x)
      local _ = x:index_select(0, i)
      return y
    end, {backend = backend, fullgraph = true})
    local x = torch.ones({3, 4})
    f(x, torch.tensor({0, 1})):sum():backward()
    f(x, torch.tensor({0, 1})):sum():backward()
    fails(function() f(x, torch.tensor({0, 7})) end, "index out of range")
  end
end)

test("D04: operators that draw numbers have joint graphs, which mask the first call too", function()
  local draws = {
    bernoulli = function(y) return y * torch.ones_like(y):bernoulli(0.5) end,
    ["of probabilities"] = function(y) return y * torch.full_like(y, 0.5):bernoulli() end,
    dropout = function(y) return torch.dropout(y, 0.5, true) end,
    rand_like = function(y) return y * torch.rand_like(y) end,
    randn_like = function(y) return y + torch.randn_like(y) end,
    randint_like = function(y) return y * torch.randint_like(y:detach(), 3) end,  -- 1.13 has no derivative of it
  }
  for name, draw in pairs(draws) do
    check_masked(name, function(layer)
      return function(x, bad)
        local y = draw(layer(x))
        return torch.where(over_rows(bad, y), 0.0, y)
      end
    end)
  end
end)

local function centred(layer)
  return function(x, bad)
    local y = layer(x)
    return torch.where(over_rows(bad, y), 0.0, y - y:mean(0))
  end
end

test("D04: masked_rows = \"require\" refuses what may reach gradients, with operator and line", function()
  local layer = nn.Linear(4, 4)
  for _, backend in ipairs(backends) do
    local f = triage.compile(centred(layer), {backend = backend, masked_rows = "require"})
    local x, bad = torch.ones({3, 4}), torch.tensor({false, true, false})
    local message = fails(function() f(x, bad) end, "masked_rows is \"require\"")
    for _, part in ipairs {"aten::mean%.dim", "masked_rows.lua:%d+", "Hint:"} do assert(message:find(part), message) end
  end
  local broken = triage.compile(function(x, bad)
    local y = layer(x)
    triage.graph_break("here")
    return torch.where(over_rows(bad, y), 0.0, y)
  end, {masked_rows = "require", warn = false})
  fails(function() broken(torch.ones({3, 4}), torch.tensor({false, true, false})) end, "graph break")
  local eager = triage.compile(after_layer(function() end)(layer), {backend = "eager", masked_rows = "require"})
  fails(function() eager(torch.ones({3, 4}), torch.tensor({false, true, false})) end, "leaves gradients to ATen")
  torch.no_grad(function()
    eq(eager(torch.ones({3, 4}), torch.tensor({false, true, false})):size(0), 3)   -- no gradients, nothing to mask
  end)
  fails(function() triage.compile(layer, {masked_rows = "yes"}) end, "expected warn or require")
end)

test("D04: explain says whether masked rows may reach gradients", function()
  local layer, x, bad = nn.Linear(4, 4), torch.ones({3, 4}), torch.tensor({false, true, false})
  local mixed = triage.explain(centred(layer), x, bad)
  local reason = "`aten::mean.dim` may mix masked rows with others %(.*masked_rows.lua:%d+%)"
  assert(mixed.unmasked_rows:find(reason), mixed.unmasked_rows)
  assert(tostring(mixed):find("Masked Rows:\n  may reach gradients, because", 1, true))
  local masked = triage.explain(after_layer(function() end)(layer), x, bad)
  eq(masked.unmasked_rows, nil)
  eq(tostring(masked):find("Masked Rows", 1, true), nil)
end)

-- Random chains behind a layer: forms in place, flags between, results that nobody uses.
local random, pick, seeds = random_programs(60, 15485863)

local steps <const> = {
  function(y) return y:relu() end,
  function(y) return y:tanh_() end,
  function(y) return y:mul_(0.5) end,
  function(y) y:add_(1.0) return y:log() end,
  function(y) return y / (y:abs() + 1) end,
  function(y) return y:softmax(-1) end,
  function(y) return y - y:mean(-1, true) end,
  function(y) return y * y:sum(-1, true) end,
  function(y) return (fix(y, flag_nan(y, "chain"), "chain")) end,
  function(y) return err.take_ok_p(flag_nan_and_inf(y, "chain"), y) end,
  function(y) local z = y:clone() z[{{}, 0}] = 0.0 return z end,
  function(y) return y:masked_fill(y:gt(2), 1.0) end,
  function(y) return y:clamp({min = -1.0, max = 1.0}) end,
  function(y) return torch.cat({y, y * 2}, 1):narrow(1, 1, y:size(1)) end,
  function(y) return y:flip({-1}) end,
  function(y) return y:cumsum(-1) end,
  function(y) return y:sort(-1) end,
  function(y) return y:gather(1, torch.zeros_like(y):to(torch.int64)) end,
  function(y) return y:index_select(0, torch.tensor({0, 1, 2})) end,
  function(y) return y - y:mean(0) end,
  function(y) return y:cumsum(0) end,
  function(y) return y:sum(0, true) + y end,
  function(y) return IF(y:sum(1) > 0, function() return y * 2 end):ELSE(function() return y:exp() end) end,
  function(y) local _ = y:index_select(0, torch.tensor({1})) return y:sqrt() end,
  function(y) local _ = err.map_ok(err.new(y), y, function(z) return z * 2 end) return y:reciprocal() end,
}
local masks <const> = {
  function(y, bad) return torch.where(over_rows(bad, y), 0.0, y) end,
  function(y, bad) return y:masked_fill(over_rows(bad, y), 0.0) end,
  function(y, bad) return y:masked_fill_(over_rows(bad, y), 3.0) end,
  function(y, bad) return err.take_ok_p(push(err.new(y), err.NAN, "masked", {where = bad}), y) end,
  function(y, bad) return (fix(y, push(err.new(y), err.NAN, "masked", {where = bad}), "masked")) end,
  function(y, bad) return IF(~bad, function() return y end):ELSE(function() return torch.zeros_like(y) end) end,
}

test("D04: random chains behind a layer mask rows, or are told not to", function()
  local masked, told = 0, 0
  for seed in seeds() do
    local chain = {}
    for i = 1, random(4) do chain[i] = pick(steps) end
    local mask, shape = pick(masks), pick({{3, 4}, {3, 4}, {3, 2, 4}, {3, 2, 2, 4}})
    for _, backend in ipairs(backends) do
      torch.manual_seed(seed)
      local layer = nn.Linear(4, 4)
      local function f(x, bad)
        local y = layer(x)
        for _, step in ipairs(chain) do
          local z = step(y)
          y = torch.is_tensor(z) and z or y
        end
        return mask(y, bad)
      end
      local x, bad = torch.rand(shape) + 0.5, torch.tensor({false, true, false})
      local strict = triage.compile(f, {backend = backend, masked_rows = "require", warn = false})
      local ok, message = pcall(gradients, strict, layer, x, bad, 0.5)
      if ok then
        masked = masked + 1
        for call = 1, 2 do
          local want, got = gradients(strict, layer, x, bad, 0.5), gradients(strict, layer, x, bad, nan)
          assert(same(want, got), ("chain %d, %s, call %d: a masked row reaches gradients"):format(seed, backend, call))
        end
      else
        message = type(message) == "table" and message.message or tostring(message)
        if message:find("masked_rows is", 1, true) then
          told = told + 1
        else
          local plain = pcall(gradients, f, layer, x, bad, 0.5)
          assert(not plain, ("chain %d, %s: the script runs, but compiled: %s"):format(seed, backend, message))
        end
      end
    end
  end
  assert(masked > told / 2 and told > 0, masked .. " masked, " .. told .. " told")
end)
