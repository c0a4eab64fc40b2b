-- err.*: operations on flags and samples (rows T03 to T12, T26, T27 of the parity table).
local nan, inf = 0/0, 1/0

local function words(f) return f:totable() end

local function slot(severity, code, location) return severity | code << 2 | location << 6 end

test("T03: codes, aliases and severities", function()
  local codes = {OK = 0, NAN = 1, INF = 2, OVERFLOW = 3, OUT_OF_BOUNDS = 5, OOB = 5, NEGATIVE_IDX = 6, EMPTY_INPUT = 7,
    ZERO_OUTPUT = 9, CONSTANT_OUTPUT = 10, SATURATED = 11, FALLBACK_VALUE = 13, VALUE_CLAMPED = 14, UNKNOWN = 15,
    WARN = 1, ERROR = 2, CRITICAL = 3}
  for name, value in pairs(codes) do
    eq(err[name], value, name)
  end
  eq(ErrorCode.name(5), "OUT_OF_BOUNDS")
  eq(ErrorCode.name(4), "CODE_4")
  eq(ErrorCode.domain(13), ErrorDomain.RUNTIME)
  eq(ErrorCode.in_domain(6, ErrorDomain.INDEX), true)
  eq(Severity.name(3), "CRITICAL")
end)

test("T03: err and flags have no field but their own", function()
  fails(function() return err.OUT_OF_BOUND end, "err has no 'OUT_OF_BOUND'; did you mean 'OUT_OF_BOUNDS'?")
  fails(function() return flags.sumary end, "flags has no 'sumary'; did you mean 'summary'?")
  eq(rawget(err, "OUT_OF_BOUND"), nil)
  local count = 0
  for name in pairs(err) do
    count = count + (name == "NAN" and 1 or 0)
  end
  eq(count, 1)
end)

test("T03: an integer code brings its own severity, everywhere", function()
  local severities = {[1] = 3, [2] = 3, [3] = 2, [5] = 2, [6] = 2, [7] = 2,
    [9] = 1, [10] = 1, [11] = 1, [13] = 1, [14] = 1, [15] = 1}
  local f = err.new_t(1)
  local fine = torch.tensor({false})
  for code, severity in pairs(severities) do
    eq(err.push(f, code, 1):totable()[1][1], slot(severity, code, 1), "push " .. code)
    eq(err.push_scalar(f, code, 1):totable()[1][1], slot(severity, code, 1), "push_scalar " .. code)
    eq(err.from_code(code, 1, 1):totable()[1][1], slot(severity, code, 1), "from_code " .. code)
    eq(err.ensure_mask(f, fine, code, 1):totable()[1][1], slot(severity, code, 1), "ensure_mask " .. code)
  end
end)

test("T04: new, new_t and from_code", function()
  eq(err.new(torch.ones(3, 2)), torch.zeros(3, 4, {dtype = torch.int64}))
  eq(err.new_t(2), torch.zeros(2, 4, {dtype = torch.int64}))
  eq(err.new_t(0).shape, {0, 4})
  local config = ErrorConfig{num_slots = 5, flag_dtype = torch.int32}
  eq(err.new_t(2, {config = config, device = "cpu"}), torch.zeros(2, 3, {dtype = torch.int32}))
  eq(err.from_code(err.OOB, 7, 2, {severity = err.CRITICAL}):select(1, 0), torch.tensor({slot(3, 5, 7), slot(3, 5, 7)}))
  fails(function() err.new_t(-1) end, "err.new_t: expected the number of samples")
end)

