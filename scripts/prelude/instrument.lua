-- triage.instrument(module): flags through a model that knows nothing of them. While an instrumented model runs, a call
-- of a module of it also looks at what it returned; afterwards everything is as it was.
local core = ...
local ipairs, next, select, setmetatable, type = ipairs, next, select, setmetatable, type
local pack, sort, unpack = table.pack, table.sort, table.unpack
local arguments = core.arguments
local err = _G.err

local flag_nan = core.op("triage::flag_nan", "")
local flag_inf = core.op("triage::flag_inf", "")
local flag_nan_and_inf = core.op("triage::flag_nan_and_inf", "")

local max_nesting <const> = 16

-- By instrumented model: the module, what is looked for where, and what the last call was.
local states = setmetatable({}, {__mode = "k"})

-- Options

local function benign_entry(entry)
  if math.type(entry) == "integer" then
    return {location = "*", code = core.code(entry, "triage.instrument")}
  elseif type(entry) == "string" then
    return {location = entry}
  elseif type(entry) ~= "table" then
    core.fail(("triage.instrument: an entry of `benign` is a pattern of locations, a code, or {pattern, code}; got %s")
      :format(core.describe(entry)))
  end
  local pattern, code = entry[1] or "*", entry[2]
  if type(pattern) ~= "string" then
    core.fail("triage.instrument: expected a pattern of locations in {pattern, code}, got " .. core.describe(pattern))
  end
  return {location = pattern, code = code ~= nil and core.code(code, "triage.instrument") or nil}
end

local function benign_entries(list)
  if list == nil then
    return {}
  end
  if type(list) ~= "table" then
    core.fail("triage.instrument: expected a list as `benign`, as in {\"*.attention\", err.INF}, got "
      .. core.describe(list))
  end
  local entries = {}
  for position, entry in ipairs(list) do
    entries[position] = benign_entry(entry)
    local code = entries[position].code
    if code ~= nil and code ~= err.NAN and code ~= err.INF then
      core.fail(("triage.instrument: `benign` takes only err.NAN and err.INF, got %s")
        :format(core.code_name(code)))
    end
  end
  return entries
end

local function read_options(options)
  local every = options.every
  if every == nil then
    every = 1
  elseif math.type(every) ~= "integer" or every < 1 then
    core.fail("triage.instrument: expected a number of calls, 1 or more, as `every`, got " .. core.describe(every))
  end
  local statistics = options.statistics
  if statistics ~= nil and type(statistics) ~= "boolean" then
    core.fail("triage.instrument: expected true or false as `statistics`, got " .. core.describe(statistics))
  end
  core.resolve_config(options.config)   -- an error now, not at the first call
  return {prefix = options.prefix, tree = options.tree, every = every, config = options.config,
          statistics = statistics, benign = benign_entries(options.benign)}
end

-- Looking

local function look_for(tracked, benign)
  local look = {path = tracked.path, location = tracked.location, nan = true, inf = true}
  for _, entry in ipairs(benign) do
    if core.matches_glob(entry.location, tracked.path) or core.matches_glob(entry.location, tracked.location) then
      look.nan = look.nan and entry.code == err.INF
      look.inf = look.inf and entry.code == err.NAN
    end
  end
  return look
end

--- By its path, for ids do not outlive ErrorLocation.reset().
local function id_of(look)
  return core.location(look.location, "triage.instrument")
end

local function look_at(run, look, value, nesting)
  if core.is_floating(value) then
    local may_be_bad = not run.batch or core.add_values(run.batch, look.path, value)
    if not look.location then
      return
    elseif not core.rows_match(value, run.sample) then
      run.unlooked[look.location] = true
    elseif not may_be_bad then
      return   -- the flags need no second read
    elseif look.nan and look.inf then
      run.flags = flag_nan_and_inf(value, run.flags, id_of(look), run.slots, run.policy, run.dtype)
    elseif look.nan then
      run.flags = flag_nan(value, run.flags, id_of(look), run.slots, run.policy, run.dtype)
    elseif look.inf then
      run.flags = flag_inf(value, run.flags, id_of(look), run.slots, run.policy, run.dtype)
    end
  elseif type(value) == "table" and nesting < max_nesting then
    for _, item in next, value do
      look_at(run, look, item, nesting + 1)
    end
  end
end

--- What a module returned, after a look at it.
local function looked_at(run, look, ...)
  if look then
    run.called[look.path] = true
    for position = 1, select("#", ...) do
      look_at(run, look, (select(position, ...)), 0)
    end
  end
  return ...
end

--- Makes calls of the modules of one class look, and says how to undo it. Errors on the way out undo it, too.
local function watch_class(run, module)
  local original
  original = core.swap_call(module, function(self, ...)
    return looked_at(run, run.looks[self], original(self, ...))
  end)
  return function()
    if original ~= nil then
      core.swap_call(module, original)
    end
  end
end

