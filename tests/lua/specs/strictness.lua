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
  fails(function() find(err.NAN, f, {}, {nonsense = 1}) end,
    "find: expected at most 3 arguments, got 4: table {nonsense = 1} is one too many")
  fails(function() find(err.NAN, f, {nonsense = 1}) end, "find: there is no option")
  fails(function() err.is_ok(f, {}, 1) end, "err.is_ok: expected at most 2 arguments")
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

test("slots behind those of the configuration are read by all or by none: by all", function()
  local own = {config = ErrorConfig({num_slots = 6})}   -- in 2 words of 4
  local foreign = torch.tensor({{0, (3 | err.NAN << 2 | 9 << 6) << 48}})   -- slot 7
  eq(#flags.unpack(foreign, 0, own), 1)
  eq(#flags.unpack_all(foreign, own)[1], 1)
  eq(flags.to_table(foreign, own)[1].slot, 7)
  assert(flags.repr(foreign, own):find("1 errors: 1xNAN", 1, true))
  eq(flags.summary(foreign, own).Location_9.NAN, 1)
  assert(flags.pretty_print(foreign, 0, own):find("NUMERIC.NAN", 1, true))
  assert(has_err(foreign, own) and err.is_err(foreign, own):item() and not err.is_ok(foreign, own):item())
  assert(err.has_nan(foreign, own):item() and err.has_critical(foreign, own):item())
  assert(err.has_domain(foreign, 0, own):item() and not err.has_domain(foreign, 1, own):item())
  assert(find(err.NAN, foreign, own):item() and err.has_code(foreign, err.NAN, own):item())
  assert(IS(err.NAN, foreign, own):item() and HAS(foreign, own):item())
  eq({err.count_errors(foreign, own):item(), err.max_severity(foreign, own):item()}, {1, 3})
  assert(err.is_ok(err.clear(foreign, err.NAN, own), own):item())
  eq(fix(torch.ones({1, 2}), foreign, nil, own):totable(), {{0, 0}})
end)

test("a question takes the configuration of its flags, which makes their form known", function()
  local config = ErrorConfig({num_slots = 12, flag_dtype = torch.float32})
  local first = torch.tensor({true, false})
  local f = err.push(err.new_t(2, {config = config}), err.INF, 3, {where = first, config = config})
  eq(find(err.INF, f, {config = config}), first)
  eq(err.get_slot(f, 0, {config = config}), torch.tensor({3 | 2 << 2 | 3 << 6, 0}))
  for _, ask in ipairs({err.is_ok, err.is_err, err.all_ok, err.any_err, err.has_any, err.has_nan, err.has_inf,
                        err.has_fallback, err.has_critical, err.count_errors, err.max_severity, err.get_first_code,
                        err.get_first_location, err.get_first_severity, has_err, HAS}) do
    eq(ask(f, {config = config}), ask(f))
    fails(function() ask(f, {confg = config}) end, "config")
    fails(function() ask(f, {config = {num_slots = 12}}) end, "ErrorConfig")
  end
  fails(function() err.clear(f, err.INF, {config = 1}) end, "ErrorConfig")
  fails(function() find(err.INF, f, err.INF) end, "find: expected a table of options")
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
