-- Guarded tensors as values of Lua, as conditions, and where they meet tensors without flags.
local nan, inf = 0 / 0, 1 / 0
local batches = {0, 1, 2, 31, 32, 33}

local z = torch.tensor({{1.0, nan}, {2.0, 3.0}, {inf, 4.0}})
local x = flag_nan_and_inf(guard(z), "in")
local rows = torch.tensor({true, false, true})
local mask = guard(rows, x.flags)
local function one(value) return guard(torch.tensor({value})) end

local function natural(text) return assert(load("--!tensor\n" .. text, "=natural.lua"))() end

--- The same call with `value` and with its data gives the same results, or errors that say the same.
local function as_its_data(value, call)
  local results, expected = table.pack(pcall(call, value)), table.pack(pcall(call, value.data))
  eq(results[1], expected[1], tostring(results[2]))
  if not results[1] then
    eq((tostring(results[2]):gsub("guarded ", "")), tostring(expected[2]))
    return
  end
  for i = 2, expected.n do
    eq(rawequal(results[i], value) and value.data or results[i], expected[i])
  end
end

test("no function of Lua reaches the parts of a guarded tensor", function()
  eq(type(x), type(z))
  for _, call in ipairs({next, pairs, rawlen, rawget, table.concat, table.unpack, table.sort}) do
    fails(function() for _ in call(x, 1) do eq(1, 1) end end)
  end
  fails(function() rawset(x, 1, z) end)
  fails(function() setmetatable(x, {}) end)
  fails(function() table.insert(x, 1) end)
  fails(function() for _ in ipairs(x) do eq(1, 1) end end, "the first index chooses samples")
  fails(function() torch.tensor(x) end)
  eq(getmetatable(x), "GuardedTensor")
  eq(({[x] = 1})[x], 1)
  eq((x + 1).flags, x.flags)
  eq(rawequal(x.flags, x.flags), true)
end)

test("data that changes its rows beside its flags is an error", function()
  local own = guard(torch.ones({3, 2}))
  own.data:t_()
  fails(function() return own * 2 end, "has flags for each of its rows")
  own.data:t_()
  eq((own * 2).flags, own.flags)
end)

test("flags that a join or a branch makes for plain data have the form of the others", function()
  local config = ErrorConfig{num_slots = 4, flag_dtype = torch.int32}
  for _, n in ipairs(batches) do
    local data = torch.where((torch.arange(n) % 3):eq(1), nan, 1.0):unsqueeze(1)
    local own = flag_nan(guard(data, {config = config}), "a", {config = config})
    local none = err.new(data, {config = config})
    eq(torch.cat({own, data}, 0).flags, torch.cat({own.flags, none}, 0))
    eq(torch.cat({data, own}, 0).flags, torch.cat({none, own.flags}, 0))
    local odd = (torch.arange(n) % 2):eq(1)
    local function choose(a, b) return IF(odd, function() return a end):ELSE(function() return b end) end
    eq(choose(own, data).flags, torch.where(odd:unsqueeze(1), own.flags, none))
    eq(choose(data, own).flags, torch.where(odd:unsqueeze(1), none, own.flags))
    local joined = triage.compile(function(y) return unguard(torch.cat({y, own}, 0)) end, {fullgraph = true})
    eq(select(2, joined(data)), torch.cat({none, own.flags}, 0))
  end
  local wide = guard(z, {config = ErrorConfig{num_slots = 8, flag_dtype = torch.int32}})
  fails(function() return torch.cat({x, wide}, 0) end, "joins flags of different dtypes")   -- both of four words
  fails(function() return IF(rows, function() return x end):ELSE(function() return wide end) end, "agree in shape")
end)

test("options beside guarded tensors: in a table of their own, and guarded as well", function()
  fails(function() return torch.cat({x, x, dim = 1}) end, "mixes options with list elements")
  fails(function() return torch.cat({x, x, dim = 1}, 0) end, "got table of 2 and {dim = 1}")
  eq(torch.cat({x, x}, {dim = 1}).flags, x.flags)
  local low = flag_inf(guard(torch.zeros({3, 2})), "low")
  eq(torch.clamp(z, {min = low}).flags, low.flags)
  eq(torch.clamp(x, {min = low}).flags, err.merge(x.flags, low.flags))
  eq(x:clamp({min = x, max = x * 2}).flags, x.flags)
  eq(torch.where(z > 0, {self = x, other = z}).flags, x.flags)
  fails(function() return torch.add(z, z, {out = guard(z:clone())}) end, "unguard(x)")
  fails(function() return torch.add(x, x, {out = z:clone()}) end, "that has not its flags")
  fails(function() return torch.clamp(z, {mn = x}) end, "did you mean 'min'")
end)

