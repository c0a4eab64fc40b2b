-- Trees that fit many paths into few ids, and tracked modules (rows T16, T17, T18).

--- A module with these children, a list of {name, module}, and the parameter `weight` where it is given.
local function module(children, weight)
  local made = nn.Module()
  made.weight = weight
  for _, child in ipairs(children or {}) do made[child[1]] = child[2] end
  return made
end

local function leaf() return module({}, torch.ones({1}, {requires_grad = true})) end

test("T16: tracked sets paths and ids on the modules that hold parameters, depth first", function()
  ErrorLocation.reset()
  local act, first, last = module(), leaf(), leaf()
  local model = module({{"attention", leaf()}, {"ffn", module({{"0", first}, {"1", act}, {"2", last}})}})
  eq(rawequal(tracked(model), model), true)
  eq(ErrorLocation.get_all_paths(), {root = 1, attention = 2, ffn = 3, ["ffn.0"] = 4, ["ffn.2"] = 5})
  eq(last._fx_path, "ffn.2")
  eq(last._fx_id, 5)
  eq(model._fx_path, "root")
  eq(act._fx_path, nil)
  local f = err.push(err.new(torch.zeros({2, 3})), err.NAN, first)
  eq(flags.repr(f), "ErrorFlags(2 samples, 2 errors: 2xNAN @ ffn.0)")
  f = flag_nan(torch.full({2, 3}, 0 / 0), model, nil)
  eq(flags.unpack(f, 1)[1].location_name, "root")
  f = push(err.new(torch.zeros({1, 3})), err.INF, act)   -- stateless: Unknown
  eq(flags.unpack(f, 0)[1].location, 0)
  f = push(err.new(torch.zeros({1, 3})), err.INF, module())   -- never tracked: Unknown
  eq(flags.unpack(f, 0)[1].location_name, "Unknown")
end)

test("T16: a prefix, and tracking again", function()
  ErrorLocation.reset()
  local layer = leaf()
  local model = module({{"layer", layer}})
  tracked(model, {prefix = "teacher"})
  eq(layer._fx_path, "teacher.layer")
  tracked(model, {prefix = "teacher"})
  eq(ErrorLocation.count(), 3)
  eq(model._fx_path, "teacher")
  ErrorLocation.reset()   -- the ids are gone, the paths are not
  eq(flags.unpack(push(err.new(torch.zeros({1, 2})), err.INF, layer), 0)[1].location_name, "teacher.layer")
end)

test("T16: wrong use of tracked", function()
  fails(function() tracked(5) end, "tracked: expected a module, with a method named_modules(), got int 5")
  fails(function() tracked({}) end, "tracked: expected a module")
  fails(function() tracked(torch.zeros({2})) end, "tracked: expected a module")
  fails(function() tracked(leaf(), {prefix = 3}) end, "prefix")
  fails(function() tracked(leaf(), {tree = {}}) end, "expected a LocationTree as tree")
  fails(function() tracked(leaf(), {weight = 3}) end, "there is no option 'weight'")
end)

test("T16 T17: a tree of paths", function()
  local tree = LocationTree{max_locations = 5}
  tree:add_path("encoder"):add_path("encoder.10"):add_path("encoder.2"):add_path("head")
  eq(tree:build_ids(), {encoder = 1, ["encoder.2"] = 2, ["encoder.10"] = 3, head = 4})
  eq(tree:get_location("encoder.2.weight"), 2)
  eq(tree:get_location("decoder"), 0)
  eq(tree:get_path("encoder.3"), "encoder")
  eq(tostring(tree), "LocationTree: 4 paths, 4 ids of 4\n1  encoder\n2  encoder.2\n3  encoder.10\n4  head")
  tree:add_path("head.out")
  fails(function() tree:get_location("head") end, "call build_ids first")
  eq(tree:build_ids()["encoder.10"], 1)
  eq(tree:to_dict(), {encoder = 1, ["encoder.2"] = 2, head = 3, ["head.out"] = 4})
end)

