-- What specs are written with. Plain Lua: loaded without the source rewriter, so that a fault there cannot hide itself.

local tests = {}

--- Registers a test. It fails when `fn` raises an error.
function test(name, fn)
  local info = debug.getinfo(2, "Sl")
  tests[#tests + 1] = { name = name, fn = fn, file = info.short_src, line = info.currentline }
end

local function show(value)
  if type(value) == "string" then return string.format("%q", value) end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts = {}
  for _, item in ipairs(value) do parts[#parts + 1] = show(item) end
  local keys = {}
  for key in pairs(value) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do parts[#parts + 1] = key .. " = " .. show(value[key]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function same_shape(a, b)
  if a:dim() ~= b:dim() then return false end
  for d = 0, a:dim() - 1 do
    if a:size(d) ~= b:size(d) then return false end
  end
  return true
end

local function same_tensor(a, b)
  if a.dtype ~= b.dtype or not same_shape(a, b) then return false end
  local equal = a:eq(b)
  if a:is_floating_point() then equal = equal | (a:ne(a) & b:ne(b)) end
  return equal:all():item()
end

local function same(a, b)
  if torch.is_tensor(a) and torch.is_tensor(b) then return same_tensor(a, b) end
  if type(a) ~= "table" or type(b) ~= "table" or getmetatable(a) or getmetatable(b) then
    return rawequal(a, b) or (type(a) ~= "userdata" and type(a) == type(b) and a == b and math.type(a) == math.type(b))
  end
  for key, value in pairs(a) do
    if not same(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if rawequal(a[key], nil) then return false end
  end
  return true
end

--- Equal: tensors in dtype, shape and every element (NaN equals NaN), tables by content, numbers with their subtype.
function eq(got, expected, what)
  if not same(got, expected) then
    error((what and what .. ": " or "") .. "got " .. show(got) .. ", expected " .. show(expected), 2)
  end
end

--- Numbers or tensors that differ by at most `tolerance` (1e-6).
function close_to(got, expected, tolerance)
  tolerance = tolerance or 1e-6
  local difference = torch.is_tensor(got) and (got - expected):abs():max():item() or math.abs(got - expected)
  if not (difference <= tolerance) then
    error("got " .. show(got) .. ", expected " .. show(expected) .. " (they differ by " .. difference .. ")", 2)
  end
end

--- Iterates over random batches of three features: of several sizes, by rows, by columns, and with gaps between rows.
function batches_of_all_orders()
  return coroutine.wrap(function()
    for _, rows in ipairs({2, 0, 1, 31, 32, 33}) do
      coroutine.yield(torch.randn({rows, 3}), "by rows")
      coroutine.yield(torch.randn({3, rows}):t(), "by columns")
      coroutine.yield(torch.randn({2 * rows, 3})[{{0, nil, 2}}], "with gaps")
    end
  end)
end

--- `fn` raises an error whose text holds `text` (a plain string, or a Lua pattern with `as_pattern`). Returns the text.
function fails(fn, text, as_pattern)
  local ok, message = pcall(fn)
  if ok then error("expected an error with " .. show(text) .. ", but nothing was raised", 2) end
  if type(message) == "table" and message.message then message = message.message end
  message = tostring(message)
  if text and not string.find(message, text, 1, not as_pattern) then
    error("expected an error with " .. show(text) .. ", got " .. show(message), 2)
  end
  return message
end

--- What a spec of random programs draws with: `random(n)` gives 1..n, `pick(list)` one of its items, and `seeds()`
--- iterates over `count` seeds, each of which begins a sequence of its own, the same on every machine.
--- TRIAGE_DIFFERENTIAL=N takes N of them, TRIAGE_DIFFERENTIAL_SEED another one to begin with.
function random_programs(count, step)
  count = tonumber(os.getenv("TRIAGE_DIFFERENTIAL") or "") or count
  local first = tonumber(os.getenv("TRIAGE_DIFFERENTIAL_SEED") or "") or 1
  local state
  local function random(n)
    state = (state * 6364136223846793005 + 1442695040888963407)
    return ((state >> 33) % n) + 1
  end
  local function pick(list) return list[random(#list)] end
  local function seeds()
    local seed = first - 1
    return function()
      seed = seed + 1
      if seed >= first + count then return nil end
      state = seed * step
      return seed
    end
  end
  return random, pick, seeds
end

return tests