test("what moves masks or joins them keeps their flags; what asks gives plain masks", function()
  local all = torch.tensor({true, true, false})
  local kept = {mask:clone(), ~mask, mask & all, all | mask, mask:logical_not(), mask:to(torch.bool), mask[":"],
    torch.logical_and(mask, all), torch.where(all, mask, all), mask:unsqueeze(1), guard(z ~= z, x.flags), x:bool(),
    x:isnan():any(-1) & mask}
  for i, made in ipairs(kept) do
    eq(made.data.dtype, torch.bool, "value " .. i)
    eq(made.flags, x.flags, "value " .. i)
  end
  eq(mask[{{1, 3}}].flags, x.flags[{{1, 3}}])
  eq(mask[{{1, 3}}].data, rows[{{1, 3}}])
  eq(mask:flip(0).flags, x.flags:flip(0))
  eq(torch.cat({mask, mask}, 0).flags, torch.cat({x.flags, x.flags}, 0))
  for _, answer in ipairs({mask == true, mask:eq(all), mask ~= all, mask:any(), mask:all(), x > 1, x:isnan()}) do
    assert(torch.is_tensor(answer))
  end
  fails(function() return mask:flatten() end, "unguard(x)")
end)

test("a guarded mask decides as its data does", function()
  local calls = {
    function(m) if m then return 1 end return 2 end, function(m) return not m end,
    function(m) return m and 1 or 2 end, function(m) return m or 2 end, function(m) return assert(m) end,
    function(m) local n = 0; while m and n < 3 do n = n + 1 end; return n end,
    function(m) repeat local n = m until not n or n; return 3 end,
    function(m) return IF(m, function() return z end):ELSE(function() return z * 2 end) end,
    function(m) return IF(m:any(), function() return z end):ELIF(m, function() return z * 3 end)
      :ELSE(function() return z * 2 end) end,
    function(m) return NOT(m) end, function(m) return AND(m:any(), m:all()) end,
  }
  for _, value in ipairs({mask, one(true), one(false), guard(torch.tensor({}):bool()), x}) do
    for _, call in ipairs(calls) do
      as_its_data(value, call)
    end
  end
  fails(function() for _ = 1, one(3) do eq(1, 1) end end, "'for' limit")
  eq(("%d %.1f"):format(one(3), one(2.5)), "3 2.5")
end)

test("a guarded mask decides in captured code as its data does", function()
  for _, value in ipairs({true, false}) do
    local own = one(value)
    for _, condition in ipairs({own, own.data}) do
      local function choose(y) if condition then return y * 2 end return y end
      eq(triage.compile(choose, {warn = false})(z), value and z * 2 or z)
      fails(function() triage.compile(choose, {fullgraph = true})(z) end, "a condition reads the value of a tensor")
    end
  end
end)

test("a guarded mask selects in natural Lua, and `and`, `or` and `not` keep its flags", function()
  local select_rows = natural([[return function(m, a, b) local y = b; if m then y = a end; return y end]])
  local negated = natural([[return function(m, a, b) local y = b; if not m then y = a end; return y end]])
  local flags_of_all = natural([[return function(m, n) return m and n, m or n, not m end]])
  for _, n in ipairs(batches) do
    local odd = (torch.arange(n) % 2):eq(1)
    local a, b = torch.ones({n, 2}), torch.zeros({n, 2})
    local own = guard(odd)
    eq(select_rows(own, a, b), select_rows(odd, a, b))
    eq(negated(own, a, b), negated(odd, a, b))
    local captured = triage.compile(function(m, c, d) return select_rows(guard(m), c, d) end, {fullgraph = true})
    eq(captured(odd, a, b), select_rows(odd, a, b))
    for _, made in ipairs({flags_of_all(own, odd)}) do eq(made.flags, own.flags) end
  end
  fails(function() natural([[return function(m) while m do end end]])(mask) end, "a mask as the condition of `while`")
  fails(function() natural([[return function(m) return m and 1 or 2 end]])(mask) end, "does not select per sample")
end)

test("captured branches of the batch have flags all or none: a script has those of the one that it runs", function()
  local function choose(y)
    local own = flag_nan(guard(y), "a")
    local made = IF(y:isnan():any(), function() return own end):ELSE(function() return y * 2 end)
    return torch.is_tensor(made) and made or made.flags
  end
  for _, data in ipairs({z, torch.ones({3, 2})}) do
    eq(triage.compile(choose, {warn = false})(data), choose(data))
    fails(function() triage.compile(choose, {fullgraph = true})(data) end, "guarded Tensor float32[3, 2]")
  end
end)

