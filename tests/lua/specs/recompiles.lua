-- When a compiled function is captured again, why, and how that is limited.
local z = torch.tensor({{-1.0, 2.0}, {3.0, -4.0}})

--- The graphs of a compiled function, by its name in print.
local function graphs(f) return tonumber(tostring(f):match("%((%d+) graph")) end

local function with_config(settings, fn)
  local before = {}
  for name, value in pairs(settings) do
    before[name] = triage.config[name]
    triage.config[name] = value
  end
  local ok, message = pcall(fn)
  for name, value in pairs(before) do
    triage.config[name] = value
  end
  if not ok then
    error(message, 0)
  end
end

local function with_stance(name, fn)
  triage.set_stance(name)
  local ok, message = pcall(fn)
  triage.set_stance("default")
  if not ok then
    error(message, 0)
  end
end

test("D17: beyond the limit the script runs, and graphs that fit are still used", function()
  with_config({recompile_limit = 2}, function()
    local f = triage.compile(function(x) return x:reshape({x:numel()}) * 2 end)
    for columns = 1, 6 do
      local x = torch.randn({2, columns})
      eq(f(x), x:reshape({-1}) * 2)
    end
    if graphs(f) > 2 then
      error("there are " .. graphs(f) .. " graphs")
    end
  end)
  with_config({accumulated_recompile_limit = 3}, function()
    local f = triage.compile(function(x, n) return x * n end)
    for n = 1, 9 do
      eq(f(z, n), z * n)
    end
    eq(graphs(f), 3)
  end)
end)

test("D17: with fail_on_recompile_limit_hit the limit is an error", function()
  with_config({accumulated_recompile_limit = 2, fail_on_recompile_limit_hit = true}, function()
    local f = triage.compile(function(x, n) return x * n end)
    eq(f(z, 1), z)
    eq(f(z, 2), z * 2)
    fails(function() f(z, 3) end, "reached the limit of 2 captured graphs")
    eq(f(z, 2), z * 2)
  end)
end)

