-- What the library refuses rather than ignores, and what it reads of flags from elsewhere.

local z = torch.tensor({{0 / 0}, {1.0}})

test("T02: arithmetic on flags inside of err.map_err_flags is refused in captured code", function()
  for name, arithmetic in pairs({
    add = function(g) return g + 1 end,
    shift = function(g) return g << 2 end,
    method = function(g) return torch.bitwise_or(g, 1) end,
    through_a_choice = function(g) return torch.where(g == 0, g, g * 2) end,
  }) do
    local compiled = triage.compile(function(x) return err.map_err_flags(flag_nan(x, "s"), arithmetic) end)
    fails(function() compiled(z) end, "does arithmetic on a flags tensor")
    assert(name)
  end
end)

test("err.map_err_flags takes functions of flags in captured code, with the bits of the script", function()
  local function fn(x)
    return err.map_err_flags(flag_nan(x, "s"), function(g) return push(g, err.SATURATED, "s") end)
  end
  local compiled = triage.compile(fn, {fullgraph = true})
  for _ = 1, 3 do eq(compiled(z), fn(z)) end
end)

test("arguments that a function does not take are refused", function()
  local f = flag_nan(z, "s")
  local tree = LocationTree():add_path("a.b")
  fails(function() tree:build_ids(100) end, "tree:build_ids: expected no arguments, got 1: int 100 is one too many")
  fails(function() find(err.NAN, f, {nonsense = 1}) end,
    "find: expected at most 2 arguments, got 3: table {nonsense = 1} is one too many")
  fails(function() err.is_ok(f, {config = 1}) end, "err.is_ok: expected at most 1 argument")
  fails(function() flags.repr(f, {}, 1) end, "flags.repr: expected at most 2 arguments")
  fails(function() ErrorLocation.count("a") end, "ErrorLocation.count: expected no arguments, got 1")
  fails(function() IF(z:amax(-1) > 0, function() return z end):ELSE(function() return z end, 3) end, "chain:ELSE")
  eq(find(err.NAN, f, nil), find(err.NAN, f))   -- nil is no argument
end)

--- Functions that take as many as there are.
local any_number = {
  ["err.merge"] = true, ["err.partition_many"] = true, AND = true, OR = true, policy = true, unwrap = true,
}

test("every function of the library's flags refuses a list of arguments that is too long", function()
  local complaints, seen = {}, 0
  local surplus = {}
  for i = 1, 20 do surplus[i] = {nonsense = i} end
  local function check(name, fn)
    if any_number[name] then return end
    seen = seen + 1
    local ok, message = pcall(fn, table.unpack(surplus))
    message = type(message) == "table" and message.message or tostring(message)
    if ok or not (message:find("at most", 1, true) or message:find("no arguments", 1, true)) then
      complaints[#complaints + 1] = name .. ": " .. message:sub(1, 150)
    end
  end
  for _, library in ipairs({"err", "flags", "ErrorLocation"}) do
    for name, fn in pairs(_G[library]) do
      if type(fn) == "function" then check(library .. "." .. name, fn) end
    end
  end
  for name in ("find push fix has_err flag_nan flag_inf flag_nan_and_inf flag_oob_indices HAS IS NOT tracked "
    .. "tensorcheck type_cast LocationTree WeightedLocationTree"):gmatch("%S+") do
    check(name, _G[name])
  end
  assert(#complaints == 0, table.concat(complaints, "\n"))
  assert(seen > 50, seen)
end)

test("auto_detect = {} detects nothing", function()
  local declared = {returns = {Tensor(float32_t), Tensor(error_t)}, auto_detect = {}}
  local checked = tensorcheck(function(x) return x, err.new(x) end, declared)
  local _, f = checked(z)
  assert(err.all_ok(f):item())
  fails(function() tensorcheck(function(x) return x end, {auto_detect = {nan = true}}) end, "auto_detect")
end)

test("slots behind those of the configuration are not read", function()
  local config = ErrorConfig({num_slots = 6})   -- in 2 words of 4
  local foreign = torch.full({1, 2}, -1, {dtype = torch.int64})
  eq(#flags.unpack(foreign, 0, {config = config}), 6)
  eq(#flags.unpack_all(foreign, {config = config})[1], 6)
  eq(#flags.to_table(foreign, {config = config}), 6)
  assert(flags.repr(foreign, {config = config}):find("6 errors", 1, true))
  eq(#flags.unpack(foreign, 0, {config = ErrorConfig({num_slots = 8})}), 8)
end)

test("a tree can be printed before its ids are built", function()
  local tree = LocationTree():add_path("a.b"):add_path("a.c")
  assert(tostring(tree):find("no ids yet", 1, true))
  tree:build_ids()
  assert(tostring(tree):find("a.b", 1, true))
end)

test("the fields of a type of tensors can be read", function()
  local spec = Tensor(float32_t, {"N", 3, Dim.hidden, "..."}, "cpu", false)
  eq(spec.dtype, torch.float32)
  eq(spec.dims[1], "N")
  eq(spec.dims[2], 3)
  eq(tostring(spec.dims[3]), "Dim.hidden")
  eq(spec.dims[4], "...")
  eq(spec.device, "cpu")
  eq(spec.requires_grad, false)
  assert(Tensor(spec.dtype, spec.dims, spec.device, spec.requires_grad) == spec)
  local open = Tensor(error_t)
  assert(Tensor(open.dtype) == open)
  eq(open.dims, {"..."})
  eq(open.device, nil)
  eq(open.requires_grad, nil)
  fails(function() return spec.shape end, "it has dtype, dims, device and requires_grad")
end)

test("warnings of breaks that are meant can be left out", function()
  local compiled = triage.compile(function(x) triage.graph_break("meant") return x + 1 end, {warn = false})
  eq(compiled(z), z + 1)
  fails(function() triage.compile(print, {warn = 1}) end, "warn (boolean)")
end)
