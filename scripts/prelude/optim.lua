-- What goes with LibTorch's optimizers: their groups, clipping of gradients, and scaling of losses for narrow dtypes.
local core = ...
local globals = _G
local arguments = core.arguments
local nn, optim = globals.nn, globals.optim
local torch = torch
local error, ipairs, math, next, pcall, rawget = error, ipairs, math, next, pcall, rawget
local setmetatable, tostring, type = setmetatable, tostring, type
local insert = table.insert
local pack, unpack = string.pack, string.unpack

if not optim then   -- policies have none
  return
end

-- Groups

local Group = {}

function Group.__index(group, name)
  return core.optimizer_option(rawget(group, 1), rawget(group, 2), name)
end

function Group.__newindex(group, name, value)
  core.set_optimizer_option(rawget(group, 1), rawget(group, 2), name, core.plain(value))
end

Group.__name, Group.__metatable = "group of an optimizer", "group of an optimizer"
insert(core.libraries, Group)

--- A list of what reads and sets the options of each group, as optimizer.param_groups of PyTorch.
function core.param_groups(optimizer)
  local groups = core.mark_created({})
  for number = 1, core.optimizer_groups(optimizer) do
    groups[number] = setmetatable({optimizer, number}, Group)
  end
  return groups
end

function core.check_optimizer(operation, value)
  if core.is_optimizer(value) then
    return value
  end
  core.fail(("%s: expected an optimizer, got %s"):format(operation, core.describe(value)))
end

-- State

--- What an optimizer knows of its parameters, and the options of its groups: with PyTorch's names, and parameters
--- counted from 0.
function core.optimizer_state_dict(optimizer)
  core.check_optimizer("optimizer:state_dict", optimizer)
  core.break_graph("`state_dict` of an optimizer reads what each step changes", "Call it outside of the compiled code.")
  local states, groups, index = core.mark_created({}), core.mark_created({}), 0
  for number, group in ipairs(core.param_groups(optimizer)) do
    local saved = core.mark_created({params = core.mark_created({})})
    for _, name in ipairs(core.optimizer_option_names(optimizer, number)) do
      saved[name] = group[name]
    end
    for position, parameter in ipairs(group.params) do
      saved.params[position] = index
      states[index] = core.optimizer_state(optimizer, parameter)
      index = index + 1
    end
    groups[number] = saved
  end
  return core.mark_created({state = states, param_groups = groups})
end

