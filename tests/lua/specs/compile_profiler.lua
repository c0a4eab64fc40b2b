-- Where compilations spend their time, and what breaks and repeats them: triage.compile_times, triage.CompileProfiler.
local function count_of(list, field, text)
  for _, one in ipairs(list) do if one[field]:find(text, 1, true) then return one.count, one end end
end

test("D18: the profiler counts graph breaks by reason, with the line and what to do", function()
  local prof = triage.CompileProfiler()
  local function toy_example(a, b)
    local x = a / (torch.abs(a) + 1)
    if b:sum():item() < 0 then b = b * -1 end
    triage.graph_break("on purpose")
    return x * b
  end
  local toy = triage.compile(toy_example, {backend = prof, warn = false})
  for sign = 1, -1, -1 do toy(torch.ones({10}), torch.ones({10}) * sign) end
  eq(#prof:breaks(), 2)
  local count, item = count_of(prof:breaks(), "reason", "`item` reads a value of a tensor (TB0001)")
  assert(count >= 3, count)
  eq(item.line, debug.getinfo(toy_example, "S").linedefined + 2)
  assert(item.hint:find("Keep it a tensor", 1, true), item.hint)
  local report = prof:report()
  for _, part in ipairs {"Graph breaks\n", "x  " .. item.file .. ":" .. item.line .. ": `item` reads", "on purpose",
                         "Recompiles\n  none\n"} do
    assert(report:find(part, 1, true), report)
  end
  eq(tostring(prof), report)
end)

test("D18: the profiler counts every graph break of every call, also where following gains nothing", function()
  local prof = triage.CompileProfiler()
  local noisy = triage.compile(function(x)
    triage.graph_break("first")
    for _ = 1, 2 do x = x + (x:sum():item() > 1e9 and 1 or 0) end
    return x
  end, {backend = prof, warn = false})
  for _ = 1, 200 do noisy(torch.ones({2})) end
  eq((count_of(prof:breaks(), "reason", "first")), 200)
  eq((count_of(prof:breaks(), "reason", "`item` reads a value")), 400)
end)

test("D18: the profiler counts recompiles by guard, whatever the values were, and says what to change", function()
  local prof = triage.CompileProfiler()
  local rows = triage.compile(function(x)
    local sum = 0
    for i = 0, x:size(0) - 1 do sum = sum + x[i] end
    return sum
  end, {backend = prof, name = "rows", warn = false})
  for n = 2, 4 do rows(torch.ones({n})) end
  local scaled = triage.compile(function(x, k) return x * k end, {backend = prof, name = "scaled"})
  for k = 1, 5 do scaled(torch.ones({2}), k) end
  local fine = triage.compile(function(x) return x + 1 end, {backend = prof, name = "fine"})
  for n = 2, 9 do fine(torch.ones({n})) end
  eq(#prof:recompiles(), 2)
  local count, size = count_of(prof:recompiles(), "guard", "tensor 'x' size mismatch at index 0 (read at ")
  eq({count, size.name}, {2, "rows"})
  assert(size.example:find("expected 3, actual 4", 1, true), size.example)
  assert(size.advice:find("whole batch", 1, true), size.advice)
  local times, argument = count_of(prof:recompiles(), "guard", "argument 2")
  eq({times, argument.name, argument.example}, {4, "scaled", "argument 2 ('k') was 4, is now 5"})
  local report = prof:report()
  assert(report:find("4x  'scaled'", 1, true) and report:find("pass a param", 1, true), report)
  assert(report:find("Graph breaks\n  none\n", 1, true), report)
  assert(not report:find("fine", 1, true), report)
end)

test("D18: what the limit keeps from being captured counts too, and the report names the limit", function()
  local prof = triage.CompileProfiler()
  local f = triage.compile(function(x)
    local sum = x[0] * 0
    for i = 0, #x - 1 do sum = sum + x[i] end
    return sum
  end, {backend = prof, name = "f", warn = false})
  local limit = triage.config.recompile_limit
  for n = 1, limit + 4 do eq(f(torch.ones({n})):item(), n) end
  eq(prof:recompiles()[1].count, limit + 3)
  local told = "reached the limit of " .. limit .. " captured graphs; calls that no graph fits run the script."
  assert(prof:report():find(told, 1, true), prof:report())
  assert(prof:report():find("set triage.config.recompile_limit to", 1, true), prof:report())
end)

test("D18: recompiles that met no limit are not told to have met one", function()
  local prof = triage.CompileProfiler()
  local f = triage.compile(function(x, k) return x * k end, {backend = prof, name = "f"})
  for k = 1, 30 do f(torch.ones({2}), k) end
  eq(prof:recompiles()[1].count, 29)
  assert(not prof:report():find("limit", 1, true), prof:report())
  local before = triage.config.accumulated_recompile_limit
  triage.config.accumulated_recompile_limit = 30
  f(torch.ones({2}), 31)
  triage.config.accumulated_recompile_limit = before
  assert(prof:report():find("reached the limit of 30 captured graphs in all", 1, true), prof:report())
  assert(prof:report():find("set triage.config.accumulated_recompile_limit to", 1, true), prof:report())
end)

test("D18: the profiler observes only: results and gradients are those of eager", function()
  local prof = triage.CompileProfiler()
  local function f(x) return torch.softmax(x * 2, -1):sum(0) end
  local g = triage.compile(f, {backend = prof, fullgraph = true})
  local x = torch.randn({31, 5}):requires_grad_(true)
  eq(g(x), f(x))
  g(x)[0]:backward()
  local gradient = x.grad:clone()
  x.grad = nil
  f(x)[0]:backward()
  eq(gradient, x.grad)
end)

test("D15: compile times by phase and function, as a table, as text, as CSV", function()
  local name = 'timed, "f"'
  local f = triage.compile(function(x) return torch.exp(x) + 1 end, {name = name})
  for _, dtype in ipairs {torch.float32, torch.float64} do f(torch.ones({40, 64}, {dtype = dtype})) end
  local g = triage.compile(function(x) return (x * 2):relu() end, {name = "timed_joint"})
  g(torch.ones({4, 64}):requires_grad_(true)):sum():backward()
  local times = triage.compile_times()
  local found = {}
  for _, one in ipairs(times) do
    if one.name:find("^timed") then
      found[one.phase .. " " .. one.name] = one.count
      assert(one.seconds > 0 and one.seconds < 60, one.seconds)
    end
  end
  eq(found["capture " .. name], 2)
  eq(found["fused loops " .. name], 2)
  eq(found["capture timed_joint"], 1)
  eq(found["joint graph timed_joint"], 1)
  assert(times.csv:find("^phase,function,count,seconds\n"), times.csv)
  assert(times.csv:find('\ncapture,"timed, ""f""",2,0.0', 1, true), times.csv)
  assert(tostring(times):find("\nfused loops +2 +0%.%d+  timed, \"f\"\n"), times.text)
  assert(tostring(times):find("\ncapture +%d+ +%d+%.%d+  %(all%)\n"), times.text)
end)

test("D18: wrong uses are told", function()
  fails(function() triage.CompileProfiler(1) end, "triage.CompileProfiler: expected no arguments")
  fails(function() triage.CompileProfiler().report(3) end, "expected a CompileProfiler as `self`, got int 3")
  fails(function() triage.compile(print, {backend = {}}) end, "backend (string, function or CompileProfiler)")
end)