test("T17: a model of 3,000 modules fits the ids", function()
  ErrorLocation.reset()
  local layers, deep = {}, {}
  for layer = 0, 99 do
    local parts = {}
    for part = 1, 29 do parts[part] = {"part" .. part, leaf()} end
    layers[layer + 1] = {tostring(layer), module(parts)}
    deep[layer + 1] = parts[29][2]
  end
  local model = tracked(module({{"layers", module(layers)}}))
  local ids = {}
  for _, entry in ipairs(model:named_modules()) do
    local id = entry[2]._fx_id
    ids[id] = true
    local name = ErrorLocation.name(id)   -- its own path, or the longest prefix that is kept
    eq(name == entry[2]._fx_path or name == "root" or entry[2]._fx_path:sub(1, #name + 1) == name .. ".", true)
  end
  local count = 0
  for id in pairs(ids) do
    count = count + 1
    eq(id >= 1 and id <= 1023, true)
  end
  eq(count, 1023)
  eq(ErrorLocation.name(deep[100]._fx_id), "layers.99")
  local f = push(err.new(torch.zeros({1, 2})), err.INF, deep[100])
  eq(flags.unpack(f, 0)[1].location_name, "layers.99")
  ErrorLocation.reset()
end)

test("T18: weights decide what keeps its detail", function()
  local tree = WeightedLocationTree{max_locations = 8}
  for _, part in ipairs({"encoder", "decoder", "head"}) do
    for i = 0, 3 do tree:add_path(part .. "." .. i) end
  end
  tree:set_weight("head.*", 10.0):set_weight("encoder.*", 2.0):set_default_weight(0.5)
  tree:build_ids()
  eq(tree:get_path("head.3"), "head.3")
  eq(tree:get_path("encoder.0"), "encoder.0")
  eq(tree:get_path("encoder.1"), "encoder")
  eq(tree:get_path("decoder.2"), "decoder")
  tree:set_weight("decoder.*", 20)
  tree:build_ids()
  eq(tree:get_path("decoder.2"), "decoder.2")
  eq(tree:get_path("encoder.0"), "encoder")
  -- The same through tracked.
  ErrorLocation.reset()
  local heavy, light = leaf(), leaf()
  local small = WeightedLocationTree{max_locations = 5}
  small:set_weight("light*", 0.1)
  tracked(module({{"light", module({{"a", light}, {"b", leaf()}})}, {"heavy", module({{"a", heavy}})}}), {tree = small})
  eq(ErrorLocation.name(heavy._fx_id), "heavy.a")
  eq(ErrorLocation.name(light._fx_id), "light")
end)

test("T17 T18: wrong use of trees", function()
  fails(function() LocationTree(3) end, "LocationTree: expected options")
  fails(function() LocationTree{max_location = 3} end, "there is no option 'max_location'")
  fails(function() LocationTree{max_locations = 0} end, "max_locations must be 1..1024")
  fails(function() LocationTree{max_locations = 1.5} end, "expected an integer as max_locations")
  local tree = WeightedLocationTree()
  fails(function() tree:add_path("a..b") end, "empty component")
  fails(function() tree:add_path(3) end, "add_path: expected a dotted path")
  fails(function() tree:set_weight("a", "b") end, "set_weight: expected a number")
  fails(function() tree.add_path(nil, "a") end, "call it with a colon")
  fails(function() LocationTree():set_weight("a", 1) end, "set_weight")
  eq(getmetatable(tree), "WeightedLocationTree")
end)

test("T16: what a tracked module records is true after the registry was reset and filled by others", function()
  ErrorLocation.reset()
  local a, b = leaf(), leaf()
  local model = tracked(module({{"a", a}, {"b", b}}))
  local watched = triage.instrument(model)
  ErrorLocation.reset()
  for i = 1, 5 do ErrorLocation.register("other" .. i) end
  local x = torch.full({1, 2}, 0 / 0)
  eq(flags.repr(flag_nan(x, b)), "ErrorFlags(1 samples, 1 errors: 1xNAN @ b)")
  eq(flags.repr(flag_nan(x, b)), "ErrorFlags(1 samples, 1 errors: 1xNAN @ b)")
  eq(flags.repr(flag_nan(x, model)), "ErrorFlags(1 samples, 1 errors: 1xNAN @ root)")
  eq(flags.repr(triage.compile(function(z) return flag_nan(z, a) end)(x)), "ErrorFlags(1 samples, 1 errors: 1xNAN @ a)")
  function model:forward(z) return self.b(z) end
  function b:forward(z) return z * 1 end
  eq(flags.repr(select(2, watched(x))), "ErrorFlags(1 samples, 2 errors: 2xNAN @ b, root)")
  ErrorLocation.reset()
end)

test("T18: weights are finite numbers, 0 or more", function()
  local tree = WeightedLocationTree{max_locations = 8}
  for _, weight in ipairs({-1, 1 / 0, -1 / 0, 0 / 0}) do
    fails(function() tree:set_weight("a", weight) end, "expected a finite number, 0 or more, as weight")
    fails(function() tree:set_default_weight(weight) end, "expected a finite number, 0 or more, as weight")
  end
end)
