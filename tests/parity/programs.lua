-- Programs that every mode must answer with the same bits (modes_test.cpp runs them). Each is a policy of its own, from one
-- `-- program:` line to the next; the names of its parameters choose its inputs (inputs.cpp). `(breaks)` marks those that one
-- graph cannot hold. A program with a twin in twins.cpp is compared with that C++ code too.

-- program: T04 new
return function(z) return err.new(z) end

-- program: T04 new, other carrier and width
return function(z)
  return err.new(z, {config = ErrorConfig{num_slots = 7, flag_dtype = torch.float32}})
end

-- program: T05 push where
return function(f, m) return err.push(f, err.NAN, 3, {where = m}) end

-- program: T05 push codes
return function(f, c) return err.push(f, c, 5) end

-- program: T05 push codes where
return function(f, c, m) return err.push(f, c, 5, {where = m, severity = err.WARN}) end

-- program: T05 push scalar
return function(f) return err.push_scalar(f, err.OUT_OF_BOUNDS, 1023, {severity = err.CRITICAL}) end

-- program: T06 merge
return function(f, g) return err.merge(f, g, f) end

-- program: T07 questions
return function(f)
  return err.is_ok(f), err.is_err(f), err.all_ok(f), err.any_err(f), err.has_nan(f), err.has_inf(f), err.has_code(f, err.OOB),
    err.has_critical(f), err.has_domain(f, ErrorDomain.INDEX), err.has_fallback(f), err.count_errors(f), err.max_severity(f)
end

-- program: T08 rows that are fine (breaks)
return function(f, z) return err.take_ok(f, z), err.take_err(f, z), err.get_ok(f), err.get_err(f) end

-- program: T08 partition (breaks)
return function(f, z, y)
  local good, bad = err.partition(f, z)
  local goods, bads = err.partition_many(f, z, y)
  return good, bad, goods[2], bads[1]
end

-- program: T09 take_ok_p
return function(f, z, q) return err.take_ok_p(f, z), err.take_err_p(f, z, -1.5), err.take_ok_p(f, q, 2) end

-- program: T10 first slot
return function(f)
  return err.get_first_code(f), err.get_first_location(f), err.get_first_severity(f), err.get_slot(f, 1), err.get_slot(f, 15)
end

-- program: T10 clear
return function(f) return err.clear(f, err.NAN) end

-- program: T11 map_ok and map_err
return function(f, z)
  return err.map_ok(f, z, function(x) return x * 2 end), err.map_err(f, z, function(x) return torch.zeros_like(x) end)
end

-- program: T11 map_err_flags
return function(f) return err.map_err_flags(f, function(g) return err.push(g, err.SATURATED, 9) end) end

-- program: T11 and_then
return function(f, z)
  return err.and_then(f, z, function(x) return x:log(), flag_nan_and_inf(x:log(), 12) end)
end

-- program: T11 bind
return function(f, z)
  return err.bind(f, z, function(x) return x:sqrt(), flag_nan_and_inf(x:sqrt(), 13) end)
end

-- program: T11 replace
return function(z, h) return err.replace(z, 0.25, {err.NAN, "posinf", -1.0}), err.replace(h, -7, {"inf"}) end

-- program: T12 ensure_mask and guard
return function(f, m, y)
  local g = err.ensure_mask(f, m, err.SATURATED, 21)
  return err.guard(g, y, function(x) return (x > -0.5):all(-1) end, err.ZERO_OUTPUT, 22, {severity = err.ERROR})
end

-- program: T12 recover_with_fallback
return function(f, z, y)
  local a, g = err.recover_with_fallback(f, z, y, 31)
  local b, h = err.recover_with_fallback(f, z, torch.tensor(4.0), 32, {severity = err.ERROR})
  return a, g, b, h
end

-- program: T14 detection
return function(z, d, q, v)
  return flag_nan(z, 1), flag_inf(z, 2), flag_nan_and_inf(z, 3), flag_nan_and_inf(d, 4), flag_nan_and_inf(q, 5), flag_nan(v, 6)
end

-- program: T14 detection goes on with flags
return function(z, d, f) return flag_nan_and_inf(d, 8, flag_inf(z, 7, f)) end

-- program: T14 indices
return function(i, f) return flag_oob_indices(i, 10, 2), flag_oob_indices(i, 3, 4, f) end

