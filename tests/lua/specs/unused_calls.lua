-- Calls whose results nobody uses are left out of graphs, and yet a captured function fails where the script does: at
-- once, or in a pcall that goes another way.

local function outcome(f, ...)
  local results = table.pack(pcall(f, ...))
  return results[1], results[1] and results[2] or nil
end

local shapes = {{4, 3}, {3, 3}, {1, 3}, {2, 3}, {0, 3}, {31, 3}, {32, 3}, {33, 3}, {4, 5}}

local function agree(source, backend, second)
  local f = assert(load("return " .. source))()
  local compiled = triage.compile(f, {backend = backend})
  for round = 1, 2 do
    for _, shape in ipairs(shapes) do
      local x = torch.arange(shape[1] * shape[2], {dtype = torch.float32}):view(shape)
      local y = second and second(x) or torch.ones({4, 3})
      local ok, result = outcome(f, x, y)
      local same_ok, same = outcome(compiled, x, y)
      eq(same_ok, ok, ("%s, %s, round %d, %d rows"):format(source, backend, round, shape[1]))
      if ok then eq(same, result, source) end
    end
  end
end

local unused = {"x - y", "x[3]", "x:view({4, -1})", "torch.mm(x, y:t())", "torch.cat({x, y}, 1)", "x:narrow(0, 0, 3)",
  "torch.gather(x, 0, torch.full({1, 3}, 2, {dtype = torch.int64}))", "x:max()", "x:unflatten(0, {2, 2})",
  "torch.linear(x, y)", "x:kthvalue(3, 0)", "x[torch.tensor({2})]", "(x * 2)[2] + 1", "x:expand({4, 3})",
  "x:to(torch.int64) // (x:to(torch.int64) - 2)", "x + 1", "x:sum()", "x:softmax(-1):mean(0)"}

test("a captured function fails where the script does, though nobody uses the call", function()
  for _, call in ipairs(unused) do
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      agree(("function(x, y) local u = %s return x * 2 end"):format(call), backend)
    end
  end
end)

test("a pcall goes the way of the script on every size and value", function()
  for _, call in ipairs(unused) do
    for _, backend in ipairs({"eager", "fused"}) do
      agree(("function(x, y) local ok = pcall(function() local u = %s end) " ..
        "if ok then return x * 2 end return x * 3 end"):format(call), backend)
    end
  end
end)

test("a value that a call checks is checked in every run", function()
  local f = triage.compile(function(x) local ok = pcall(torch.linalg_cholesky, x) return ok and x * 2 or x * 3 end)
  local good, bad = torch.eye(3), -torch.eye(3)
  for _ = 1, 2 do
    eq(f(good), good * 2)
    eq(f(bad), bad * 3)
  end
end)

test("calls that cannot fail are left out, and cost no graph for each size", function()
  local f = triage.compile(function(x, y)
    local _ = x + y
    _ = (x - x:mean(0)):exp()
    _ = x:sum(-1)
    return x * 2
  end)
  local ones = function(n) return torch.ones({n, 3}) end
  for _, n in ipairs({4, 3, 2, 31, 32, 33}) do f(ones(n), ones(n)) end
  eq(f:cache().graphs, 1)
end)