local function watch(run, modules)
  local undo, seen = {}, {}
  for _, module in ipairs(modules) do
    local class = core.metatable_of(module)
    if class ~= nil and not seen[class] then
      seen[class] = true
      undo[#undo + 1] = watch_class(run, module)
    end
  end
  return setmetatable({}, {__close = function()
    for position = #undo, 1, -1 do
      undo[position]()
    end
  end})
end

-- Calls

local function first_sample(...)
  for position = 1, select("#", ...) do
    local value = (select(position, ...))
    if core.has_samples(value) then
      return value
    end
    for _, item in next, type(value) == "table" and value or {} do
      if core.has_samples(item) then
        return item
      end
    end
  end
  core.fail("calling an instrumented model: expected an argument tensor with the batch as its first dimension, "
    .. "got none")
end

local function sorted_keys(set)
  local keys = {}
  for key in next, set do
    keys[#keys + 1] = key
  end
  sort(keys)
  return keys
end

local function run_watched(run, state, ...)
  local _ <close> = watch(run, state.watched)
  return state.module(...)
end

local function call_module(state, ...)
  local sample = first_sample(...)
  if state.every > 1 then
    core.break_outside_write("a model that checks every n-th call counts its calls",
                             "Use every = 1 in compiled code.")
  end
  state.checked = state.calls % state.every == 0
  state.calls = state.calls + 1
  local run = {sample = sample, flags = err.new(sample, {config = state.config}), looks = state.looks,
               called = {}, unlooked = {}}
  run.slots, run.policy, run.dtype = core.resolve_config(state.config)
  local results
  if state.checked then
    run.batch = state.collector and core.value_batch(state.collector)
    results = pack(run_watched(run, state, ...))
    state.unlooked, state.unseen = sorted_keys(run.unlooked), {}
    for _, path in ipairs(state.paths) do
      if not run.called[path] then
        state.unseen[#state.unseen + 1] = path
      end
    end
  else
    results = pack(state.module(...))
  end
  results[results.n + 1] = run.flags
  return unpack(results, 1, results.n + 1)
end

local function keep_results(state, checked, unlooked, ...)
  state.checked, state.unlooked = checked, unlooked
  return ...
end

local function call(object, ...)
  local state = states[object]
  if state.script then
    return keep_results(state, core.call_instrumented_script(state.script, ...))
  end
  if state.collector then
    return core.run_uncaptured("a model that counts its values", call_module, state, ...)
  end
  return call_module(state, ...)
end

-- The object

local function state_of(object, method)
  local state = states[object]
  if state == nil then
    core.fail(("%s: expected an instrumented model; call it with a colon, as in model:%s()"):format(method, method))
  end
  return state
end

--- A method that reads a field of the state.

local function reader(field, method)
  return core.opaque(core.forwarding(function(object)
    return state_of(object, method)[field]
  end, "model:" .. method))
end

--- A method that asks the collector, by one function where the module is TorchScript's, and by another where it is not.
local function of_values(method, of_script, of_modules)
  return core.opaque(core.forwarding(function(object)
    local state = state_of(object, method)
    core.break_outside_write(("`model:%s` reads counts"):format(method), "Call it before or after the compiled code.")
    if state.script then
      return of_script(state.script)
    elseif not state.collector then
      core.fail(("model:%s: the model was instrumented without `statistics`; pass {statistics = true} to "
        .. "triage.instrument"):format(method))
    end
    return of_modules(state.collector)
  end, "model:" .. method))
end

--- Paths of the modules that mix samples, as they train or do not train now.
local mixing = core.opaque(core.forwarding(function(object)
  local state, paths = states[object], {}
  if state == nil then
    core.fail("mixing: expected an instrumented model; call it with a colon, as in model:mixing()")
  end
  for position, module in ipairs(state.modules or {}) do
    if core.modules.is(module) and core.modules.mixes(module) then
      paths[#paths + 1] = state.paths[position]
    end
  end
  return paths
end, "model:mixing"))

local class = {
  __call = core.opaque(call),
  __index = {locations = reader("paths", "locations"), checked = reader("checked", "checked"),
             unseen = reader("unseen", "unseen"), mixing = mixing, unlooked = reader("unlooked", "unlooked"),
             statistics = of_values("statistics", core.instrumented_statistics, core.value_statistics),
             reset_statistics = of_values("reset_statistics", core.reset_instrumented, core.reset_values)},
  __name = "instrumented model",
  __metatable = "instrumented model",
}

--- Modules without parameters have no location, but values that can be counted.
local function count_other_modules(state, entries, prefix)
  for position, entry in ipairs(entries) do
    local path, module = entry[1], entry[2]
    state.watched[position] = module
    if not state.looks[module] then
      local below = path ~= "" and (prefix and prefix .. "." .. path or path)
      state.looks[module] = {path = below or prefix or "root", nan = false, inf = false}
    end
  end
end

local function instrument_modules(module, options)
  arguments.callable("triage.instrument", "module", module)
  local state = {module = module, every = options.every, config = options.config, calls = 0, checked = false,
                 collector = options.statistics and core.value_collector() or nil, paths = {}, unseen = {},
                 unlooked = {}, modules = {}, looks = setmetatable({}, {__mode = "k"})}
  local modules, entries = core.track_modules("triage.instrument", module, options.prefix, options.tree)
  for position, tracked in ipairs(modules) do
    state.paths[position] = tracked.path
    state.modules[position] = tracked.module
    state.looks[tracked.module] = look_for(tracked, options.benign)
  end
  state.watched = options.statistics and {} or state.modules
  if options.statistics then
    count_other_modules(state, entries, options.prefix)
  end
  return state
end

local instrument_options = {benign = true, every = true, statistics = true, prefix = true, tree = true, config = true}

--- A callable that gives what `module` gives, and flags.
core.instrument = core.forwarding(function(module, options)
  options = read_options(arguments.options("triage.instrument", options, instrument_options))
  core.break_registry("`triage.instrument` names modules", "Call it once, before the compiled code.")
  local object = setmetatable({module = module}, class)
  local script = core.script_of(module)
  if script then
    local userdata, paths, unseen = core.instrument_script(script, options)
    states[object] = {script = userdata, paths = paths, unseen = unseen, unlooked = {}, checked = false}
  else
    states[object] = instrument_modules(module, options)
  end
  return object
end, "triage.instrument")
