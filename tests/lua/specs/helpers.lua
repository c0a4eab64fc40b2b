-- find, push, fix and flag_* (row T14), and locations given by hand (row T19).
local nan, inf = 0/0, 1/0
local z = torch.tensor({{1.0, 2.0}, {nan, 1.0}, {inf, nan}, {-inf, 0.0}})

test("T14: flag_nan, flag_inf and both in one pass", function()
  local function codes(f) return err.get_first_code(f):totable() end
  eq(codes(flag_nan(z, "h")), {0, 1, 1, 0})
  eq(codes(flag_inf(z, "h")), {0, 0, 2, 2})
  local f = flag_nan_and_inf(z, "h")
  eq(codes(f), {0, 1, 1, 2})
  eq(err.count_errors(f):totable(), {0, 1, 2, 1})
  eq(f, flag_inf(z, "h", flag_nan(z, "h")))
  eq(flag_nan(z:to(torch.int64):fill_(1), "h"), err.new(z))
  local small = ErrorConfig{num_slots = 4, flag_dtype = torch.int32}
  eq(flag_nan(z, "h", {config = small}).shape, {4, 2})
  eq(flag_nan(z, "h", nil, {config = small}).dtype, torch.int32)
  fails(function() flag_nan(z, "h", nil, {fallback = 1}) end, "flag_nan: there is no option 'fallback'")
end)

test("T14: flag_oob_indices", function()
  local ids = torch.tensor({{0, 4}, {5, 0}, {-1, 2}})
  eq(err.has_code(flag_oob_indices(ids, 5, "embedding"), err.OOB), torch.tensor({false, true, true}))
  local search = function(x) return flag_oob_indices(x, 5, "embedding") end
  for _, no_index in ipairs({torch.tensor({{0, 0 / 0}, {1.5, 2}}), torch.tensor({true, false})}) do
    fails(function() search(no_index) end, "`ids` must be of an integer dtype")
    fails(function() triage.compile(search, {fullgraph = true})(no_index) end, "`ids` must be of an integer dtype")
  end
end)

test("T14: find counts entries, not empty slots", function()
  local f = flag_nan_and_inf(z, "h")
  eq(find(err.NAN, f), torch.tensor({false, true, true, false}))
  eq(find(err.OK, f), torch.tensor({false, false, false, false}))
end)

test("T14: push has the same options as err.push", function()
  local f, options = err.new_t(2), {where = torch.tensor({true, false}), severity = err.ERROR}
  eq(push(f, err.VALUE_CLAMPED, "h", options), err.push(f, err.VALUE_CLAMPED, "h", options))
end)

test("T14: fix with a number, a tensor and a function", function()
  local f = flag_nan_and_inf(z, "h")
  local bad = torch.tensor({false, true, true, true})
  local expected = err.push(f, err.FALLBACK_VALUE, "h", {where = bad})
  local y, g = fix(z, f, "h")
  eq(y, torch.tensor({{1.0, 2.0}, {0.0, 0.0}, {0.0, 0.0}, {0.0, 0.0}}))
  eq(g, expected)
  eq((fix(z, f, "h", {fallback = -1})):select(1, 0), torch.tensor({1.0, -1.0, -1.0, -1.0}))
  eq((fix(z, f, "h", {fallback = torch.tensor({7.0, 8.0})})):select(0, 1), torch.tensor({7.0, 8.0}))
  local function threes() return torch.full({4, 2}, 3.0) end
  eq((fix(z, f, "h", {fallback = threes})):select(0, 2), torch.tensor({3.0, 3.0}))
  eq((fix(z, f, "h", {fallback = function() return 2 end})):select(0, 2), torch.tensor({2.0, 2.0}))
  fails(function() fix(z, f, "h", {fallback = function() end}) end, "returned nothing")
  fails(function() fix(z, f, "h", {fallbak = 0}) end, "did you mean 'fallback'")
end)

test("T14: fix narrowed to codes or to a severity", function()
  local f = flag_nan_and_inf(z, "h")
  local y, g = fix(z, f, "h", {codes = {err.INF}})
  eq(err.has_fallback(g), torch.tensor({false, false, true, true}))
  eq(y:select(0, 2), torch.tensor({0.0, 0.0}))
  f = push(f, err.SATURATED, "h", {where = torch.tensor({true, false, false, false})})
  eq(err.has_fallback(select(2, fix(z, f, "h", {min_severity = err.ERROR}))), torch.tensor({false, true, true, true}))
  eq(err.has_fallback(select(2, fix(z, f, "h", {min_severity = err.WARN}))), torch.tensor({true, true, true, true}))
  fails(function() fix(z, f, "h", {codes = {}}) end, "expected a list of codes")
end)

test("T19: locations are ids, paths or nothing", function()
  local f = err.new_t(1)
  eq(flags.unpack(push(f, err.NAN, 17))[1].location, 17)
  eq(flags.unpack(push(f, err.NAN))[1].location_name, "Unknown")
  eq(flags.unpack(push(f, err.NAN, "by.path"))[1].location, ErrorLocation.get("by.path"))
  eq(flags.unpack(push(f, err.NAN, {_fx_path = "by.module"}))[1].location_name, "by.module")
  eq(flags.unpack(push(f, err.NAN, setmetatable({}, {})))[1].location, 0)
  fails(function() push(f, err.NAN, 1.5) end, "expected a location id")
  fails(function() push(f, err.NAN, true) end, "expected a location")
end)

test("data in the place of flags is an error that says so", function()
  local data = torch.tensor({{1.0, 2.0}, {3.0, 4.0}})
  local recorded = flag_nan(data, "here")
  fails(function() fix(recorded, data, "here") end,
    "fix(z, f): the second argument is not a flags tensor (Tensor float32[2, 2]); are the two swapped?")
  fails(function() fix(data, data, "here") end,
    "fix(z, f): the second argument is not a flags tensor (Tensor float32[2, 2])")
  fails(function() flags.repr(data) end, "flags.repr: expected a flags tensor as `f`, got")
end)

test("T14: without a fallback of its own, fix keeps the dtype", function()
  local f = err.from_code(err.OOB, "h", 2)
  for _, dtype in ipairs({torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16, torch.float64}) do
    local ids = torch.ones({2, 3}, {dtype = dtype})
    local repair = function(x) local y, g = fix(x, f, "h") return y, g, err.take_ok_p(f, x) end
    for _, run in ipairs({repair, triage.compile(repair, {fullgraph = true})}) do
      local y, _, kept = run(ids)
      eq(y, torch.zeros_like(ids))
      eq(kept, torch.zeros_like(ids))
    end
  end
  eq(fix(torch.ones({2}, {dtype = torch.int64}), f, "h", {fallback = 1.5}).dtype, torch.float32)
end)
