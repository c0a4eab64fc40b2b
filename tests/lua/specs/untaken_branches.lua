-- A graph holds every branch of an `if` or IF on a condition of the batch; the call that is captured runs only the
-- one that the script takes. What another does (effects, errors, the error that unwinds it) no script sees, and
-- later calls are the script's.
local plus, minus = torch.ones({2}), -torch.ones({2})
local orders = {{minus, plus, minus, plus}, {plus, minus, plus}}

--- What a program does in several calls: results, or the error; then what it logged.
local function outcomes(text, inputs, form)
  local log, list = {}, {}
  local fn = form(assert(load(text, "=program.lua"))(log))
  torch.manual_seed(0)
  for i, x in ipairs(inputs) do
    list[i] = {pcall(fn, x)}
  end
  list.log = log
  list.grad = torch.is_grad_enabled()
  torch.set_grad_enabled(true)
  return list
end

local function as_script(fn) return fn end
local function compiled(fn) return triage.compile(fn, {backend = "eager"}) end

--- `body` sees `z`, `c` (all of z is positive) and `log`.
local function does_the_same(name, head, body)
  local text = head .. "local log = ...\nlocal up = 0\nreturn function(z)\n  local c = (z > 0):all()\n  " ..
    "" .. body .. "\nend"
  test(name, function()
    for _, inputs in ipairs(orders) do
      eq(outcomes(text, inputs, compiled), outcomes(text, inputs, as_script))
    end
  end)
end

local say = "log[#log + 1] = "

