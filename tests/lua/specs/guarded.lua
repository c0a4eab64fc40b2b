-- guard(x): flags that ride on a tensor give what explicit flags give, bit for bit, as a script and captured.
local nan, inf = 0 / 0, 1 / 0
local batches = {0, 1, 2, 31, 32, 33}
local backends = {"eager", "aot_eager", "fused"}

--- Rows of four with steps in memory; every third has NaN, every fifth Inf.
local function rows(n)
  local z = (torch.arange(n * 8):to(torch.float32):reshape({n, 8}) - n)[{":", {0, 8, 2}}]
  local i = torch.arange(n)
  z = torch.where((i % 3):eq(1):unsqueeze(1), z * nan, z)
  return torch.where((i % 5):eq(2):unsqueeze(1), z * inf, z)
end

local function bits(x) return x:is_floating_point() and x:contiguous():view(torch.int32) or x end

local function same(a, b)
  eq(bits(a), bits(b))
end

--- The graph of `fn`, without its name and lines.
local function graph(fn)
  local text = tostring(triage.export(fn, {rows(4)}))
  return (text:gsub("graph [^%(]+", "graph"):gsub("%s*#[^\n]*", ""))
end

local w = torch.tensor({{1.0, 2.0, 0.5, -1.0}, {3.0, 4.0, -2.0, 1.0}, {0.0, 1.0, 1.0, 1.0}})
local layer = nn.Linear(4, 4)

--- The same program twice: with explicit flags, and with flags that ride on the tensor.
local pairs_of_programs = {
  {"elementwise and a layer",
    function(z)
      local f = flag_nan_and_inf(z, "in", err.new(z))
      local y = torch.relu(layer(z)) * 2 + 1
      f = flag_nan(y, "out", f)
      return fix(y, f, "fixed")
    end,
    function(z)
      local x = flag_nan_and_inf(guard(z), "in")
      local y = torch.relu(layer(x)) * 2 + 1
      return unguard(fix(flag_nan(y, "out"), "fixed"))
    end},
  {"two that meet",
    function(z)
      local f, g = flag_nan(z, "a", err.new(z)), flag_inf(z, "b", err.new(z))
      return z + z * 2, err.merge(f, g)
    end,
    function(z)
      local x, y = flag_nan(guard(z), "a"), flag_inf(guard(z), "b")
      return unguard(x + y * 2)
    end},
  {"slices of samples and of features",
    function(z)
      local f = flag_nan_and_inf(z, "in", err.new(z))
      z, f = z[{{1, torch.None}}], f[{{1, torch.None}}]
      return z[{":", {0, 2}}], f
    end,
    function(z)
      local x = flag_nan_and_inf(guard(z), "in")
      return unguard(x[{{1, torch.None}}][{":", {0, 2}}])
    end},
  {"joined",
    function(z)
      local f, g = flag_nan(z, "a", err.new(z)), flag_inf(z, "b", err.new(z))
      return torch.cat({z, z}, 0), torch.cat({f, g}, 0)
    end,
    function(z)
      return unguard(torch.cat({flag_nan(guard(z), "a"), flag_inf(guard(z), "b")}, 0))
    end},
  {"a branch",
    function(z)
      local f = flag_nan_and_inf(z, "in", err.new(z))
      return IF(err.has_nan(f), function() return torch.zeros_like(z) end):ELSE(function() return z:tanh() end), f
    end,
    function(z)
      local x = flag_nan_and_inf(guard(z), "in")
      return unguard(IF(err.has_nan(x), function() return guard(torch.zeros_like(x), x.flags) end)
        :ELSE(function() return x:tanh() end))
    end},
  {"products, sums and softmax",
    function(z)
      local f = flag_nan_and_inf(z, "in", err.new(z))
      local y = torch.softmax(z:matmul(w:t()), -1)
      f = flag_nan(y, "p", f)
      return torch.where(y:isnan(), 0.0, y):sum(-1), f
    end,
    function(z)
      local x = flag_nan_and_inf(guard(z), "in")
      local y = flag_nan(torch.softmax(x:matmul(w:t()), -1), "p")
      return unguard(torch.where(y:isnan(), 0.0, y):sum(-1))
    end},
}