local function check_groups(operation, groups, saved)
  local fits = type(saved) == "table" and type(saved.state) == "table" and type(saved.param_groups) == "table"
  if not fits or #saved.param_groups ~= #groups then
    core.fail(("%s: expected what state_dict() gave for an optimizer of %d groups, got %s"):format(operation, #groups,
      fits and ("that of %d groups"):format(#saved.param_groups) or core.describe(saved)))
  end
  for number, group in ipairs(groups) do
    local params = type(saved.param_groups[number]) == "table" and saved.param_groups[number].params
    if type(params) ~= "table" or #params ~= #group.params then
      core.fail(("%s: group %d has %d parameters, and the one in the state has %s"):format(operation, number,
        #group.params, type(params) == "table" and #params or "none"))
    end
  end
end

--- Options that LibTorch's optimizers do not have, and that would change each step. Others of PyTorch only say how it
--- computes.
local function check_missing(operation, optimizer, group, option, value)
  local decoupled = option == "decoupled_weight_decay" and tostring(optimizer):find("^Adam%(")
  if value == true and (option == "maximize" or decoupled) then
    core.fail(("%s: group %d has %s = true, which the optimizer of LibTorch cannot do")
      :format(operation, group, option))
  end
end

local function load_groups(operation, optimizer, saved)
  for number, group in ipairs(core.param_groups(optimizer)) do
    local given, known = saved.param_groups[number], {}
    for _, name in ipairs(core.optimizer_option_names(optimizer, number)) do
      known[name] = true
    end
    for name, value in next, given do
      if known[name] then
        group[name] = core.is_tensor(value) and value:item() or value
      else
        check_missing(operation, optimizer, number, name, value)
      end
    end
    for position, parameter in ipairs(group.params) do
      core.set_optimizer_state(optimizer, parameter, saved.state[given.params[position]])
    end
  end
end

--- All of it, or where something is wrong, nothing.
function core.load_optimizer_state(optimizer, saved)
  local operation = "optimizer:load_state_dict"
  core.check_optimizer(operation, optimizer)
  core.break_graph("`load_state_dict` changes the state of an optimizer", "Call it outside of the compiled code.")
  check_groups(operation, core.param_groups(optimizer), saved)
  local before = core.optimizer_state_dict(optimizer)
  local fine, message = pcall(load_groups, operation, optimizer, saved)
  if not fine then
    load_groups(operation, optimizer, before)
    error(message, 0)
  end
end

local function gradients_of(operation, parameters)
  if core.is_tensor(parameters) then
    parameters = {parameters}
  elseif type(parameters) ~= "table" then
    core.fail(("%s: expected a list of parameters, as in model:parameters(), got %s")
      :format(operation, core.describe(parameters)))
  end
  local gradients = {}
  for number, parameter in ipairs(parameters) do
    local gradient = arguments.tensor(operation, "parameter " .. number, parameter).grad
    if gradient ~= nil then
      insert(gradients, gradient)
    end
  end
  return gradients
end

--- Whether something is so on any rank: `agree` is asked with what is so on this one.
local function agreed(operation, agree, bad)
  if agree == nil then
    return bad
  end
  local answer = arguments.callable(operation, "agree", agree)(torch.tensor({bad}))
  if core.is_tensor(answer) then
    answer = answer:any():item()
  end
  if type(answer) ~= "boolean" then
    core.fail(("%s: expected a boolean from `agree`, got %s"):format(operation, core.describe(answer)))
  end
  return answer
end

-- Clipping

local norm_options = {norm_type = true, nonfinite = true, error_if_nonfinite = true, agree = true}
local reactions = {error = true, zero = true, skip = true, keep = true}

local function reaction_of(operation, options)
  local reaction = options.nonfinite
  if reaction == nil then
    reaction = options.error_if_nonfinite and "error" or "keep"
  elseif not reactions[reaction] then
    core.fail(("%s: option 'nonfinite': expected \"keep\", \"error\", \"zero\" or \"skip\", got %s")
      :format(operation, core.describe(reaction)))
  end
  return reaction
end

local function total_norm(gradients, norm_type)
  local norms = {}
  for position, gradient in ipairs(gradients) do
    norms[position] = torch.linalg.vector_norm(gradient, norm_type):to(gradients[1].device)
  end
  return #norms == 0 and torch.zeros({}) or torch.linalg.vector_norm(torch.stack(norms), norm_type)
end

--- What happens to gradients whose norm is not finite. True where they are clipped as others are.
local function react(operation, reaction, norm_type, parameters, gradients)
  if reaction == "error" then
    core.fail(("%s: the norm of order %s of the gradients is not finite, so they cannot be clipped; find the bad "
      .. "sample, or choose nonfinite = \"zero\" or \"skip\""):format(operation, norm_type))
  elseif reaction == "zero" then
    for _, gradient in ipairs(gradients) do
      gradient:zero_()
    end
  elseif reaction == "skip" then
    for _, parameter in ipairs(core.is_tensor(parameters) and {parameters} or parameters) do
      core.drop_grad(parameter)
    end
  end
  return reaction == "keep"
end

--- Makes gradients smaller so that the norm of all of them together is at most `max_norm`, in place. Returns the norm,
--- and whether it was finite (on all ranks, with `agree`).
function nn.clip_grad_norm_(parameters, max_norm, options)
  local operation = "nn.clip_grad_norm_"
  core.break_graph("`clip_grad_norm_` writes to gradients", "Call it outside of the compiled code.")
  if core.is_number(options) then
    options = {norm_type = options}
  end
  options = arguments.options(operation, options, norm_options)
  max_norm = core.plain(arguments.number(operation, "max_norm", max_norm))
  local norm_type = core.plain(arguments.number(operation, "norm_type", options.norm_type or 2.0)) + 0.0
  local reaction = reaction_of(operation, options)
  return torch.no_grad(function()
    local gradients = gradients_of(operation, parameters)
    local norm = total_norm(gradients, norm_type)
    local finite = not agreed(operation, options.agree, not torch.isfinite(norm):item())
    if finite or react(operation, reaction, norm_type, parameters, gradients) then
      local share = (max_norm / (norm + 1e-6)):clamp({max = 1.0})
      for _, gradient in ipairs(gradients) do
        gradient:mul_(share:to(gradient.device))
      end
    end
    return norm, finite
  end)
end

--- Cuts each element of the gradients to -clip_value .. clip_value, in place. NaN stays NaN.
function nn.clip_grad_value_(parameters, clip_value)
  local operation = "nn.clip_grad_value_"
  core.break_graph("`clip_grad_value_` writes to gradients", "Call it outside of the compiled code.")
  clip_value = core.plain(arguments.number(operation, "clip_value", clip_value))
  torch.no_grad(function()
    for _, gradient in ipairs(gradients_of(operation, parameters)) do
      gradient:clamp_(-clip_value, clip_value)
    end
  end)
end

-- GradScaler

local Scaler = {}
local scaler_options = {init_scale = true, growth_factor = true, backoff_factor = true, growth_interval = true,
                        enabled = true, agree = true}
local scalers = setmetatable({}, {__mode = "k"})
insert(core.libraries, scalers)
insert(core.libraries, Scaler)

--- As float32 holds it, in which PyTorch keeps the scale.
local function single(number)
  return (unpack("f", pack("f", number)))
end

local function state_of(self, method)
  local state = scalers[self]
  if not state then
    core.fail(("%s: expected a GradScaler; call it with a colon, as in scaler:%s(), not on %s")
      :format(method, method, core.describe(self)))
  end
  return state
end

local function fail(method, text, ...)
  core.fail(("optim.GradScaler: %s: " .. text):format(method, ...))
end

local function check_in_use(state, method)
  if not state.scaled then
    fail(method, "no loss was scaled yet; call scaler:scale(loss):backward() first")
  end
end

--- A loss, or a list of tensors, times the scale.
function Scaler:scale(outputs)
  local state = state_of(self, "scale")
  if not state.enabled then
    return outputs
  end
  state.scaled = true
  if core.is_tensor(outputs) then
    return outputs * state.scale:to(outputs.device)
  elseif type(outputs) ~= "table" then
    fail("scale", "expected a tensor or a list of tensors, got %s", core.describe(outputs))
  end
  local scaled = core.mark_created({})
  for position, output in ipairs(outputs) do
    scaled[position] = Scaler.scale(self, output)
  end
  return scaled
end

local function unscale_gradient(gradient, inverse)
  if gradient.dtype == torch.float16 then
    fail("unscale_", "a gradient is float16: keep the parameters in float32, and compute narrow under torch.autocast")
  end
  local bad = not torch.isfinite(gradient):all():item()
  if inverse ~= 1 then
    gradient:mul_(inverse)
  end
  return bad
end

local function unscale(state, optimizer)
  local inverse, bad, seen = single(1.0 / state.scale:item()), false, false
  torch.no_grad(function()
    for _, group in ipairs(optimizer.param_groups) do
      for _, parameter in ipairs(group.params) do
        local gradient = parameter.grad
        if gradient ~= nil then
          seen = true
          bad = unscale_gradient(gradient, inverse) or bad
        end
      end
    end
  end)
  bad = agreed("optim.GradScaler: unscale_", state.agree, bad)
  state.optimizers[optimizer] = {bad = bad, seen = seen}
end

--- Divides the gradients of an optimizer by the scale, and notes whether one was not finite.
function Scaler:unscale_(optimizer)
  local state = state_of(self, "unscale_")
  core.check_optimizer("optim.GradScaler: unscale_", optimizer)
  core.break_graph("`unscale_` writes to gradients", "Call it outside of the compiled code.")
  if not state.enabled then
    return
  end
  check_in_use(state, "unscale_")
  local known = state.optimizers[optimizer]
  if known then
    fail("unscale_", known.stepped and "it comes after the step of this optimizer"
      or "the gradients of this optimizer are unscaled already, since the last update")
  end
  unscale(state, optimizer)
end

--- A step of the optimizer, unless a gradient is not finite. Returns whether it was made.
function Scaler:step(optimizer, closure)
  local state = state_of(self, "step")
  core.check_optimizer("optim.GradScaler: step", optimizer)
  core.break_graph("`step` of a GradScaler writes to the parameters", "Call it outside of the compiled code.")
  if not state.enabled then
    optimizer:step(closure)
    return true
  elseif closure ~= nil then
    fail("step", "it takes no closure, for the gradients of each of its calls would have to be checked")
  end
  check_in_use(state, "step")
  if state.optimizers[optimizer] and state.optimizers[optimizer].stepped then
    fail("step", "this optimizer made its step already, since the last update")
  elseif not state.optimizers[optimizer] then
    unscale(state, optimizer)
  end
  local known = state.optimizers[optimizer]
  if not known.seen then
    fail("step", "no parameter has a gradient, so nothing was checked; call scaler:scale(loss):backward() first")
  end
  known.stepped = true
  if known.bad then
    state.skipped = state.skipped + 1
  else
    optimizer:step()
  end
  return not known.bad
end

--- The next scale: smaller after a gradient that was not finite, larger after `growth_interval` steps without one.
function Scaler:update(new_scale)
  local state = state_of(self, "update")
  if not state.enabled then
    return
  end
  core.break_graph("`update` of a GradScaler changes the scale", "Call it outside of the compiled code.")
  check_in_use(state, "update")
  if new_scale ~= nil then
    state.scale:fill_(core.is_tensor(new_scale) and new_scale:item() or core.plain(new_scale))
  else
    if next(state.optimizers) == nil then
      fail("update", "no gradients were checked since the last update; call scaler:step(optimizer) first")
    end
    local bad = false
    for _, known in next, state.optimizers do
      bad = bad or known.bad
    end
    if bad then
      state.scale:fill_(single(state.scale:item() * state.backoff_factor))
      state.growth_tracker = 0
    elseif state.growth_tracker + 1 == state.growth_interval then
      local grown = single(state.scale:item() * state.growth_factor)
      if grown < math.huge then
        state.scale:fill_(grown)
      end
      state.growth_tracker = 0
    else
      state.growth_tracker = state.growth_tracker + 1
    end
  end
  state.optimizers = setmetatable({}, {__mode = "k"})
end

function Scaler:get_scale()
  local state = state_of(self, "get_scale")
  return state.enabled and state.scale:item() or 1.0
end

--- How many steps were left out since the scaler was made, or since the state that it was given.
function Scaler:skipped_steps()
  return state_of(self, "skipped_steps").skipped
end

function Scaler:is_enabled()
  return state_of(self, "is_enabled").enabled
end

--- With PyTorch's names.
function Scaler:state_dict()
  local state = state_of(self, "state_dict")
  if not state.enabled then
    return core.mark_created({})
  end
  return core.mark_created({scale = state.scale:item(), growth_factor = state.growth_factor,
                            backoff_factor = state.backoff_factor, growth_interval = state.growth_interval,
                            _growth_tracker = state.growth_tracker, skipped_steps = state.skipped})
end

function Scaler:load_state_dict(given)
  local state = state_of(self, "load_state_dict")
  if not state.enabled then
    return
  elseif type(given) ~= "table" or next(given) == nil then
    fail("load_state_dict", "expected a table, as state_dict() of an enabled scaler gives it, got %s",
      core.describe(given))
  end
  local read = {}
  for _, name in ipairs({"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}) do
    read[name] = arguments.number("optim.GradScaler: load_state_dict", name, given[name])
  end
  state.scale:fill_(read.scale)
  state.growth_factor, state.backoff_factor = read.growth_factor, read.backoff_factor
  state.growth_interval, state.growth_tracker = read.growth_interval, read._growth_tracker
  state.skipped = given.skipped_steps or 0
end

core.limited(Scaler, "scaler:")
local scaler_class = {__index = Scaler, __name = "GradScaler", __metatable = "GradScaler"}
insert(core.libraries, scaler_class)

local function number_of(options, name, default, expected, fits)
  local value = core.plain(options[name])
  if value == nil then
    return default
  elseif type(value) ~= "number" or not fits(value) then
    core.fail(("optim.GradScaler: option '%s': expected %s, got %s"):format(name, expected, core.describe(value)))
  end
  return value
end

--- Keeps small gradients of narrow dtypes from vanishing: the loss is scaled, and the gradients are scaled back.
function optim.GradScaler(options)
  options = arguments.options("optim.GradScaler", options, scaler_options)
  core.break_graph("`optim.GradScaler` keeps what it has seen", "Make it outside of the compiled code.")
  local scaler = setmetatable(core.mark_created({}), scaler_class)
  local function above(low) return function(value) return value > low and value < math.huge end end
  scalers[scaler] = {
    scale = torch.tensor(number_of(options, "init_scale", 65536.0, "a number above 0", above(0)),
                         {dtype = torch.float32}),
    growth_factor = number_of(options, "growth_factor", 2.0, "a number above 1", above(1)),
    backoff_factor = number_of(options, "backoff_factor", 0.5, "a number from 0 to below 1",
                               function(value) return value >= 0 and value < 1 end),
    growth_interval = number_of(options, "growth_interval", 2000, "an integer of at least 1",
                                function(value) return math.type(value) == "integer" and value >= 1 end),
    growth_tracker = 0, skipped = 0, enabled = options.enabled ~= false, agree = options.agree,
    optimizers = setmetatable({}, {__mode = "k"})}
  return scaler
end