test("T05: push where, with codes of each sample, with a severity", function()
  local f = err.new_t(3)
  local m = torch.tensor({true, false, true})
  local a = err.push(f, err.NAN, 2, {where = m})
  eq(a:select(1, 0), torch.tensor({slot(3, 1, 2), 0, slot(3, 1, 2)}))
  eq(f, torch.zeros(3, 4, {dtype = torch.int64}), "the argument stays as it was")
  local codes = torch.tensor({0, 6, 9}, {dtype = torch.int32})
  eq(err.push(f, codes, 3):select(1, 0), torch.tensor({0, slot(2, 6, 3), slot(2, 9, 3)}))
  eq(err.push(f, codes, 3, {where = m, severity = err.WARN}):select(1, 0), torch.tensor({0, 0, slot(1, 9, 3)}))
  local quiet = ErrorConfig{default_severity = err.WARN}
  eq(err.push(f, codes, 3, {config = quiet}):select(1, 0), torch.tensor({0, slot(1, 6, 3), slot(1, 9, 3)}))
end)

test("T05: wrong arguments say what was expected", function()
  local f = err.new_t(1)
  fails(function() err.push(f, 16, 1) end, "err.push: expected an error code (0..15")
  fails(function() err.push(f, 1, 1024) end, "err.push: expected a location id (0..1023), got")
  fails(function() err.push(f, 1, 1, {severity = 4}) end, "err.push: expected a severity")
  fails(function() err.push(f, 1, 1, {sevrity = 1}) end, "did you mean 'severity'")
  fails(function() err.push(f, 1, {where = f}) end, "options come after the location")
  fails(function() err.push(nil, 1, 1) end, "err.push: expected a tensor as `f`, got nil")
  fails(function() err.push(f, 1, 1, {config = {num_slots = 3}}) end, "expected an ErrorConfig")
end)

test("T06: merge pushes one record after the other", function()
  local a = err.from_code(err.NAN, 1, 2)
  local b = err.from_code(err.INF, 2, 2)
  local c = err.push(b, err.OOB, 3)
  eq(words(err.merge(a, c))[1], {slot(3, 1, 1) | slot(3, 2, 2) << 16 | slot(2, 5, 3) << 32, 0, 0, 0})
  eq(err.merge(a, b, c), err.merge(err.merge(a, b), c))
  eq(err.merge(a), a)
  local lifo = ErrorConfig{accumulation = AccumulationConfig{order = Order.LAST}}
  eq(words(err.merge(a, b, {config = lifo}))[1][1], slot(3, 2, 2) | slot(3, 1, 1) << 16)
end)

test("T07: questions", function()
  local f = err.push(err.push(err.new_t(3), err.NAN, 1, {where = torch.tensor({true, false, false})}), err.OOB, 2,
    {where = torch.tensor({true, true, false})})
  eq(err.is_ok(f), torch.tensor({false, false, true}))
  eq(err.is_err(f), torch.tensor({true, true, false}))
  eq(err.has_nan(f), torch.tensor({true, false, false}))
  eq(err.has_inf(f), torch.tensor({false, false, false}))
  eq(err.has_code(f, err.OOB), torch.tensor({true, true, false}))
  eq(err.has_critical(f), torch.tensor({true, false, false}))
  eq(err.has_domain(f, ErrorDomain.INDEX), torch.tensor({true, true, false}))
  eq(err.has_domain(f, ErrorDomain.RUNTIME), torch.tensor({false, false, false}))
  eq(err.has_fallback(f), torch.tensor({false, false, false}))
  eq(err.all_ok(f), torch.tensor(false))
  eq(err.any_err(f), torch.tensor(true))
  eq(err.has_any(f), torch.tensor(true))
  eq(err.count_errors(f), torch.tensor({2, 1, 0}, {dtype = torch.int32}))
  eq(err.max_severity(f), torch.tensor({3, 2, 0}))
end)

