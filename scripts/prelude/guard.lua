-- guard(x): flags that ride on a tensor; operators carry them (bindings/lua/tensors/calls/guarded_call.cpp). Functions
-- of the library come here where an argument is guarded: what takes flags takes those of the tensor.
local core = ...
local pack, unpack = table.pack, table.unpack
local arguments = core.arguments
local globals = _G
local err = globals.err

local guard_options = {config = true}

--- Of data and flags that operators made of one guarded tensor, in the same rows.
local function guarded(z, flags)
  return core.guarded(nil, z, flags)
end

function globals.guard(x, flags, options)
  if options == nil and type(flags) == "table" then
    flags, options = nil, flags
  end
  options = arguments.options("guard", options, guard_options)
  arguments.tensor("guard", "x", x)
  if flags == nil then
    flags = err.new(x, options)
  end
  return core.guarded("guard", x, arguments.flags("guard", flags, x))
end

--- What `unguard` and `guard` make of a tensor that is guarded.
local lifted = {}

function globals.unguard(x)
  core.fail(("unguard: expected a guarded tensor, as guard(x) gives, got %s"):format(core.describe(x)))
end

function lifted.unguard(_, x)
  return core.data_of(x), core.flags_of(x)
end

function lifted.guard(_, x, flags)
  if flags ~= nil then
    core.fail("guard: the tensor is guarded already, or is given as flags; take its flags off with unguard(x) first")
  end
  return x
end

--- `fn` takes flags first and gives flags: the same tensor with those.
local function changes_flags(fn, x, ...)
  return guarded(core.data_of(x), fn(core.flags_of(x), ...))
end

for _, name in ipairs({"err.push", "push", "err.push_scalar", "err.clear", "err.ensure_mask",
                       "err.map_err_flags"}) do
  lifted[name] = changes_flags
end

--- `fn` is a question about flags, which are one of its arguments.
local function asks(fn, ...)
  local list = pack(...)
  for i = 1, list.n do
    if core.is_guarded(list[i]) then
      list[i] = core.flags_of(list[i])
    end
  end
  return fn(unpack(list, 1, list.n))
end

lifted["err.merge"] = function(fn, ...)
  local merged, first = asks(fn, ...), (...)
  return core.is_guarded(first) and guarded(core.data_of(first), merged) or merged
end

for _, name in ipairs({"is_ok", "is_err", "has_critical", "all_ok", "any_err", "has_any", "count_errors",
                       "max_severity", "get_first_code", "get_first_location", "get_first_severity", "has_code",
                       "has_nan", "has_inf", "has_fallback", "has_domain", "get_slot", "get_ok", "get_err"}) do
  lifted["err." .. name] = asks
end
lifted.find, lifted.IS, lifted.HAS = asks, asks, asks

--- Detection: what is found adds to the tensor's own flags.
local function detects(position)
  return function(fn, x, ...)
    local rest = pack(...)
    if not core.is_guarded(x) or core.is_tensor(rest[position]) then
      core.fail("detection on a guarded tensor adds to its own flags: x = flag_nan(x, loc), without `f`; for others, "
        .. "local z, f = unguard(x)")
    end
    for i = rest.n + 1, position - 1 do
      rest[i] = nil
    end
    local options = rest[position]   -- `f` may be left out, or nil before the options
    if options == nil then
      options = rest[position + 1]
    end
    rest[position], rest[position + 1] = core.flags_of(x), options
    local z = core.data_of(x)
    return guarded(z, fn(z, unpack(rest, 1, position + 1)))
  end
end

lifted.flag_nan, lifted.flag_inf, lifted.flag_nan_and_inf = detects(2), detects(2), detects(2)
lifted.flag_oob_indices = detects(3)

function lifted.fix(fn, x, location, options)
  if not core.is_guarded(x) or core.is_tensor(location) then
    core.fail("fix of a guarded tensor: fix(x, loc, options); its flags are its own")
  end
  return guarded(fn(core.data_of(x), core.flags_of(x), location, options))
end

--- `fn(f, z, ...)` gives data with the same samples.
local function keeps_samples(fn, x, ...)
  return guarded(fn(core.flags_of(x), core.data_of(x), ...), core.flags_of(x))
end

for _, name in ipairs({"take_ok_p", "take_err_p", "map_ok", "map_err"}) do
  lifted["err." .. name] = keeps_samples
end

--- `fn(f, z, ...)` gives data and flags.
local function gives_both(fn, x, ...)
  return guarded(fn(core.flags_of(x), core.data_of(x), ...))
end

for _, name in ipairs({"and_then", "bind", "recover_with_fallback"}) do
  lifted["err." .. name] = gives_both
end

lifted["err.guard"] = function(fn, x, ...)
  return guarded(core.data_of(x), fn(core.flags_of(x), core.data_of(x), ...))
end

for _, pair in ipairs({{"take_ok", "get_ok"}, {"Ok", "get_ok"}, {"take_err", "get_err"}, {"Err", "get_err"}}) do
  local take = err[pair[2]]
  lifted["err." .. pair[1]] = function(fn, x)
    local z, flags = core.data_of(x), core.flags_of(x)
    return guarded(fn(flags, z), take(flags))
  end
end

lifted["err.replace"] = function(fn, x, ...)
  return guarded(fn(core.data_of(x), ...), core.flags_of(x))
end

lifted["err.partition"] = function(fn, x)
  local flags = core.flags_of(x)
  local ok, bad = fn(flags, core.data_of(x))
  return guarded(ok, err.get_ok(flags)), guarded(bad, err.get_err(flags))
end

--- A call of `fn`, which scripts know as `name`, with guarded tensors among its arguments.
function core.call_guarded(name, fn, ...)
  local lift = lifted[name]
  if not lift then   -- operators carry flags along, and what takes tensors only says so
    return fn(...)
  end
  if lift ~= asks and lift ~= lifted["err.merge"] and name ~= "guard" then
    local list = pack(...)
    for i = 1, list.n do
      if core.is_guarded(list[i]) ~= (i == 1) then
        core.fail(name .. ": the guarded tensor is its first argument, for flags and data; others are plain, as x.data")
      end
    end
  end
  return lift(fn, ...)
end
