-- scripts/policies/serving: as scripts, captured and fused they give the same bits on hostile logits; a batch sampler
-- can read what they leave; definitions against plain Lua; two of them as one graph.
local folder = "scripts/policies/serving/"
package.path = folder .. "lib/?.lua;" .. package.path

local NaN <const>, Inf <const> = 0 / 0, math.huge

local function load_policy(name)
  local loaded = dofile(folder .. name .. ".lua")
  return function(...) return loaded.run(...) end
end

local nan_rows, masked_rows = load_policy("nan_rows"), load_policy("masked_rows")
local flat, temperature_floor = load_policy("flat_distribution"), load_policy("temperature_floor")
local repetition, token_range, quarantine =
  load_policy("repetition"), load_policy("token_range"), load_policy("quarantine")

local dtypes = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
local specials = {NaN, Inf, -Inf, 3e38, -3e38, 65504.0, -65504.0, 0.0, -0.0, 1e-30}

--- Ordinary logits, and rows that are all, half or in one place of each special value, alone and with another one.
local function hostile_logits(rows, vocabulary, dtype)
  local logits = torch.randn({rows, vocabulary}) * 3
  for row = 0, rows - 1 do
    local special, other = specials[row % 10 + 1], specials[row // 10 % 10 + 1]
    local kind = row % 4
    if kind == 0 then logits[row] = special end
    if kind == 1 then logits[{row, {0, vocabulary // 2}}] = special end
    if kind == 2 then logits[{row, row % vocabulary}] = special end
    if row % 3 == 0 then logits[{row, (row + 1) % vocabulary}] = other end
  end
  return logits:to(dtype)
end

local function same_in_all_ways(fn, ...)
  local script = table.pack(fn(...))
  for _, backend in ipairs({"eager", "fused"}) do
    local compiled = triage.compile(fn, {fullgraph = true, backend = backend})
    for _ = 1, 2 do
      local got = table.pack(compiled(...))
      eq(got.n, script.n)
      for i = 1, script.n do
        if torch.is_tensor(script[i]) then eq(got[i], script[i], backend .. ", result " .. i) end
      end
    end
  end
  return table.unpack(script, 1, script.n)
end

--- What every policy on logits promises, of a call with `eos` the last token.
local function check_promises(logits, judged, verdict, keeps_bits)
  local rows, vocabulary = logits:size(0), logits:size(1)
  eq(verdict.dtype, torch.int8)
  eq(judged.dtype, logits.dtype)
  eq(judged.shape, logits.shape)
  for row = 0, rows - 1 do
    local said = verdict[row]:item()
    if said == 2 then
      local wide = judged[row]:float()
      eq(wide:softmax(0)[vocabulary - 1]:item(), 1.0)
      eq(torch.multinomial(wide:softmax(0), 1):item(), vocabulary - 1)
      eq(wide:argmax():item(), vocabulary - 1)
    elseif said == 0 and keeps_bits then
      eq(judged[row], logits[row])
    end
  end
end

local function for_hostile_logits(check)
  torch.manual_seed(3)
  for _, dtype in ipairs(dtypes) do
    for _, rows in ipairs({0, 1, 2, 31, 32, 33}) do
      for _, vocabulary in ipairs({1, 2, 37}) do check(hostile_logits(rows, vocabulary, dtype), vocabulary - 1) end
    end
    check(hostile_logits(37, 33, dtype):t(), 36)                        -- other strides
    check(hostile_logits(33, 74, dtype)[{{}, {0, 37}}], 36)
  end
end

test("nan_rows on hostile logits", function()
  for_hostile_logits(function(logits, eos)
    local judged, verdict, f = same_in_all_ways(function(z) return nan_rows(z, {eos = eos}) end, logits)
    check_promises(logits, judged, verdict, true)
    eq(judged:isnan():any():item(), false)
    eq(judged:eq(Inf):any():item(), false)
    eq(err.is_err(f), verdict > 0)
    local has_nan, has_inf = logits:isnan():any(-1), logits:eq(Inf):any(-1)
    eq(verdict > 0, has_nan | has_inf)
  end)
end)

test("masked_rows behind nan_rows leaves nothing that a sampler refuses", function()
  for_hostile_logits(function(logits, eos)
    local judged, verdict = same_in_all_ways(function(z)
      local kept, first = nan_rows(z, {eos = eos})
      local left, second, f = masked_rows(kept, {eos = eos})
      return left, torch.maximum(first, second), f
    end, logits)
    check_promises(logits, judged, verdict, true)
    if logits:size(0) > 0 then eq(torch.multinomial(judged:float():softmax(-1), 1):size(0), logits:size(0)) end
  end)
end)

test("flat_distribution on hostile logits", function()
  for_hostile_logits(function(logits, eos)
    local judged, verdict =
      same_in_all_ways(function(z) return flat(z, {eos = eos, most = 0.9, margin = 0.001}) end, logits)
    check_promises(logits, judged, verdict, true)
    eq(judged:isnan():any():item(), false)
  end)
end)

test("the entropy and the margin of flat_distribution are those of the softmax", function()
  torch.manual_seed(4)
  local logits = torch.randn({200, 50}, {dtype = torch.float64}) * torch.rand({200, 1}, {dtype = torch.float64}) * 4
  logits[{3, {}}], logits[{4, {1, 50}}] = 1.0, -Inf
  local p = logits:softmax(-1)
  local entropy = -(p * torch.where(p > 0, p, 1.0):log()):sum(-1)
  local best = p:topk(2)
  for _, bounds in ipairs({{0.3, 0.0}, {0.8, 0.05}, {1.0, 0.5}}) do
    local _, verdict = flat(logits, {eos = 0, most = bounds[1], margin = bounds[2]})
    local margin = best:select(1, 0) - best:select(1, 1)
    eq(verdict > 0, (entropy > bounds[1] * math.log(50)) | (margin < bounds[2]))
  end
end)

test("temperature_floor on hostile logits and temperatures", function()
  local given = {1.0, 0.7, 0.0, -0.0, -1.0, NaN, Inf, -Inf, 1e-30, 1e30, 0.02}
  for_hostile_logits(function(logits, eos)
    local values = {}
    for row = 1, logits:size(0) do values[row] = given[row % #given + 1] end
    local temperature = torch.tensor(values, {dtype = torch.float32})
    local judged, verdict = same_in_all_ways(function(z, t)
      return temperature_floor(z, t, {eos = eos, floor = 0.01})
    end, logits, temperature)
    check_promises(logits, judged, verdict, false)
    local fine = logits:isfinite():all(-1)
    eq((fine & (judged:isnan() | judged:eq(Inf)):any(-1)):any():item(), false)   -- of good logits nothing bad
    eq((fine & judged:eq(-Inf):all(-1)):any():item(), false)
    for row = 0, logits:size(0) - 1 do
      local t = temperature[row]:item()
      eq(verdict[row]:item(), (t ~= t or t < 0 or t == Inf) and 2 or t < 0.01 and 1 or 0)
      if t == 1.0 then eq(judged[row], logits[row]) end
    end
  end)
end)

test("repetition is what its comment says", function()
  torch.manual_seed(5)
  local function repeats(history, tokens)
    for block = 1, 16 do
      local all = #history >= tokens
      for i = #history - tokens + block + 1, #history do
        all = all and history[i] >= 0 and history[i] == history[i - block]
      end
      if all and history[#history - tokens + 1] >= 0 then return true end
    end
    return false
  end
  local taken = 0
  for _, length in ipairs({0, 1, 31, 32, 33, 50}) do
    local rows = {}
    for row = 1, 24 do
      local block, noise = row % 18 + 1, row % 3
      local pad = row % 5 == 0 and math.min(length, 3) or 0
      for i = 1, length do
        rows[(row - 1) * length + i] = i <= pad and -1 or (i < noise * 9 and i % 29 or i % block)
      end
    end
    local history = torch.tensor(rows, {dtype = torch.int64}):reshape({24, length})
    local _, verdict = same_in_all_ways(function(z, h) return repetition(z, h, {eos = 0, tokens = 32}) end,
      torch.zeros({24, 2}), history)
    for row = 0, 23 do
      local ends = repeats(length > 0 and history[row]:totable() or {}, 32)
      eq(verdict[row]:item(), ends and 2 or 0, "length " .. length .. ", row " .. row)
      taken = taken + (ends and 1 or 0)
    end
  end
  assert(taken > 10 and taken < 100, taken)
end)

test("token_range takes every integer dtype and number of dims", function()
  for _, dtype in ipairs({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}) do
    for _, ids in ipairs({torch.tensor({5, 120, 9}), torch.tensor({{{5}}, {{120}}, {{9}}}), torch.zeros({3, 0})}) do
      local kept, verdict = same_in_all_ways(function(x) return token_range(x, {vocabulary = 100, eos = 1}) end,
        ids:to(dtype))
      eq(kept.dtype, torch.int64)
      eq(verdict:totable(), ids:numel() > 0 and {0, 2, 0} or {0, 0, 0})
    end
  end
end)

test("quarantine remembers requests, wherever their rows are", function()
  local most <const>, steps <const> = 3, 5
  local s = {
    ids = torch.full({1024}, -1, {dtype = torch.int64}), bad = torch.zeros({1024}, {dtype = torch.int64}),
    used = torch.zeros({1024}, {dtype = torch.int64}), step = torch.zeros({}, {dtype = torch.int64}),
  }
  local remembered, ended = {}, 0
  math.randomseed(7)
  for _ = 1, 60 do
    local ids, verdicts, expected, here = {}, {}, {}, {}
    for row = 1, math.random(1, 40) do
      local id = math.random(0, 49)
      if here[id] then id = -1 end
      here[id] = true
      local verdict = math.random() < 0.35 and math.random(1, 2) or 0
      ids[row], verdicts[row], expected[row] = id, verdict, verdict
      if id >= 0 then
        local past = remembered[id] or {}
        remembered[id] = past
        table.insert(past, 1, verdict > 0 and 1 or 0)
        local bad = 0
        for i = 1, math.min(#past, steps) do bad = bad + past[i] end
        if bad >= most then expected[row], ended = 2, ended + 1 end
      end
    end
    local given = torch.tensor(verdicts, {dtype = torch.int8})
    local _, said, f, new =
      quarantine(torch.zeros({#ids, 3}), given, torch.tensor(ids), {eos = 0, most = most, steps = steps}, s)
    s = new
    eq(said:totable(), expected)
    eq(err.has_code(f, err.EMPTY_INPUT):any():item(), false)
  end
  assert(ended > 50, ended)
end)

test("nan_rows and then temperature_floor are one graph, which gives what they give in turn", function()
  local function both(logits, temperature, p)
    local kept, first, f = nan_rows(logits, p)
    local scaled, second, g = temperature_floor(kept, temperature, p)
    return scaled, torch.maximum(first, second), err.merge(f, g)
  end
  local p = {eos = 2, floor = 0.01}
  local decode = triage.compile(function(z, t) return both(z, t, p) end, {fullgraph = true})
  for _, rows in ipairs({33, 32, 2}) do
    local logits, temperature = hostile_logits(rows, 37, torch.float32), torch.linspace(-0.2, 1.5, rows)
    local got, expected = table.pack(decode(logits, temperature)), table.pack(both(logits, temperature, p))
    for i = 1, 3 do eq(got[i], expected[i]) end
  end
  eq(decode:cache().graphs, 1)
end)

test("params that are no tokens, and a vocabulary of none, are errors that say so", function()
  local z = torch.zeros({2, 5})
  for _, run in ipairs({nan_rows, masked_rows}) do
    local compiled = triage.compile(function(x, eos) return run(x, {eos = eos}) end, {fullgraph = true})
    compiled(z, 4)
    for _, call in ipairs({function(eos) return run(z, {eos = eos}) end, function(eos) return compiled(z, eos) end}) do
      fails(function() call(5) end, "beyond the vocabulary")
      fails(function() call(-1) end, "below 0")
      fails(function() call(1.5) end, "a fraction")
      fails(function() call(NaN) end, "expected a token as the param eos")
    end
    fails(function() run(torch.zeros({2, 0}), {eos = 0}) end, "beyond the vocabulary")
    fails(function() compiled(torch.zeros({2, 0}), 0) end, "beyond the vocabulary")
  end
  fails(function() token_range(torch.tensor({1}), {vocabulary = 5, eos = 5}) end, "beyond the vocabulary")
  fails(function() token_range(torch.tensor({1}), {vocabulary = 5, eos = 1.5}) end, "a fraction")
  fails(function() temperature_floor(z, torch.ones({2}), {eos = 0, floor = 0}) end, "above 0 as the param `floor`")
  fails(function() repetition(z, torch.zeros({2, 3}, {dtype = torch.int64}), {eos = 0, tokens = 31}) end, "at least 32")
end)
