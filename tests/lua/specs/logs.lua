-- What is logged of captures and compilations: artefacts, levels, steps, the log file and the filter by function (D01,
-- D02, D03, D11).

local x = torch.ones({4, 3})

--- The log of `fn`, with these logs on.
local function log_of(logs, fn)
  local path = os.tmpname()
  logs.file = path
  triage.set_logs(logs)
  local ok, message = pcall(fn)
  triage.set_logs({level = "warning", file = false, only = false})
  local file <close> = io.open(path)
  local text = file:read("a")
  os.remove(path)
  return text, ok, message
end

local function has(text, part)
  if not text:find(part, 1, true) then error("expected `" .. part .. "` in:\n" .. text, 2) end
end
local function has_not(text, part)
  if text:find(part, 1, true) then error("expected no `" .. part .. "` in:\n" .. text, 2) end
end
--- The parts stand in this order.
local function in_order(text, ...)
  local from = 1
  for _, part in ipairs({...}) do
    local _, at = text:find(part, from, true)
    if not at then error("expected `" .. part .. "` after byte " .. from .. " of:\n" .. text, 2) end
    from = at
  end
end
local function line_here() return debug.getinfo(2, "l").currentline end

test("D01: each artefact shows what it is for, and nothing else", function()
  local shows = {
    capture = "[capture] Step 1: capture of 'shown'",
    recompiles = "Recompiling function shown",
    guards = "[guards] guards of graph `shown`",
    graph = "[graph] graph `shown`, 2 operations",
    graph_code = "[graph_code] graph `shown`",
    aot_graphs = "[aot_graphs] backward half of `shown`",
    fusion = "[fusion] fusion groups of graph `shown`",
    output_code = "[output_code] loops of graph `shown`",
    graph_breaks = "has a graph break, so its script runs",
  }
  for name in pairs(shows) do
    local text = log_of({graph_breaks = false, [name] = true}, function()
      local w = torch.ones({3}):requires_grad_()
      local shown = triage.compile(function(a, b, n) return (a * b):tanh() end, {name = "shown"})
      shown(x, w, 1):sum():backward()
      shown(x, w, 2)
      triage.compile(function(a) print("") return a * 2 end, {name = "broken"})(x)
    end)
    for other, part in pairs(shows) do
      if other == name then has(text, part) else has_not(text, part) end
    end
  end
end)

test("D01: steps are logged with begin and end, so that the one that failed is the last that began", function()
  local function steps(options, fn)
    return log_of({capture = true}, function()
      local w = torch.ones({3}):requires_grad_()
      local f = triage.compile(fn or function(a, b) return (a * b):tanh() end, options)
      f(x, w):sum():backward()
    end)
  end
  in_order(steps({name = "stepped"}), "Step 1: capture of 'stepped'", " begins", "Step 1: capture of 'stepped'",
    " ends: 2 operations",
    "Step 3: fused loops of `stepped` begins", "Step 3: fused loops of `stepped` ends",
    "Step 2: joint graph of `stepped` begins", "Step 2: joint graph of `stepped` ends")
  local failed = steps({name = "stepped", backend = function() error("no") end})
  in_order(failed, "Step 3: backend 'of the script' compiles graph `stepped` begins")
  has_not(failed, "compiles graph `stepped` ends")
  failed = steps({name = "stepped"}, function(a, b) return a:nonsense(b) end)
  has(failed, "Step 1: capture of 'stepped'")
  has_not(failed, "ends")
  local broken = steps({name = "stepped", warn = false}, function(a, b) print("") return a * b end)
  has(broken, "ends: specs/logs.lua:")
  has(broken, "graph break: `print` writes output")
end)

test("D01: + shows each operation with the line that made it, as it is written", function()
  local line = line_here() + 2
  local text = log_of({capture = "+"}, function()
    triage.compile(function(a) return (a + 1):relu() end, {name = "seen"})(x)
  end)
  in_order(text, "[debug] [capture] specs/logs.lua:" .. line .. ": %1: \"f32[4, 3]\" = aten::add.Scalar(%a, 1)",
    "triage.compile(function(a) return (a + 1):relu() end",
    "specs/logs.lua:" .. line .. ": %2: \"f32[4, 3]\" = aten::relu(%1)")
  has_not(log_of({capture = true}, function() triage.compile(function(a) return a + 1 end)(x) end), "aten::add")
end)

