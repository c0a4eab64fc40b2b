-- Operations on flags and samples that stay in tensors: safe inside captured code, except those that change the batch.
local core = ...
local insert = table.insert
local arguments = core.arguments

local err = {WARN = 1, ERROR = 2, CRITICAL = 3}
for name, code in next, core.codes do
  err[name] = code
end

local new_flags = core.op("triage::new", "")
local push_codes = core.op("triage::push", "")
local push_where = core.op("triage::push", "where")
local push_all = core.op("triage::push", "scalar")
local merge_flags = core.op("triage::merge", "")
local match = core.op("triage::has_code", "")
local is_ok = core.op("triage::is_ok", "")
local is_err = core.op("triage::is_err", "")
local select_rows = core.op("triage::select", "")
local logical_not = core.op("aten::logical_not", "")
local zeros = core.op("aten::zeros", "")
local zeros_like = core.op("aten::zeros_like", "")
local clone = core.op("aten::clone", "")
local index = core.op("aten::index", "Tensor")
local full_like = core.op("aten::full_like", "")
local expand_as = core.op("aten::expand_as", "")
local to_dtype = core.op("aten::to", "dtype")
local fix_rows = core.op("triage::fix", "")
local fix_rows_number = core.op("triage::fix", "scalar")
local replace_elements = core.op("triage::replace", "")

local any_code = 0xFFFF
local config_only = {config = true}

-- Creation

function err.new(x, options)
  options = arguments.options("err.new", options, config_only)
  local slots, _, dtype = core.resolve_config(options.config)
  return new_flags(arguments.tensor("err.new", "x", x), slots, dtype)
end

local function new_of_size(operation, n, device, config)
  if math.type(n) ~= "integer" or n < 0 then
    core.fail(("%s: expected the number of samples as `n`, got %s"):format(operation, core.describe(n)))
  end
  local slots, _, dtype = core.resolve_config(config)
  return new_flags(zeros({n}, core.bool_dtype, nil, device, nil), slots, dtype)
end

local new_options = {device = true, config = true}

function err.new_t(n, options)
  options = arguments.options("err.new_t", options, new_options)
  return new_of_size("err.new_t", n, options.device, options.config)
end

local from_code_options = {device = true, severity = true, config = true}

function err.from_code(code, location, n, options)
  options = arguments.options("err.from_code", options, from_code_options)
  code = core.code(code, "err.from_code")
  local severity = arguments.severity("err.from_code", options.severity, code)
  local flags = new_of_size("err.from_code", n, options.device, options.config)
  local slots, policy = core.resolve_config(options.config)
  return push_all(flags, code, core.location(location, "err.from_code"), severity, slots, policy)
end

-- Recording

local push_options = {severity = true, where = true, config = true}

local function push_as(operation)
  return function(flags, code, location, options)
    options = arguments.options(operation, options, push_options)
    arguments.tensor(operation, "f", flags)
    local slots, policy, _, config_severity = core.resolve_config(options.config)
    local where = core.data_of(options.where)
    if where ~= nil then
      arguments.tensor(operation, "where", where)
    end
    if not core.is_tensor(code) then
      code = core.code(code, operation)
    end
    local severity = arguments.severity(operation, options.severity, code, config_severity)
    local id = core.location(location, operation)
    if core.is_tensor(code) then
      if where ~= nil then
        core.check_mask(operation, "where", where, flags)
        code = select_rows(where, code, zeros_like(code))   -- checks, on every batch, that both are of one
      end
      return push_codes(flags, code, id, severity, slots, policy)
    end
    if where ~= nil then
      return push_where(flags, code, id, severity, where, slots, policy)
    end
    return push_all(flags, code, id, severity, slots, policy)
  end
end

err.push = push_as("err.push")
core.push = push_as("push")

local push_scalar_options = {severity = true, config = true}

