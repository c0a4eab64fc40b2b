-- torch.save and torch.load of trusted scripts.
local function in_file(ending, fn)
  local path = os.tmpname()
  os.remove(path)
  path = path .. ending
  local ok, message = pcall(fn, path)
  os.remove(path)
  if not ok then error(message, 0) end
end

test("torch.save and torch.load: one tensor in every format, every batch", function()
  for _, ending in ipairs({".pt", ".npy", ".safetensors"}) do
    for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
      in_file(ending, function(path)
        local z = torch.randn({3, rows}):t()
        torch.save(z, path)
        local back = torch.load(path)
        eq(ending == ".safetensors" and back.tensor or back, z)
        eq(torch.load(ending == ".safetensors" and path .. ":tensor" or path) ~= nil, true)
      end)
    end
  end
end)

test("torch.save and torch.load: tables of tensors, numbers, strings and booleans", function()
  in_file(".pt", function(path)
    local value = {step = 3, rate = 0.5, name = "run 1", done = false, weights = {torch.ones({2}), torch.zeros({0, 3})},
      nested = {f = err.push_scalar(err.new_t(2), err.NAN, 7), list = {1, {2, "x"}}}}
    torch.save(value, path)
    local back = torch.load(path)
    eq(back.step, 3)
    eq(math.type(back.step), "integer")
    eq(back.rate, 0.5)
    eq(back.name, "run 1")
    eq(back.done, false)
    eq(back.weights, value.weights)
    eq(back.nested.f, value.nested.f)
    eq(flags.unpack(back.nested.f, 0)[1].location, 7)
    eq(back.nested.list, {1, {2, "x"}})
    eq(torch.load(path .. ":weights:0"), torch.ones({2}))
    torch.save({[0] = torch.ones({1}), [5] = "x", [-1] = 2}, path)
    eq(torch.load(path), {[0] = torch.ones({1}), [5] = "x", [-1] = 2})
    fails(function() torch.save({[0] = 1, x = 2}, path) end, "has keys of several kinds")
    fails(function() torch.save({[0.5] = 1}, path) end, "has keys of several kinds")
  end)
end)

test("torch.save says what it cannot write, and leaves no file", function()
  in_file(".pt", function(path)
    local loop = {}
    loop.self = loop
    fails(function() torch.save(loop, path) end, "does a table hold itself?")
    fails(function() torch.save({1, x = 2}, path) end, "the value has keys of several kinds")
    fails(function() torch.save({a = {print}}, path) end, "as the value.a[1], got function")
    fails(function() torch.save(torch.ones({2}), path .. ".txt") end, ".safetensors")
    fails(function() torch.load(path) end, path)
    fails(function() torch.save(torch.ones({2})) end, "torch.save: expected a string as `path`, got nothing")
    eq(io.open(path), nil)
  end)
end)

test("saving and loading end a graph", function()
  in_file(".pt", function(path)
    local f = triage.compile(function(z) torch.save(z * 2, path) return torch.load(path) + 1 end)
    for _, rows in ipairs({1, 2, 3}) do
      local z = torch.ones({rows})
      eq(f(z), z * 3)
    end
    local whole = triage.compile(function(z) torch.save(z, path) return z end, {fullgraph = true})
    fails(function() whole(torch.ones({1})) end, "`torch.save` reaches a file")
  end)
end)