local natural = {
  selects = "if c then z = z * 2 else z = z - 1 end return z",
  ["writes to a table"] = "if not c then z = z * 2 else local k = {} k.n = 1 z = z + k.n end return z",
  ["writes to a table of the function"] = "local t = {n = 0} local y = z if c then y = z * 2 end t.n = 1 return " ..
    "y + t.n",
  ["reads a value"] = "if c then z = z * z:sum():item() end return z",
  ["prints"] = "if c then io.write('') z = z * 2 end return z",
  ["prints in a function"] = "local function tell() io.write('') end if c then tell() z = z * 2 end return z",
  ["breaks"] = "if c then triage.graph_break('x') z = z * 2 else triage.graph_break('y') z = z - 1 end return z",
  ["elseif"] = "if (z > 5):all() then io.write('') z = z + 1 elseif c then io.write('') z = z * 2 else z = z * " ..
    "3 end return z",
  ["raises"] = "if c then error('boom') end return z",
  ["raises a table"] = "if c then error({1}) end return z + 1 ",
  ["an operator raises"] = "if c then z = z:view({7, 9}) end return z",
  ["Lua raises"] = "if c then z = nothing.here end return z",
  ["writes in place"] = "local y = z + 1 if c then y:add_(1) end return y",
  ["an error that is caught behind the condition"] = "local r = 2 if not pcall(function() if c then error('no') end " ..
    "end) then r = 3 end return z * r",
  ["an error that is nil and caught behind the condition"] = "local r = 2 if not pcall(function() if c then " ..
    "error() end end) then r = 3 end return z * r",
  ["an error that is nil"] = "local ok, e = pcall(function() if c then error(nil) end return 5 end) return z, ok, e",
  ["writes to a global"] = "if c then G = 1 end return z",
  ["inside of pcall"] = "local ok, e = pcall(function() if c then io.write('') z = z * 2 end end) return z, ok, e",
  ["an error inside of pcall"] = "local ok, e = pcall(function() if c then z = z:view({7}) end end) return z, ok, e",
  ["inside of xpcall"] = "local ok, e = xpcall(function() if c then io.write('') z = z:view({7}) end end, " ..
    "function(e) " ..
    say .. "e return 'H' .. e end) return z, ok, e",
  ["an error of Lua inside of xpcall"] = "local ok, e = xpcall(function() if c then z = nothing.here end end, " ..
    "function(e) " .. say .. "e return 'H' .. e end) return z, ok, e",
  ["a closing variable around"] = "local k <close> = setmetatable({}, {__close = function(_, e) " .. say ..
    "tostring(e) end}) if c then io.write('') z = z * 2 end return z",
  ["a closing variable around an error"] = "local k <close> = setmetatable({}, {__close = function(_, e) up = " ..
    "up + 1 " ..
    say .. "tostring(e) end}) if c then z = z:view({9}) end return z",
  ["a closing variable around an error of Lua"] = "local k <close> = setmetatable({}, {__close = function(_, e) " ..
    "up = up + 1 " .. say .. "tostring(e) end}) if c then z = nothing.here end return z + up",
  ["pcall in the branch"] = "if c then pcall(io.write, '') z = z * 2 end return z",
  ["an error is caught in the branch"] =
    "if c then local ok = pcall(z.view, z, {9}) z = ok and z * 3 or z * 2 end return z",
  ["behind random numbers"] = "local r = torch.rand({2}) if c then io.write('') z = z * 2 end return z + r",
  ["random numbers"] = "if c then z = torch.rand({2}) end return z + torch.rand({2})",
  ["random numbers around"] = "local r = torch.rand({2}) if c then z = z * 2 end return z + r + torch.rand({2})",
  ["a coroutine"] = "if c then local co = coroutine.wrap(function() coroutine.yield(2) end) z = z * co() end " ..
    "return z",
  ["nested"] = "if c then if (z < 0):any() then io.write('') else io.write('') z = z + 1 end " ..
    "else if (z < -5):all() then error('no') else io.write('') z = z * 7 end end return z",
  ["in a branch per sample"] = "if z > 0 then if c then io.write('') z = z * 2 end else z = z - 1 end return z",
  ["around a branch per sample"] = "if c then if z > 0 then io.write('') z = z * 2 end else z = z - 1 end return z",
  ["in a loop"] = "for i = 1, 3 do if (z > i - 2):all() then io.write('') z = z + i end end return z",
  ["behind a break"] = "triage.graph_break('x') if c then io.write('') z = z * 2 end return z",
  ["between breaks"] =
    "if (z > 9):all() then z = z + 1 end triage.graph_break('x') if c then io.write('') z = z * 2 end return z",
  ["IF inside"] = "return (IF(c, function() io.write('') return z * 2 end):ELSE(function() return z end))",
  ["inside of IF"] = "return (IF(c, function() local y = z if (z > 5):all() then io.write('') y = z * 2 end " ..
    "return y end)" ..
    ":ELSE(function() return z end))",
  ["inside of IF that is taken"] = "return (IF((z < 5):all(), function() local y = z if c then io.write('') y = " ..
    "z * 2 end " ..
    "return y end):ELSE(function() return z end))",
  ["the gradient mode"] = "if c then torch.set_grad_enabled(false) io.write('') end return z",
  ["under no_grad"] = "local _ <close> = torch.no_grad() if c then io.write('') z = z * 2 end return z, " ..
    "torch.is_grad_enabled()",
  ["a seed"] = "if c then torch.manual_seed(3) end return torch.rand({2})",
  ["a file to write to"] = "if c then io.open('/nonexistent/file', 'w') end return z",
  ["another output"] = "if c then io.output('/nonexistent/file') end return z",
  ["an input is to require gradients"] = "if c then z:requires_grad_() end return z",
  ["an input is assigned to require gradients"] = "if c then z.requires_grad = true end return z",
  ["a mark"] = "if c then triage.mark_dynamic(z, 0) end return z",
  ["a substitute"] = "if c then triage.substitute_in_graph(math.abs, math.floor) end return z",
  ["a location"] = "if c then ErrorLocation.register('untaken.branch') end return z",
  ["one branch needs gradients"] = "local w = torch.ones({2}, {requires_grad = true}) if c then z = z * w end " ..
    "return (z.requires_grad and z + 1 or z):detach()",
  ["an upvalue is selected"] = "if c then up = z * 2 end local r = up up = 0 return z + r",
}
for name, body in pairs(natural) do
  does_the_same("natural Lua: a branch that the batch does not take, captured: " .. name, "--!tensor\n", body)
end