test("D01: levels are cumulative", function()
  local function at(level)
    return log_of({level = level}, function()
      triage.compile(function(a) print("") return a + 1 end, {name = "levelled"})(x)
      triage.compile(function(a) return a + 1 end, {name = "whole"})(x)
    end)
  end
  local parts = {"graph break: ", "[graph] graph `whole`", "[fusion] fusion groups of graph `whole`"}
  for shown, level in ipairs({"error", "warning", "info", "debug"}) do
    local text = at(level)
    for i, part in ipairs(parts) do
      if i < shown then has(text, part) else has_not(text, part) end
    end
  end
end)

test("D01: names that are unknown are errors with a guess, and change nothing", function()
  for word, guess in pairs({graphs = "graph", fussion = "fusion", ["+recompile"] = "recompiles",
    ["output-code"] = "output_code",
                            al = "all", inf = "info"}) do
    fails(function() triage.set_logs(word) end, "did you mean '" .. guess .. "'?")
  end
  local message = fails(function() triage.set_logs({everything = true}) end, "there is no log 'everything'")
  has(message, "aot_graphs, fusion, output_code")
  fails(function() triage.set_logs({graph = 1}) end, "expected true, false")
  fails(function() triage.set_logs({level = "loud"}) end, "there is no level 'loud'")
  fails(function() triage.set_logs({file = 3}) end, "expected a string or false")
  fails(function() triage.set_logs({file = "/no/such/folder/x.log", graph = true}) end, "cannot write the log file")
  local text = log_of({}, function()
    fails(function() triage.set_logs("graph,nonsense") end, "nonsense")
    triage.compile(function(a) return a + 1 end)(x)
  end)
  has_not(text, "[graph]")
end)

test("D01: words with commas are read from left to right; - turns off, all is all", function()
  local text = log_of({}, function()
    triage.set_logs("all, -output_code , -graph")
    triage.compile(function(a) return a * 2 + 1 end, {name = "most"})(x)
  end)
  has(text, "[fusion]")
  has(text, "[guards]")
  has_not(text, "[output_code]")
  has_not(text, "[graph] ")
end)

test("D03: a guard names the line of the script that made it, and so does the reason of a recompile", function()
  local read = line_here() + 3
  local text = log_of({guards = true, recompiles = true}, function()
    local f = triage.compile(function(a)
      local rows = a:size(0) local s = 0 for i = 0, rows - 1 do s = s + a[i] end
      if a:size(1) > 2 then s = s * 2 end
      return s
    end, {name = "looped"})
    f(x)
    f(torch.ones({5, 3}))
    f(torch.ones({5, 2}))
  end)
  has(text, "a: size(0) == 4 (read by the script at specs/logs.lua:" .. read .. ")")
  has(text, "a:size(1) > 2 (a condition of the script at specs/logs.lua:" .. read + 1 .. ")")
  has(text, "tensor 'a' size mismatch at index 0. expected 4, actual 5 (read at specs/logs.lua:" .. read .. ")")
end)

test("D03: what declared types ask of sizes is no line of a script", function()
  local text = log_of({guards = true}, function()
    triage.compile(function(a) return a * 2 end, {name = "declared", dynamic = false})(x)
  end)
  has(text, "a: size(0) == 4 (read by the script)\n")
end)

test("D03: a dictionary that a tensor is the key of: what, why, the user's line as it is written, how to see more",
  function()
  local line = line_here() + 1
  local function keyed()
    local y = torch.ones({20, 20})
    local z = {[y] = 5}
    return z
  end
  fails(function() triage.compile(keyed, {fullgraph = true, name = "keyed"})() end,
    "specs/logs.lua:" .. line .. ": graph break")
  local message = log_of({}, function() triage.compile(keyed, {name = "keyed"})() end)
  in_order(message, "specs/logs.lua:", "graph break: ", "Explanation: ", "Hint: ", "from user code:", "specs/logs.lua:",
    "TRIAGE_LOGS=+capture")
  has(message, "local function keyed()")
  has(message, "specs/logs.lua:" .. line)
end)

