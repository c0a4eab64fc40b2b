-- Operators that give their argument itself, or a view of it, for some data and a copy for other data: by strides, by
-- sizes, and where there are no elements. What may be written to, what requires grad and what a write changes is as in
-- the script, whatever data a function was captured on.
local calls = {
  "contiguous()", "reshape({-1, 3})", "reshape_as(y)", "view_as(y)", "flatten()", "flatten(0, 1)", "ravel()",
  "to(torch.float32)", "to(y)", "type_as(y)", "float()", "expand({-1, 3})", "expand_as(y)", "broadcast_to({n, 3})",
  "clone()", "detach()", "nan_to_num(0)", "roll(1, 0)", "flip({0})", "tril()",
  "index_select(1, torch.tensor({0, 1, 2}))", "narrow(0, 0, n)", "squeeze()", "atleast_2d()", "movedim(0, 0)", "t()",
  "tile({1, 1})", "dropout(0.5, true)", "dropout(0.5, false)", "dropout(0, true)", "alpha_dropout(0.5, true)",
  "feature_dropout(0.5, true)", "cumsum(0)", "sort(0)", "softmax(1)", "masked_fill(y > 9, 0)", "clamp({max = 9})",
  "renorm(2, 0, 99)", "diff({n = 0})", "swapaxes(0, 0)", "gather(1, torch.zeros_like(y):to(torch.int64))",
  "resolve_conj()", "positive()", "chunk(1)[1]", "split(99)[1]", "constant_pad_nd({0, 0})",
  "unflatten(0, {-1, 1}):squeeze(1)", "rot90(0)", "moveaxis(0, 0)", "index_fill(1, torch.tensor({0}), 2)",
}

local function filled(rows) return torch.arange(rows * 3.0):reshape({rows, 3}) end
--- Data by the order of its dims, and by how many elements it has.
local data = {
  {"row-major", function() return filled(4) end}, {"transposed", function() return filled(4):t():contiguous():t() end},
  {"one row", function() return filled(1) end}, {"empty", function() return torch.zeros({0, 3}) end},
  {"of a slice", function() return torch.arange(24.0):reshape({4, 6}):narrow(1, 1, 3) end},
}

local function outcome(fn, make, requires_grad, no_grad)
  local x = make():requires_grad_(requires_grad)
  local y = make()
  torch.manual_seed(7)
  local results = table.pack(pcall(function()
    if not no_grad then return fn(x, y) end
    return torch.no_grad(function() return fn(x, y) end)
  end))
  return {results = results, x = x:detach():clone()}
end

local function check(body, requires_grad, no_grad)
  local function make() return assert(load("return function(x, y) local n = x:size(0) " .. body .. " end"))() end
  for _, captured in ipairs(data) do
    for _, backend in ipairs({"eager", "fused"}) do
      local compiled = triage.compile(make(), {backend = backend, warn = false})
      outcome(compiled, captured[2], requires_grad, no_grad)
      for _, later in ipairs(data) do
        local expected = outcome(make(), later[2], requires_grad, no_grad)
        local got = outcome(compiled, later[2], requires_grad, no_grad)
        local what = ("%s, requires_grad %s, no_grad %s, %s: captured %s, called %s"):format(body, requires_grad,
          no_grad, backend, captured[1], later[1])
        if got.results[1] ~= expected.results[1] then
          error(("%s: script %s, captured %s"):format(what, tostring(expected.results[2]), tostring(got.results[2])), 0)
        end
        eq(got.x, expected.x, what .. ": what is left in the argument")
        for i = 2, expected.results[1] and expected.results.n or 1 do
          eq(got.results[i]:detach(), expected.results[i]:detach(), what .. ": result")
          if got.results[i].requires_grad ~= expected.results[i].requires_grad then
            error(("%s: script requires_grad %s"):format(what, tostring(expected.results[i].requires_grad)), 0)
          end
        end
      end
    end
  end
end

for _, call in ipairs(calls) do
  test("a write to what gives its argument or a copy: x:" .. call, function()
    for _, requires_grad in ipairs({false, true}) do
      local body = ("local m = x:%s if type(m) == 'table' then m = m[1] end m:mul_(2) return m"):format(call)
      check(body, requires_grad, false)
    end
  end)
  test("a scope without gradients around what gives its argument or a copy: x:" .. call, function()
    for _, body in ipairs({
      "local m do local _ <close> = torch.no_grad() m = x:%s end return m",
      "local z = x * 2 local m do local _ <close> = torch.no_grad() m = z:%s end return m, z",
    }) do
      check(body:format(call), true, false)
    end
    check(("local m = x:%s return m * 2"):format(call), true, true)
  end)
end