-- program: T14 find and push
return function(f, m) return find(err.INF, f), push(f, err.OVERFLOW, 77, {where = m}) end

-- program: T14 fix
return function(z, f, y)
  local a, g = fix(z, f, 1)
  local b, h = fix(z, f, 2, {fallback = y})
  local c, k = fix(z, f, 3, {fallback = function() return -1.0 end, codes = {err.NAN, err.OOB}, min_severity = err.ERROR})
  return a, g, b, h, c, k
end

-- program: T15 per sample
return function(z)
  local f = flag_nan_and_inf(z, "hidden")
  local y = IF(err.has_nan(f), function() return torch.zeros_like(z) end)
    :ELIF(err.has_inf(f), function() return z:nan_to_num(0.0, 1e4, -1e4):clamp(-10, 10) end)
    :ELSE(function() return z:tanh() end)
  return y, f
end

-- program: T15 the batch
return function(z, f)
  return IF(AND(HAS(f), NOT(IS(err.SATURATED, f))), function() return z + 1, f end)
    :ELIF(OR(IS(err.INF, f), IS(err.NAN, f)), function() return z + 2, f end)
    :ELSE(function() return z, err.push_scalar(f, err.UNKNOWN, 0) end)
end

-- program: T15 tables and nesting
return function(z, y, m)
  local t = IF(m, function() return {a = z, b = {y, 3}} end):ELSE(function()
    return {a = IF(err.is_ok(flag_nan(z, 1)), function() return z * 2 end):ELSE(function() return y end), b = {y - 1, 3}}
  end)
  return t.a, t.b[1]
end

-- program: T26 every carrier
return function(z, c, m)
  local function work(dtype, slots)
    local config = ErrorConfig{flag_dtype = dtype, num_slots = slots}
    local f = err.push(flag_nan_and_inf(z, 4, nil, {config = config}), c, 5, {config = config})
    return err.push(f, err.OVERFLOW, 6, {where = m, config = config})
  end
  return work(torch.int64, 16), work(torch.int32, 5), work(torch.float32, 3), work(torch.float64, 9), work(torch.int64, 1)
end

-- program: T27 every accumulation
return function(c, m)
  local outputs = {}
  for _, priority in ipairs{Priority.CHRONO, Priority.SEVERITY, Priority.LOCATION} do
    for _, order in ipairs{Order.FIRST, Order.LAST} do
      for _, dedupe in ipairs{Dedupe.NONE, Dedupe.CODE, Dedupe.LOCATION, Dedupe.UNIQUE} do
        local accumulation = AccumulationConfig{priority = priority, order = order, dedupe = dedupe}
        local config = ErrorConfig{num_slots = 3, accumulation = accumulation}
        local f = err.new(c, {config = config})
        for step = 1, 5 do
          f = err.push(f, c, step % 3, {config = config, severity = step % 3 + 1})
          f = err.push(f, err.INF, 7 - step, {where = m, config = config})
        end
        outputs[#outputs + 1] = f
      end
    end
  end
  return table.unpack(outputs)
end

-- program: T34 half precision
return function(h, b)
  local f = flag_nan_and_inf(h, 1)
  local x, g = fix(h:to(torch.float32), f, 2)
  return x:to(torch.float16), flag_nan_and_inf(b, 3, g), err.take_ok_p(f, b, 0.5)
end

-- program: T33 z-score clip
return function(z)
  local f = flag_nan_and_inf(z, "features")
  z = err.take_ok_p(f, z)
  local m, s = z:mean(-1, true), z:std(-1, {keepdim = true}) + 1e-6
  local far = (z - m):abs() > 0.75 * s
  f = push(f, err.VALUE_CLAMPED, "features", {where = far:any(-1)})
  return torch.where(far, m + 0.75 * s * torch.sign(z - m), z), f
end

-- program: T33 softmax with repair
return function(z)
  local f = flag_nan_and_inf(z, "logits")
  local safe, g = fix(z, f, "logits")
  local p = safe:softmax(-1)
  return p, flag_nan(p, "softmax", g), p:argmax(-1)
end

-- program: T11 views, slices and in-place work on tensors of its own
return function(y)
  local x = y:clone()
  x[{":", 0}] = 1.0
  x:mul_(2):clamp_({min = -1})
  local t = x:t():contiguous():t()
  return x, t[{":", {1, 4}}] + 0, t:reshape(-1):view(-1, 7):flip({1})
end
