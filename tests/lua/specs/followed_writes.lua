-- Writes in place to what followed code gives: its tensors come later than in a script, and are no less the
-- script's own.

--- Runs `body` as a script and compiled, several times over, for several batches; both give the same.
local function same_as_script(body, ...)
  local f = triage.compile(body, ...)
  for _ = 1, 3 do
    for x in batches_of_all_orders() do
      local expected, got = table.pack(body(x)), table.pack(f(x))
      eq(got.n, expected.n)
      for i = 1, expected.n do
        eq(got[i], expected[i])
      end
    end
  end
end

local function between() triage.graph_break("between") end

test("N01: a tensor that came later grows and shrinks", function()
  local new_sizes = {
    function(x) return {2 * x:size(0) + 5, 3} end,
    function(x) return {x:size(0), 1} end,
    function() return {0} end,
    function(x) return {x:size(0), 3} end,
  }
  for _, sizes in ipairs(new_sizes) do
    same_as_script(function(x)
      local y = (x * 2):relu()
      between()
      local kept = y:numel()
      y:resize_(sizes(x))
      local now = y:numel()
      if now > kept then
        y:view({-1}):narrow(0, kept, now - kept):zero_()   -- what came with the growth is whatever was there
      end
      return y + 1, y
    end)
  end
end)

test("N01: resized where it was made, before and behind a break", function()
  same_as_script(function(x)
    between()
    local y = x + 1
    local z = y * 2
    y:resize_({x:size(0) + 2, 3}):fill_(7)
    between()
    z:resize_({x:size(0) + 1, 3}):zero_()
    return y, z, x * 2
  end)
  same_as_script(function(x)
    local y = x + 1
    between()
    local z = y * 2          -- put off, and made of what is resized
    y:resize_({x:size(0) * 3 + 1, 3}):fill_(1)
    between()
    return z, y * 3
  end)
end)

test("N01: results that are written to with out=, whatever size they had", function()
  same_as_script(function(x)
    local y, small = x * 2, torch.zeros({0})
    between()
    local target = y:sum() * 0
    torch.add(x, y, {out = small})
    torch.mul(x, y, {out = target:resize_({0})})
    between()
    return small + 1, target, y
  end)
  same_as_script(function(x)
    between()
    local y = x:sum(0) * 2
    torch.cat({x, x}, 0, {out = y:resize_({0})})
    return y, y + 1
  end)
end)

test("N01: views of what is resized look at it as in a script", function()
  same_as_script(function(x)
    local _ <close> = torch.no_grad()
    local y = x * 2
    local row = y:narrow(1, 0, 1)
    between()
    row:add_(1)
    y:resize_({x:size(0), 2})
    between()
    return y + 0, row + 0
  end)
end)

test("N01: other backends make their graphs for the sizes that came", function()
  for _, backend in ipairs({"aot_eager", "fused"}) do
    same_as_script(function(x)
      local y = x + 1
      between()
      local z = (y * 2):relu() + y
      between()
      y:resize_({x:size(0) + 3, 3}):fill_(1)
      return z * 2, y * 2
    end, {backend = backend})
  end
end)

test("N01: a followed tensor that is a gradient's business is resized too", function()
  local w = torch.ones({3}):requires_grad_(true)
  same_as_script(function(x)
    local _ <close> = torch.no_grad()
    local y = x * w
    between()
    y:resize_({x:size(0) + 1, 3}):zero_()
    return y + w
  end)
end)

test("operations on flags take tensors whose values are not there yet", function()
  local function f(x)
    local g = flag_nan_and_inf(x, "in")
    g = err.ensure_mask(g, err.count_errors(g) > 1, err.OOB, "out")
    triage.graph_break("here")
    return g
  end
  local compiled = triage.compile(f, {backend = "eager"})
  for _, rows in ipairs({3, 3, 2, 3, 31}) do
    local x = torch.ones({rows, 4})
    eq(compiled(x), f(x))
  end
end)

test("N01: what fails for some values fails where the script calls it, used or not", function()
  local after = 0
  local function lost(choose)
    return function(x, k)
      local y = x * 2
      between()
      choose(y, k)
      after = after + 1
      return y + 1
    end
  end
  for _, body in ipairs({
    lost(function(y, k) return y:index_select(0, k) end),
    lost(function(y, k) return y[k] end),
    lost(function(_, k) return k:div(k - 9, {rounding_mode = "floor"}) end),
    function(x, k)
      local y = x * 2
      between()
      local z = y[k]
      after = after + 1
      between()
      return z
    end,
  }) do
    local f = triage.compile(body)
    local x, good, bad = torch.randn({4, 3}), torch.tensor({1, 0}), torch.tensor({9, 9})
    for _ = 1, 6 do
      eq(f(x, good), body(x, good))
      local before = after
      fails(function() f(x, bad) end)
      eq(after, before)
    end
  end
end)

test("N01: normalizations write to statistics that something put off is made of", function()
  local function body(m, x)
    local before = (m.running_mean * 2 + 1) * 3
    between()
    local y = m(x)
    between()
    return before, y
  end
  local one, two = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
  local f = triage.compile(body)
  for call = 1, 8 do
    torch.manual_seed(call)
    local x = torch.randn({8, 3})
    local expected, got = table.pack(body(one, x)), table.pack(f(two, x))
    for i = 1, 2 do eq(torch.allclose(got[i], expected[i]), true, "call " .. call) end
  end
end)
