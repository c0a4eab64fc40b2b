-- Numbers read from tensors that stay in captured code, what is known of them, and what gives them up.
local function same_text(got, expected)
  if got ~= expected then error("got\n" .. got .. "\nexpected\n" .. expected, 2) end
end

test("E02, E05: a number read from a tensor becomes a size, with assertions for its range", function()
  local function forward(x)
    local a = x:item()
    triage.check_is_size(a)
    triage.check(a <= 5)
    return torch.zeros({a, 5})
  end
  local program = triage.export(forward, {torch.tensor(4)}, {name = "ConstrainAsSizeExample"})
  same_text(tostring(program), [[
ExportedProgram:
    graph ConstrainAsSizeExample(x: "i64[]"):
        item: "Sym(u0)" = triage::item(x);  x = None
        ge: "Sym(u0 >= 0)" = aten::ge.Scalar(item, 0)
        triage::assert_scalar(ge, "Runtime assertion failed for expression u0 >= 0 on node 'ge'");  ge = None
        le: "Sym(u0 <= 5)" = aten::le.Scalar(item, 5)
        triage::assert_scalar(le, "Runtime assertion failed for expression u0 <= 5 on node 'le'");  le = None
        zeros: "f32[u0, 5]" = aten::zeros([item, 5]);  item = None
        return (zeros,)

Graph signature:
    inputs:  x (USER_INPUT)
    outputs: zeros (USER_OUTPUT)
Range constraints: {u0: VR[0, 5]}
]])
  for n = 0, 5 do eq(program(torch.tensor(n)), torch.zeros({n, 5})) end   -- 0 and 1 are sizes like others
  fails(function() program(torch.tensor(6)) end, "Runtime assertion failed for expression u0 <= 5 on node 'le'")
  fails(function() program(torch.tensor(-1)) end, "Runtime assertion failed for expression u0 >= 0 on node 'ge'")
  local plain = program:run_decompositions():verify()
  same_text(tostring(plain), [[
ExportedProgram:
    graph ConstrainAsSizeExample(x: "i64[]"):
        item: "Sym(u0)" = aten::scalar_tensor(x, dtype=int64, layout=strided, device="cpu", pin_memory=False);  x = None
        ge: "Sym(u0 >= 0)" = aten::ge.Scalar(item, 0)
        aten::_assert_async.msg(ge, "Runtime assertion failed for expression u0 >= 0 on node 'ge'");  ge = None
        le: "Sym(u0 <= 5)" = aten::le.Scalar(item, 5)
        aten::_assert_async.msg(le, "Runtime assertion failed for expression u0 <= 5 on node 'le'");  le = None
        zeros: "f32[u0, 5]" = aten::zeros([item, 5]);  item = None
        return (zeros,)

Graph signature:
    inputs:  x (USER_INPUT)
    outputs: zeros (USER_OUTPUT)
Range constraints: {u0: VR[0, 5]}
]])
  local path = os.tmpname()
  plain:save(path)
  local loaded = triage.load_exported(path)
  os.remove(path)
  eq(tostring(loaded), tostring(plain))
  eq(tostring(plain:run_decompositions()), tostring(plain))
  for _, same in ipairs({plain, loaded}) do
    for n = 0, 5 do eq(same(torch.tensor(n)), torch.zeros({n, 5})) end
    for n, expression in pairs({[6] = "u0 <= 5 on node 'le'", [-1] = "u0 >= 0 on node 'ge'"}) do
      local message = fails(function() same(torch.tensor(n)) end, "assertion failed for expression " .. expression)
      assert(message:find("specs/export_numbers.lua:%d+: "), message)   -- the line of the check
    end
  end
  fails(function() triage.export(forward, {torch.tensor(6)}) end, "Runtime assertion failed for expression u0 <= 5")
  eq(forward(torch.tensor(2)), torch.zeros({2, 5}))   -- eager code is held to it as well
  fails(function() forward(torch.tensor(7)) end, "Runtime assertion failed")
end)