local chains = {
  ["an operator raises"] = "return (IF(c, function() return z:view({7, 9}) end):ELSE(function() return z * 2 end))",
  ["ELSE raises"] = "return (IF(c, function() return z * 2 end):ELSE(function() return z:view({5}) end))",
  ["Lua raises"] = "return (IF(c, function() return nothing.x end):ELSE(function() return z * 2 end))",
  ["ELIF raises"] = "return (IF((z > 5):all(), function() return z end):ELIF(c, function() return z:view({3}) end)" ..
    ":ELSE(function() return z * 2 end))",
  ["one inside of it raises"] = "return (IF(c, function() return (IF((z > 5):all(), function() return " ..
    "z:view({3}) end)" ..
    ":ELSE(function() return z end)) end):ELSE(function() return z * 2 end))",
  ["xpcall inside"] = "return (IF(c, function() xpcall(function() io.write('') end, function(e) " .. say ..
    "e return e end) return z end):ELSE(function() return z * 2 end))",
  ["xpcall around"] = "local ok, r = xpcall(function() return (IF(c, function() io.write('') return z end)" ..
    ":ELSE(function() return z * 2 end)) end, function(e) " .. say .. "e return e end) return z, ok, r",
  ["xpcall around an error"] = "local ok, r = xpcall(function() return (IF(c, function() return z:view({7}) end)" ..
    ":ELSE(function() return z * 2 end)) end, function(e) " .. say .. "e return 'H' .. e end) return z, ok, r",
  ["a closing variable"] = "local n = 0 local r = IF(c, function() local k <close> = setmetatable({}, {__close = " ..
    "function(_, e) n = n + 1 " .. say .. "tostring(e) end}) io.write('') return z end)" ..
    ":ELSE(function() return z * 2 end) return r + n + #log",
  ["pcall"] = "local r = IF(c, function() local ok, e = pcall(function() io.write('') end) " .. say ..
    "tostring(e) return z end):ELSE(function() return z * 2 end) return r + #log",
  ["pcall of what raises"] = "local r = IF(c, function() local ok = pcall(function() return z:view({9}) end) " ..
    "return ok and z or z * 3 end):ELSE(function() return z * 2 end) return r",
  ["as_result"] = "local r = IF(c, function() as_result(function() io.write('') end)() return z end)" ..
    ":ELSE(function() return z * 2 end) return r",
  ["load"] = "local r = IF(c, function() load(function() io.write('') return nil end) return z end)" ..
    ":ELSE(function() return z * 2 end) return r",
  ["a comparator"] = "local r = IF(c, function() table.sort({3, 1, 2}, function(a, b) io.write('') return a < b " ..
    "end) " ..
    "return z end):ELSE(function() return z * 2 end) return r",
  ["a file to write to"] = "return (IF(c, function() io.open('/nonexistent/file', 'w') return z end)" ..
    ":ELSE(function() return z * 2 end))",
  ["a tensor is to require gradients"] = "local w = torch.ones({2}) local r = IF(c, function() w:requires_grad_() " ..
    "return z end):ELSE(function() return z * 2 end) return r + (w.requires_grad and 1 or 0)",
  ["a mark"] = "local w = torch.ones({2}) return (IF(c, function() triage.mark_dynamic(w, 0) return z end)" ..
    ":ELSE(function() return z * 2 end))",
  ["one branch needs gradients"] = "local w = torch.ones({2}, {requires_grad = true}) " ..
    "local r = IF(c, function() return z * w end):ELSE(function() return z * 2 end) " ..
    "return (r.requires_grad and r + 1 or r):detach()",
  ["one branch needs gradients, and what follows with it"] = "local w = torch.ones({2}, {requires_grad = true}) " ..
    "local r = IF(c, function() return z end):ELSE(function() return z * w end) * 2 " ..
    "return (r.is_leaf and r + 1 or r):detach()",
  ["one branch needs gradients, checked"] = "local w = torch.ones({2}, {requires_grad = true}) " ..
    "local typed = tensorcheck(function(r) return r:detach() end, " ..
    "{args = {Tensor(float32_t, {2}, nil, true)}}) " ..
    "local r = IF(c, function() return z * w end):ELSE(function() return z * 2 end) " ..
    "local ok, e = pcall(typed, r) return z, ok, tostring(e)",
  ["a chain that a break cuts short"] = "return (IF(c, function() return (IF(z > 0, function() return z end)" ..
    ":ELIF(z > z:sum():item(), function() return z end):ELSE(function() return z end)) end)" ..
    ":ELSE(function() return z * 2 end))",
  ["a chain that an error cuts short, in pcall"] = "local ok = pcall(function() return (IF(z > 0, function() " ..
    "return z end):ELIF(error('no'), function() return z end):ELSE(function() return z end)) end) " ..
    "return ok and z or z * 2",
  ["a chain that an error cuts short, in a coroutine"] = "local ok = coroutine.resume(coroutine.create(function() " ..
    "return IF(z > 0, function() return z end):ELIF(error('no'), function() end) end)) return ok and z or z * 2",
  ["a chain that is over, and one around an error"] = "local r = IF(z > 0, function() pcall(function() " ..
    "IF(c, error()) end) return z + 1 end):ELSE(function() return z end) return r",
  ["an error that is caught behind the condition"] = "local r = 2 if not pcall(function() IF(c, function() " ..
    "error('no') end):ELSE(function() end) end) then r = 3 end return z * r",
  ["an error that is caught behind the condition, in a coroutine"] = "local r = 2 if not coroutine.resume(" ..
    "coroutine.create(function() IF(c, function() error('no') end):ELSE(function() end) end)) then r = 3 end " ..
    "return z * r",
  ["sizes as results"] = "local a, n = IF(c, function() return z, 2 end):ELSE(function() return z * 2, " ..
    "z:size(0) end) " ..
    "return a * n",
  ["a size as result"] = "local a, n = IF(c, function() return z, z:size(0) end):ELSE(function() return z * 2, " ..
    "z:size(0) end) " ..
    "return a * n",
}
for name, body in pairs(chains) do
  does_the_same("IF: a branch that the batch does not take, captured: " .. name, "", body)