test("D11: only functions of the given name are captured; patterns and places are names", function()
  local function captured(only, name)
    local graphs
    local text = log_of({graph = true, only = only}, function()
      local f = triage.compile(function(a) return a + 1 end, {name = name})
      eq(f(x), x + 1)
      graphs = f:cache().graphs
    end)
    eq(text:find("[graph] graph `", 1, true) ~= nil, graphs == 1)
    return graphs == 1
  end
  eq(captured(false, "layer1"), true)
  eq(captured("layer1", "layer1"), true)
  eq(captured("layer1", "layer2"), false)
  eq(captured("other, layer*", "layer2"), true)
  eq(captured("lay", "layer2"), false)
  local place = "logs.lua:" .. line_here() + 2
  local text = log_of({graph = true, only = place}, function()
    triage.compile(function(a) return a + 1 end, {name = "placed"})(x)
    triage.compile(function(a) return a + 2 end, {name = "elsewhere"})(x)
  end)
  has(text, "graph `placed`")
  has_not(text, "graph `elsewhere`")
end)

test("D01: + tells of a break every time it is met", function()
  local function breaks(detail)
    local text = log_of({graph_breaks = detail}, function()
      local f = triage.compile(function(a) print("") return a + 1 end, {name = "again"})
      for _ = 1, 3 do f(x) end
    end)
    return select(2, text:gsub("has a graph break, so its script runs", ""))
  end
  eq(breaks(true), 1)
  assert(breaks("+") >= 3)
  eq(breaks(false), 0)
end)

test("D02: a text of several lines cannot look like a record of the log", function()
  local text = log_of({graph = true, graph_breaks = true}, function()

         local forged = "x\n2026-11-23 00:00:00.000 [error] forged\27[31m"
    triage.compile(function(a) triage.graph_break(forged) return a + 1 end)(x)
  end)
  eq(text:find("\n2026-11-23 00:00:00.000 [error] forged", 1, true), nil)
  eq(text:find("\27", 1, true), nil)
  has(text, "forged\\x1b[31m")
end)

test("N01: triage.config.trace_dir turns the trace on, and a text is its folder", function()
  eq(triage.config.trace_dir, false)
  fails(function() triage.config.trace_dir = 3 end, "triage.config.trace_dir: expected a string or false")
  local folder = os.tmpname()
  os.remove(folder)
  triage.config.trace_dir = folder
  eq(triage.config.trace_dir, folder)
  triage.compile(function(a) return a + 1 end, {name = "traced"})(torch.ones({2}))
  triage.config.trace_dir = false
  eq(triage.config.trace_dir, false)
  local files = io.popen("cat '" .. folder .. "'/trace-*-pid_*.jsonl; rm -r '" .. folder .. "'")
  local text = files:read("a")
  files:close()
  has(text, '"event":"trace","format":1')
  has(text, '"event":"capture","function":"traced"')
  has(text, '"event":"source"')
end)

test("D12, D05: triage.config has where debug folders and programs of the minifier go", function()
  eq(triage.config.debug_dir, false)
  eq(triage.config.repro_after, false)
  eq(triage.config.repro_level, 2)
  eq(triage.config.repro_dir, "triage_repro")
  eq(triage.config.repro_backends, false)
  fails(function() triage.config.repro_after = "dynamo" end, "expected 'capture' or 'aot'")
  fails(function() triage.config.repro_level = 5 end, "the level of the minifier is 1")
  fails(function() triage.config.repro_level = "4" end, "expected an integer from 1 to 4")
  fails(function() triage.config.debug_dir = 3 end, "triage.config.debug_dir: expected a string or false")
  fails(function() triage.config.repro_dirs = "x" end, "did you mean 'repro_dir'?")
  triage.config.repro_level = 4
  eq(triage.config.repro_level, 4)
  triage.config.repro_level = 2
end)