test("E03, E05: a comparison that the range decides is decided at capture", function()
  local program = triage.export(function(x, y)
    local a = x:item()
    triage.check(a >= 0)
    triage.check(a <= 5)
    if a < 6 then return y:sin() end
    return y:cos()
  end, {torch.tensor(4), torch.randn({5, 5})}, {name = "ConstrainAsValueExample"})
  same_text(tostring(program), [[
ExportedProgram:
    graph ConstrainAsValueExample(x: "i64[]", y: "f32[5, 5]"):
        item: "Sym(u0)" = triage::item(x);  x = None
        ge: "Sym(u0 >= 0)" = aten::ge.Scalar(item, 0)
        triage::assert_scalar(ge, "Runtime assertion failed for expression u0 >= 0 on node 'ge'");  ge = None
        le: "Sym(u0 <= 5)" = aten::le.Scalar(item, 5);  item = None
        triage::assert_scalar(le, "Runtime assertion failed for expression u0 <= 5 on node 'le'");  le = None
        sin: "f32[5, 5]" = aten::sin(y);  y = None
        return (sin,)

Graph signature:
    inputs:  x (USER_INPUT), y (USER_INPUT)
    outputs: sin (USER_OUTPUT)
Range constraints: {u0: VR[0, 5]}
]])
  local y = torch.randn({5, 5})
  eq(program(torch.tensor(0), y), y:sin())
  fails(function() program(torch.tensor(6), y) end, "Runtime assertion failed for expression u0 <= 5 on node 'le'")
end)

test("E03: what the range does not decide is a graph break that names the checks", function()
  local function undecided(x, y)
    local a = x:item()
    triage.check(a <= 5)
    if a < 3 then return y:sin() end
    return y:cos()
  end
  local message = fails(function() triage.export(undecided, {torch.tensor(4), torch.ones({2})}) end,
    "graph break: the condition `u0 < 3` depends on data (u0 lies in VR[-int_oo, 5])")
  assert(message:find("triage.check", 1, true) and message:find("constrain_as_value", 1, true), message)
  local y = torch.randn({2})
  triage.config.capture_scalar_outputs = true
  local f = triage.compile(undecided)
  eq(f(torch.tensor(4), y), y:cos())   -- where breaks are allowed, the script goes on with the value
  eq(f(torch.tensor(2), y), y:sin())
  triage.config.capture_scalar_outputs = false
end)

