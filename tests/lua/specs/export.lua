-- triage.export: functions as programs of their own, their print, and what stands for what capture cannot see through.
local function saved(name) return os.tmpname() .. name end

local function same_text(got, expected)
  if got ~= expected then error("got\n" .. got .. "\nexpected\n" .. expected, 2) end
end

test("E01, E04: assume_constant_result burns what a function returns into the program", function()
  local get_item = triage.assume_constant_result(function(y) return y:int():item() end)
  local line = debug.getinfo(1, "l").currentline + 1
  local function forward(x, y) return x[{{0, get_item(y)}}] end
  local program = triage.export(forward, {torch.randn({6, 2}), torch.tensor(4)}, {name = "AssumeConstantResult"})
  same_text(tostring(program), [[
ExportedProgram:
    graph AssumeConstantResult(x: "f32[6, 2]", y: "i64[]"):
        # the function of line ]] .. line - 2 .. [[ was called during capture, and its result ]] ..
    "is a constant of the graph: 4  (assume_constant_result, specs/export.lua:" .. line .. [[)
        slice: "f32[4, 2]" = aten::slice.Tensor(x, start=0, end=4);  x = None
        return (slice,)

Graph signature:
    inputs:  x (USER_INPUT), y (USER_INPUT)
    outputs: slice (USER_OUTPUT)
Range constraints: {}
]])
  local x = torch.randn({6, 2})
  eq(program(x, torch.tensor(1)), x[{{0, 4}}])
end)

test("assume_constant_result outside of capture calls the function", function()
  local calls = 0
  local double = triage.assume_constant_result(function(n) calls = calls + 1 return 2 * n, "text" end)
  eq({double(3)}, {6, "text"})
  eq(calls, 1)
  local f = triage.compile(function(x) return x * double(2) end, {fullgraph = true})
  eq(f(torch.ones({2})), torch.full({2}, 4.0))
  eq(f(torch.ones({3})), torch.full({3}, 4.0))
  eq(calls, 2)
  local bad = triage.assume_constant_result(function() return {} end)
  fails(function() triage.export(function(x) bad() return x + 1 end, {torch.ones({1})}) end,
    "assume_constant_result: the function returned an empty table")
end)

test("a tensor that is assumed constant is held by the program, apart from the script's own", function()
  local table_of_weights = torch.tensor({1.0, 2.0})
  local weights = triage.assume_constant_result(function() return table_of_weights end)
  local program = triage.export(function(x) return x * weights() end, {torch.ones({2})})
  table_of_weights:mul_(10)
  eq(program(torch.ones({2})), torch.tensor({1.0, 2.0}))
end)

test("E04: the print names nodes, sizes, unused inputs and last uses", function()
  local program = triage.export(function(x, unused, y)
    local values, indices = x:topk(2)
    return values + y, indices
  end, {torch.randn({3, 4}), torch.ones({1}), torch.randn({3, 2})}, {name = "both"})
  same_text(tostring(program), [[
ExportedProgram:
    graph both(x: "f32[3, 4]", unused: "f32[1]", y: "f32[3, 2]"):
        topk_values: "f32[3, 2]", topk_indices: "i64[3, 2]" = aten::topk(x, 2);  x = None
        add: "f32[3, 2]" = aten::add.Tensor(topk_values, y);  topk_values = y = None
        return (add, topk_indices)

Graph signature:
    inputs:  x (USER_INPUT), unused (USER_INPUT), y (USER_INPUT)
    outputs: add (USER_OUTPUT), topk_indices (USER_OUTPUT)
Range constraints: {}
]])
end)

test("E04, D19: sizes that may vary are symbols, found by comparing runs of several sizes", function()
  local program = triage.export(function(x, y)
    local longer = torch.cat({x, x, torch.zeros({1, 2})}, 0)
    return torch.cat({x, y}, 0):unsqueeze(1), longer, x:flatten(), x:sum(0), x[{{0, 1}}]
  end, {torch.randn({3, 2}), torch.randn({5, 2})},
    {name = "sizes", dynamic_shapes = {x = {[0] = true}, y = {[0] = "rows"}}})
  local text = tostring(program)
  for _, part in ipairs({'x: "f32[s0, 2]"', 'y: "f32[rows, 2]"', '"f32[2*s0 + 1, 2]"', '"f32[s0 + rows, 1, 2]"',
    'slice: "f32[?, 2]"', '"f32[2*s0]"', 'sum: "f32[2]"',
    "Range constraints: {s0: VR[0, int_oo], rows: VR[0, int_oo]}"}) do
    assert(text:find(part, 1, true), part .. " in\n" .. text)
  end
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    local x, y = torch.randn({rows, 2}), torch.randn({7, 2})
    local joined, _, flat = program(x, y)
    eq(joined, torch.cat({x, y}, 0):unsqueeze(1))
    eq(flat, x:flatten())
  end
end)

test("a program takes what it was exported for, and says what does not fit", function()
  local double = function(x, y) return x * 2 + y end
  local program = triage.export(double, {torch.ones({3, 2}), torch.ones({3, 2})}, {name = "double"})
  fails(function() program(torch.ones({4, 2}), torch.ones({4, 2})) end,
    "exported program 'double', input 'x': expected f32[3, 2], got [4, 2]; to allow other sizes, export with " ..
    "dynamic_shapes")
  fails(function() program(torch.ones({3, 2}):double(), torch.ones({3, 2})) end,
    "expected f32[3, 2], got f64[3, 2] on cpu")
  fails(function() program(torch.ones({3, 2})) end, "exported program 'double' takes 2 inputs, got 1")
  local batch = triage.export(double, {torch.ones({3, 2}), torch.ones({3, 2})},
    {name = "double", dynamic_shapes = "batch"})
  eq(batch(torch.ones({5, 2}), torch.ones({5, 2})), torch.full({5, 2}, 3.0))
  fails(function() batch(torch.ones({5, 2}), torch.ones({1, 2})) end,
    "input 'y': expected size 5 in dimension 0 ('s0' is 5 in an earlier input), got 1")
  local bounded = triage.export(double, {torch.ones({3, 2}), torch.ones({3, 2})},
    {dynamic_shapes = {x = {[0] = {name = "n", min = 1, max = 4}}, y = {[0] = "n"}}})
  assert(tostring(bounded):find("Range constraints: {n: VR[1, 4]}", 1, true), tostring(bounded))
  fails(function() bounded(torch.ones({5, 2}), torch.ones({5, 2})) end, "n = 5 is not in [1, 4]")
end)

test("what cannot be exported is an error that says why", function()
  local x = torch.ones({3, 2})
  fails(function() triage.export(function(z) print(z) return z end, {x}) end, "graph break")
  fails(function() triage.export(function(z) return z, 3 end, {x}) end,
    "returned int 3 as result 2; a program returns tensors")
  fails(function() triage.export(function(z) return z end, {3}) end, "input 1: expected a tensor, got int 3")
  fails(function() triage.export(function(z) return z end, {x}, {dynamic_shapes = {y = {}}}) end,
    "dynamic_shapes names 'y'; the inputs are z")
  fails(function() triage.export(function(z) return z end, {x}, {dynamic_shapes = {z = {[2] = true}}}) end,
    "input 'z' has 2 dimensions, but dimension 2 is declared dynamic")
  fails(function() triage.export(function(z) return z end, {x}, {dynamic_shape = {}}) end,
    "option 'dynamic_shape' is unknown")
  fails(function()
    triage.export(function(z)
      local _, more = pcall(function() return z + 1 end)
      return more
    end, {x})
  end, "inside pcall")
end)

local function policy(z)
  local f = flag_nan_and_inf(z, "features")
  z = err.take_ok_p(f, z)
  local m, s = z:mean(-1, true), z:std(-1, {keepdim = true}) + 1e-6
  local far = (z - m):abs() > 3 * s
  f = push(f, err.VALUE_CLAMPED, "features", {where = far:any(-1)})
  return torch.where(far, m + 3 * s * torch.sign(z - m), z), f
end

local function broken(rows)
  local z = torch.randn({rows, 8})
  if rows > 0 then z[{0, 0}] = 0 / 0 end
  if rows > 1 then z[{1, 2}] = 1 / 0 end
  return z
end

test("E04: run_decompositions gives pure ATen with the same bits", function()
  local program = triage.export(policy, {broken(4)}, {dynamic_shapes = "batch", name = "zscore"})
  assert(tostring(program):find("triage::flag_nan_and_inf", 1, true))
  local plain = program:run_decompositions():verify()
  assert(not tostring(plain):find("triage::", 1, true), tostring(plain))
  assert(tostring(plain):find("aten::where", 1, true))
  assert(tostring(plain):find('z: "f32[s0, 8]"', 1, true), tostring(plain))
  for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
    local z = broken(rows)
    local y, f = policy(z)
    eq({program(z)}, {y, f})
    eq({plain(z)}, {y, f})
  end
end)

test("E04: a program is saved and loaded, large tensors bit for bit", function()
  local layer = nn.Linear(8, 300)
  local program = triage.export(function(x) return layer(x) * torch.tensor({0.1}) end, {torch.randn({3, 8})},
    {name = "layer", dynamic_shapes = "batch"})
  assert(tostring(program):find("PARAMETER", 1, true), tostring(program))
  local path = saved(".program")
  program:save(path)
  local loaded = triage.load_exported(path)
  eq(tostring(loaded), tostring(program))
  for _, rows in ipairs({0, 1, 33}) do
    local x = torch.randn({rows, 8})
    eq(loaded(x), program(x))
  end
  loaded:save(path .. "2")
  local function content(name)
    local file <close> = assert(io.open(name, "rb"))
    return file:read("a")
  end
  eq(content(path .. "2"), content(path))

  local text = content(path)
  local function refused(changed, why)
    local file = assert(io.open(path, "wb"))
    file:write(changed)
    file:close()
    fails(function() triage.load_exported(path) end, why)
  end
  refused("nothing", "it does not begin with")
  refused(text:sub(1, 60), "it ends before its graph begins")
  refused(text:gsub("aten::linear", "aten::no_such_operator"), "there is no operator")
  refused(text:gsub('"data": "....', '"data": "!!!!'), "not base64")
  os.remove(path)
  os.remove(path .. "2")
  fails(function() triage.load_exported(path) end, "cannot")
end)

test("E05, D19: a size that the script passes on stays open, and arithmetic with it is recorded", function()
  local function halves(z)
    local n = z:size(0)
    return z:view(n, -1), torch.zeros({n // 2, n + 1}), z:sum() / n, z[{{0, n - 1}}], z + #z - z.shape[1] / z:numel()
  end
  local program = triage.export(halves, {torch.ones({4, 2, 3})}, {dynamic_shapes = "batch", name = "halves"})
  local text = tostring(program)
  for _, part in ipairs({'size: "Sym(s0)" = triage::size(z, 0)', '"Sym(s0 // 2)"', '"Sym(s0 + 1)"',
    'view: "f32[s0, 6]"', "{s0: VR[0, int_oo]}"}) do
    assert(text:find(part, 1, true), part .. " in\n" .. text)
  end
  local plain = program:run_decompositions()
  assert(not tostring(plain):find("triage::", 1, true), tostring(plain))
  for _, rows in ipairs({1, 2, 31, 32, 33}) do
    local z = torch.randn({rows, 2, 3})
    eq({program(z)}, {halves(z)})
    eq({plain(z)}, {halves(z)})
  end
  local fixed = triage.export(halves, {torch.ones({4, 2, 3})}, {name = "halves"})
  assert(not tostring(fixed):find("size", 1, true), tostring(fixed))   -- a size that cannot vary is a plain number
end)

test("D19: a size that the script decides by cannot vary", function()
  for _, use in ipairs({
    function(z) if z:size(0) > 3 then return z end return -z end,
    function(z) local y = z for _ = 1, z:size(0) do y = y + 1 end return y end,
    function(z) return z * ({1, 2, 3, 4})[z:size(0)] end,
    function(z) return z:numel() % 2 == 0 and z or -z end,
  }) do
    fails(function() triage.export(use, {torch.ones({4, 2})}, {dynamic_shapes = "batch"}) end,
      "dimension 0 of input 'z' is declared dynamic ('s0'), but the graph holds only for size 4")
    local fixed = triage.export(use, {torch.ones({4, 2})})
    eq(fixed(torch.ones({4, 2})), use(torch.ones({4, 2})))
  end
end)

test("D19: checks of sizes decide comparisons and stay as assertions", function()
  local program = triage.export(function(z)
    triage.check(z:size(0) <= 64)
    if z:size(0) <= 100 then return z + 1 end
    return z
  end, {torch.ones({4, 2})}, {dynamic_shapes = "batch", name = "bounded"})
  local text = tostring(program)
  assert(text:find("Runtime assertion failed for expression s0 <= 64 on node 'le'", 1, true), text)
  assert(text:find("Range constraints: {s0: VR[0, 64]}", 1, true), text)
  eq(program(torch.ones({64, 2})), torch.full({64, 2}, 2.0))
  fails(function() program(torch.ones({65, 2})) end, "Runtime assertion failed for expression s0 <= 64 on node 'le'")
end)

test("equal calls of a program are nodes of autograd's graph each, as the script's are", function()
  local fn = function(x) return x:exp() * 2, x:exp() * 3 end
  local program = triage.export(fn, {torch.ones({2, 2})})
  local x = torch.ones({2, 2}, {requires_grad = true})
  local a, b = program(x)
  a:sum():backward()
  b:sum():backward()
  local y = torch.ones({2, 2}, {requires_grad = true})
  a, b = fn(y)
  a:sum():backward()
  b:sum():backward()
  eq(x.grad, y.grad)
end)

test("TorchScript chooses a branch for all samples as the script does: results lie in memory as it does", function()
  local path = saved("choice.pt")
  local bodies = {
    "IF((x > 0):any(), function() return x * 2 end):ELSE(function() return y - 1 end)",
    "IF((x > 0):any(), function() return y end):ELSE(function() return x end)",
    "IF((x > 0):all(), function() return y end):ELIF((y > 0):any(), function() return x + y end)"
      .. ":ELSE(function() return x end)",
    "IF((y > 0):any(), function() return IF((x > 0):all(), function() return y * x end)"
      .. ":ELSE(function() return x end) end):ELSE(function() return y * 2 end)",
  }
  local function laid_out(order, value) return order == "row-major" and value or value:t():contiguous():t() end
  for _, body in ipairs(bodies) do
    local fn = assert(load("return function(x, y) local z = " .. body .. " return z, z + torch.randn_like(z) end"))()
    local program = triage.export(fn, {torch.randn({4, 3}), torch.randn({4, 3})}, {dynamic_shapes = "batch"})
    program:to_torchscript(path)
    local module = nn.load(path)
    for _, call in ipairs({program, function(x, y) return module(x, y) end}) do
      for _, rows in ipairs({2, 33}) do
        for _, orders in ipairs({{"row-major", "turned"}, {"turned", "row-major"}, {"turned", "turned"}}) do
          for _, signs in ipairs({{1, 1}, {-1, 1}, {1, -1}, {-1, -1}}) do
            local x = laid_out(orders[1], torch.full({rows, 3}, 2.0 * signs[1]))
            local y = laid_out(orders[2], torch.full({rows, 3}, 3.0 * signs[2]))
            local results = {}
            for i, each in ipairs({fn, call}) do
              torch.manual_seed(rows)
              local z, drawn = each(x, y)
              results[i] = {z, drawn, torch.rand({2}), strides = {z:stride(0), z:stride(1)}}
            end
            eq(results[2], results[1], body)
          end
        end
      end
    end
  end
  os.remove(path)
end)
