-- What an exported program holds for: which inputs are one tensor, the sizes they may have; what it gives back of them,
-- and what a file says of it.
local function reloaded(program)
  local path = os.tmpname()
  program:save(path)
  local loaded = triage.load_exported(path)
  os.remove(path)
  eq(tostring(loaded), tostring(program))
  return loaded
end

local function ones() return torch.ones({2}) end

test("E04: a program whose function tells its inputs apart is held to what they were", function()
  local function rawly(x, y) return rawequal(x, y) and x * 2 or x * 3 + y end
  local function by_key(x, y)
    local seen, out = {}, torch.zeros({2})
    for _, t in ipairs({x, y}) do
      if not seen[t] then seen[t], out = true, out + t end
    end
    return out
  end
  local function raising(x, y)
    if rawequal(x, y) then error("one tensor") end
    return x + y
  end
  for _, fn in ipairs({rawly, by_key}) do
    local a = ones()
    local one = triage.export(fn, {a, a}, {name = "one"})
    assert(tostring(one):find("holds where y is x", 1, true), tostring(one))
    for _, program in ipairs({one, reloaded(one), one:run_decompositions()}) do
      eq(program(a, a), fn(a, a))
      fails(function() program(a, ones()) end,
        "program 'one': inputs 'x' and 'y' are different tensors, but the program was exported for one tensor")
    end
  end
  for _, fn in ipairs({rawly, by_key, raising}) do
    local two = triage.export(fn, {ones(), ones()}, {name = "two"})
    assert(tostring(two):find("holds where all inputs are different tensors", 1, true), tostring(two))
    for _, program in ipairs({two, reloaded(two), two:run_decompositions()}) do
      eq(program(ones(), ones() * 3), fn(ones(), ones() * 3))
      local a = ones()
      fails(function() program(a, a) end,
        "exported program 'two': inputs 'x' and 'y' are the same tensor, but the program was exported for two")
      eq(program(a, a:clone()), fn(a, a:clone()))
    end
  end
  fails(function() triage.export(raising, {(function(a) return a, a end)(ones())}) end, "one tensor")
end)

test("E04: where it does not matter, inputs may be one tensor or two, however the program was exported", function()
  local function fn(x, y, z) return x * y + z, x end
  local a, b = ones(), ones() * 2
  for _, inputs in ipairs({{a, a, a}, {a, b, b}, {a, b, a}, {a, b, ones()}}) do
    local program = triage.export(fn, inputs)
    assert(not tostring(program):find("holds where", 1, true), tostring(program))
    for _, arguments in ipairs({{a, a, a}, {a, b, b}, {a, b, a}, {b, b, a}, {b, a, ones()}}) do
      eq({program(table.unpack(arguments))}, {fn(table.unpack(arguments))})
    end
  end
  -- Not even where only some ways to be one matter.
  local function pair(x, y, z) return rawequal(y, z) and x or x + y end
  local program = triage.export(pair, {ones(), ones(), ones()})
  fails(function() program(b, a, a) end, "inputs 'y' and 'z' are the same tensor")
end)

test("E04: looking whether inputs may be one tensor draws no random numbers, and shows no errors", function()
  torch.manual_seed(3)
  local program = triage.export(function(x, y) return x + y + torch.rand({2}) end, {ones(), ones()})
  local after = torch.rand({2})
  assert(not tostring(program):find("holds where", 1, true), tostring(program))
  torch.manual_seed(3)
  torch.rand({2})
  eq(torch.rand({2}), after)
  local chain
  local unfinished = triage.export(function(x, y)
    if rawequal(x, y) then chain = IF((x > 0):any(), function() return x end) end
    return x + y
  end, {ones(), ones()})
  eq(unfinished(ones(), ones()), ones() * 2)
  eq(chain, nil)
  local f = triage.compile(function(x)
    return IF((x > 0):any(), function() return x + 1 end):ELSE(function() return x end)
  end)
  eq(f(ones()), ones() * 2)
end)

