-- The short forms that policies use most.
local core = ...
local arguments = core.arguments
local globals = _G

local has_code = core.op("triage::has_code", "")
local fix_rows = core.op("triage::fix", "")
local fix_rows_number = core.op("triage::fix", "scalar")
local flag_oob = core.op("triage::flag_oob_indices", "")

local any_code <const> = 0xFFFF
local WARN <const> = 1
local config_only = {config = true}

function globals.find(code, flags, options)
  return has_code(arguments.asked("find", flags, options), core.code(code, "find"))
end

globals.push = core.push

--- The set of codes that a list names, as bits.
local function code_set(codes)
  if type(codes) ~= "table" or #codes == 0 then
    core.fail("fix: expected a list of codes as `codes`, as in {err.NAN, err.INF}, got " .. core.describe(codes))
  end
  local set = 0
  for _, code in ipairs(codes) do
    set = set | 1 << core.code(code, "fix")
  end
  return set
end

local told = {}   -- locations, each once

--- Integers of more digits than a float has would change without a word: 16777217 becomes 16777216.
local function tell_of_floats(z, fallback, location)
  if math.type(fallback) ~= "float" or z:is_floating_point() or z:is_complex() or told[location] then
    return
  end
  told[location] = true
  local whole = math.tointeger(fallback)
  local text = "fix: '%s' is of integers (%s) and its fallback is %s, so all its samples become floats, and large "
    .. "integers lose their last digits; %s"
  local advice = whole and ("write %d to keep integers"):format(whole) or "give an integer to keep integers"
  core.warn(text:format(location, tostring(z.dtype), fallback, advice))
end

local fix_options = {fallback = true, codes = true, min_severity = true, config = true}

function globals.fix(z, flags, location, options)
  options = arguments.options("fix", options, fix_options)
  arguments.tensor("fix", "z", z)
  if core.is_data(arguments.tensor("fix", "f", flags), options.config) then
    local hint = core.is_data(z, options.config) and "" or "; are the two swapped?"
    core.fail(("fix(z, f): the second argument is not a flags tensor (%s)%s"):format(core.describe(flags), hint))
  end
  local fallback = options.fallback
  if type(fallback) == "function" then
    fallback = fallback()
  end
  if fallback == nil then
    if options.fallback ~= nil then
      core.fail("fix: the function `fallback` returned nothing; it must return a number or a tensor")
    end
    fallback = z:is_floating_point() and 0.0 or false   -- false is the zero of every dtype: integers stay integers
  end
  arguments.number_or_tensor("fix", "fallback", fallback)
  local codes = options.codes == nil and any_code or code_set(options.codes)
  local min_severity = options.min_severity == nil and WARN or core.severity(options.min_severity, "fix")
  local slots, policy = core.resolve_config(options.config)
  local fix = core.is_tensor(fallback) and fix_rows or fix_rows_number
  tell_of_floats(z, fallback, tostring(location))
  return fix(z, flags, fallback, core.location(location, "fix"), codes, min_severity, slots, policy)
end

--- `f` and the options table of a call where either may be left out.
local function flags_and_options(operation, flags, options)
  if options == nil and type(flags) == "table" then
    flags, options = nil, flags
  end
  if flags ~= nil then
    arguments.tensor(operation, "f", flags)
  end
  return flags, arguments.options(operation, options, config_only)
end

for _, name in ipairs({"flag_nan", "flag_inf", "flag_nan_and_inf"}) do
  local detect = core.op("triage::" .. name, "")
  local nan, inf = name ~= "flag_inf", name ~= "flag_nan"
  globals[name] = function(z, location, flags, options)
    flags, options = flags_and_options(name, flags, options)
    local slots, policy, dtype = core.resolve_config(options.config)
    local id = core.location(location, name)
    flags = detect(arguments.tensor(name, "z", z), flags, id, slots, policy, dtype)
    core.note_positions(z, id, nan, inf)
    return flags
  end
end

function globals.flag_oob_indices(ids, num_embeddings, location, flags, options)
  flags, options = flags_and_options("flag_oob_indices", flags, options)
  arguments.tensor("flag_oob_indices", "ids", ids)
  arguments.number("flag_oob_indices", "num_embeddings", num_embeddings)
  local slots, policy, dtype = core.resolve_config(options.config)
  local id = core.location(location, "flag_oob_indices")
  flags = flag_oob(ids, num_embeddings, flags, id, slots, policy, dtype)
  core.note_positions(ids, id, num_embeddings)
  return flags
end