function err.push_scalar(flags, code, location, options)
  options = arguments.options("err.push_scalar", options, push_scalar_options)
  arguments.tensor("err.push_scalar", "f", flags)
  code = core.code(code, "err.push_scalar")
  local severity = arguments.severity("err.push_scalar", options.severity, code)
  local slots, policy = core.resolve_config(options.config)
  return push_all(flags, code, core.location(location, "err.push_scalar"), severity, slots, policy)
end

function err.merge(...)
  local list, options = arguments.split_options("err.merge", config_only, ...)
  local slots, policy = core.resolve_config(options.config)
  local merged = arguments.tensor("err.merge", "f1", list[1])
  for i = 2, list.n do
    merged = merge_flags(merged, arguments.tensor("err.merge", "f" .. i, list[i]), slots, policy)
  end
  if list.n == 1 then   -- a result is never its argument
    core.check_record("err.merge", merged, slots)
    merged = clone(merged)
  end
  return merged
end

local clear = core.op("triage::clear", "")

function err.clear(flags, code, options)
  return clear(arguments.asked("err.clear", flags, options), core.code(code, "err.clear"))
end

-- Questions

local function question(name)
  local operator, operation = core.op("triage::" .. name, ""), "err." .. name
  return function(flags, options)
    return operator(arguments.asked(operation, flags, options))
  end
end

for _, name in ipairs({"is_ok", "is_err", "has_critical", "all_ok", "any_err", "count_errors", "max_severity",
                       "get_first_code", "get_first_location", "get_first_severity"}) do
  err[name] = question(name)
end
err.has_any = err.any_err

function err.has_code(flags, code, options)
  return match(arguments.asked("err.has_code", flags, options), core.code(code, "err.has_code"))
end

local function has_code(name, code)
  local operation = "err." .. name
  return function(flags, options)
    return match(arguments.asked(operation, flags, options), code)
  end
end

err.has_nan = has_code("has_nan", err.NAN)
err.has_inf = has_code("has_inf", err.INF)
err.has_fallback = has_code("has_fallback", err.FALLBACK_VALUE)

local has_domain = core.op("triage::has_domain", "")

function err.has_domain(flags, domain, options)
  return has_domain(arguments.asked("err.has_domain", flags, options), core.domain(domain, "err.has_domain"))
end

local get_slot = core.op("triage::get_slot", "")

function err.get_slot(flags, slot, options)
  if math.type(slot) ~= "integer" then
    core.fail("err.get_slot: expected the 0-based index of a slot, got " .. core.describe(slot))
  end
  return get_slot(arguments.asked("err.get_slot", flags, options), slot)
end

-- Filters that change the batch: how many rows come out depends on values

local function rows(operation, flags, value, mask)
  core.dynamic_shape(operation)
  core.check_data(operation, arguments.tensor(operation, "z", value), flags)
  return index(value, {mask})
end

local function rows_where(operation, asked)
  return function(flags, z)
    return rows(operation, flags, z, asked(arguments.flags(operation, flags, z)))
  end
end

err.take_ok = rows_where("err.take_ok", is_ok)
err.take_err = rows_where("err.take_err", is_err)

local get_ok, get_err = rows_where("err.get_ok", is_ok), rows_where("err.get_err", is_err)
function err.get_ok(flags) return get_ok(flags, flags) end
function err.get_err(flags) return get_err(flags, flags) end

err.Ok = err.take_ok
err.Err = err.take_err

function err.partition(flags, z)
  arguments.flags("err.partition", flags, z)
  return rows("err.partition", flags, z, is_ok(flags)), rows("err.partition", flags, z, is_err(flags))
end

function err.partition_many(flags, ...)
  arguments.flags("err.partition_many", flags, (...))
  local ok_mask, err_mask = is_ok(flags), is_err(flags)
  local ok, bad = core.mark_created({}), core.mark_created({})
  for i = 1, select("#", ...) do
    local z = select(i, ...)
    ok[i], bad[i] = rows("err.partition_many", flags, z, ok_mask), rows("err.partition_many", flags, z, err_mask)
  end
  return ok, bad