test("D19, E04: what is said of sizes decides comparisons of them", function()
  local function fn(z, w)
    if z:size(0) >= 2 and z:size(0) < 100 and z:size(0) == w:size(0) then return z + w end
    return z - w
  end
  local inputs = {torch.ones({3, 2}), torch.ones({3, 2})}
  local function export(of_z, of_w)
    return triage.export(fn, inputs, {dynamic_shapes = {z = {[0] = of_z}, w = {[0] = of_w}}})
  end
  local program = export({name = "n", min = 2, max = 64}, "n")
  for _, n in ipairs({2, 3, 31, 32, 33, 64}) do
    eq(program(torch.ones({n, 2}), torch.ones({n, 2})), torch.full({n, 2}, 2.0))
  end
  for _, n in ipairs({0, 1, 65}) do
    fails(function() program(torch.ones({n, 2}), torch.ones({n, 2})) end, "is not in [2, 64]")
  end
  fails(function() export({name = "n", min = 1, max = 64}, "n") end,
    "is declared dynamic ('n'), but the graph holds only for size 3")
  fails(function() export({min = 2, max = 64}, "m") end, "is declared dynamic")
end)

test("E04: dynamic_shapes says what it does not take", function()
  local function export(shapes)
    local inputs = {torch.ones({4, 3}), torch.ones({4})}
    return triage.export(function(z, w) return z + 1, w end, inputs, {dynamic_shapes = shapes})
  end
  local bounded = tostring(export({z = {[0] = {min = 1, max = 8}, [1] = {name = "width", max = 4}}, w = {[0] = "s1"}}))
  assert(bounded:find('z: "f32[s0, width]"', 1, true), bounded)
  assert(bounded:find("{s0: VR[1, 8], width: VR[0, 4], s1: VR[0, int_oo]}", 1, true), bounded)
  for message, shapes in pairs({
    ["'lo' is unknown or has the wrong type (int 1); options are name (a string), min and max (integers)"] =
      {z = {[0] = {name = "n", lo = 1}}},
    ["'name' is unknown or has the wrong type (int 3)"] = {z = {[0] = {name = 3}}},
    ["'max' is unknown or has the wrong type (float 8.5)"] = {z = {[0] = {max = 8.5}}},
    ["dynamic_shapes.z has two entries for dimension 0"] = {z = {[0] = "n", [-2] = "m"}},
    ["dynamic_shapes gives 'n' two different ranges"] =
      {z = {[0] = {name = "n", max = 8}}, w = {[0] = {name = "n", max = 9}}},
    ['"u0" cannot name a size'] = {z = {[0] = "u0"}},
    ["'n' must be in [5, 8], but is 4 in the example"] = {z = {[0] = {name = "n", min = 5, max = 8}}},
  }) do
    fails(function() export(shapes) end, message)
  end
end)

test("E04: what a program gives is the caller's own, and its input where it is that", function()
  local held = torch.ones({2})
  local function fn(z)
    local y = z + 1
    return z, y, y, y:view({2, 1}), held, torch.tensor({5.0}), z:view({1, 2})
  end
  local program = triage.export(fn, {torch.zeros({2})})
  for _, same in ipairs({program, reloaded(program), program:run_decompositions()}) do
    for _ = 1, 2 do
      local z = torch.zeros({2})
      local results = {same(z)}
      eq(results, {fn(z)})
      assert(rawequal(results[1], z) and rawequal(results[2], results[3]))
      for i = 4, 6 do results[i]:fill_(i) end
      eq(results[2], torch.full({2}, 4.0))
      eq(z, torch.zeros({2}))
      results[7]:fill_(7)
      eq(z, torch.full({2}, 7.0))
    end
  end
  eq(held, torch.ones({2}))
end)