test("layers, and functions along other dimensions than the batch, keep flags", function()
  for _, n in ipairs(batches) do
    local images = torch.arange(n * 64):to(torch.float32):reshape({n, 4, 4, 4}) / 64
    local own = flag_nan(guard(images / images), "in")
    local calls = {
      function(y) return nn.Conv2d(4, 2, 3, {padding = 1, padding_mode = "reflect"})(y) end,
      function(y) return torch.group_norm(y, 2) end,
      function(y) return torch.max_pool2d(y, {2, 2}) end, function(y) return torch.avg_pool2d(y, {2, 2}) end,
      function(y) return torch.adaptive_avg_pool2d(y, {1, 1}) end, function(y) return torch.pad(y, {1, 0, 0, 2}) end,
      function(y) return torch.prelu(y, torch.tensor({0.5})) end, function(y) return torch.glu(y, 1) end,
      function(y) return y:tril() end, function(y) return y:resolve_conj():resolve_neg() end,
      function(y) return torch.batch_norm(y, nil, nil, torch.zeros({4}), torch.ones({4}), false, 0.1, 1e-5, false) end,
      function(y) return y:sort(1) end, function(y) return y:max(-1) end, function(y) return y:topk(2, 1) end,
      function(y) return y:median(2) end, function(y) return y:norm(2, {1, 2}) end,
      function(y) return y:argsort(-1) end,
      function(y) return y:std_mean(3) end, function(y) return y:cummax(1) end,
      function(y) return y:logcumsumexp(1) end,
    }
    for i, call in ipairs(calls) do
      local fine, expected = pcall(function() torch.manual_seed(1); return {call(own.data)} end)
      if fine then   -- some take no empty batch
        torch.manual_seed(1)
        local made = {call(own)}
        eq(#made, #expected)
        for k, value in ipairs(made) do
          eq(value.data, expected[k], "call " .. i)
          eq(value.flags, own.flags, "call " .. i)
        end
      else
        assert(n == 0, tostring(expected))
      end
    end
  end
  for _, call in ipairs({
    function() return x:sort(0) end, function() return x:max(0) end, function() return x:max() end,
    function() return x:norm() end, function() return x:norm(2, {0, 1}) end, function() return x:topk(1, -2) end,
    function() return torch.pad(x, {0, 0, 1, 0}) end,
    function() return x:median() end, function() return torch.glu(guard(torch.ones({2, 2})), 0) end,
    function() return nn.MultiheadAttention(2, 1)(guard(torch.ones({3, 4, 2}))) end,
    function() return torch.batch_norm(x, nil, nil, nil, nil, true, 0.1, 1e-5, false) end,
  }) do fails(call, "unguard(x)") end
end)

test("functions of flags name the guarded argument that they do not take", function()
  for _, call in ipairs({
    function() return err.ensure_mask(x, mask, err.SATURATED, "s") end,
    function() return push(x, guard(torch.tensor({1, 1, 1})), "s") end,
    function() return flag_nan(z, "a", x) end,
    function() return err.recover_with_fallback(x, x, "s") end,
  }) do fails(call, "the guarded tensor is its first argument") end
  eq(push(x, err.SATURATED, "s", {where = mask}).flags, push(x, err.SATURATED, "s", {where = rows}).flags)
  eq(err.guard(x, function() return mask end, err.SATURATED, "s").flags,
    err.guard(x, function() return rows end, err.SATURATED, "s").flags)
  fails(function() return err.map_ok(x, function(v) return guard(v) end) end, "must return a tensor like its argument")
  eq(err.and_then(x, function(v) return flag_nan(guard(v), "s") end).flags,
    err.and_then(x, function(v) return v, flag_nan(v, "s") end).flags)
  eq(err.merge(x, flag_nan(z, "b")).flags, err.merge(x.flags, flag_nan(z, "b")))
  eq(err.merge(flag_nan(z, "b"), x), err.merge(flag_nan(z, "b"), x.flags))
end)

test("#x is a size of the graph, as that of a tensor", function()
  local f = triage.compile(function(y) return y * #guard(y) end, {fullgraph = true})
  for _, n in ipairs({5, 7, 9, 3}) do eq(f(torch.ones({n, 2})), torch.full({n, 2}, n + 0.0)) end
end)

test("another guarded tensor in the place of an upvalue takes the same graph", function()
  local own = x
  local f = triage.compile(function(y) return (own + y).flags end, {fullgraph = true, warn = false})
  for _ = 1, 3 do
    own = flag_nan_and_inf(guard(z * 1), "in")
    eq(f(z), own.flags)
    eq(tonumber(tostring(f):match("%((%d+) graph")), 1)
  end
end)

test("flags go to the device of the data", function()
  eq(tostring(torch.to(x, {device = "meta"}).flags.device), "meta")
  eq(tostring(x:to("meta").flags.device), "meta")
end)