end

-- Filters that keep the shape

--- What a number is in data like `z`: bool data has two, with which it stays bool.
local function number_for(z, number)
  if core.is_bool(z) and math.type(number) == "integer" and (number == 0 or number == 1) then
    return number == 1
  end
  return number
end

local padded_options = {fill = true}

local function padded(name)
  local operator, operation = core.op("triage::" .. name, ""), "err." .. name
  return function(flags, z, fill)
    if type(fill) == "table" then
      fill = arguments.options(operation, fill, padded_options).fill
    end
    if fill == nil then
      fill = 0
    end
    arguments.number(operation, "fill", fill)
    return operator(arguments.flags(operation, flags, z), arguments.tensor(operation, "z", z), number_for(z, fill))
  end
end

err.take_ok_p = padded("take_ok_p")
err.take_err_p = padded("take_err_p")

-- Combinators: `fn` sees all rows; where its result is not taken, its gradient cannot spoil the others

--- What `fn` returned, made to fit `z`: a number fills it, a smaller tensor is broadcast.
local function fitting(operation, z, value)
  if type(value) == "number" then
    return full_like(z, value)
  end
  if not core.is_tensor(value) or core.is_guarded(value) then
    core.fail(("%s: `fn` must return a tensor like its argument, not %s"):format(operation, core.describe(value)))
  end
  return core.fits(operation, z, value) and value or expand_as(value, z)
end

local function map_as(operation, taken)
  return function(flags, z, fn)
    arguments.callable(operation, "fn", fn)
    local mask = taken(arguments.flags(operation, flags, z))
    local mapped = core.for_rows(mask, fn, arguments.tensor(operation, "z", z))
    return select_rows(mask, fitting(operation, z, mapped), z)
  end
end

err.map_ok = map_as("err.map_ok", is_ok)
err.map_err = map_as("err.map_err", is_err)

function err.map_err_flags(flags, fn)
  arguments.flags("err.map_err_flags", flags)
  local mapped = arguments.callable("err.map_err_flags", "fn", fn)(flags)
  arguments.tensor("err.map_err_flags", "the result of fn", mapped)
  if core.capturing() then   -- what takes flags has the recorder refuse arithmetic on them
    is_ok(mapped)
  end
  return select_rows(is_err(flags), mapped, flags)
end

--- Runs `fn` for a chain: its value on the samples without errors, its flags merged into theirs.
local function chained(operation, flags, z, fn, options)
  options = arguments.options(operation, options, config_only)
  arguments.callable(operation, "fn", fn)
  local ok = is_ok(arguments.flags(operation, flags, z))
  local z2, flags2 = core.for_rows(ok, fn, arguments.tensor(operation, "z", z))
  if flags2 == nil and core.is_guarded(z2) then
    z2, flags2 = core.data_of(z2), core.flags_of(z2)
  end
  if not core.is_tensor(flags2) then
    core.fail(("%s: `fn` must return two tensors, z and f; the second is %s"):format(operation, core.describe(flags2)))
  end
  local slots, policy = core.resolve_config(options.config)
  return select_rows(ok, fitting(operation, z, z2), z), merge_flags(flags, flags2, slots, policy), ok
end

function err.and_then(flags, z, fn, options)
  local value, merged, ok = chained("err.and_then", flags, z, fn, options)
  return value, select_rows(ok, merged, flags)
end

function err.bind(flags, z, fn, options)
  local value, merged = chained("err.bind", flags, z, fn, options)
  return value, merged
end

-- Guards and recovery

local function ensure(operation, flags, mask, code, location, options)
  options = arguments.options(operation, options, push_scalar_options)
  arguments.tensor(operation, "f", flags)
  code = core.code(code, operation)
  local severity = arguments.severity(operation, options.severity, code)
  local slots, policy = core.resolve_config(options.config)
  return push_where(flags, code, core.location(location, operation), severity, logical_not(mask), slots, policy)
