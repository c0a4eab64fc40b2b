-- Results: a value (or several) or an error, for scripts that would rather return than raise.
local core = ...
local error, getmetatable, pcall, select, setmetatable, type = error, getmetatable, pcall, select, setmetatable, type
local concat, unpack = table.concat, table.unpack
local arguments = core.arguments
local globals = _G

local Result = {__name = "Result", __metatable = "Result"}
local methods = {}
Result.__index = methods

local function new(ok, ...)
  return core.mark_created(setmetatable({ok = ok, n = select("#", ...), ...}, Result))
end

function globals.Ok(...)
  return new(true, ...)
end

function globals.Err(value)
  return new(false, value)
end

local function is_result(value)
  return type(value) == "table" and getmetatable(value) == "Result"
end

local function check(operation, value)
  if not is_result(value) then
    core.fail(("%s: expected a Result, got %s"):format(operation, core.describe(value)))
  end
  return value
end

local function shown(value)
  if core.is_failure(value) then
    return value.message
  end
  return is_result(value) and tostring(value) or core.describe(value)
end

function Result.__tostring(result)
  check("tostring", result)
  local parts = {}
  for i = 1, result.n do
    parts[i] = shown(result[i])
  end
  return ("%s(%s)"):format(result.ok and "Ok" or "Err", concat(parts, ", "))
end

function methods.is_ok(result)
  return check("is_ok", result).ok
end

function methods.is_err(result)
  return not check("is_err", result).ok
end

--- The value. Of an error: raises it, text with a word on where it came from.
function methods.unwrap(result)
  if check("unwrap", result).ok then
    return unpack(result, 1, result.n)
  end
  if type(result[1]) == "string" then
    core.fail("unwrap: the result is an error: " .. result[1])
  end
  error(result[1], 0)
end

function methods.unwrap_err(result)
  if check("unwrap_err", result).ok then
    core.fail(("unwrap_err: the result is %s; ask is_err() first"):format(tostring(result)))
  end
  return result[1]
end

function methods.unwrap_or(result, ...)
  if check("unwrap_or", result).ok then
    return unpack(result, 1, result.n)
  end
  return ...
end

function methods.map(result, fn)
  arguments.callable("map", "fn", fn)
  if check("map", result).ok then
    return new(true, fn(unpack(result, 1, result.n)))
  end
  return result
end

function methods.map_err(result, fn)
  arguments.callable("map_err", "fn", fn)
  if check("map_err", result).ok then
    return result
  end
  return new(false, (fn(result[1])))
end

function methods.and_then(result, fn)
  arguments.callable("and_then", "fn", fn)
  if not check("and_then", result).ok then
    return result
  end
  local following = fn(unpack(result, 1, result.n))
  if not is_result(following) then
    core.fail(("and_then: `fn` must return a Result, Ok(...) or Err(...), not %s"):format(core.describe(following)))
  end
  return following
end

core.limited(methods, "result:")

--- What stops the script itself: graph breaks and budgets that ran out. No Result may hold these.
local function concerns_the_script(caught)
  return type(caught) == "userdata" and getmetatable(caught) == "error"
end

local function caught(ok, ...)
  if ok then
    return new(true, ...)
  end
  local raised = ...
  if concerns_the_script(raised) then
    error(raised, 0)
  end
  return new(false, raised)
end

function globals.as_result(fn)
  arguments.callable("as_result", "fn", fn)
  return core.wrapping(function(...)
    return caught(pcall(fn, ...))
  end, fn, "as_result", fn)
end

local invalid_return <const> = 6

local function raising(operation)
  return function(fn)
    arguments.callable(operation, "fn", fn)
    return core.wrapping(function(...)
      local result = fn(...)
      if not is_result(result) then
        local expected, got = "a Result", core.describe(result)
        error(core.failed(invalid_return, operation, expected, got,
          ("the function must return %s, Ok(...) or Err(...), not %s"):format(expected, got)), 0)
      end
      if result.ok then
        return unpack(result, 1, result.n)
      end
      error(result[1], 0)
    end, fn, operation, fn)
  end
end

globals.as_exception = raising("as_exception")
globals.unwrap = raising("unwrap")
