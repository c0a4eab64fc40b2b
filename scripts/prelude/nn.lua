-- Modules: tables whose fields are parameters (tensors that are trained), other modules, and whatever else. A call of a
-- module runs its `forward`, which calls the same operators as any other code, so that captured code holds them.
local core = ...
local globals = _G
local rawget, rawset, setmetatable, tostring = rawget, rawset, setmetatable, tostring
local concat, insert, remove, sort = table.concat, table.insert, table.remove, table.sort
local gsub = string.gsub
local arguments = core.arguments

local nn = {}
local Module = {}   -- the methods of every module

-- What is kept of each module besides its fields: `name` of its class, `describe` for tostring, the `order` in which
-- its fields were first assigned; of a TorchScript module also its `fields`, which it cannot change, and the `script`.
local states = setmetatable({}, {__mode = "k"})
-- Tensors that are parameters or buffers by what was said of them, whatever they are assigned to.
local kinds = setmetatable({}, {__mode = "k"})

insert(core.libraries, states)
insert(core.libraries, kinds)
insert(core.libraries, Module)

local function is_module(value)
  return type(value) == "table" and states[value] ~= nil
end

local function check_module(operation, name, value)
  if is_module(value) then
    return value
  end
  core.fail(("%s: expected a module as `%s`, got %s"):format(operation, name, core.describe(value)))
end

local function check_self(self, method)
  if not is_module(self) then
    core.fail(("%s: expected a module; call it with a colon, as in model:%s(), not on %s")
      :format(method, method, core.describe(self)))
  end
  return states[self]
end

local function is_parameter(value)
  if not core.is_tensor(value) then
    return false
  end
  if kinds[value] == nil and value.requires_grad and value.is_leaf then
    kinds[value] = "parameter"   -- and stays one when it is frozen
  end
  return kinds[value] == "parameter"
end

local function is_buffer(value)
  return core.is_tensor(value) and kinds[value] == "buffer"
end

-- Fields

local function check_field_name(state, name)
  if type(name) == "string" and (name == "" or name:find(".", 1, true)) then
    core.fail(("%s: a field cannot be called '%s': the dot joins names to paths"):format(state.name, name))
  end
end

--- A table of modules would be a trap: nobody would find the parameters in it.
local function check_no_hidden_modules(state, name, value)
  if type(value) ~= "table" or is_module(value) then
    return
  end
  for _, item in next, value do
    if is_module(item) or is_parameter(item) then
      core.fail(("%s: field '%s' is a plain table of modules or parameters, which parameters() does not look into; "
        .. "use nn.Sequential, or assign each to a field of its own"):format(state.name, core.describe_key(name)))
    end
  end
end

--- A new field. One that is assigned again keeps its place, as Lua does not tell of it.
local function assign(self, name, value)
  local state = states[self]
  check_field_name(state, name)
  check_no_hidden_modules(state, name, value)
  for position, known in ipairs(state.order) do
    if known == name then
      remove(state.order, position)   -- it was nil meanwhile
      break
    end
  end
  insert(state.order, name)
  is_parameter(value)   -- noted now, should it be frozen before anybody asks
  rawset(self, name, value)
end

--- Iterates over the fields of a module alone, in order: name, value.
local function fields(module)
  local state, position = states[module], 0
  local values = state.fields
  return function()
    while position < #state.order do
      position = position + 1
      local name = state.order[position]
      local value
      if values then
        value = values[name]
      else
        value = rawget(module, name)
      end
      if value ~= nil then
        return tostring(name), value
      end
    end
  end
end

local function joined(path, name)
  return path == "" and name or path .. "." .. name
end

-- Walks. All results are lists, of {path, value} where it is named; what is met twice is in them once.

local function collect_modules(module, path, seen, found)
  if seen[module] then
    return found
  end
  seen[module] = true
  insert(found, core.mark_created({path, module}))
  for name, value in fields(module) do
    if is_module(value) then
      collect_modules(value, joined(path, name), seen, found)
    end
  end
  return found
end

local function values_of(pairs_list)
  local values = core.mark_created({})
  for position, pair in ipairs(pairs_list) do
    values[position] = pair[2]
  end
  return values
end

function Module:named_modules()
  check_self(self, "named_modules")
  return collect_modules(self, "", {}, core.mark_created({}))
end

function Module:modules()
  check_self(self, "modules")
  return values_of(Module.named_modules(self))
end

function Module:named_children()
  check_self(self, "named_children")
  local found, seen = core.mark_created({}), {}
  for name, value in fields(self) do
    if is_module(value) and not seen[value] then
      seen[value] = true
      insert(found, core.mark_created({name, value}))
    end
  end
  return found
