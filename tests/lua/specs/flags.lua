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