end

test("what natural Lua refuses in a branch has not happened", function()
  assert(not ErrorLocation.is_registered("untaken.branch"))
  assert(not plus.requires_grad and not minus.requires_grad)
  eq(math.abs(-2.5), 2.5)
end)

test("IF: a substitute and a location of a branch that is not taken are not there", function()
  local z, abs = minus, math.abs
  triage.compile(function(x)
    return (IF((x > 0):all(), function()
      ErrorLocation.register("untaken.chain")
      triage.substitute_in_graph(math.abs, math.floor)
      return x
    end):ELSE(function() return x * 2 end))
  end)(z)
  assert(not ErrorLocation.is_registered("untaken.chain"))
  assert(rawequal(math.abs, abs))
end)

--- Statements in a branch of natural Lua on a mask; `outer`, `layer` and the like are from outside.
local once_for_all = {
  "io.open('/nonexistent/file', 'w')", "io.open('/nonexistent/file', 'a')", "io.open('/nonexistent/file', 'r+')",
  "io.output('/nonexistent/file')", "io.popen('true')", "io.tmpfile()", "os.tmpname()", "outer:requires_grad_()",
  "outer.requires_grad = true", "layer:requires_grad_(false)", "layer:to(torch.float64)",
  "layer:load_state_dict(layer:state_dict())", "layer:zero_grad()", "optimizer:step()", "optimizer:zero_grad()",
  "triage.mark_dynamic(outer, 0)", "triage.mark_static(outer, 0)",
  "triage.substitute_in_graph(math.abs, math.floor)", "ErrorLocation.register('mask.branch')",
  "triage.register_backend('of a branch', print)", "program:save('/nonexistent/file')", "generator:manual_seed(1)",
}
test("natural Lua: what would happen once, for all samples, is refused in a branch on a mask", function()
  local given = {outer = torch.ones({2}), layer = nn.Linear(2, 2), generator = torch.Generator(),
    program = triage.export(function(x) return x * 2 end, {plus})}
  given.optimizer = optim.SGD(given.layer:parameters(), {lr = 0.1})
  given.layer(torch.ones({2, 2})):sum():backward()
  local weight = given.layer.weight:clone()
  for _, statement in ipairs(once_for_all) do
    local fn = assert(load("--!tensor\nlocal x, given = ...\nlocal outer, layer, optimizer = given.outer, " ..
      "given.layer, given.optimizer\nlocal program, generator = given.program, given.generator\nlocal y = x\n" ..
      "if x > 0 then " .. statement .. " y = x * 2 end\nreturn y"))
    local x = torch.tensor({1.0, -1.0})
    local message = fails(function() fn(x, given) end, "of an `if` whose condition is a mask")
    assert(message:find(":6: ", 1, true), message)
  end
  eq(given.layer.weight, weight)
  assert(not given.outer.requires_grad and given.layer.weight.grad ~= nil)
  assert(not ErrorLocation.is_registered("mask.branch"))
end)

