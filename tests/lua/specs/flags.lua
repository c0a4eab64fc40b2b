-- flags.* and has_err: what flags say, as Lua values (row T13).
test("T13: unpack names what happened", function()
  local f = err.push(err.from_code(err.NAN, 3, 2), err.OOB, "flags.spec")
  local id = ErrorLocation.get("flags.spec")
  eq(flags.unpack(f, 1), {
    {severity = 3, code = 1, location = 3,
     severity_name = "CRITICAL", code_name = "NAN", location_name = ErrorLocation.name(3)},
    {severity = 2, code = 5, location = id,
     severity_name = "ERROR", code_name = "OUT_OF_BOUNDS", location_name = "flags.spec"}})
  eq(flags.unpack(f, -1), flags.unpack(f, 1))
  eq(#flags.unpack_all(f), 2)
  eq(flags.unpack_all(f)[2], flags.unpack(f, 1))
  fails(function() flags.unpack(f, 2) end, "2")
  fails(function() flags.unpack(3) end, "flags.unpack: expected a flags tensor")
end)

test("T13: summary, repr, pretty_print and to_table", function()
  local f = err.push(err.new_t(3), err.NAN, "spec.a", {where = torch.tensor({true, true, false})})
  f = err.push(f, err.SATURATED, "spec.b", {where = torch.tensor({false, true, false})})
  eq(flags.summary(f), {["spec.a"] = {NAN = 2}, ["spec.b"] = {SATURATED = 1}})
  eq(flags.repr(f), "ErrorFlags(3 samples, 3 errors: 2xNAN, 1xSATURATED @ spec.a, spec.b)")
  eq(flags.repr(err.new_t(32)), "ErrorFlags(32 samples, no errors)")
  eq(flags.pretty_print(f, 2), "[OK] No errors")
  eq(flags.pretty_print(f, 1):find("NUMERIC.NAN", 1, true) ~= nil, true)
  eq(#flags.to_table(f), 3)
  eq(flags.to_table(f)[3].sample, 1)
  eq(flags.to_table(f)[3].slot, 1)
end)

test("T14: has_err is a boolean", function()
  eq(has_err(err.new_t(2)), false)
  eq(has_err(err.from_code(err.INF, 1, 2)), true)
  fails(function() has_err({}) end, "has_err: expected a flags tensor")
end)

test("T02: captured code may move and compare flags, not compute with them", function()
  local z = torch.tensor({{1.0, 0 / 0}, {1.0, 2.0}})
  local function captured(fn) return triage.compile(fn, {fullgraph = true})(z) end
  for name, arithmetic in pairs({
    negative = function(f) return -f end,
    plus = function(f) return torch.add(f, 1) end,
    times = function(f) return f:mul(2) end,
    sum = function(f) return f:sum() end,
    float = function(f) return f:float() end,
    double = function(f) return f:to(torch.float64) end,
    int = function(f) return f:to(torch.int32) end,
    shift = function(f) return f << 1 end,
    complement = function(f) return ~f end,
    union = function(f) return f | f end,
    sort = function(f) return (f:sort()) end,
    amax = function(f) return f:amax() end,
    argmax = function(f) return f:argmax() end,
    flat = function(f) return f:view({-1}) + 1 end,
    element = function(f) return f[0][0] * 1 end,
    column = function(f) return f:t():select(0, 0):clamp(0, 1) end,
    promoted = function(f) return torch.cat({f, torch.zeros({1, f:size(1)})}) end,
    chosen = function(f) return torch.where(f:eq(0), 0.5, f) end,
  }) do
    local text = fails(function() captured(function(x) return arithmetic(flag_nan(x, "h")) end) end,
      "does arithmetic on a flags tensor")
    eq(type(text), "string", name)
  end
  local plain = function(x)
    local f = flag_nan(x, "h")
    local g = torch.cat({f, f[{{0, 1}}]})
    return g, f:clone():flip({0}), f:eq(0):sum(), f[0][0]:eq(0), torch.stack({f, f}):view({-1, f:size(1)}),
      f:to(torch.int64), torch.zeros_like(f, {dtype = torch.float32}) + 1, torch.where(err.is_ok(f):unsqueeze(-1), f, 0)
  end
  local expected, results = {plain(z)}, {captured(plain)}
  for i = 1, #expected do eq(results[i], expected[i]) end
end)
