-- tensorcheck and type_cast. The checks themselves are C++; what is recorded into flags is recorded here, through the
-- same operations that scripts call.
local core = ...
local getmetatable, ipairs, rawget, type = getmetatable, ipairs, rawget, type
local pack, unpack = table.pack, table.unpack
local arguments = core.arguments
local globals = _G

local to_dtype = core.op("aten::to", "dtype")

-- Errors

local kinds = {"ValidationError", "DimensionMismatchError", "DTypeMismatchError", "DeviceMismatchError",
               "InvalidParameterError", "TypeMismatchError", "InvalidReturnTypeError"}

for number, kind in ipairs(kinds) do
  globals[kind] = core.read_only(core.limited({
    is = function(value)
      return core.is_failure(value) and (number == 1 or rawget(value, "kind") == kind)
    end,
  }, kind .. "."), kind)
end

-- Checks

local detectors = {}
for _, name in ipairs({"flag_nan", "flag_inf", "flag_nan_and_inf"}) do
  detectors[name] = core.op("triage::" .. name, "")
end

--- Where detection records: at `self`, when it is a module or has a path.
local function location_of(self)
  if type(self) == "table" and getmetatable(self) == nil and rawget(self, "_fx_path") == nil then
    return core.location(nil, "tensorcheck")
  end
  return core.location(self, "tensorcheck")
end

local options_of_check = {args = true, returns = true, auto_detect = true, self = true, config = true, name = true}

function globals.tensorcheck(fn, options)
  arguments.callable("tensorcheck", "fn", fn)
  options = arguments.options("tensorcheck", options, options_of_check)
  core.resolve_config(options.config)   -- says so now, if it is none
  local plan, flags_at, detector, looked_at = core.typing_plan(fn, options)
  local self, config = options.self, options.config
  if flags_at == nil then
    local function without_status(_, ...)
      return ...
    end
    return core.wrapping(function(...)
      return without_status(core.checked_call(plan, self, config, fn, ...))
    end, fn, "tensorcheck", fn, options)
  end
  local detect, takes_self = detectors[detector], core.takes_self(plan)
  return core.wrapping(function(...)
    local results = pack(core.checked_call(plan, self, config, fn, ...))
    if results[1] then
      local object = self
      if object == nil and takes_self then
        object = ...
      end
      local id = location_of(object)
      local slots, policy, dtype = core.resolve_config(config)
      local flags = results[flags_at + 1]
      for _, index in ipairs(looked_at) do
        flags = detect(results[index + 1], flags, id, slots, policy, dtype)
      end
      results[flags_at + 1] = flags
    end
    return unpack(results, 2, results.n)
  end, fn, "tensorcheck", fn, options)
end

-- Casts

function globals.type_cast(dtype, x)
  local failure = core.cast_failure(dtype, x)
  if failure ~= nil then
    return globals.Err(failure)
  end
  return globals.Ok(to_dtype(x, dtype))
end