test("natural Lua: a branch may read files, and change the tensors that it made", function()
  local fn = assert(load("--!tensor\nlocal x = ...\nlocal y = x\nif x > 0 then " ..
    "local file = io.open('/nonexistent/file') local own = (x * 3):detach() own:requires_grad_() " ..
    "y = own end\nreturn y"))
  eq(fn(torch.tensor({1.0, -1.0})):detach(), torch.tensor({3.0, -1.0}))
end)

test("natural Lua: an error of the script in a branch on a mask says when it is raised", function()
  local head = "--!tensor\nlocal x = ...\nif x > 100 then "
  local x = torch.tensor({1.0, -1.0})
  for _, statement in ipairs({"error('too large')", "assert(false, 'too large')", "assert(nil, 'too large')"}) do
    local fn = assert(load(head .. statement .. " end"))
    local message = fails(function() fn(x) end, "too large (raised in a branch of")
    assert(message:find("that branch runs for every sample. Hint: ", 1, true), message)
  end
  local batch = assert(load("--!tensor\nlocal x = ...\nif (x > 0):any() then error('no') end"))
  local of_batch = fails(function() batch(x) end)
  assert(not of_batch:find("raised in", 1, true), of_batch)
  eq(select(2, pcall(assert(load(head .. "error({}) end")), x)), {})
end)

test("fullgraph: an error in a branch that the batch does not take is a clear one", function()
  local programs = {
    "return (IF((z > 0):all(), function() return z:view({7}) end):ELSE(function() return z * 2 end))",
    "--!tensor\nif (z > 0):all() then z = z:view({7}) end return z",
  }
  for _, body in ipairs(programs) do
    local head, rest = body:match("^(%-%-!tensor\n)(.*)$")
    local fn = assert(load((head or "") .. "local z = ...\n" .. (rest or body)))
    local message = fails(function() triage.compile(fn, {fullgraph = true})(minus) end, "TB0020")
    assert(message:find("a branch that this batch does not take raises an error", 1, true), message)
    assert(message:find("is invalid for input of size", 1, true), message)
    eq(triage.compile(fn)(minus), fn(minus))
  end
end)

test("natural Lua: an `if` that fails leaves the variables that functions share as they were", function()
  local z = torch.tensor({1.0, -1.0})
  local fn = assert(load([[--!tensor
local y = 0
local function step(z, kind)
  if z > 0 then
    y = z * 2
    if kind == "branch" then error("in a branch") end
  else
    if kind == "type" then y = "a" else y = z end
    if kind == "else" then error("in else") end
  end
end
return function(z, kind) local ok = pcall(step, z, kind) return ok, y end]]))()
  for _, kind in ipairs({"branch", "type", "else"}) do
    eq({fn(z, kind)}, {false, 0}, kind)
  end
  eq({fn(z)}, {true, torch.tensor({2.0, -1.0})})
  local nested = assert(load([[--!tensor
local a, b = 1, 2
return function(z)
  local c = 3
  local get = function() return c end
  local ok = pcall(function()
    if z > 0 then
      local own = z
      a, c = z, z
      if z > 0.5 then b, own = z, nil error("x") end
    end
  end)
  return ok, a, b, get()
end]]))()
  eq({nested(z)}, {false, 1, 2, 3})
end)

