-- Schedules of the learning rate, with the formulas of torch.optim.lr_scheduler, operation by operation: the numbers
-- are the same, bit for bit. A schedule sets the rate of each group when it is made, and at each step.
local core = ...
local globals = _G
local arguments = core.arguments
local optim = globals.optim
local ipairs, math, select, setmetatable, type = ipairs, math, select, setmetatable, type
local insert = table.insert
local cos, pi = math.cos, math.pi

if not optim then   -- policies have none
  return
end

local schedule = {}
optim.lr_scheduler = schedule

-- By schedule: what it knows, and `rate`, the formula: function(state, group, base, number) -> the rate of a group.
local states = setmetatable({}, {__mode = "k"})
insert(core.libraries, states)

local Schedule = {}
insert(core.libraries, Schedule)

local function state_of(self, method)
  local state = states[self]
  if not state then
    core.fail(("%s: expected a schedule; call it with a colon, as in schedule:%s(), not on %s")
      :format(method, method, core.describe(self)))
  end
  return state
end

local function update(state)
  local rates = {}
  for number, group in ipairs(state.optimizer.param_groups) do
    rates[number] = state.rate(state, group, state.base_lrs[number], number)
  end
  for number, group in ipairs(state.optimizer.param_groups) do
    group.lr = rates[number]
  end
end

local function advance(state)
  state.last_epoch = state.last_epoch + 1
  if state.before then
    state.before(state)
  end
  update(state)
end

--- The next epoch, or whatever is counted; ReduceLROnPlateau takes what it looks at.
function Schedule:step(metric)
  local state = state_of(self, "step")
  core.break_graph("`step` of a schedule sets the learning rate", "Call it outside of the compiled code.")
  if state.step then
    return state.step(state, metric)
  elseif metric ~= nil then
    core.fail(("%s: step: expected no argument, got %s"):format(state.name, core.describe(metric)))
  end
  advance(state)
end

--- A list of the rates of the groups.
function Schedule:get_last_lr()
  local rates = core.mark_created({})
  for number, group in ipairs(state_of(self, "get_last_lr").optimizer.param_groups) do
    rates[number] = group.lr
  end
  return rates
end

local function copied(value)
  if type(value) ~= "table" then
    return value
  end
  local copy = core.mark_created({})
  for key, item in next, value do
    copy[key] = copied(item)
  end
  return copy
end

local function set_momentum(state, group, momentum)
  if state.by_beta then
    group.betas = {momentum, group.betas[2]}
  else
    group.momentum = momentum
  end
end

--- What the schedule has counted, with PyTorch's names; its options come with its constructor, as do the rates of the
--- optimizer, which belong into the same file.
function Schedule:state_dict()
  local state = state_of(self, "state_dict")
  local saved = core.mark_created({base_lrs = copied(state.base_lrs), lrs = Schedule.get_last_lr(self)})
  for _, name in ipairs(state.counts) do
    saved[name] = copied(state[name])
  end
  if state.cycle_momentum then
    saved.momenta = core.mark_created({})
    for number, group in ipairs(state.optimizer.param_groups) do
      saved.momenta[number] = state.by_beta and group.betas[1] or group.momentum
    end
  end
  if state.schedules then
    saved.schedules = core.mark_created({})
    for number, one in ipairs(state.schedules) do
      saved.schedules[number] = one:state_dict()
    end
  end
  return saved
end