end

function Module:children()
  check_self(self, "children")
  return values_of(Module.named_children(self))
end

local function named_tensors(self, wanted)
  local found, seen = core.mark_created({}), {}
  for _, pair in ipairs(Module.named_modules(self)) do
    local path, module = pair[1], pair[2]
    for name, value in fields(module) do
      if wanted(value) and not seen[value] then
        seen[value] = true
        insert(found, core.mark_created({joined(path, name), value}))
      end
    end
  end
  return found
end

function Module:named_parameters()
  check_self(self, "named_parameters")
  return named_tensors(self, is_parameter)
end

function Module:parameters()
  check_self(self, "parameters")
  return values_of(named_tensors(self, is_parameter))
end

function Module:named_buffers()
  check_self(self, "named_buffers")
  return named_tensors(self, is_buffer)
end

function Module:buffers()
  check_self(self, "buffers")
  return values_of(named_tensors(self, is_buffer))
end

function Module:apply(fn)
  check_self(self, "apply")
  arguments.callable("apply", "fn", fn)
  for _, child in ipairs(Module.children(self)) do
    Module.apply(child, fn)
  end
  fn(self)
  return self
end

-- Changes

function Module:register_buffer(name, tensor)
  local state = check_self(self, "register_buffer")
  if type(name) ~= "string" then
    core.fail(("%s:register_buffer: expected a name, got %s"):format(state.name, core.describe(name)))
  end
  core.note_write(self)
  kinds[arguments.tensor("register_buffer", "tensor", tensor)] = "buffer"
  self[name] = tensor
  return self
end

function Module:train(mode)
  check_self(self, "train")
  if mode == nil then
    mode = true
  elseif type(mode) ~= "boolean" then
    core.fail("train: expected a boolean, got " .. core.describe(mode))
  end
  for _, module in ipairs(Module.modules(self)) do
    if rawget(module, "training") ~= mode then
      core.note_write(module)
      rawset(module, "training", mode)
    end
    if states[module].script then
      core.train_script(states[module].script, mode)
    end
  end
  return self
end

function Module:eval()
  check_self(self, "eval")
  return Module.train(self, false)
end

function Module:requires_grad_(on)
  check_self(self, "requires_grad_")
  on = core.plain(on)
  if on ~= nil and type(on) ~= "boolean" then
    core.fail("requires_grad_: expected true or false, got " .. core.describe(on))
  end
  core.break_graph("`requires_grad_` of a module changes its parameters", "Call it before the compiled code.")
  for _, parameter in ipairs(Module.parameters(self)) do
    core.set_requires_grad(parameter, on ~= false)
  end
  return self
end

function Module:zero_grad()
  check_self(self, "zero_grad")
  core.break_graph("`zero_grad` drops gradients", "Call it outside of the compiled code.")
  for _, parameter in ipairs(Module.parameters(self)) do
    core.drop_grad(parameter)
  end
end

local conversion_options = {dtype = true, device = true}

--- dtype and device that the arguments of `to` name, in any order, each once.
local function conversion(...)
  local given = {}
  local function give(what, value)
    if value ~= nil and given[what] ~= nil then
      core.fail(("to: the %s is given twice, now as %s"):format(what, core.describe(value)))
    end
    given[what] = given[what] or value
  end
  for i = 1, select("#", ...) do
    local target = (select(i, ...))
    if type(target) == "string" then
      give("device", target)
    elseif core.is_tensor(target) then
      give("dtype", target.dtype)
      give("device", target.device)
    elseif type(target) == "table" then
      arguments.options("to", target, conversion_options)
      give("dtype", target.dtype)
      give("device", target.device)
    else
      give("dtype", target)
    end
  end
  if next(given) == nil then
    core.fail("to: expected a dtype, a device or a tensor, got nothing")
  end
  return given.dtype, given.device
end

--- Parameters and buffers become others in dtype or device and stay the same tensors, so optimizers keep them.
function Module:to(...)
  check_self(self, "to")
  local dtype, device = conversion(...)
  core.break_graph("`to` of a module changes its parameters", "Call it before the compiled code.")
  for _, module in ipairs(Module.modules(self)) do
    for _, value in fields(module) do
      if is_parameter(value) or is_buffer(value) then
        core.convert_data(value, dtype, device)
      end
    end
  end
  return self
end

-- State

--- All parameters and buffers by their paths, as tensors that share memory with them.
function Module:state_dict()
  check_self(self, "state_dict")
  local state = core.mark_created({})
  for _, list in ipairs({Module.named_parameters(self), Module.named_buffers(self)}) do
    for _, pair in ipairs(list) do
      state[pair[1]] = pair[2]:detach()
    end
  end
  return state