test("branches that differ, of which the batch takes one, end the graph; in one graph they are an error", function()
  local programs = {
    "return (IF(c, function() return z:sum() end):ELSE(function() return z end))",
    "return IF(c, function() return z, 1 end):ELSE(function() return z end)",
    "return (IF(c, function() return {a = z} end):ELSE(function() return {b = z} end)).a or z * 5",
    "local y, n = IF(c, function() return z, 1 end):ELSE(function() return z, 2 end) return y + n",
    "return (IF(c, function() return z end):ELIF(z > 0, function() return z:sum() end):ELSE(function() return z " ..
      "+ 1 end))",
    "--!tensor\nlocal n = 0 if c then n = n + 1 else n = 'no' end return z, n",
    "--!tensor\nlocal y if c then y = z:sum() elseif (z < -5):all() then y = z else y = z:amax() end return y",
  }
  for _, body in ipairs(programs) do
    local mark, rest = body:match("^(%-%-!tensor\n)(.*)$")
    local text = (mark or "") .. "return function(z) local c = (z > 0):all() " .. (rest or body) .. " end"
    for _, inputs in ipairs(orders) do
      eq(outcomes(text, inputs, compiled), outcomes(text, inputs, as_script))
    end
    fails(function() triage.compile(load(text)(), {fullgraph = true})(plus) end, "branch")
  end
end)

test("modes that a branch leaves behind, which this batch does not take, are not for the script", function()
  local x = torch.ones({2}):requires_grad_(true)
  for name, change in pairs({
    ["gradient mode"] = function() torch.set_grad_enabled(false) end,
    ["gradient mode and a break"] = function() torch.set_grad_enabled(false) print() end,
    ["a scope that is left open"] = function() return torch.no_grad() end,
    ["breaks are errors"] = function() triage.error_on_graph_break(true) end,
  }) do
    local fn = function(z)
      return IF(z:sum() < 0, function()
        change()
        return z * 1
      end):ELSE(function() return z + 1 end) * 2
    end
    local f = triage.compile(fn)
    for _ = 1, 3 do
      local y = f(x)
      eq({y.requires_grad, torch.is_grad_enabled()}, {true, true}, name)
      eq(y:detach(), fn(x):detach(), name)
    end
  end
end)

test("natural Lua: handlers of xpcall see the whole stack of what raises in a compiled function", function()
  local f = triage.compile(assert(load("--!tensor\nlocal function inner(x) error('boom') end\n" ..
    "local function middle(x) local y = inner(x) return y end\n" ..
    "return function(x) local y = middle(x) return y end", "=stack"))())
  for _, handler in ipairs({debug.traceback, function(message) return debug.traceback(message) end}) do
    local ok, text = xpcall(f, handler, plus)
    eq(ok, false)
    for _, frame in ipairs({"stack:2: boom\n", "\n\tstack:2: in ", "\n\tstack:3: in ", "\n\tstack:4: in "}) do
      assert(text:find(frame, 1, true), frame .. " is not in\n" .. text)
    end
    assert(not text:find("boom.*boom"), "the handler ran once: " .. text)
  end
end)

test("natural Lua: a handler runs once, and only where no pcall is inside of it", function()
  local calls = 0
  local function handler(e)
    calls = calls + 1
    return "H" .. tostring(e)
  end
  local f = triage.compile(assert(load("--!tensor\nreturn function(x) error('boom', 0) end"))())
  eq(table.pack(xpcall(f, handler, plus)), {n = 2, false, "Hboom"})
  eq(calls, 1)
  eq(table.pack(xpcall(function() return pcall(f, plus) end, handler)), {n = 3, true, false, "boom"})
  eq(calls, 1)
  eq(table.pack(xpcall(function() return xpcall(f, function(e) return "I" .. e end, plus) end, handler)),
    {n = 3, true, false, "Iboom"})
  eq(calls, 1)
  local co = coroutine.wrap(function() return pcall(f, plus) end)
  eq(table.pack(xpcall(co, handler)), {n = 3, true, false, "boom"})
  local raising = coroutine.create(function() return f(plus) end)
  eq(table.pack(xpcall(coroutine.resume, handler, raising)), {n = 3, true, false, "boom"})
  eq(calls, 1)
  local bad = triage.compile(assert(load("--!tensor\nreturn function(x) error() end"))())
  eq(table.pack(xpcall(bad, function(e) return e == nil end, plus)), {n = 2, false, true})
end)