test("T08: filters that change the batch", function()
  local z = torch.tensor({{1.0}, {nan}, {3.0}})
  local f = flag_nan(z, 1)
  eq(err.take_ok(f, z), torch.tensor({{1.0}, {3.0}}))
  eq(err.Ok(f, z), err.take_ok(f, z))
  eq(err.take_err(f, z), torch.tensor({{nan}}))
  eq(err.Err(f, z), err.take_err(f, z))
  local ok, bad = err.partition(f, z)
  eq(ok:size(0), 2)
  eq(bad:size(0), 1)
  local oks, bads = err.partition_many(f, z, z:squeeze(1))
  eq(oks, {torch.tensor({{1.0}, {3.0}}), torch.tensor({1.0, 3.0})})
  eq(#bads, 2)
  eq(err.get_ok(f), torch.zeros(2, 4, {dtype = torch.int64}))
  eq(err.get_err(f):size(0), 1)
end)

test("T09: filters that keep the shape", function()
  local z = torch.tensor({{1.0}, {nan}, {3.0}})
  local f = flag_nan(z, 1)
  eq(err.take_ok_p(f, z), torch.tensor({{1.0}, {0.0}, {3.0}}))
  eq(err.take_ok_p(f, z, -1), torch.tensor({{1.0}, {-1.0}, {3.0}}))
  eq(err.take_ok_p(f, z, {fill = -1}), torch.tensor({{1.0}, {-1.0}, {3.0}}))
  fails(function() err.take_ok_p(f, z, {filling = 1}) end, "there is no option 'filling' (options: fill)")
  eq(err.take_err_p(f, z, 9), torch.tensor({{9.0}, {nan}, {9.0}}))
end)

test("T10: slots, and clearing a code", function()
  local f = err.push(err.from_code(err.NAN, 4, 1), err.SATURATED, 5)
  eq(err.get_first_code(f), torch.tensor({1}, {dtype = torch.int32}))
  eq(err.get_first_location(f), torch.tensor({4}, {dtype = torch.int32}))
  eq(err.get_first_severity(f), torch.tensor({3}, {dtype = torch.int32}))
  eq(err.get_slot(f, 1), torch.tensor({slot(1, 11, 5)}))
  local cleared = err.clear(f, err.NAN)
  eq(words(cleared)[1][1], slot(1, 11, 5) << 16)
  eq(words(err.push(cleared, err.INF, 6))[1][1], slot(3, 2, 6) | slot(1, 11, 5) << 16, "the hole is filled first")
end)

test("T11: map_ok, map_err and map_err_flags", function()
  local z = torch.tensor({{1.0}, {nan}})
  local f = flag_nan(z, 1)
  eq(err.map_ok(f, z, function(x) return x * 2 end), torch.tensor({{2.0}, {nan}}))
  eq(err.map_err(f, z, function(x) return torch.zeros_like(x) end), torch.tensor({{1.0}, {0.0}}))
  eq(err.map_err(f, z, function() return 7 end), torch.tensor({{1.0}, {7.0}}))
  eq(err.map_err(f, z, function() return torch.tensor({5.0}) end), torch.tensor({{1.0}, {5.0}}))
  eq(err.map_err_flags(f, torch.zeros_like), torch.zeros(2, 4, {dtype = torch.int64}))
  fails(function() err.map_ok(f, z, function() end) end, "err.map_ok: `fn` must return a tensor")
  fails(function() err.map_ok(f, z, function(x) return x > 0 end) end, "convert its result")
  fails(function() err.map_ok(f, z, function(x) return x:expand({2, 3}):sum(0) end) end, "err.map_ok: `fn` returned")
end)

test("T11: and_then freezes, bind goes on to record", function()
  local z = torch.tensor({{1.0}, {nan}})
  local f = flag_nan(z, 1)
  local function step(x) return x + 1, err.from_code(err.SATURATED, 9, 2) end
  local y, g = err.and_then(f, z, step)
  eq(y, torch.tensor({{2.0}, {nan}}))
  eq(g:select(1, 0), torch.tensor({slot(1, 11, 9), slot(3, 1, 1)}))
  y, g = err.bind(f, z, step)
  eq(y, torch.tensor({{2.0}, {nan}}))
  eq(g:select(1, 0), torch.tensor({slot(1, 11, 9), slot(3, 1, 1) | slot(1, 11, 9) << 16}))
  fails(function() err.bind(f, z, function(x) return x end) end, "must return two tensors")
end)

test("T11: what a combinator does not take contributes nothing to a gradient", function()
  local w = torch.ones(2, {requires_grad = true})
  local z = torch.tensor({{1.0, 2.0}, {0.0, 4.0}}) * w
  local f = err.push(err.new(z), err.OOB, 1, {where = torch.tensor({false, true})})
  err.map_ok(f, z, torch.log):sum():backward()
  eq(w.grad, torch.tensor({1.0 + 0.0, 1.0 + 4.0}), "log(0) has no gradient, and its row is not taken")
end)

test("T11: replace takes codes, strings, infinities and numbers", function()
  local z = torch.tensor({nan, inf, -inf, 1.0, 2.0, 999.0})
  eq(err.replace(z, 0, {err.NAN}), torch.tensor({0.0, inf, -inf, 1.0, 2.0, 999.0}))
  eq(err.replace(z, 0, {err.INF, 999}), torch.tensor({nan, 0.0, 0.0, 1.0, 2.0, 0.0}))
  eq(err.replace(z, 0, {"nan", "posinf"}), torch.tensor({0.0, 0.0, -inf, 1.0, 2.0, 999.0}))
  eq(err.replace(z, 0, {"neginf", 1.0}), torch.tensor({nan, inf, 0.0, 0.0, 2.0, 999.0}))
  eq(err.replace(z, 0, {inf}), torch.tensor({nan, 0.0, -inf, 1.0, 2.0, 999.0}))
  fails(function() err.replace(z, 0, {}) end, "the list of targets is empty")
  fails(function() err.replace(z, 0, {"none"}) end, "there is no target")
  fails(function() err.replace(z, 0, err.NAN) end, "expected a list of targets")
end)

test("T11: replace compares integers exactly, as a script and under every backend", function()
  local large <const> = 9007199254740993   -- 2^53 + 1, which no double is
  local whole = torch.tensor({large, large - 1, 16777217})
  local function replaced(z) return err.replace(z, 0, {large, 16777216.5}) end
  eq(replaced(whole), torch.tensor({0, large - 1, 16777217}))
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local compiled = triage.compile(replaced, {backend = backend, fullgraph = true})
    for _ = 1, 3 do eq(compiled(whole), torch.tensor({0, large - 1, 16777217})) end
  end
  eq(err.replace(torch.tensor({inf, 2.0}):half(), 0, {1e6}), torch.tensor({inf, 2.0}):half())
end)

test("T09 T11: numbers put in keep the dtype where they are of its kind, and have to fit it", function()
  local truth, bytes = torch.tensor({true, false}), torch.tensor({1, 2}, {dtype = torch.uint8})
  local f = push(err.new_t(2), err.NAN, 1, {where = torch.tensor({false, true})})
  eq(err.replace(truth, 0, {"nan"}), truth)
  eq(err.replace(truth, 0, {1.0}), torch.tensor({false, false}))
  eq(err.take_ok_p(f, truth, 1), torch.tensor({true, true}))
  eq(err.take_err_p(f, truth, 0), torch.tensor({false, false}))
  eq(err.take_ok_p(f, bytes, 2.5).dtype, torch.float32)
  fails(function() err.take_ok_p(f, bytes, 300) end, "take_ok_p: `fill` is 300")
  fails(function() err.replace(torch.ones({2}):half(), 1e6, {1.0}) end, "replace: `value` is 1e+06")
  fails(function() fix(bytes, f, 1, {fallback = 300}) end, "fix: `fallback` is 300")
end)

test("messages describe tables by their fields", function()
  local f = err.new_t(1)
  fails(function() return fix({codes = {77}}, f) end, "got table {codes = table}")
  fails(function() err.get_slot(f, {config = {num_slots = 4}, on = true}) end, "got table {config = table, on = true}")
  fails(function() err.get_slot(f, {1, 2, name = "x"}) end, 'got table of 2 and {name = "x"}')
  fails(function() err.get_slot(f, {a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8}) end,
    "{a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, ...}")
  fails(function() err.get_slot(f, {}) end, "got an empty table")
end)

test("T12: guards record where the predicate is false", function()
  local z = torch.tensor({{1.0}, {-1.0}})
  local f = err.new(z)
  local fine = torch.tensor({true, false})
  eq(err.ensure_mask(f, fine, err.NEGATIVE_IDX, 3):select(1, 0), torch.tensor({0, slot(2, 6, 3)}))
  eq(err.guard(f, z, function(x) return (x > 0):all(-1) end, err.OOB, 3, {severity = err.WARN}):select(1, 0),
    torch.tensor({0, slot(1, 5, 3)}))
end)

test("T12: recover_with_fallback", function()
  local z = torch.tensor({{1.0}, {nan}})
  local f = flag_nan(z, 1)
  local y, g = err.recover_with_fallback(f, z, torch.tensor(5.0), 2)
  eq(y, torch.tensor({{1.0}, {5.0}}))
  eq(g:select(1, 0), torch.tensor({0, slot(3, 1, 1) | slot(1, 13, 2) << 16}))
  y, g = err.recover_with_fallback(f, z, 6, 2, {severity = err.ERROR})
  eq(y, torch.tensor({{1.0}, {6.0}}))
  eq(g:select(1, 0), torch.tensor({0, slot(3, 1, 1) | slot(2, 13, 2) << 16}))
end)

test("T26: every carrier holds the same bits", function()
  for _, case in ipairs{{torch.int64, 4}, {torch.int32, 8}, {torch.float64, 4}, {torch.float32, 8}} do
    local config = ErrorConfig{flag_dtype = case[1]}
    local f = err.push(err.new_t(1, {config = config}), err.NAN, 1023, {config = config})
    eq(f.dtype, case[1])
    eq(f.shape, {1, case[2]})
    eq(err.get_slot(f, 0), torch.tensor({slot(3, 1, 1023)}))
  end
end)

test("T27: a full record gives way by the policy", function()
  local function codes_after(accumulation)
    local config = ErrorConfig{num_slots = 2, accumulation = accumulation}
    local f = err.new_t(1, {config = config})
    for _, code in ipairs{err.SATURATED, err.OOB, err.NAN} do
      f = err.push(f, code, code, {config = config})
    end
    return {flags.unpack(f)[1].code, flags.unpack(f)[2].code}
  end
  eq(codes_after(AccumulationConfig{}), {11, 5})
  eq(codes_after(AccumulationConfig{order = Order.LAST}), {1, 5})
  eq(codes_after(AccumulationConfig{priority = Priority.SEVERITY, order = Order.LAST}), {1, 5})
  eq(codes_after(AccumulationConfig{priority = Priority.LOCATION}), {1, 5})
end)

test("T06: the merge of one is not its argument", function()
  local f = err.push(err.new_t(2), err.NAN, 1)
  local merged = err.merge(f)
  eq(merged, f)
  merged:zero_()
  eq(err.is_err(f), torch.tensor({true, true}))
  fails(function() err.merge(f[{":", {0, 3}}]) end, "16 slots")
  local compiled = triage.compile(function(g) return err.merge(g) end, {fullgraph = true})
  for _ = 1, 2 do
    local again = compiled(f)
    again:zero_()
    eq(err.is_err(f), torch.tensor({true, true}))
  end
end)

test("T07 T08 T09 T11 T14 T15: data in the place of flags is refused, in every mode", function()
  local z, f = torch.zeros({2, 7001}), err.new_t(2)   -- no configuration of any test has this width
  local function same(x) return x end
  local questions = {
    function(x) return err.is_ok(x) end, function(x) return err.is_err(x) end,
    function(x) return err.has_nan(x) end, function(x) return err.has_inf(x) end,
    function(x) return err.has_code(x, err.NAN) end, function(x) return err.has_critical(x) end,
    function(x) return err.has_domain(x, 0) end, function(x) return err.has_fallback(x) end,
    function(x) return err.all_ok(x) end, function(x) return err.any_err(x) end, function(x) return err.has_any(x) end,
    function(x) return err.count_errors(x) end, function(x) return err.max_severity(x) end,
    function(x) return err.get_first_code(x) end, function(x) return err.get_slot(x, 0) end,
    function(x) return err.clear(x, err.NAN) end, function(x) return find(err.NAN, x) end,
    function(x) return HAS(x) end, function(x) return IS(err.NAN, x) end,
    function(x) return err.take_ok_p(x, x) end, function(x) return err.take_err_p(x, x) end,
    function(x) return err.map_ok(x, x, same) end, function(x) return err.map_err(x, x, same) end,
    function(x) return err.map_err_flags(x, same) end,
    function(x) return err.bind(x, x, function(y) return y, err.new(y) end) end,
    function(x) return err.and_then(x, x, function(y) return y, err.new(y) end) end,
  }
  for _, question in ipairs(questions) do
    fails(function() question(z) end, "is not a flags tensor: Float of shape [2, 7001]")
    fails(function() question(z:to(torch.int64)) end, "is not a flags tensor: Long of shape [2, 7001]")
    local compiled = triage.compile(question, {fullgraph = true})
    fails(function() compiled(z) end, "is not a flags tensor")
    local warm = triage.compile(question, {fullgraph = true})
    warm(err.new_t(2))
    warm(err.new_t(3))
    fails(function() warm(z:to(torch.int64)) end, "is not a flags tensor")
    fails(function() warm(z) end, "is not a flags tensor")
    warm(err.new_t(2))
  end
  fails(function() err.take_ok_p(z, f) end, "are the two swapped?")
  fails(function() err.take_ok(z, f) end, "are the two swapped?")
  fails(function() err.partition(z, f) end, "are the two swapped?")
  fails(function() err.get_err(z) end, "err.get_err: `f` is not a flags tensor")
  fails(function() err.partition_many(z, f) end, "is not a flags tensor")
  fails(function() has_err(z) end, "has_err: `f` is not a flags tensor")
  fails(function() flags.repr(z:to(torch.int64)) end, "is not a flags tensor")
end)

test("T07 T27: flags of another configuration are flags, made with it or only read", function()
  local config = ErrorConfig{num_slots = 4 * 1601, flag_dtype = torch.int32}
  local read = torch.zeros({2, 3202}, {dtype = torch.int32})
  eq(err.is_ok(read), torch.tensor({true, true}))
  local f = err.push(err.new_t(2, {config = config}), err.NAN, 1, {config = config})
  eq(err.has_nan(f), torch.tensor({true, true}))
  eq(HAS(f), torch.tensor(true))
end)

test("T09 T12 T13 T14: numbers are numbers of the script, in every mode", function()
  local f, z, ids, one = err.new_t(2), torch.ones({2, 3}), torch.zeros({2}, {dtype = torch.int64}), torch.tensor(1.0)
  local calls = {
    ["err.take_ok_p: expected a number as `fill`"] = function() return err.take_ok_p(f, z, one) end,
    ["err.take_err_p: expected a number as `fill`"] = function() return err.take_err_p(f, z, {fill = one}) end,
    ["err.replace: expected a number as `value`"] = function() return err.replace(z, one, {err.NAN}) end,
    ["flag_oob_indices: expected a number as `num_embeddings`"] = function()
      return flag_oob_indices(ids, torch.tensor(3), "x")
    end,
    ["err.recover_with_fallback: expected a number or a tensor as `fallback`, got nil"] = function()
      return err.recover_with_fallback(f, z, nil)
    end,
    ["fix: expected a number or a tensor as `fallback`, got string"] = function()
      return fix(z, f, nil, {fallback = "x"})
    end,
  }
  for says, call in pairs(calls) do
    fails(call, says)
    fails(function() triage.compile(call, {fullgraph = true})() end, says)
  end
  -- A size is a number, captured, too.
  local sized = triage.compile(function(x)
    return err.take_ok_p(err.new(x), x, x:size(1)), flag_oob_indices(torch.zeros_like(x):long(), #x, 1)
  end, {fullgraph = true})
  for _, n in ipairs({2, 3, 4}) do eq((sized(torch.ones({n, 3}))), torch.ones({n, 3})) end
end)