end

local load_options = {strict = true}

local function check_state(name, own, given, strict)
  local missing, unexpected = {}, {}
  for path, tensor in next, own do
    local value = given[path]
    if value == nil then
      insert(missing, path)
    else
      arguments.tensor(name .. ":load_state_dict", path, value)
      if not core.same_shape(tensor, value) then
        core.fail(("%s:load_state_dict: '%s' is %s, got %s")
          :format(name, path, core.describe(tensor), core.describe(value)))
      end
    end
  end
  for path in next, given do
    if own[path] == nil then
      insert(unexpected, core.describe_key(path))
    end
  end
  if strict and #missing + #unexpected > 0 then
    sort(missing)
    sort(unexpected)
    core.fail(("%s:load_state_dict: missing: %s; unexpected: %s ({strict = false} takes what fits)"):format(name,
      #missing > 0 and concat(missing, ", ") or "none", #unexpected > 0 and concat(unexpected, ", ") or "none"))
  end
end

--- Copies values into the parameters and buffers, which stay the same tensors. When anything does not fit, nothing is
--- copied.
function Module:load_state_dict(given, options)
  local state = check_self(self, "load_state_dict")
  options = arguments.options("load_state_dict", options, load_options)
  if type(given) ~= "table" then
    core.fail(("%s:load_state_dict: expected a table of tensors, as state_dict() gives it, got %s")
      :format(state.name, core.describe(given)))
  end
  core.break_graph("`load_state_dict` writes to the parameters", "Call it before the compiled code.")
  local own = Module.state_dict(self)
  check_state(state.name, own, given, options.strict ~= false)
  for path, tensor in next, own do
    if given[path] ~= nil then
      core.copy_data(tensor, given[path])
    end
  end
  return self
end

-- What a module is to Lua

function Module:forward(...)   -- luacheck: ignore 212
  local state = check_self(self, "forward")
  core.fail(("%s: it has no forward; write one, as in function model:forward(x) return self.layer(x) end")
    :format(state.name))
end

local function call(self, ...)
  return self.forward(self, ...)
end

local function to_text(self)
  local state, lines = states[self], {}
  for name, value in fields(self) do
    if is_module(value) then
      insert(lines, ("(%s): %s"):format(name, (gsub(tostring(value), "\n", "\n  "))))
    end
  end
  local details = state.describe and state.describe(self) or ""
  if #lines == 0 then
    return ("%s(%s)"):format(state.name, details)
  end
  return ("%s(%s\n  %s\n)"):format(state.name, details, concat(lines, "\n  "))
end

--- The metatable of modules whose methods are `methods`, and the rest as every module has them.
local function class_of(methods)
  if methods ~= Module then
    setmetatable(methods, {__index = Module})
    insert(core.libraries, methods)
  end
  core.limited(methods, "module:")
  local class = {__index = methods, __newindex = assign, __call = call, __tostring = to_text, __name = "module",
                 __metatable = "module"}
  insert(core.libraries, class)
  return class
end

local function new(class, name, describe)
  local module = core.mark_created({training = true})
  states[module] = {class = class, name = name, describe = describe, order = {}}
  return setmetatable(module, class)
end

-- Of each class that capsules know: its metatable and `describe`, and what says whether it mixes samples, by its name.
local known = {}

local function register(name, class, describe, mixes)
  known[name] = {class = class, describe = describe, mixes = mixes}
end

--- `find(name)` registers a class that nobody has asked for yet.
local function find_late(find)
  setmetatable(known, {__index = function(_, name)
    return find(name) and rawget(known, name)
  end})
end

--- Why the result of a sample depends on the others, now that the module trains or not; nil where it does not.
local function mixes(module)
  for _, class in next, known do
    if class.class == states[module].class then
      return class.mixes and class.mixes(module)
    end
  end
end

--- A module of the same fields, with parameters and buffers of its own, as copy.deepcopy makes it.
local function copied(module)
  local state = states[module]
  local copy = core.mark_created({training = rawget(module, "training")})
  states[copy] = {class = state.class, name = state.name, describe = state.describe, order = {}}
  setmetatable(copy, state.class)
  for _, name in ipairs(state.order) do
    local value = rawget(module, name)
    if is_module(value) then
      value = copied(value)
    elseif is_parameter(value) or is_buffer(value) then
      local fresh = value:detach():clone()
      core.set_requires_grad(fresh, value.requires_grad)
      kinds[fresh] = kinds[value]
      value = fresh
    end
    copy[name] = value
  end
  return copy
end

local plain_class = class_of(Module)
register("Module", plain_class)

--- Fields of a table constructor come in no order of their own: those of one are assigned by their names.
local function assign_all(module, values)
  local names = {}
  for name in next, values do
    if type(name) ~= "string" then
      core.fail("nn.Module: expected fields with names, got " .. core.describe(name) .. " as one of them")
    end
    insert(names, name)
  end
  sort(names)
  for _, name in ipairs(names) do
    module[name] = values[name]
  end
  return module
end

--- A module whose fields, `forward` among them, are given or then assigned. The name is what tostring shows.
function nn.Module(name, values)
  if type(name) == "table" and values == nil and not is_module(name) then
    name, values = nil, name
  end
  if name ~= nil and type(name) ~= "string" or values ~= nil and type(values) ~= "table" then
    core.fail(("nn.Module: expected a name and a table of fields, either or none, got %s and %s")
      :format(core.describe(name), core.describe(values)))
  end
  return assign_all(new(plain_class, name or "Module"), values or {})
end

local parameter_options = {requires_grad = true}

--- A tensor of the same values that is a parameter of the module it is assigned to.
function nn.Parameter(tensor, options)
  options = arguments.options("nn.Parameter", options, parameter_options)
  core.break_graph("`nn.Parameter` makes a parameter", "Make it before the compiled code.")
  local parameter = arguments.tensor("nn.Parameter", "tensor", tensor):detach()
  core.set_requires_grad(parameter, options.requires_grad ~= false)
  kinds[parameter] = "parameter"
  return parameter
end

-- TorchScript modules (trusted scripts only)

local script_of = core.script_of

--- The TorchScript module behind a module of nn.load, or behind a bare one.
function core.script_of(value)
  local state = type(value) == "table" and states[value]
  return state and state.script or script_of(value)
end

local Script = setmetatable({}, {__index = Module})

function Script:forward(...)
  return core.call_script(check_self(self, "forward").script, ...)
end

local function script_field(self, name)
  local value = states[self].fields[name]
  if value == nil then
    return Script[name]
  end
  return value
end

local function script_assign(self, name, value)
  local state = states[self]
  if state.fields[name] ~= nil or is_module(value) or is_parameter(value) then
    core.fail(("%s: field '%s' of a TorchScript module cannot be assigned; change the values in place, as "
      .. "load_state_dict does"):format(state.name, core.describe_key(name)))
  end
  rawset(self, name, value)
end

local script_class = class_of(Script)
script_class.__index = script_field
script_class.__newindex = script_assign

local function wrap_script(tree)
  local module = new(script_class, tree.type)
  local state = states[module]
  state.script, state.fields = tree.script, {}
  local function add(pair, value)
    insert(state.order, pair[1])
    state.fields[pair[1]] = value
  end
  for kind, list in next, {parameter = tree.parameters, buffer = tree.buffers} do
    for _, pair in ipairs(list) do
      kinds[pair[2]] = kind
      add(pair, pair[2])
    end
  end
  for _, pair in ipairs(tree.children) do
    add(pair, wrap_script(pair[2]))
  end
  rawset(module, "training", tree.training)
  return module
end

if core.load_script then
  function nn.load(path)
    if type(path) ~= "string" then
      core.fail("nn.load: expected the path of a TorchScript file, got " .. core.describe(path))
    end
    return wrap_script(core.load_script(path))
  end
end

-- Capsules: what a module is besides its fields, and a module made of that again.

--- Name of the class, of the module, order of the fields, and the kinds of its tensors by field.
--- Nothing for a TorchScript module.
local function frozen(module)
  local state = states[module]
  for name, class in next, known do
    if class.class == state.class then
      local tensor_kinds = {}
      for field, value in fields(module) do
        tensor_kinds[field] = core.is_tensor(value) and kinds[value] or nil
      end
      return name, state.name, state.order, tensor_kinds
    end
  end
end

local function thawed(class, name)
  local found = known[class]
  return found and new(found.class, name, found.describe)
end

--- The fields are there already.
local function finish(module, order, tensor_kinds)
  states[module].order = order
  for field, kind in next, tensor_kinds do
    if core.is_tensor(rawget(module, field)) and (kind == "parameter" or kind == "buffer") then
      kinds[rawget(module, field)] = kind
    end
  end
end

--- The name of its class, for messages of layers.
function core.module_name(module)
  return states[module].name
end

core.modules = {is = is_module, check = check_module, class_of = class_of, new = new, register = register,
                find_late = find_late, mixes = mixes, copied = copied, fields = fields, nn = nn, frozen = frozen,
                thawed = thawed, finish = finish}
globals.nn = nn