test("D17: a plain argument that changes on every call meets the limit in all, and the graphs stay", function()
  with_config({accumulated_recompile_limit = 5}, function()
    local f = triage.compile(function(x, key) return x * #key end)
    for i = 1, 300 do
      eq(f(z, "k" .. i), z * #("k" .. i))
    end
    eq(graphs(f), 5)
    with_stance("fail_on_recompile", function()
      for i = 1, 5 do
        eq(f(z, "k" .. i), z * 2)
      end
      fails(function() f(z, "k6") end, "fail_on_recompile")
    end)
    triage.config.accumulated_recompile_limit = 6
    eq(f(z, "k300"), z * 4)
    eq(graphs(f), 6)

    local factor = 0
    local g = triage.compile(function(x) return x * factor end)
    for i = 1, 300 do
      factor = i
      eq(g(z), z * i)
    end
    eq(graphs(g), 6)
  end)
end)

test("D17: graphs of many worlds are all kept, up to the limit", function()
  local f = triage.compile(function(x, n) return x * n end)
  for n = 1, 150 do
    f(z, n)
  end
  eq(graphs(f), 150)
  with_stance("fail_on_recompile", function()
    for n = 1, 150 do
      eq(f(z, n), z * n)
    end
  end)
end)

test("worlds that come to no graph are not kept for ever", function()
  local f = triage.compile(function(x, n) return x * n end)
  with_stance("eager_on_recompile", function()
    for n = 1, 5000 do
      f(z, n)
    end
  end)
  if f:cache().bytes > 10000 then   -- of the keys of worlds
    error(f:cache().bytes .. " bytes")
  end
  eq(f(z, 7), z * 7)
  eq(graphs(f), 1)
end)

test("D17: a change of rank is another graph, always", function()
  local f = triage.compile(function(x) return x * 2 end)
  f(z)
  f(z[0])
  eq(graphs(f), 2)
end)

test("N01: stances", function()
  local runs = 0
  local function work(x)
    if not triage.is_compiling() then
      runs = runs + 1
    end
    return x * 2
  end
  local f = triage.compile(work)
  with_stance("force_eager", function()
    eq(f(z), z * 2)
    eq(f(z), z * 2)
    eq(runs, 2)
    eq(graphs(f), 0)
  end)
  with_stance("eager_on_recompile", function()
    eq(f(z), z * 2)
    eq(graphs(f), 0)
  end)
  with_stance("fail_on_recompile", function()
    fails(function() f(z) end, "fail_on_recompile")
  end)
  local g = triage.compile(function(x) return x + 1 end)
  with_stance("eager_then_compile", function()
    eq(g(z), z + 1)
    eq(graphs(g), 0)
    eq(g(z), z + 1)
    eq(graphs(g), 1)
  end)
  with_stance("fail_on_recompile", function()
    eq(g(z), z + 1)
    fails(function() g(z[0]) end, "rank")
  end)
  eq(triage.get_stance(), "default")
  fails(function() triage.set_stance("fast") end, "there are default, force_eager")
  fails(function() triage.compile(function(x) triage.set_stance("default") return x end)(z) end, "captured code cannot")
end)

test("N01: reset forgets every graph", function()
  local f = triage.compile(function(x) return x * 2 end)
  f(z)
  eq(graphs(f), 1)
  triage.reset()
  eq(f(z), z * 2)
  eq(graphs(f), 1)
  local g = triage.compile(function(x) triage.graph_break() return x + 1 end)
  g(z)
  triage.reset()
  eq(g(z), z + 1)
  eq(g(z), z + 1)
end)

test("N01: reset forgets marks, counts, warnings and compile times too", function()
  local marked = torch.ones({2, 3})
  triage.mark_dynamic(marked, 0)
  local function by_rows(x)
    if x:size(0) == 2 then
      return x * 2
    end
    return x
  end
  fails(function() triage.compile(by_rows)(marked) end, "is marked dynamic")
  triage.reset()
  eq(triage.compile(by_rows)(marked), marked * 2)

  local f = triage.compile(function(x, n) return x * n end)
  for n = 1, 5 do f(z, n) end
  eq(graphs(f), 5)
  eq(#triage.compile_times() > 0, true)
  triage.reset()
  eq(#triage.compile_times(), 0)
  f(z, 1)
  eq(graphs(f), 1)
  eq(triage.compile_times()[1].count, 1)

  with_config({recompile_limit = 1}, function()
    local g = triage.compile(function(x) return x + 1 end, {warn = false})
    g(z)
    g(z[0])
    triage.reset()
    eq(g(z[0]), z[0] + 1)   -- the limit counts from 0: the graph is for this kind of input now
    with_stance("fail_on_recompile", function()
      eq(g(z[0]), z[0] + 1)
      fails(function() g(z) end, "rank")
    end)
  end)
end)

test("settings of capture are named, typed and guarded", function()
  fails(function() triage.config.recompile_limits = 3 end, "there is no setting 'recompile_limits'")
  fails(function() triage.config.replay_record_enabled = true end, "did you mean 'replay_dir' or 'replay_mask'?")
  fails(function() triage.config.recompile_limit = 0 end, "an integer of at least 1")
  fails(function() triage.config.fail_on_recompile_limit_hit = 1 end, "expected true or false")
  fails(function() triage.set_logs({everything = true}) end, "there is no log 'everything'")
  eq(triage.config.recompile_limit, 8)
end)

test("D19, N01: mark_static holds a size fast, mark_dynamic refuses graphs that do", function()
  local f = triage.compile(function(x) return x * 2 end)
  local a, b = torch.ones({2, 3}), torch.ones({4, 3})
  triage.mark_static(a, 0)
  triage.mark_static(b, 0)
  eq(f(a), a * 2)
  eq(f(b), b * 2)
  eq(graphs(f), 2)
  local g = triage.compile(function(x) return x * 2 end)
  triage.mark_dynamic(a, 0, {min = 1, max = 16})
  eq(g(a), a * 2)
  eq(g(torch.ones({9, 3})), torch.ones({9, 3}) * 2)
  eq(graphs(g), 1)
  eq(g(torch.ones({17, 3})), torch.ones({17, 3}) * 2)
  eq(graphs(g), 2)
  local looping = triage.compile(function(x)
    local sum = torch.zeros({3})
    for i = 1, x:size(0) do
      sum = sum + x[i - 1]
    end
    return sum
  end)
  fails(function() looping(a) end, "is marked dynamic")
  eq(looping(torch.ones({2, 3})), torch.ones({3}) * 2)
  fails(function() triage.mark_dynamic(a, 0, {min = 5}) end, "the size is 2")
  fails(function() triage.mark_static(a, 7) end, "no dimension 7")
end)

test("N01: a compiled function is captured once for all places that call it", function()
  local scale = torch.ones({2})
  local layer = triage.compile(function(x, w) return (x * w):relu() end, {fullgraph = true})
  local function model(x)
    for _ = 1, 3 do
      x = layer(x, scale)
    end
    return layer(x + 1, scale)
  end
  eq(model(z), z:relu() + 1)
  eq(graphs(layer), 1)
  with_stance("fail_on_recompile", function() eq(model(z * 2), (z * 2):relu() + 1) end)
end)

test("N01: inside of captured code a compiled function is a part of the graph there, at each place", function()
  local layer = triage.compile(function(x) return (x * 2):relu() end)
  local function model(x) return layer(layer(x) + 1) end
  local report = triage.explain(model, z)
  eq({report.graph_count, report.graph_break_count, report.op_count}, {1, 0, 5})
  eq(graphs(layer), 0)
  eq(model(z), ((z * 2):relu() + 1) * 2)
  eq(graphs(layer), 1)
  local whole = triage.compile(model)
  eq(whole(z), model(z))
  eq(graphs(layer), 1)
  local parts = triage.compile(triage.disable(model, {recursive = false}))   -- runs as a script, its layers as graphs
  with_stance("fail_on_recompile", function() eq(triage.disable(model, {recursive = false})(z), model(z)) end)
  eq(parts(z), model(z))
  eq(graphs(layer), 1)
end)

test("tensors from outside may be others in every call: one graph serves them all", function()
  for _, backend in ipairs({"eager", "fused", "aot_eager"}) do
    local w, model = torch.ones({2, 2}), {bias = torch.zeros({2})}
    local f = triage.compile(function(x) return x * w + model.bias, w end, {fullgraph = true, backend = backend})
    for i = 1, 20 do
      w = torch.ones({2, 2}) * i
      model.bias = torch.ones({2}) / i
      local y, same = f(z)
      eq(y, z * i + 1 / i)
      eq(same, w)
      same:add_(1)  -- it is the variable itself
      eq(w, torch.ones({2, 2}) * i + 1)
    end
    eq(graphs(f), 1)
    w = torch.ones({2, 2}, {dtype = torch.float64})
    eq(f(z).dtype, torch.float64)
    w = torch.ones({2})
    eq(f(z), z + model.bias)
    w = torch.ones({2}):requires_grad_(true)
    eq(f(z).requires_grad, true)
    eq(graphs(f), 4)
  end
end)

test("gradients go to the tensors from outside that the call has", function()
  for _, backend in ipairs({"eager", "fused", "aot_eager"}) do
    local w
    local f = triage.compile(function(x) return (x * w):sum() end, {fullgraph = true, backend = backend})
    local all = {}
    for i = 1, 4 do
      w = torch.ones({2, 2}):mul(i):requires_grad_(true)
      all[i] = w
      f(z * i):backward()
    end
    for i, each in ipairs(all) do
      eq(each.grad, z * i)
    end
    eq(graphs(f), 1)
  end
end)

test("which of the tensors from outside are one is held fast", function()
  local a, b = torch.tensor({1.0}), torch.tensor({10.0})
  local t, u = a, a
  local fn = function(x) return x + t * 2 + u, rawequal(t, u) and t or u end
  local f = triage.compile(fn)
  for _, pair in ipairs({{a, a}, {a, b}, {b, a}, {b, b}, {a, b}}) do
    t, u = pair[1], pair[2]
    for _, x in ipairs({z, a, b}) do
      eq(table.pack(f(x)), table.pack(fn(x)))
    end
  end
  t, u = a, a:view({1})  -- two tensors that share their memory
  eq(table.pack(f(z)), table.pack(fn(z)))
  u:add_(5)
  eq(table.pack(f(z)), table.pack(fn(z)))
end)

test("graphs of tables that are gone are dropped", function()
  local t = {scale = 1}
  local f = triage.compile(function(x) return x * t.scale end)
  for i = 1, 100 do
    t = {scale = i}
    eq(f(z), z * i)
    collectgarbage()
  end
  if graphs(f) > 20 then
    error("there are " .. graphs(f) .. " graphs")
  end
  with_config({accumulated_recompile_limit = 30}, function()  -- they count no more
    for i = 1, 60 do
      t = {scale = i}
      eq(f(z), z * i)
      collectgarbage()
    end
    local before = graphs(f)
    t = {scale = 0.5}
    eq(f(z), z / 2)
    if graphs(f) < 1 or before > 30 then
      error("there were " .. before .. " graphs, there are " .. graphs(f))
    end
  end)
  local kept = {}
  for i = 1, 40 do
    kept[i] = {scale = i}
    t = kept[i]
    eq(f(z), z * i)
  end
  t = nil
  collectgarbage()
  for i = 1, 40 do  -- those that are kept still serve
    t = kept[i]
    eq(f(z), z * i)
  end
  if graphs(f) < 40 then
    error("there are " .. graphs(f) .. " graphs")
  end
end)

local function expect_slots(fn, x, slots)
  local y, flags = fn(x)
  eq(y, x * 2)
  eq(flags:size(-1), slots // 4)
  eq(flags, flag_nan(x, "spot"))
end

test("D17, T25: a flags configuration that comes again finds the graph that was made for it", function()
  local function doubled(x) return x * 2, flag_nan(x, "spot") end
  local function broken(x)
    local y = x * 2
    triage.graph_break("between")
    return y, flag_nan(x, "spot")
  end
  local x = torch.tensor({{1., 0 / 0}, {2., 3.}})
  local whole, parts = triage.compile(doubled), triage.compile(broken)
  for _ = 1, 100 do
    for _, f in ipairs({whole, parts}) do
      expect_slots(f, x, 16)
      do
        local _ <close> = set_config(ErrorConfig{num_slots = 32})
        expect_slots(f, x, 32)
      end
      do
        local saved = get_config()
        CONFIG.num_slots = 64
        CONFIG.num_slots = 16   -- taken back
        eq(saved, get_config())
      end
    end
  end
  eq({whole:cache().graphs, whole:cache().retired}, {2, 0})
  eq({parts:cache().graphs, parts:cache().segments}, {0, 4})
end)

test("N01: a setting within followed code asks for no more than the code uses", function()
  local config, made = ErrorConfig{num_slots = 32}, {}
  local function body(x)
    local a = x + 1
    local b = (a * 2):relu() - a
    local _ <close> = set_config(config)
    local flags = flag_nan(b, "spot")
    return b:abs(), flags
  end
  local f = triage.compile(body, {backend = function(graph)
    made[#made + 1] = #graph.outputs
    return graph
  end})
  for rows = 1, 4 do
    local y, flags = f(torch.ones({rows, 3}))
    local expected, expected_flags = body(torch.ones({rows, 3}))
    eq({y, flags, flags:size(-1)}, {expected, expected_flags, 8})
    eq(get_config().num_slots, 16)
  end
  eq(made, {1, 2})
end)

test("a function that is followed in all worlds is in none of them one graph, whatever the settings become", function()
  local x, k = torch.ones({2}), 0
  local f = triage.compile(function(v) return v * v:sum():item() * k end)
  for i = 1, 6 do
    k = i
    eq(f(x), x * 2 * i)
  end
  with_config({capture_scalar_outputs = true}, function()
    for i = 1, 6 do
      k = i
      eq(f(x), x * 2 * i)
    end
  end)
end)

test("a function that can read more than guards take is followed, not captured anew for every write", function()
  local many, written = {}, 0
  for i = 1, 30000 do
    many[i] = i
  end
  local f = triage.compile(function(x) return (x * 2):relu() + many[#many] end)
  for i = 1, 50 do
    many[30000] = i
    written = written + 1   -- none of its business, as far as one can tell
    eq(f(z), (z * 2):relu() + i)
  end
  eq(written, 50)
  if f:cache().graphs > 3 then
    error("there are " .. f:cache().graphs .. " graphs")
  end
end)

test("N01: configurations without end, each used once, do not make what is followed grow without end", function()
  local f = triage.compile(function(x)
    local y = x * 2
    triage.graph_break("between")
    return y + 1, flag_nan(y, "spot")
  end)
  local x = torch.tensor({{1., 0 / 0}, {2., 3.}})
  for slots = 1, 200 do
    local _ <close> = set_config(ErrorConfig{num_slots = slots})
    local y, flags = f(x)
    eq({y, flags}, {x * 2 + 1, flag_nan(x * 2, "spot")})
  end
  if f:cache().segments > 128 then
    error("there are " .. f:cache().segments .. " segments")
  end
end)
