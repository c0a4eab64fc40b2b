-- How captured code treats what one graph cannot hold: the parts of `triage` that are about graph breaks.
local core = ...
local rawequal, rawset, next, type = rawequal, rawset, next, type
local arguments = core.arguments
local globals = _G

local capture = {graph_break = core.graph_break, is_compiling = core.is_compiling}
core.capture = capture

local function checked_flag(who, flag)
  flag = core.plain(flag)
  if type(flag) ~= "boolean" then
    core.fail(("%s: expected true or false, got %s"):format(who, core.describe(flag)))
  end
  return flag
end

--- With a function: what calls it while the setting holds. Without: a value for `local _ <close> =`, for the rest of a
--- block.
function capture.error_on_graph_break(flag, fn)
  flag = checked_flag("triage.error_on_graph_break", flag)
  if fn == nil then
    return core.error_on_graph_break(flag)
  end
  arguments.callable("triage.error_on_graph_break", "fn", fn)
  return core.wrapping(function(...) return core.with_error_on_graph_break(flag, fn, ...) end, fn,
    "triage.error_on_graph_break", flag, fn)
end

local disable_options = {recursive = true, reason = true}

--- A function that runs as a script wherever it is called from. The break that this makes says the reason.
function capture.disable(fn, options)
  arguments.callable("triage.disable", "fn", fn)
  options = arguments.options("triage.disable", options, disable_options)
  local recursive, reason = options.recursive, options.reason
  if recursive == nil then
    recursive = true
  end
  recursive = checked_flag("triage.disable: recursive", recursive)
  if reason ~= nil and type(reason) ~= "string" then
    core.fail(("triage.disable: expected a string as `reason`, got %s"):format(core.describe(reason)))
  end
  return core.wrapping(function(...) return core.run_disabled(recursive, reason, fn, ...) end, fn,
    "triage.disable", fn, {recursive = recursive, reason = reason})
end

--- A function whose side effects do not end graphs: they happen when it is captured.
function capture.allow_in_graph(fn)
  arguments.callable("triage.allow_in_graph", "fn", fn)
  return core.wrapping(function(...) return core.run_allowed(nil, fn, ...) end, fn, "triage.allow_in_graph", fn)
end

local region_options = {name = true}

local function checked_region_name(name)
  if type(name) ~= "string" or #name > 60 or not name:find("^[%a_][%w_.%-]*$") then
    core.fail(("triage.nested_compile_region: expected letters, digits and `_.-` as `name`, at most 60, got %s"):format(
      core.describe(name)))
  end
  return name
end

--- A function that does the same. The backend compiles what its calls compute once for all calls that compute alike.
function capture.nested_compile_region(fn, options)
  arguments.callable("triage.nested_compile_region", "fn", fn)
  options = arguments.options("triage.nested_compile_region", options, region_options)
  local name = options.name == nil and core.region_name(fn) or checked_region_name(options.name)
  return core.wrapping(function(...) return core.call_region(name, fn, ...) end, fn,
    "triage.nested_compile_region", fn, {name = name})
end

local function replace_fields(tab, old, new)
  for name, value in next, tab do
    if rawequal(value, old) then
      rawset(tab, name, new)
    end
  end
end

--- What calls `fn` in place of `original` in code that is captured. Where `original` is a field of a global table, or a
--- global, scripts that are trusted find it there from now on.
function capture.substitute_in_graph(original, fn)
  arguments.callable("triage.substitute_in_graph", "original", original)
  arguments.callable("triage.substitute_in_graph", "fn", fn)
  local substitute = core.wrapping(function(...)
    if core.is_compiling() then
      return fn(...)
    end
    return original(...)
  end, fn, "triage.substitute_in_graph", original, fn)
  if not core.is_sandboxed() then
    core.change_registry("`triage.substitute_in_graph`", "Call it before the compiled code.")
    replace_fields(globals, original, substitute)
    for _, library in next, globals do
      if type(library) == "table" and not core.libraries[library] then
        replace_fields(library, original, substitute)
      end
    end
  end
  return substitute
end

local range_options = {min = true, max = true}

--- Graphs are to hold for every size of this dimension, or for those of a range: one that would not is an error.
function capture.mark_dynamic(x, dim, range)
  arguments.tensor("triage.mark_dynamic", "x", x)
  range = arguments.options("triage.mark_dynamic", range, range_options)
  core.mark_size(x, dim, true, range.min, range.max)
end

--- Graphs hold for this size of this dimension only.
function capture.mark_static(x, dim)
  arguments.tensor("triage.mark_static", "x", x)
  core.mark_size(x, dim, false)
end

core.limited(capture, "triage.")