function Schedule:load_state_dict(saved)
  local state = state_of(self, "load_state_dict")
  if type(saved) ~= "table" or type(saved.lrs) ~= "table" or #saved.lrs ~= #state.optimizer.param_groups then
    core.fail(("%s: load_state_dict: expected what state_dict() gave for an optimizer of %d groups, got %s")
      :format(state.name, #state.optimizer.param_groups, core.describe(saved)))
  end
  for _, name in ipairs(state.counts) do
    state[name] = copied(saved[name])
  end
  state.base_lrs = copied(saved.base_lrs)
  for number, one in ipairs(state.schedules or {}) do
    one:load_state_dict(saved.schedules[number])
  end
  for number, group in ipairs(state.optimizer.param_groups) do
    group.lr = saved.lrs[number]
    if state.cycle_momentum and saved.momenta then
      set_momentum(state, group, saved.momenta[number])
    end
  end
end

core.limited(Schedule, "schedule:")
local class = {
  __index = function(self, name)
    if name == "last_epoch" then
      return state_of(self, "last_epoch").last_epoch
    end
    return Schedule[name]
  end,
  __name = "schedule",
  __metatable = "schedule",
}
insert(core.libraries, class)

-- Arguments

local function number(name, option, value, expected, fits)
  value = core.plain(value)
  if type(value) ~= "number" or fits and not fits(value) then
    core.fail(("%s: expected %s as `%s`, got %s"):format(name, expected, option, core.describe(value)))
  end
  return value
end

local function any(name, option, value) return number(name, option, value, "a number") end
local function factor(name, option, value)
  return number(name, option, value, "a number from 0 to 1", function(x) return x >= 0 and x <= 1 end)
end
local function share(name, option, value)
  return number(name, option, value, "a number above 0, at most 1", function(x) return x > 0 and x <= 1 end)
end
local function below_one(name, option, value)
  return number(name, option, value, "a number below 1", function(x) return x < 1 end)
end
local function whole_from(low)
  return function(name, option, value)
    return number(name, option, value, "an integer of at least " .. low,
      function(x) return math.type(x) == "integer" and x >= low end)
  end
end
local count, whole = whole_from(1), whole_from(0)

local function boolean(name, option, value)
  if type(value) ~= "boolean" then
    core.fail(("%s: expected a boolean as `%s`, got %s"):format(name, option, core.describe(value)))
  end
  return value
end

local function one_of(first, second)
  return function(name, option, value)
    if value ~= first and value ~= second then
      core.fail(("%s: expected \"%s\" or \"%s\" as `%s`, got %s"):format(name, first, second, option,
        core.describe(value)))
    end
    return value
  end
end

--- A value for each group: one for all, or a list.
local function for_groups(check)
  return function(name, option, value, groups)
    local list = {}
    if type(value) == "table" and not core.is_callable(value) and #value ~= groups then
      core.fail(("%s: expected one value or %d as `%s`, got %d"):format(name, groups, option, #value))
    end
    for position = 1, groups do
      local one = value
      if type(value) == "table" and not core.is_callable(value) then
        one = value[position]
      end
      list[position] = check(name, option, one)
    end
    return list
  end
end

local function callable(name, option, value) return arguments.callable(name, option, value) end

--- Values by position, and then options, of `parameters`: a list of {name, check, default}.
local function read(name, parameters, groups, ...)
  local given, values, allowed = table.pack(...), {}, {}
  for _, parameter in ipairs(parameters) do
    allowed[parameter[1]] = true
  end
  local last = given[given.n]
  if given.n > 0 and type(last) == "table" and not core.is_callable(last) and #last == 0 then
    for option, value in next, arguments.options(name, last, allowed) do
      values[option] = value
    end
    given.n = given.n - 1
  end
  for position = 1, math.min(given.n, #parameters) do
    values[parameters[position][1]] = given[position]
  end
  if given.n > #parameters then
    core.fail(("%s: expected at most %d arguments, and a table of options behind them, got %d"):format(name,
      #parameters + 1, given.n + 1))
  end
  for _, parameter in ipairs(parameters) do
    local option, check, default = parameter[1], parameter[2], parameter[3]
    if values[option] == nil then
      values[option] = default
    end
    if values[option] ~= nil or not parameter.optional then
      values[option] = check(name, option, values[option], groups)
    end
  end
  return values
end

-- By optimizer: the rates before its first schedule, from which every schedule of it goes out.
local initial = setmetatable({}, {__mode = "k"})
insert(core.libraries, initial)

local function initial_rate(optimizer, position, rate)
  initial[optimizer] = initial[optimizer] or {}
  initial[optimizer][position] = initial[optimizer][position] or rate
  return initial[optimizer][position]
end

--- optim.lr_scheduler[name](optimizer, ...). `start` completes the state before the first rates are set.
local function add(name, parameters, rate, start)
  local full = "optim.lr_scheduler." .. name
  schedule[name] = function(optimizer, ...)
    if select("#", ...) > #parameters + 1 then
      core.fail(("%s: expected at most %d arguments, got %d"):format(full, #parameters + 2, select("#", ...) + 1))
    end
    core.check_optimizer(full, optimizer)
    core.break_graph("a new schedule sets the learning rate", "Make it outside of the compiled code.")
    local groups = optimizer.param_groups
    local state = read(full, parameters, #groups, ...)
    state.name, state.optimizer, state.rate, state.last_epoch, state.base_lrs = full, optimizer, rate, -1, {}
    state.counts = {"last_epoch"}
    for position, group in ipairs(groups) do
      state.base_lrs[position] = initial_rate(optimizer, position, group.lr)
    end
    local made = setmetatable(core.mark_created({}), class)
    states[made] = state
    if start then
      start(state, groups)
    end
    if not state.step then
      advance(state)
    end
    return made
  end
end

-- Schedules

add("LambdaLR", {{"lr_lambda", for_groups(callable)}}, function(state, _, base, position)
  return base * state.lr_lambda[position](state.last_epoch)
end)

add("MultiplicativeLR", {{"lr_lambda", for_groups(callable)}}, function(state, group, _, position)
  if state.last_epoch == 0 and not state.in_sequence then
    return group.lr
  end
  return group.lr * state.lr_lambda[position](state.last_epoch)
end, function(state) state.multiplies = true end)

add("StepLR", {{"step_size", count}, {"gamma", any, 0.1}}, function(state, group)
  if state.last_epoch == 0 or state.last_epoch % state.step_size ~= 0 then
    return group.lr
  end
  return group.lr * state.gamma
end)

local function milestones(name, option, value)
  if type(value) ~= "table" then
    core.fail(("%s: expected a list of integers as `%s`, got %s"):format(name, option, core.describe(value)))
  end
  local list = {}
  for position, milestone in ipairs(value) do
    list[position] = whole(name, option, milestone)
  end
  return list
end

add("MultiStepLR", {{"milestones", milestones}, {"gamma", any, 0.1}}, function(state, group)
  local times = 0
  for _, milestone in ipairs(state.milestones) do
    times = times + (milestone == state.last_epoch and 1 or 0)
  end
  return times == 0 and group.lr or group.lr * state.gamma ^ times
end)

add("ConstantLR", {{"factor", factor, 1.0 / 3}, {"total_iters", whole, 5}}, function(state, group)
  if state.last_epoch == 0 then
    return group.lr * state.factor
  end
  return state.last_epoch ~= state.total_iters and group.lr or group.lr * (1.0 / state.factor)
end)

add("LinearLR", {{"start_factor", share, 1.0 / 3}, {"end_factor", factor, 1.0}, {"total_iters", whole, 5}},
  function(state, group)
    if state.last_epoch == 0 then
      return group.lr * state.start_factor
    elseif state.last_epoch > state.total_iters then
      return group.lr
    end
    local rise = state.end_factor - state.start_factor
    return group.lr * (1.0 + rise / (state.total_iters * state.start_factor + (state.last_epoch - 1) * rise))
  end)

add("ExponentialLR", {{"gamma", any}}, function(state, group)
  return state.last_epoch == 0 and group.lr or group.lr * state.gamma
end)

add("PolynomialLR", {{"total_iters", count, 5}, {"power", any, 1.0}}, function(state, group)
  if state.last_epoch == 0 or state.last_epoch > state.total_iters then
    return group.lr
  end
  local decay = ((1.0 - state.last_epoch / state.total_iters) / (1.0 - (state.last_epoch - 1) / state.total_iters))
    ^ state.power
  return group.lr * decay
end)

add("CosineAnnealingLR", {{"T_max", count}, {"eta_min", any, 0.0}}, function(state, group, base)
  local epoch, period, low = state.last_epoch, state.T_max, state.eta_min
  if epoch == 0 then
    return group.lr
  elseif (epoch - 1 - period) % (2 * period) == 0 then
    return group.lr + (base - low) * (1 - cos(pi / period)) / 2
  end
  return (1 + cos(pi * epoch / period)) / (1 + cos(pi * (epoch - 1) / period)) * (group.lr - low) + low
end)

add("CosineAnnealingWarmRestarts", {{"T_0", count}, {"T_mult", count, 1}, {"eta_min", any, 0.0}},
  function(state, _, base)
    return state.eta_min + (base - state.eta_min) * (1 + cos(pi * state.T_cur / state.T_i)) / 2
  end,
  function(state)
    state.T_i, state.T_cur = state.T_0, -1
    state.counts = {"last_epoch", "T_cur", "T_i"}
    state.before = function()
      state.T_cur = state.T_cur + 1
      if state.T_cur >= state.T_i then
        state.T_cur = state.T_cur % state.T_i
        state.T_i = state.T_i * state.T_mult
      end
    end
  end)

-- OneCycleLR

local anneals = {
  cos = function(first, last, part) return last + (first - last) / 2.0 * (cos(pi * part) + 1) end,
  linear = function(first, last, part) return (last - first) * part + first end,
}

--- Each with the last step of it, and the names of what it leads from and to.
local function phases_of(state)
  local steps, first = state.total_steps, state.pct_start * state.total_steps + 0.0
  if state.three_phase then
    return {{first - 1, "initial", "max", "max", "base"},
            {2 * state.pct_start * steps - 2, "max", "initial", "base", "max"},
            {steps - 1, "initial", "min", "max", "max"}}
  end
  return {{first - 1, "initial", "max", "max", "base"}, {steps - 1, "max", "min", "base", "max"}}
end

local function one_cycle(state, group, _, position)
  if state.last_epoch > state.total_steps then
    core.fail(("%s: step: it was made for %d steps, and this is step %d"):format(state.name, state.total_steps,
      state.last_epoch))
  end
  local start = 0.0
  local rates = {initial = state.initial[position], max = state.max_lr[position], min = state.least[position]}
  local momenta = {max = state.max_momentum[position], base = state.base_momentum[position]}
  local anneal = anneals[state.anneal_strategy]
  for number_of_phase, phase in ipairs(state.phases) do
    local last = phase[1]
    if state.last_epoch <= last or number_of_phase == #state.phases then
      local part = (state.last_epoch - start) / (last - start)
      if state.cycle_momentum then
        set_momentum(state, group, anneal(momenta[phase[4]], momenta[phase[5]], part))
      end
      return anneal(rates[phase[2]], rates[phase[3]], part)
    end
    start = last
  end
end

local each = for_groups(any)

add("OneCycleLR", {
  {"max_lr", each}, {"total_steps", count, optional = true}, {"epochs", count, optional = true},
  {"steps_per_epoch", count, optional = true}, {"pct_start", factor, 0.3},
  {"anneal_strategy", one_of("cos", "linear"), "cos"}, {"cycle_momentum", boolean, true},
  {"base_momentum", each, 0.85}, {"max_momentum", each, 0.95}, {"div_factor", any, 25.0},
  {"final_div_factor", any, 1e4}, {"three_phase", boolean, false},
}, one_cycle, function(state, groups)
  if not state.total_steps then
    if not (state.epochs and state.steps_per_epoch) then
      core.fail(state.name .. ": expected `total_steps`, or `epochs` and `steps_per_epoch`")
    end
    state.total_steps = state.epochs * state.steps_per_epoch
  end
  state.by_beta = groups[1].betas ~= nil
  if state.cycle_momentum and not state.by_beta and groups[1].momentum == nil then
    core.fail(state.name .. ": this optimizer has no momentum to cycle; choose cycle_momentum = false")
  end
  state.initial, state.least, state.phases = {}, {}, phases_of(state)
  for position, group in ipairs(groups) do
    state.initial[position] = state.max_lr[position] / state.div_factor
    state.least[position] = state.initial[position] / state.final_div_factor
    initial[state.optimizer][position] = state.initial[position]
    if state.cycle_momentum then
      set_momentum(state, group, state.max_momentum[position])
    end
  end
end)

-- ReduceLROnPlateau

local function is_better(state, value)
  local best, threshold = state.best, state.threshold
  if state.threshold_mode == "rel" then
    if state.mode == "min" then
      return value < best * (1.0 - threshold)
    end
    return value > best * (threshold + 1.0)
  elseif state.mode == "min" then
    return value < best - threshold
  end
  return value > best + threshold
end

local function reduce(state)
  for position, group in ipairs(state.optimizer.param_groups) do
    local before = group.lr
    local after = math.max(before * state.factor, state.min_lr[position])
    if before - after > state.eps then
      group.lr = after
    end
  end
end

local function step_on_plateau(state, metric)
  local value = core.is_tensor(metric) and metric:item() or core.plain(metric)
  if type(value) ~= "number" then
    core.fail(("%s: step: expected what the schedule looks at, a number or a tensor of one element, got %s")
      :format(state.name, core.describe(metric)))
  end
  state.last_epoch = state.last_epoch + 1
  if is_better(state, value) then
    state.best, state.num_bad_epochs = value, 0
  else
    state.num_bad_epochs = state.num_bad_epochs + 1
  end
  if state.cooldown_counter > 0 then
    state.cooldown_counter, state.num_bad_epochs = state.cooldown_counter - 1, 0
  end
  if state.num_bad_epochs > state.patience then
    reduce(state)
    state.cooldown_counter, state.num_bad_epochs = state.cooldown, 0
  end
end

add("ReduceLROnPlateau", {
  {"mode", one_of("min", "max"), "min"}, {"factor", below_one, 0.1}, {"patience", whole, 10}, {"threshold", any, 1e-4},
  {"threshold_mode", one_of("rel", "abs"), "rel"}, {"cooldown", whole, 0}, {"min_lr", each, 0}, {"eps", any, 1e-8},
}, nil, function(state)
  state.step, state.last_epoch, state.cooldown_counter, state.num_bad_epochs = step_on_plateau, 0, 0, 0
  state.best = state.mode == "min" and math.huge or -math.huge
  state.counts = {"last_epoch", "best", "cooldown_counter", "num_bad_epochs"}
end)

-- SequentialLR: one schedule after the other, as a warmup and what follows

local function step_of_sequence(state)
  state.last_epoch = state.last_epoch + 1
  local current = 1
  for position, milestone in ipairs(state.milestones) do
    if milestone <= state.last_epoch then
      current = position + 1
    end
  end
  local one = states[state.schedules[current]]
  if current > 1 and state.milestones[current - 1] == state.last_epoch then
    one.last_epoch = -1
    if one.T_cur then
      one.T_cur, one.T_i = -1, one.T_0
    end
    for position, group in ipairs(one.multiplies and {} or state.optimizer.param_groups) do
      group.lr = state.base_lrs[position]   -- what it starts from
    end
  end
  advance(one)
end

local function list_of_schedules(name, option, value)
  for _, one in ipairs(type(value) == "table" and value or {}) do
    if not states[one] or states[one].step then
      core.fail(("%s: expected schedules as `%s`, no ReduceLROnPlateau, got %s"):format(name, option,
        core.describe(one)))
    end
  end
  if type(value) ~= "table" or #value < 1 then
    core.fail(("%s: expected a list of schedules as `%s`, got %s"):format(name, option, core.describe(value)))
  end
  return value
end

add("SequentialLR", {{"schedulers", list_of_schedules}, {"milestones", milestones}}, nil, function(state, groups)
  if #state.milestones ~= #state.schedulers - 1 then
    core.fail(("%s: expected %d milestones for %d schedules, got %d"):format(state.name, #state.schedulers - 1,
      #state.schedulers, #state.milestones))
  end
  state.schedules, state.step, state.last_epoch = state.schedulers, step_of_sequence, 0
  for position, group in ipairs(groups) do
    group.lr = state.base_lrs[position]
  end
  for _, one in ipairs(state.schedules) do
    if states[one].optimizer ~= state.optimizer then
      core.fail(state.name .. ": expected schedules of this optimizer, got one of another")
    end
    states[one].last_epoch = -1
    if states[one].T_cur then
      states[one].T_cur = -1
    end
  end
  advance(states[state.schedules[1]])
  for _, one in ipairs(state.schedules) do
    states[one].in_sequence = true
  end
end)
