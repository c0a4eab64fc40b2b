-- The registry of locations, trees of them, and modules as locations.
local core = ...
local ipairs, next, rawset, type = ipairs, next, rawset, type
local arguments = core.arguments
local globals = _G

globals.ErrorLocation = core.read_only(core.locations, "ErrorLocation")
globals.LocationTree = core.LocationTree
globals.WeightedLocationTree = core.WeightedLocationTree

--- The TorchScript module behind a value, where it is one.
function core.script_of(value)
  if core.is_script_module(value) then
    return value
  end
end

--- What `module:<method>()` lists; an error where the value has no such method.
local function listed(operation, module, method)
  local kind = type(module)
  local find = (kind == "table" or kind == "userdata") and not core.is_tensor(module) and module[method]
  if type(find) ~= "function" then
    core.fail(("%s: expected a module, with a method %s(), got %s"):format(operation, method, core.describe(module)))
  end
  return find(module)
end

--- Gives `module` and the modules below it their locations, and returns a list of {module, path, location, id} of those
--- that hold parameters, depth first, and the list of `module:named_modules()`.
function core.track_modules(operation, module, prefix, tree)
  local entries = listed(operation, module, "named_modules")
  local paths, holds = {}, {}
  for position, entry in ipairs(entries) do
    paths[position] = entry[1]
    holds[position] = next(listed(operation, entry[2], "named_parameters")) ~= nil
  end
  local tracked_modules = {}
  for position, location in ipairs(core.assign_locations(operation, paths, holds, prefix, tree)) do
    local found = entries[position][2]
    if location and type(found) == "table" then
      rawset(found, "_fx_path", location.path)
      rawset(found, "_fx_location", location.location)
      rawset(found, "_fx_id", location.id)
    end
    if location then
      location.module = found
      tracked_modules[#tracked_modules + 1] = location
    end
  end
  core.warn_of_mixing(operation, entries)
  return tracked_modules, entries
end

--- Flags say which sample was bad first. Behind a layer that mixes samples all are bad, or changed by others.
function core.warn_of_mixing(operation, entries)
  for _, entry in ipairs(entries) do
    local path, module = entry[1], entry[2]
    local why = core.modules.is(module) and core.modules.mixes(module)
    if why then
      core.warn(("%s: module '%s' (%s) mixes samples: %s, so that a bad sample changes the results of all others; "
        .. "repair its input, or use model:eval(), nn.GroupNorm or nn.LayerNorm")
        :format(operation, path == "" and "root" or path, core.module_name(module), why))
    end
  end
end

local tracked_options = {prefix = true, tree = true}

function globals.tracked(module, options)
  options = arguments.options("tracked", options, tracked_options)
  core.break_registry("`tracked` names modules", "Call it once, before the compiled code.")
  local script = core.script_of(module)
  if script then
    core.track_script(script, options.prefix, options.tree)
  end
  if not script or type(module) == "table" then
    core.track_modules("tracked", module, options.prefix, options.tree)
  end
  return module
end