test("E04: writes to inputs and to what the function holds are errors that say what to do", function()
  local held = torch.zeros({2})
  for _, fn in ipairs({
    function(z) return z:add_(1) end, function(z) z[{0}] = 5 return z end, function(z) held:add_(z) return held * 2 end,
  }) do
    fails(function() triage.export(fn, {ones()}) end, "graph break")
  end
  eq(held, torch.zeros({2}))
  local copied = triage.export(function(z) local y = z:clone() y:add_(held) return y end, {torch.ones({2})})
  eq(copied(ones()), ones())
  fails(function() triage.export(function(z) return z + z end, {torch.ones({2, 2}):to_sparse()}) end,
    "export: input 0 is Sparse; a program takes dense tensors")
  fails(function() copied(ones():to_sparse()) end, "input 'z': expected f32[2], a dense tensor, got a Sparse tensor")
  fails(function() triage.export(ones) end, "triage.export: expected a list of tensors, got nil")
  fails(function() triage.export(function(z) return z:size(0) end, {ones()}, {dynamic_shapes = "batch"}) end,
    "returned a number that depends on the values of tensors as result 1; a program returns tensors: " ..
    "torch.scalar_tensor converts it")
  local function size(z) return torch.scalar_tensor(z:size(0)) end
  local sized = triage.export(size, {ones()}, {dynamic_shapes = "batch"})
  for _, n in ipairs({0, 1, 33}) do eq(sized(torch.ones({n})), torch.scalar_tensor(n)) end
end)

test("E04: a damaged file is told by its checksum, whatever it still says", function()
  local path = os.tmpname()
  triage.export(function(z) return z * 2 end, {ones()}):save(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("a")
  file:close()
  local function refused(changed, why)
    local out = assert(io.open(path, "wb"))
    out:write(changed)
    out:close()
    fails(function() triage.load_exported(path) end, why)
  end
  refused(text:gsub("%(%%z, 2%)", "(%%z, 3)"), "its checksum does not match, so it changed after it was saved")
  refused(text:gsub("%(%%z, 2%)", "(%%q, 2)"), "its checksum does not match")
  refused(text:gsub("format 2", "format 1"), "it has format 1, but this version of triage reads format 2")
  for at = 1, #text - 1 do refused(text:sub(1, at), "cannot load") end
  math.randomseed(7)
  for _ = 1, 300 do
    local at = math.random(#text)
    local flipped = string.char(text:byte(at) ~ (1 << math.random(0, 7)))
    refused(text:sub(1, at - 1) .. flipped .. text:sub(at + 1), "cannot load")
  end
  os.remove(path)
end)

test("E04: sizes that follow from values are not printed as those of the example", function()
  local before = triage.config.capture_dynamic_output_shape_ops
  triage.config.capture_dynamic_output_shape_ops = true
  local function fn(z)
    local f = flag_nan(z, "a")
    return z:nonzero(), err.take_ok(f, z), z:masked_select(z > 0), z * 2
  end
  local inputs = {torch.tensor({{1.0, 0.0}, {2.0, 0 / 0}, {1.0, 1.0}})}
  local fixed, batch = triage.export(fn, inputs), triage.export(fn, inputs, {dynamic_shapes = "batch"})
  triage.config.capture_dynamic_output_shape_ops = before
  for rows, program in pairs({["3"] = fixed, s0 = batch}) do
    for _, same in ipairs({program, reloaded(program), program:run_decompositions()}) do
      local text = tostring(same)
      for _, part in ipairs({'nonzero: "i64[?, ?]"', 'index: "f32[?, ?]"', 'masked_select: "f32[?]"',
        ': "f32[' .. rows .. ', 2]" = aten::mul.Scalar(z, 2)'}) do
        assert(text:find(part, 1, true), part .. " in\n" .. text)
      end
      local z = torch.tensor({{0.0, 0.0}, {0 / 0, 0.0}, {0.0, 3.0}})
      eq({same(z)}, {fn(z)})
    end
  end
end)