end

function err.ensure_mask(flags, mask, code, location, options)
  arguments.tensor("err.ensure_mask", "f", flags)
  core.check_mask("err.ensure_mask", "m", arguments.tensor("err.ensure_mask", "m", mask), flags)
  return ensure("err.ensure_mask", flags, mask, code, location, options)
end

function err.guard(flags, z, predicate, code, location, options)
  arguments.callable("err.guard", "pred", predicate)
  local mask = core.data_of(predicate(arguments.tensor("err.guard", "z", z)))
  arguments.tensor("err.guard", "the result of pred", mask)
  if not core.is_bool(mask) then
    mask = to_dtype(mask, core.bool_dtype)
  end
  return ensure("err.guard", flags, mask, code, location, options)
end

local WARN <const> = 1

function err.recover_with_fallback(flags, z, fallback, location, options)
  local operation = "err.recover_with_fallback"
  options = arguments.options(operation, options, push_scalar_options)
  arguments.tensor(operation, "f", flags)
  arguments.tensor(operation, "z", z)
  local severity = options.severity == nil and WARN or core.severity(options.severity, operation)
  local id = core.location(location, operation)
  local slots, policy = core.resolve_config(options.config)
  arguments.number_or_tensor(operation, "fallback", fallback)
  local fix = core.is_tensor(fallback) and fix_rows or fix_rows_number
  local repaired, recorded = fix(z, flags, fallback, id, any_code, WARN, slots, policy)
  if severity ~= WARN then
    recorded = push_where(flags, err.FALLBACK_VALUE, id, severity, is_err(flags), slots, policy)
  end
  return repaired, recorded
end

-- Replacement of elements

--- What one entry of a target list stands for, noted in `wanted`.
local function add_target(wanted, target)
  target = core.plain(target)
  if math.type(target) == "integer" and (target == err.NAN or target == err.INF) then
    if target == err.NAN then
      wanted.nan = true
    else
      wanted.posinf, wanted.neginf = true, true
    end
  elseif target == "nan" then
    wanted.nan = true
  elseif target == "inf" then
    wanted.posinf, wanted.neginf = true, true
  elseif target == "posinf" or target == "neginf" then
    wanted[target] = true
  elseif type(target) == "number" then
    if target ~= target then
      wanted.nan = true
    else
      insert(math.type(target) == "integer" and wanted.integers or wanted.values, target)
    end
  else
    local known = "err.NAN, err.INF, 'nan', 'inf', 'posinf', 'neginf', or numbers"
    core.fail(("err.replace: there is no target %s; targets are %s"):format(core.describe(target), known))
  end
end

function err.replace(z, value, targets)
  arguments.tensor("err.replace", "z", z)
  arguments.number("err.replace", "value", value)
  if type(targets) ~= "table" then
    core.fail("err.replace: expected a list of targets, as in {err.NAN, err.INF, 999}, got " .. core.describe(targets))
  end
  if #targets == 0 then
    core.fail("err.replace: the list of targets is empty, so nothing would be replaced; name some, as in {err.NAN}")
  end
  local wanted = {nan = false, posinf = false, neginf = false, values = {}, integers = {}}
  for _, target in ipairs(targets) do
    add_target(wanted, target)
  end
  value = number_for(z, value)
  return replace_elements(z, value, wanted.nan, wanted.posinf, wanted.neginf, wanted.values, wanted.integers)
end

-- Names of a policy's own

local rawget, rawset, error_code = rawget, rawset, core.error_code

function core.has_field_of_codes(name) return rawget(err, name) ~= nil or rawget(error_code, name) ~= nil end

--- Scripts read the code as err.NAME and ErrorCode.NAME from here on.
function core.name_code(name, code)
  rawset(err, name, code)
  rawset(error_code, name, code)
end

_G.err = core.strict(err, "err")