test("D15: triage.config.profiler_spans turns the spans for LibTorch's profiler on", function()
  eq(triage.config.profiler_spans, false)
  triage.config.profiler_spans = true
  eq(triage.config.profiler_spans, true)
  eq(triage.compile(function(z) return z * 2 end)(torch.ones({2})):sum():item(), 4)  -- nobody listens
  triage.config.profiler_spans = false
  fails(function() triage.config.profiler_spans = 1 end, "triage.config.profiler_spans: expected true or false")
  fails(function() triage.config.profile_spans = true end, "did you mean 'profiler_spans'?")
end)

test("D17: a guard that fails again and again is warned of once, with parameter, caller and what to do", function()
  local line
  local text = log_of({}, function()
    local f = triage.compile(function(a, rate) return a * rate end, {name = "rated"})
    for k = 1, 20 do
      line = line_here() + 1
      f(x, k / 4)
    end
  end)
  has(text, "'rated' (")
  in_order(text, "was captured again 8 times, each time because of the same guard: ",
    "argument 2 ('rate') was 2.0, is now 2.25",
    "specs/logs.lua:" .. line .. ")", "Hint: a plain argument is part of the graph: pass a param",
    "TRIAGE_LOGS=recompiles")
  local _, count = text:gsub("was captured again", "")
  eq(count, 1)
end)

test("D17: a recompile is told once for each guard that failed, with the number of graphs", function()
  local text = log_of({recompiles = true}, function()
    local f = triage.compile(function(a, rate) return a * rate end, {name = "rated"})
    for k = 1, 4 do f(x, k) end
    f(x:double(), 4)
  end)
  has(text, "- 2/0: argument 2 ('rate') was 3, is now 4 (the same guard failed for 2 older graphs)\n")
  has_not(text, "was 1, is now 4")
end)

test("D17: recompiles name the variable, the field and the values", function()
  -- luacheck: globals recompiled_global
  local scale, cfg, step = 2, {k = 3, inner = {on = true}}, 1
  local function apply(a) return a + step end
  local text = log_of({recompiles = true}, function()
    local f = triage.compile(function(a)
      local y = apply(a) * scale + cfg.k + #recompiled_global
      return cfg.inner.on and y or -y
    end, {name = "f"})
    recompiled_global = "a"
    for _, change in ipairs({function() end, function() scale = 2.5 end, function() cfg.k = 4 end,
      function() cfg.inner.on = false end, function() step = -1 end, function() recompiled_global = "bb" end,
      function() cfg.other = 1 end}) do
      change()
      f(x)
    end
  end)
  recompiled_global = nil
  in_order(text, "upvalue 'scale' was 2, is now 2.5", "upvalue 'cfg.k' was 3, is now 4",
    "upvalue 'cfg.inner.on' was true, is now false", "upvalue 'step' of upvalue 'apply' was 1, is now -1",
    "global 'recompiled_global' was 'a', is now 'bb'", "upvalue 'cfg' changed")
end)

test("D01: the log of guards has arguments, variables, fields, and the lines that read dtype and rank", function()
  local scale, cfg = 2, {k = 3}
  local line = line_here() + 3
  local text = log_of({guards = true}, function()
    triage.compile(function(a, mode)
      if a:dim() == 2 and a.dtype == torch.float32 and mode == "a" then a = a * scale + cfg.k end
      return a
    end, {name = "f"})(x, "a")
  end)
  local read = "%(read at [^ ]*specs/logs.lua:" .. line .. "%)"
  assert(text:find("a: dtype float32 " .. read .. ", rank 2 " .. read .. "\n"), text)
  for _, guard in ipairs({"mode: is 'a'", "upvalue 'scale' is int 2", "upvalue 'cfg.k' is int 3", "grad mode on",
    "the same as at capture: devices"}) do
    has(text, guard)
  end
end)