test("E05: arithmetic with such numbers is recorded as expressions", function()
  local program = triage.export(function(x, y)
    local a = x:item()
    triage.constrain_as_size(a, {min = 1, max = 8})
    local wide = torch.zeros({a + 1, 2 * a, a // 2, a % 3 + 1})
    return wide, y * a, y / (a - 0.5), y:narrow(0, 0, a), y[{{0, a}}], y[{a - 1}],
      torch.full({2}, 1.0) * (a * a) - (7 - a)
  end, {torch.tensor(4), torch.randn({9})}, {name = "arithmetic"})
  local text = tostring(program)
  for _, part in ipairs({'"Sym(u0 + 1)"', '"Sym(2*u0)"', '"Sym(u0 // 2)"', '"Sym(u0 % 3)"', '"Sym(u0*u0)"',
    'f32[u0 + 1, 2*u0, ?, ?]', 'narrow: "f32[u0]"', 'slice: "f32[u0]"', "{u0: VR[1, 8]}"}) do
    assert(text:find(part, 1, true), part .. " in\n" .. text)
  end
  local y = torch.randn({9})
  for n = 1, 8 do
    local a = n
    eq({program(torch.tensor(n), y)}, {torch.zeros({a + 1, 2 * a, a // 2, a % 3 + 1}), y * a, y / (a - 0.5),
      y:narrow(0, 0, a), y[{{0, a}}], y[{a - 1}], torch.full({2}, 1.0) * (a * a) - (7 - a)})
  end
end)

test("E03: ranges follow through expressions, and never assume what was not checked", function()
  local function ask(condition, checks)
    triage.export(function(x, y)
      local a = x:item()
      checks(a)
      if condition(a) then return y + 1 end
      return y - 1
    end, {torch.tensor(4), torch.ones({2})})
    return true
  end
  local function size(a) triage.constrain_as_size(a, {max = 5}) end
  assert(ask(function(a) return a + 1 <= 6 end, size))
  assert(ask(function(a) return 2 * a >= 0 end, size))
  assert(ask(function(a) return a ~= 6 end, size))
  assert(ask(function(a) return not (a == 7) end, size))
  assert(ask(function(a) return a // 2 <= 2 end, size))
  assert(ask(function(a) return 10 - a >= 5 end, size))
  assert(ask(function(a) return a < a + 1 end, size))
  assert(ask(function(a) return a <= 5.0 end, size))
  for _, open in ipairs({function(a) return a >= 2 end, function(a) return a ~= 0 end, function(a) return a == 4 end,
    function(a) return a + 1 > 1 end}) do
    fails(function() ask(open, size) end, "depends on data")   -- sizes 0 and 1 are possible
  end
  -- Without bounds a sum may wrap around.
  fails(function() ask(function(a) return a + 1 > a end, function() end) end, "depends on data")
end)

test("E03: floats are numbers too, and one that nobody checked may be NaN", function()
  local function f(x, y)
    local a = x:item()
    triage.constrain_as_value(a, {min = 0.0, max = 1.0})
    if a <= 2.0 then return y * a end
    return y
  end
  local program = triage.export(f, {torch.tensor(0.5), torch.ones({2})})
  assert(tostring(program):find("{u0: VR[0.0, 1.0]}", 1, true), tostring(program))
  eq(program(torch.tensor(0.25), torch.ones({2})), torch.full({2}, 0.25))
  fails(function() program(torch.tensor(0 / 0), torch.ones({2})) end,
    "Runtime assertion failed for expression u0 >= 0.0")
  fails(function()
    triage.export(function(x, y) if x:item() <= math.huge then return y end return -y end,
      {torch.tensor(0.5), torch.ones({2})})
  end, "depends on data")
end)

test("E02: triage.check takes a condition of tensors as well, and keeps it", function()
  local program = triage.export(function(z)
    triage.check((z > 0):all(), "z is positive")
    return z:log()
  end, {torch.ones({2})})
  eq(program(torch.ones({2})), torch.zeros({2}))
  fails(function() program(-torch.ones({2})) end,
    "Runtime assertion failed for expression (z > 0):all() on node 'all': z is positive")
  local compiled = triage.compile(function(z)
    triage.check((z > 0):all(), "z is positive")
    return z:log()
  end, {fullgraph = true})
  eq(compiled(torch.ones({3})), torch.zeros({3}))
  fails(function() compiled(-torch.ones({3})) end, "z is positive")
end)

test("checks hold in eager code, and say what they take", function()
  triage.check(true)
  triage.check(torch.tensor(true))
  triage.check_is_size(0)
  triage.constrain_as_value(3, {min = 3, max = 3})
  local message = fails(function()
    triage.check(false, "told so")
  end, "Runtime assertion failed for expression false: told so\n    triage.check(false, \"told so\")")
  assert(message:find("^[^\n]*export_numbers.lua:%d+: "), message)
  fails(function() triage.check(torch.tensor(false)) end, "Runtime assertion failed")
  fails(function() triage.check(torch.tensor({true, false})) end, "triage.check: expected a boolean")
  fails(function() triage.check_is_size(-1) end, "Runtime assertion failed for expression -1 >= 0")
  fails(function() triage.check_is_size(1.5) end, "triage.check_is_size takes an integer, got float 1.5")
  fails(function() triage.constrain_as_value(6, {min = 0, max = 5}) end,
    "Runtime assertion failed for expression 6 <= 5")
  fails(function() triage.constrain_as_size(3, {min = -1}) end, "min must be at least 0")
  fails(function() triage.constrain_as_value(3, {low = 1}) end, "option 'low' is unknown")
  fails(function() triage.config.no_such_setting = true end, "there is no setting")
  fails(function() triage.config.capture_scalar_outputs = 1 end, "expected true or false")
end)

test("capture_scalar_outputs keeps items in compiled code", function()
  local function scale(x, factor) return x * factor:item() end
  local strict = triage.compile(scale, {fullgraph = true})
  fails(function() strict(torch.ones({2}), torch.tensor(3.0)) end, "capture_scalar_outputs")
  triage.config.capture_scalar_outputs = true
  local f = triage.compile(scale, {fullgraph = true})
  local report = triage.explain(scale, torch.ones({2}), torch.tensor(3.0))
  eq(report.graph_count, 1)
  assert(report.graphs[1]:find("triage::item", 1, true), report.graphs[1])
  for _, value in ipairs({3.0, -0.5, 1 / 0}) do
    eq(f(torch.ones({2}), torch.tensor(value)), torch.ones({2}) * value)
  end
  local whole = torch.ones({2}, {dtype = torch.int64})
  eq(f(whole, torch.tensor(2)), whole * 2)
  eq(f(whole, torch.tensor(2.5)), whole * 2.5)   -- a number, not a tensor, in promotion
  triage.config.capture_scalar_outputs = false
end)

test("Lua's own uses of a number give it up, and say so", function()
  local keys = {"a", "b", "c", "d", "e"}
  for name, use in pairs({
    ["a key"] = function(a) return #keys[a + 1] end,
    ["a bound"] = function(a) local n = 0 for _ = 1, a do n = n + 1 end return n end,
    ["a field of a table"] = function(a) local t = {[a] = 3} return t[4] end,
    ["a string"] = function(a) return #("n" .. a) end,
    ["tostring"] = function(a) return #tostring(a) end,
    ["a format"] = function(a) return #string.format("%d", a) end,
    ["math"] = function(a) return math.max(a, 3.5) end,
    ["select"] = function(a) return select(a, 1, 2, 3, 4) end,
    ["rawequal"] = function(a) return rawequal(a, 4) and 1 or 0 end,
    ["a bit"] = function(a) return a >> 1 end,
  }) do
    local function f(x, y) return y * use(x:item()) end
    local message = fails(function() triage.export(f, {torch.tensor(4), torch.ones({2})}) end, "graph break")
    assert(message:find("u0", 1, true), name .. ": " .. message)
    triage.config.capture_scalar_outputs = true
    local y = torch.ones({2})
    eq(triage.compile(f)(torch.tensor(4), y), f(torch.tensor(4), y), name)
    triage.config.capture_scalar_outputs = false
  end
  triage.export(function(x, y)   -- these do not
    local a = x:item()
    assert(type(a) == "number" and math.type(a) == "integer" and a)
    return y + a + math.max(a, 3) + (a & 1) + math.sqrt(a)
  end, {torch.tensor(4), torch.ones({2})})
end)

local function graphs_of(compiled) return tonumber(tostring(compiled):match("%((%d+) graph")) end

test("D19, T32: a size that is only passed on leaves the batch open in compiled code", function()
  local function fn(z)
    local n, d = z:size(0), z:size(1)
    local rows = torch.arange(n):unsqueeze(-1)
    return z * d + rows, torch.zeros({n // 2, n + 1}), err.new_t(n), z:sum() / d, z:reshape({n, d, 1})
  end
  local f = triage.compile(fn, {fullgraph = true})
  for _, rows in ipairs({2, 0, 1, 31, 32, 33}) do
    for _, width in ipairs({3, 1}) do
      local z = torch.randn({rows, width})
      eq({f(z)}, {fn(z)}, "rows " .. rows)
    end
  end
  eq(graphs_of(f), 1)
end)

test("D19, D17: a size that the script goes by is a guard, and another size another graph", function()
  local function fn(z)
    local n = z:size(0)
    if n > 3 then return z + n end
    return z - n
  end
  local f = triage.compile(fn, {fullgraph = true})
  for _, rows in ipairs({2, 4, 2, 4}) do eq(f(torch.ones({rows, 2})), fn(torch.ones({rows, 2}))) end
  eq(graphs_of(f), 2)
  for _, use in ipairs({
    function(z) local y = z for _ = 1, z:size(0) do y = y + 1 end return y end,
    function(z) return z * ({1, 2, 3, 4, 5})[z:size(0)] end,
    function(z) return z * #("x"):rep(z:size(0)) end,
    function(z) return z * #tostring(z:size(0) * 5) end,
    function(z) return z * math.max(z:size(0), 3) end,
    function(z) return z * torch.tensor({z:size(0), 1.0}) end,
    function(z) local y = z:clone() y[{0, 0}] = z:size(0) return y end,
    function(z) return z + (z:size(0) & 1) end,
    function(z) if z:size(0) == z:size(1) then return z end return -z end,
  }) do
    local compiled = triage.compile(use, {fullgraph = true})
    for _, rows in ipairs({2, 4, 2, 5}) do eq(compiled(torch.ones({rows, 2})), use(torch.ones({rows, 2}))) end
  end
  local checked = triage.compile(function(z)
    local n = z:size(0)
    triage.check(n <= 32)
    if n < 40 then return z + 1 end
    return z
  end, {fullgraph = true})
  eq(checked(torch.ones({2, 2})), torch.full({2, 2}, 2.0))
  eq(checked(torch.ones({32, 2})), torch.full({32, 2}, 2.0))
  fails(function() checked(torch.ones({33, 2})) end, "Runtime assertion failed")
  eq(graphs_of(checked), 1)
end)

test("E02, E05: numbers of all kinds stand in plain ATen as they did", function()
  local w = torch.tensor({4.0})
  local function forward(x, y, z)
    local a, b = x:item(), y:item()
    triage.constrain_as_size(a, {min = 1, max = 8})
    triage.constrain_as_value(b, {min = -1.0, max = 1.0})
    triage.check((z > -100):all(), "z is sound")
    return torch.zeros({a + 1, 2 * a}) + b, z * w:item(), z:narrow(0, 0, a), z[{a - 1}] * (a // 2), z * z:size(0)
  end
  local program = triage.export(forward, {torch.tensor(4), torch.tensor({{0.5}}), torch.randn({9, 2})},
    {name = "numbers", dynamic_shapes = {z = {[0] = "rows"}}})
  local plain = program:run_decompositions()
  local function types(text)
    local found = {text:match("Graph signature:.*")}
    for name, type in text:gmatch('([%w_]+): "([^"]*)"') do
      if not name:find("^alias") and not name:find("^_shape") then found[#found + 1] = name .. ": " .. type end
    end
    return table.concat(found, "\n")
  end
  eq(types(tostring(plain)), types(tostring(program)))
  assert(not tostring(plain):find("triage::", 1, true), tostring(plain))
  for n = 1, 8 do
    w:fill_(n)   -- a variable is read anew in each run
    local arguments = {torch.tensor(n), torch.tensor({{n / 8}}), torch.randn({8 + n, 2})}
    eq({program(table.unpack(arguments))}, {forward(table.unpack(arguments))})
    eq({plain(table.unpack(arguments))}, {forward(table.unpack(arguments))})
  end
  for _, p in ipairs({program, plain}) do
    fails(function() p(torch.tensor(9), torch.tensor({{0.5}}), torch.randn({9, 2})) end, "u0 <= 8")
    fails(function() p(torch.tensor(2), torch.tensor({{0 / 0}}), torch.randn({9, 2})) end, "u1 >= -1.0")
    fails(function() p(torch.tensor(2), torch.tensor({{0.5}}), torch.full({9, 2}, -200.0)) end, "z is sound")
  end
end)