test("guarded tensors give the graph of explicit flags, and its bits in every backend and batch", function()
  for _, program in ipairs(pairs_of_programs) do
    local name, explicit, riding = table.unpack(program)
    assert(graph(explicit) == graph(riding), name .. ":\n" .. graph(explicit) .. graph(riding))
    for _, backend in ipairs(backends) do
      local options = {fullgraph = true, backend = backend}
      local ways = {{explicit, riding}, {triage.compile(explicit, options), triage.compile(riding, options)}}
      for _, n in ipairs(batches) do
        local z = rows(n)
        for _, way in ipairs(ways) do   -- a loop's tanh is not ATen's to the last bit
          local y, f = way[1](z)
          local own, flags_of_own = way[2](z)
          same(y, own)
          same(f, flags_of_own)
        end
      end
    end
  end
end)

-- Random programs: values with their flags beside them, and the same guarded.

local random, pick, seeds = random_programs(40, 49979687)

local steps = {
  function(z) return z * 2 + 1 end,
  function(z) return -z:relu() end,
  function(z) return 1 - z end,
  function(z) return z:softmax(-1) end,
  function(z) return z:flip(1) end,
  function(z) return z:double():float() end,
  function(z) return z:reshape(z:size(0), 2, 2):flatten(1) end,
  function(z) return z:view(z:size(0), 2, 2):transpose(1, 2):reshape(z:size(0), 4) end,
  function(z) return z:unsqueeze(1):squeeze(1) end,
  function(z) return layer(z) end,
  function(z) return torch.where(z > 0, z, z * 0.5) end,
  function(z) return z - z:mean(-1, true) end,
  function(z) return torch.cat({z[{":", {2, 4}}], z[{":", {0, 2}}]}, 1) end,
  function(z) return z:clamp({min = z * 0.5 - 1}) end,
  function(z) return (z:sort(1)) end,
  function(z) return z + z:max(-1, true) end,
  function(z) return torch.pad(z, {0, 1})[{":", {1, 5}}] end,
}
local row_steps = {
  function(z) return z[{{0, torch.None, 2}}] end,
  function(z) return z:flip(0) end,
  function(z) return z:roll(1, 0) end,
  function(z) return z:index_select(0, torch.arange(z:size(0) // 2)) end,
}

--- Steps of a program, drawn once: each takes a value and gives a value.
local function draw()
  local program = {}
  for _ = 1, 3 + random(6) do
    local kind = random(8)
    if kind <= 4 then
      program[#program + 1] = {"map", pick(steps)}
    elseif kind == 5 then
      program[#program + 1] = {"rows", pick(row_steps)}
    elseif kind == 6 then
      program[#program + 1] = {"flag", pick({flag_nan, flag_inf, flag_nan_and_inf}), pick({"a", "b", "c"})}
    elseif kind == 7 then
      program[#program + 1] = {"join", pick(steps)}
    else
      program[#program + 1] = {"fix", pick({"a", "b"})}
    end
  end
  return program
end

local function explicit_run(program, z)
  local f = err.new(z)
  for _, step in ipairs(program) do
    local kind, what, location = step[1], step[2], step[3]
    if kind == "map" then
      z = what(z)
    elseif kind == "rows" then
      z, f = what(z), what(f)
    elseif kind == "flag" then
      f = what(z, location, f)
    elseif kind == "join" then
      z = z + what(z)
      f = err.merge(f, flag_inf(z, "joined", f))
      z, f = torch.cat({z, z * 3}, 0), torch.cat({f, f}, 0)
    else
      z, f = fix(z, f, what)
    end
  end
  return z, f
end

local function riding_run(program, z)
  local x = guard(z)
  for _, step in ipairs(program) do
    local kind, what, location = step[1], step[2], step[3]
    if kind == "map" or kind == "rows" then
      x = what(x)
    elseif kind == "flag" then
      x = what(x, location)
    elseif kind == "join" then
      local y = x + what(x)
      y = err.merge(guard(y.data, x.flags), flag_inf(y, "joined"))
      x = torch.cat({y, y * 3}, 0)
    else
      x = fix(x, what)
    end
  end
  return unguard(x)
end

test("random programs: guarded tensors equal explicit flags, as scripts and captured", function()
  for seed in seeds() do
    local program = draw()
    local function explicit(z) return explicit_run(program, z) end
    local function riding(z) return riding_run(program, z) end
    local ways = {{explicit, riding}}
    for _, backend in ipairs({"eager", "fused"}) do
      ways[#ways + 1] = {triage.compile(explicit, {backend = backend}), triage.compile(riding, {backend = backend})}
    end
    for _, n in ipairs({pick(batches), pick(batches), 7}) do
      local z = rows(n)
      for _, run in ipairs(ways) do
        local y, f = run[1](z)
        local fine, own, flags_of_own = pcall(run[2], z)
        assert(fine, ("seed %d, batch %d: %s"):format(seed, n, tostring(own)))
        eq(own, y)   -- a loop's NaN may have another sign
        eq(flags_of_own, f)
      end
    end
  end
end)

-- What follows, what does not

local z = torch.tensor({{1.0, nan}, {2.0, 3.0}, {inf, 4.0}})
local x = flag_nan_and_inf(guard(z), "in")

test("an operator whose rows are not known to be the samples is an error that names unguard", function()
  local calls = {
    function() return x:sum() end, function() return x:sum(0) end, function() return x:t() end,
    function() return x.T end, function() return x:sort(0) end, function() return torch.mm(z:t(), x) end,
    function() return x:view(2, 3) end, function() return x:flatten() end, function() return x:unsqueeze(0) end,
    function() return torch.stack({x, x}) end, function() return x:softmax(0) end,
    function() return x + z[0] + x[{{0, 1}}] end,
    function() return x:cumsum(0) end, function() return x:permute({1, 0}) end, function() return x:flip({0, 1}) end,
    function() return z[{{0, 1}}] + x[{{0, 1}}] + z end, function() return x:roll(1) end,
    function() return x:chunk(2, 0) end,
  }
  for _, call in ipairs(calls) do fails(call, "unguard(x)") end
  fails(function() return x[0] end, "the first index chooses samples")
  fails(function() return x[{torch.tensor({0, 1}), torch.tensor({0, 1})}] end, "no other index is a tensor")
  fails(function() return x[x > 1] end, "the first index chooses samples")
end)

test("samples that are chosen keep their flags", function()
  eq(x[{{1, 3}}].flags, x.flags[{{1, 3}}])
  eq(x[torch.tensor({true, false, true})].flags, x.flags[torch.tensor({true, false, true})])
  eq(x[{torch.tensor({2, 0}), ":"}].flags, x.flags:index_select(0, torch.tensor({2, 0})))
  eq(x[{":", 1}].flags, x.flags)
  eq(x:flip(0).flags, x.flags:flip(0))
  eq(err.take_ok(x).data, torch.tensor({{2.0, 3.0}}))
  eq(torch.cat({x, z}, 0).flags, torch.cat({x.flags, err.new(z)}, 0))
  eq(x:chunk(2, 1)[1].flags, x.flags)
end)

test("writes: into the data with its own flags, never of another's bad samples", function()
  local y = guard(z:clone(), x.flags)
  y[y:isnan()] = 0
  eq(y.data:isnan():any():item(), false)
  eq(y.flags, x.flags)
  eq((y:mul_(2)).flags, x.flags)
  for _, name in ipairs({"cumsum_", "t_", "transpose_", "squeeze_"}) do
    local before = y.data:clone()
    local arguments = name == "cumsum_" and {0} or name == "transpose_" and {0, 1} or {}
    fails(function() y[name](y, table.unpack(arguments)) end, "unguard(x)")
    eq(y.data, before)   -- refused before anything was written
  end
  fails(function() z:clone():add_(x) end, "use the form that returns its result")
  fails(function() y[{{0, 3}}] = x end, "use torch.where(mask, y, x)")
  fails(function() y.flags = err.new(z) end, "make another: guard(x.data, f)")
end)

test("conversions keep flags; answers are plain tensors", function()
  eq(x:double().flags, x.flags)
  eq(x:to(torch.float16).dtype, torch.float16)
  for _, answer in ipairs({x > 1, 1 < x, x:isnan(), x:isnan():any(-1), err.is_ok(x), torch.zeros_like(x)}) do
    assert(torch.is_tensor(answer))
  end
  eq(#x, 3)
  eq(x:size(1), 2)
  eq(tostring(x):match("ErrorFlags.*"), flags.repr(x))
end)

test("functions of flags take the tensor in their place", function()
  eq(err.has_nan(x), torch.tensor({true, false, false}))
  eq(find(err.INF, x), torch.tensor({false, false, true}))
  eq(has_err(x), true)
  eq(err.merge(x.flags, flag_nan(x, "b")), err.merge(x.flags, flag_nan(z, "b", x.flags)))
  eq(err.push(x, err.SATURATED, "s").flags, err.push(x.flags, err.SATURATED, "s"))
  eq(err.guard(x, function(data) return data:sum(-1) < 4 end, err.SATURATED, "s").flags,
    err.guard(x.flags, z, function(data) return data:sum(-1) < 4 end, err.SATURATED, "s"))
  eq(err.take_ok_p(x, 7).data, err.take_ok_p(x.flags, z, 7))
  local config = ErrorConfig{num_slots = 4, flag_dtype = torch.int32}
  eq(flag_nan(guard(z, {config = config}), "a", {config = config}).flags, flag_nan(z, "a", {config = config}))
  eq(flag_oob_indices(guard(torch.tensor({{0}, {5}})), 5, "e").flags,
    flag_oob_indices(torch.tensor({{0}, {5}}), 5, "e"))
  local repaired = fix(x, "r", {fallback = 1})
  local data, f = fix(z, x.flags, "r", {fallback = 1})
  eq(repaired.data, data)
  eq(repaired.flags, f)
  eq(err.replace(x, 0, {err.NAN}).data, err.replace(z, 0, {err.NAN}))
  eq(err.replace(x, 0, {err.NAN}).flags, x.flags)
  local ok, bad = err.partition(x)
  eq(ok.data, err.take_ok(x.flags, z))
  eq(bad.flags, err.get_err(x.flags))
  local stepped = err.and_then(x, function(v) return v * 2, flag_nan(v, "step") end)
  local step, f2 = err.and_then(x.flags, z, function(v) return v * 2, flag_nan(v, "step") end)
  eq(stepped.data:nan_to_num(), step:nan_to_num())
  eq(stepped.flags, f2)
  local back, own = unguard(x)
  eq(own, x.flags)
  assert(rawequal(back, x.data))
end)

test("wrong arguments say what to do", function()
  assert(rawequal(guard(x), x))
  fails(function() guard(x, x.flags) end, "is guarded already")
  fails(function() guard(z, x) end, "is guarded already")
  fails(function() guard(3) end, "guard: expected a tensor as `x`, got int 3")
  fails(function() guard(z, err.new_t(2)) end, "samples")
  fails(function() guard(torch.tensor(1.0)) end)
  fails(function() unguard(z) end, "unguard: expected a guarded tensor")
  fails(function() flag_nan(x, "a", x.flags) end, "adds to its own flags")
  fails(function() fix(x, x.flags, "a") end, "its flags are its own")
  fails(function() find(x) end)
  fails(function() err.partition_many(x, z) end, "write x.flags")
  fails(function() err.take_ok_p(x.flags, x) end, "is its first argument")
  fails(function() triage.export(function(y) return guard(y) end, {z}) end, "returned guarded Tensor")
end)

test("graphs hold for guarded tensors from outside as they are, and for calls without any", function()
  local own = flag_nan(guard(z), "a")
  local f = triage.compile(function(y) return unguard(own + y) end, {fullgraph = true})
  local _, first = f(z)
  eq(first, own.flags)
  own = flag_inf(own, "b")
  local _, second = f(z)
  eq(second, own.flags)
  local g = triage.compile(function(y) return y + 1 end, {warn = false})
  eq(g(z), z + 1)
  eq(g(x).flags, x.flags)   -- as a script: graphs take tensors
  eq(g(z), z + 1)
  local strict = triage.compile(function(y) return y + 1 end, {fullgraph = true})
  fails(function() strict(x) end, "argument 1")
  local pair = triage.compile(function(a, b) return unguard(guard(a) + b) end, {fullgraph = true})
  pair(torch.ones({1, 2}), torch.ones({1, 2}))
  fails(function() pair(torch.ones({1, 2}), torch.ones({3, 2})) end, "unguard(x)")
end)

test("dimensions counted from the end move the same rows of the flags", function()
  local data = torch.tensor({1.0, nan, 3.0, 4.0})
  for _, own in ipairs({flag_nan(guard(data), "a"), flag_nan(guard(data:reshape({4, 1, 1})), "a")}) do
    local dim = -own.data:dim()
    local function bad(y) return table.concat(err.is_err(y):to(torch.int64):totable(), " ") end
    eq(bad(own:flip(dim)), "0 0 1 0")
    eq(bad(own:roll(1, dim)), "0 0 1 0")
    eq(bad(own:narrow(dim, 1, 2)), "1 0")
    eq(bad(own:index_select(dim, torch.tensor({3, 1}))), "0 1")
  end
end)

test("thousands of arguments of a method are an error", function()
  local many = {}
  for i = 1, 20000 do many[i] = i end
  eq((pcall(function() return guard(torch.ones({2, 2})):size(table.unpack(many)) end)), false)
end)
