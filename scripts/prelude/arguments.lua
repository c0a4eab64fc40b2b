-- Checks of arguments that all operations share. The prelude is plain Lua that the source rewriter never sees: nothing
-- in these files may compare tensors or use them as conditions (`x == nil` and `rawequal` are safe).
local core = ...
local pack = table.pack

core.libraries = {}   -- tables that no script changes, though its own values lead to them

local arguments = {}

--- The tensor itself, or an error that names operation and argument.
function arguments.tensor(operation, name, value)
  if core.is_tensor(value) then
    return value
  end
  core.fail(("%s: expected a tensor as `%s`, got %s"):format(operation, name, core.describe(value)))
end

--- The flags tensor itself, or an error; of data, too, as far as its form tells. `beside` is the call's other tensor.
function arguments.flags(operation, value, beside)
  return core.known_flags(operation, arguments.tensor(operation, "f", value), beside)
end

local config_only = {config = true}

--- The same for a question, whose options may name the configuration of the flags.
function arguments.asked(operation, value, options)
  if options ~= nil then
    core.resolve_config(arguments.options(operation, options, config_only).config)   -- refuses what is none
  end
  return arguments.flags(operation, value)
end

--- A number of the script, or a param. Another tensor of one element is none: a graph could not hold its value.
function arguments.number(operation, name, value)
  if core.is_number(value) or core.is_param(value) then
    return value
  end
  local hint = core.is_tensor(value) and "; a number that changes belongs into the params of the policy" or ""
  core.fail(("%s: expected a number as `%s`, got %s%s"):format(operation, name, core.describe(value), hint))
end

function arguments.number_or_tensor(operation, name, value)
  if core.is_tensor(value) or core.is_number(value) then
    return value
  end
  core.fail(("%s: expected a number or a tensor as `%s`, got %s"):format(operation, name, core.describe(value)))
end

function arguments.callable(operation, name, value)
  if core.is_callable(value) then   -- a module is, too
    return value
  end
  core.fail(("%s: expected a function as `%s`, got %s"):format(operation, name, core.describe(value)))
end

local no_options = {}

--- The options table, never nil. `allowed` is a set of names; any other name is an error, so that a misspelt option is
--- never silently ignored.
function arguments.options(operation, options, allowed)
  if options == nil then
    return no_options
  end
  if type(options) ~= "table" then
    core.fail(("%s: expected a table of options, got %s"):format(operation, core.describe(options)))
  end
  for key in next, options do
    if not allowed[key] then
      core.unknown_option(operation, key, allowed)
    end
  end
  return options
end

--- Splits off a trailing table of options from a list of arguments.
function arguments.split_options(operation, allowed, ...)
  local list = pack(...)
  local last = list[list.n]
  if type(last) ~= "table" then
    return list, no_options
  end
  list[list.n] = nil
  list.n = list.n - 1
  return list, arguments.options(operation, last, allowed)
end

--- The severity of an entry: what the options say, else the code's own; of a tensor of codes, that of the config.
function arguments.severity(operation, severity, code, config_default)
  if severity ~= nil then
    return core.severity(severity, operation)
  end
  if core.is_tensor(code) then
    return config_default
  end
  return core.default_severity(code)
end

core.arguments = arguments
