-- Filters that change the number of rows: graph breaks, or with the setting nodes of the graph (row T08).
local settings = triage.config

local function with_setting(value, fn)
  local before = settings.capture_dynamic_output_shape_ops
  settings.capture_dynamic_output_shape_ops = value
  local ok, message = pcall(fn)
  settings.capture_dynamic_output_shape_ops = before
  if not ok then
    error(message, 0)
  end
end

local batches = {0, 1, 2, 31, 32, 33}
local bad_rows = {
  none = function(n) return torch.zeros({n}, {dtype = torch.bool}) end,
  some = function(n) return torch.arange(n) % 3 == 1 end,
  all = function(n) return torch.ones({n}, {dtype = torch.bool}) end,
}

local function batch(n, kind, strided)
  local z = torch.arange(n * 3, {dtype = torch.float32}):reshape({n, 3})
  z = z:masked_fill(bad_rows[kind](n):unsqueeze(-1), 0 / 0)
  if strided then return z:t():contiguous():t() end
  return z
end

local programs = {
  rows = function(z)
    local f = flag_nan(z, 1)
    return err.take_ok(f, z), err.take_err(f, z), err.get_ok(f), err.get_err(f), err.Ok(f, z), err.Err(f, z)
  end,
  parts = function(z)
    local f = flag_nan(z, 1)
    local good, bad = err.partition(f, z)
    local goods, bads = err.partition_many(f, z, z * 2)
    return good, bad, goods[1], goods[2], bads[1], bads[2]
  end,
  work_on_parts = function(z)
    local f = flag_nan(z, 1)
    local good, bad = err.partition(f, z)
    local mended = bad:nan_to_num(7.0) + 1
    local g = flag_nan_and_inf(good:log(), 2)
    return good:sum(0), (good * 2 - good:mean(-1, true)):abs(), mended, g, err.count_errors(g),
      torch.cat({good, mended}), good[{":", 1}], good[{"...", 0}], good[{":", {1, 3}}]
  end,
  beside_the_batch = function(z)   -- as many rows as the batch, or not: nothing may take the one for the other
    local f = flag_nan(z, 1)
    local good = err.take_ok(f, z)
    return z * 2 + 1, good * 2 + 1, z:nan_to_num():sum(-1), good:sum(-1)
  end,
  masks = function(z)
    local m = z > 4
    return z[m], z[m:any(-1)], z[{m:any(-1), 1}], z:nonzero(), torch.masked_select(z, m), m:any(-1):nonzero():flatten()
  end,
  assignment = function(z)
    local x, m = z:clone(), z:isnan():any(-1)
    x[m] = x[m]:nan_to_num(5.0)
    x[x > 4] = x[x > 4] * 10
    return x
  end,
}

for _, backend in ipairs{"eager", "fused"} do
  test("T08: captured filters give what the script gives, " .. backend, function()
    with_setting(true, function()
      for name, program in pairs(programs) do
        local compiled = triage.compile(program, {fullgraph = true, backend = backend})
        for _, n in ipairs(batches) do
          for kind in pairs(bad_rows) do
            local z = batch(n, kind, n % 2 == 1)
            eq({compiled(z)}, {program(z)}, ("%s: %d samples, %s bad"):format(name, n, kind))
          end
        end
        eq(tostring(compiled):match("%((.-)%)"), "1 graph", name)
      end
    end)
  end)
end

test("T08: without the setting the filters are graph breaks, which name it", function()
  eq(settings.capture_dynamic_output_shape_ops, false)
  for _, name in ipairs{"rows", "parts", "masks", "assignment"} do
    local compiled = triage.compile(programs[name], {fullgraph = true})
    fails(function() compiled(batch(4, "some")) end, "depends? on values.*capture_dynamic_output_shape_ops", true)
  end
  fails(function() triage.compile(function(z) return z:nonzero() end, {fullgraph = true})(batch(4, "some")) end,
    "capture_dynamic_output_shape_ops")
end)

test("T08: the setting is guarded: each has graphs of its own", function()
  local runs = 0
  local compiled = triage.compile(function(z)
    runs = runs + (triage.is_compiling() and 0 or 1)
    return err.take_ok(flag_nan(z, 1), z)
  end)
  local plain = triage.compile(function(z) return err.take_ok(flag_nan(z, 1), z) end)
  local z, y = batch(5, "some"), batch(7, "all")
  for _, setting in ipairs{false, true, false, true} do
    with_setting(setting, function()
      eq(plain(z), programs.rows(z))
      eq(plain(y), programs.rows(y))
    end)
  end
  eq(tostring(plain):match("%((.-)%)"), "1 graph")
  with_setting(true, function() eq(compiled(z), programs.rows(z)) end)
end)

test("T08: captured code cannot go its way by a size that depends on values", function()
  with_setting(true, function()
    local z = batch(5, "some")
    local readers = {
      function(x) local sum = x for _ = 1, #x do sum = sum + x end return sum end,
      function(x) return ({x + 1, x + 2, x + 3, x + 4, x + 5})[x.shape[1]] end,
      function(x) return table.unpack(x:split(1)) end,
      function(x) return (x:flatten():unsqueeze(0) * 1):size(1) > 3 and x * 2 or x end,
    }
    local passed_on = function(x)
      local y = err.take_ok(flag_nan(x, 1), x)
      return y * y:size(0) + #y / y:numel() - y.shape[1], torch.zeros(y:size())
    end
    local whole = triage.compile(passed_on, {fullgraph = true})   -- numbers of the graph, worked out on every run
    for _, kind in ipairs{"some", "none", "some"} do
      eq({whole(batch(5, kind))}, {passed_on(batch(5, kind))})
    end
    for i, read in ipairs(readers) do
      local function fn(x) return read(err.take_ok(flag_nan(x, 1), x)) end
      fails(function() triage.compile(fn, {fullgraph = true})(z) end, "may depend on values", "reader " .. i)
      local compiled = triage.compile(fn)
      for _, kind in ipairs{"some", "none", "some"} do
        eq({compiled(batch(5, kind))}, {fn(batch(5, kind))}, "reader " .. i)
      end
    end
    local fixed = triage.compile(function(x)
      local g = err.take_ok(flag_nan(x, 1), x)
      return g * g:size(1)
    end, {fullgraph = true})
    eq(fixed(z), programs.rows(z) * 3)
  end)
end)

test("T08: gradients go through captured filters", function()
  with_setting(true, function()
    local function loss(x) return err.take_ok(flag_nan(x, 1), x):pow(2):sum() end
    local compiled = triage.compile(loss, {fullgraph = true})
    local a, b = batch(5, "some"):requires_grad_(), batch(5, "some"):requires_grad_()
    compiled(a):backward()
    loss(b):backward()
    eq(a.grad, b.grad)
  end)
end)

test("T08: the settings of the compiler refuse what is none", function()
  fails(function() settings.capture_dynamic_output_shapes = true end, "did you mean")
  fails(function() settings.capture_dynamic_output_shape_ops = 1 end, "expected true or false")
  fails(function() return settings.nothing end, "there is no setting 'nothing'")
  local setting = triage.compile(function(x) settings.capture_dynamic_output_shape_ops = false return x + 1 end,
    {fullgraph = true})
  fails(function() setting(torch.ones({2})) end, "is set while capturing")
end)
