-- IF():ELIF():ELSE(), and the conditions made for it. Branches are selected leaf by leaf; the first condition that
-- holds wins. Eager code runs what it needs; captured code runs every branch, for the graph must hold them all.
-- A condition is of the batch, of samples (one dimension), or over elements (more).
local core = ...
local setmetatable = setmetatable
local insert, pack, remove, unpack = table.insert, table.pack, table.remove, table.unpack
local arguments = core.arguments
local globals = _G

local select_rows = core.op("triage::select", "")
local where = core.op("aten::where", "self")
local where_number_first = core.op("aten::where", "ScalarSelf")
local where_number_last = core.op("aten::where", "ScalarOther")
local expand_as = core.op("aten::expand_as", "")
local flatten = core.op("aten::flatten", "using_ints")
local zeros_like = core.op("aten::zeros_like", "")
local any_along = core.op("aten::any", "dim")
local all_along = core.op("aten::all", "dim")
local merge_flags = core.op("triage::merge", "")
local detach = core.op("aten::detach", "")
local full_like = core.op("aten::full_like", "")
local reshape = core.op("aten::reshape", "")
local any_err = core.op("triage::any_err", "")
local has_code = core.op("triage::has_code", "")
local any = core.op("aten::any", "")
local logical_and = core.op("aten::logical_and", "")
local logical_or = core.op("aten::logical_or", "")
local logical_not = core.op("aten::logical_not", "")

local max_nesting <const> = 32

local function quoted(key)
  return math.type(key) == "integer" and ("element %d"):format(key) or ("field '%s'"):format(core.describe_key(key))
end

local function same_plain_value(a, b)
  if rawequal(a, b) then
    return math.type(a) == math.type(b)
  end
  return type(a) == "number" and type(b) == "number" and a ~= a and b ~= b
end

local function differ(site, leaf, what)
  core.branches_differ(site.construct, site.name, site.other, leaf, what, site.rule)
end

local select_leaf

local function select_fields(site, a, b, leaf, nesting)
  if nesting > max_nesting then
    core.fail(("IF: %s of the branches is nested deeper than %d tables"):format(leaf, max_nesting))
  end
  for key in next, b do
    if rawget(a, key) == nil then
      differ(site, leaf, ("%s has no %s"):format(site.name, quoted(key)))
    end
  end
  local merged = core.mark_created({})   -- the script may write to it
  for key, value in next, a do
    local other = rawget(b, key)
    if other == nil then
      differ(site, leaf, ("%s has no %s"):format(site.other, quoted(key)))
    end
    merged[key] = select_leaf(site, value, other, leaf .. ", " .. quoted(key), nesting + 1)
  end
  return merged
end

--- Flags of samples whose elements come from both branches are those of both; of others, those of their branch.
local function select_guards(condition, data, a, b)
  local ours, theirs = core.is_guarded(a) and core.flags_of(a), core.is_guarded(b) and core.flags_of(b)
  ours, theirs = ours or zeros_like(theirs), theirs or zeros_like(ours)
  if rawequal(ours, theirs) then
    return ours
  end
  local taken = flatten(expand_as(condition, data), 1, -1)
  if core.mask_rank(taken) == 1 then   -- a number for each sample
    return select_rows(taken, ours, theirs)
  end
  local slots, policy = core.resolve_config()
  local some = select_rows(any_along(taken, 1, false), merge_flags(ours, theirs, slots, policy), theirs)
  return select_rows(all_along(taken, 1, false), ours, some)
end

--- `value`, as it is. Where `other` has no gradient, a graph of gradients then knows the samples that the branch has no
-- element of, and masks them upstream as those of a branch by sample.
local function with_masked_rows(condition, value, other)
  if not core.masks_rows(condition, value, other) then
    return value
  end
  return select_rows(any_along(flatten(condition, 1, -1), 1, false), value, detach(value))
end

local function is_element(value)
  return core.is_tensor(value) or type(value) == "number"
end

--- Of tensors, or a tensor and a number: each element of `a` where the condition holds.
local function select_elements(site, a, b, leaf)
  local x, y = core.data_of(a), core.data_of(b)
  local mismatch = core.element_mismatch(site.condition, x, y)
  if mismatch then
    differ(site, leaf, mismatch)
  end
  local operator = where
  if not core.is_tensor(x) then
    operator = where_number_first
  elseif not core.is_tensor(y) then
    operator = where_number_last
  end
  if core.capturing() then
    x = with_masked_rows(site.condition, x, y)
    y = with_masked_rows(logical_not(site.condition), y, x)
  end
  local data = operator(site.condition, x, y)
  if core.is_guarded(a) or core.is_guarded(b) then
    return core.guarded(nil, data, select_guards(site.condition, data, a, b))
  end
  return data
end

--- The value of one leaf (or table of leaves): `a` where the condition holds, else `b`.
function select_leaf(site, a, b, leaf, nesting)
  if not rawequal(a, b) then
    a, b = core.plain(a), core.plain(b)
  end
  local by_element = site.by_element or core.mask_rank(site.condition) > 1
  if by_element and not rawequal(a, b) and is_element(a) and is_element(b)
    and (core.is_tensor(a) or core.is_tensor(b)) then
    return select_elements(site, a, b, leaf)
  end
  if core.is_tensor(a) and core.is_tensor(b) then
    if rawequal(a, b) then
      return a
    end
    local mismatch = core.select_mismatch(site.condition, core.data_of(a), core.data_of(b))
    if mismatch then
      differ(site, leaf, mismatch)
    end
    if core.is_guarded(a) ~= core.is_guarded(b) and core.mask_rank(site.condition) == 0 then
      -- A script runs one branch, and has flags only if that has some.
      differ(site, leaf, ("%s against %s"):format(core.describe(a), core.describe(b)))
    end
    return select_rows(site.condition, a, b)
  end
  if rawequal(a, b) and type(a) == "table" then
    return a
  end
  if type(a) == "table" and type(b) == "table" then
    return select_fields(site, a, b, leaf, nesting)
  end
  if not same_plain_value(a, b) then
    differ(site, leaf, ("%s against %s"):format(core.describe(a), core.describe(b)))
  end
  return a
end

--- Results of two branches (as pack makes them), merged. A site says between which: `condition`, `name` and `other`;
--- and for messages, where it is no IF: `construct`, `leaves` (names of the results) and `rule`.
local function select_results(site, a, b)
  if a.n ~= b.n then
    core.numbers_differ(site.construct or "IF", site.name, a.n, site.other, b.n)
  end
  local merged = {n = a.n}
  for i = 1, a.n do
    local leaf = site.leaves and site.leaves[i] or ("result %d"):format(i)
    merged[i] = select_leaf(site, a[i], b[i], leaf, 1)
  end
  return merged
end

core.select_results = select_results

local function branch_name(position, last)
  if position == 1 then
    return "IF"
  end
  return position == last and "ELSE" or ("ELIF %d"):format(position - 1)
end

local methods = {}
local Chain = {__index = core.strict(methods, "IF"), __name = "IF chain", __metatable = "IF chain"}

local function branch_function(operation, fn)
  if core.is_tensor(fn) or not core.is_callable(fn) then   -- calling a tensor is an error of its own
    core.fail(("%s: expected a function as `fn`, got %s; write function() return ... end")
      :format(operation, core.describe(fn)))
  end
  return fn
end

local function add_branch(chain, operation, condition, fn)
  condition = core.data_of(condition)
  local per_sample = core.condition_rank(condition, operation) > 0
  branch_function(operation, fn)
  if chain.finished then
    core.fail(operation .. ": this chain already ended with ELSE")
  end
  insert(chain, {condition = condition, per_sample = per_sample, fn = fn})
  return chain
end

--- The branches that decide the result, in order; the last is taken where no condition before it holds.
local function deciding_branches(chain)
  if core.capturing() then
    return chain
  end
  local deciding = {}
  for i = 1, #chain do
    local branch = chain[i]
    insert(deciding, branch)
    if not branch.condition then
      break
    end
    if not branch.per_sample then
      if core.holds(branch.condition) then
        break
      end
      remove(deciding)
    end
  end
  return deciding
end

core.deciding_branches = deciding_branches

--- A graph break ended the capture while branches ran for it. What decides is now known as in eager code: the
-- branches, how many of them have run, and their conditions. `position`: of the branch that ran last.
local function decide_eagerly(chain, position)
  local deciding, conditions, done = deciding_branches(chain), {}, 0
  for i = 1, position do
    if chain[i] == deciding[done + 1] then
      done = done + 1
      conditions[done] = chain[i].condition
    end
  end
  return deciding, done, conditions
end

core.decide_eagerly = decide_eagerly

local function has_batch_condition(chain)
  for i = 1, #chain do
    if chain[i].condition and not chain[i].per_sample then
      return true
    end
  end
  return false
end

--- What `merge` makes of the branches that decide. A script does not compare a branch with one that a condition of the
-- batch rules out: where such branches differ, the graph ends, and what decides is known.
function core.merge_branches(chain, deciding, merge)
  if not core.may_break() or not has_batch_condition(chain) then
    return merge(deciding)
  end
  local fine, merged = core.attempt(merge, deciding)
  if fine then
    return merged
  end
  core.break_for_difference(merged)
  return merge((decide_eagerly(chain, #chain)))
end

--- Branches on samples all run, each for its own: what they assign, and do not return, would be the last one's.
local function expect_results(chain, number)
  if number > 0 then
    return
  end
  for i = 1, #chain do
    if chain[i].per_sample then
      core.fail("IF: the branches return nothing. Each runs for its own samples, and a variable that they assign gets "
        .. "the value of the last one for all samples: write local y = IF(mask, function() return ... end)"
        .. ":ELSE(function() return ... end)")
    end
  end
end

function methods:ELIF(condition, fn)
  core.close_chain(self.ticket or nil)   -- a chain that raises an error is over
  add_branch(self, "ELIF", condition, fn)
  self.place, self.ticket = core.open_chain(self.place)
  return self
end

local function merge_results(deciding)
  local last = deciding[#deciding]
  local merged = last.results
  for position = #deciding - 1, 1, -1 do
    local branch = deciding[position]
    local site = {condition = branch.condition, name = branch.name, other = last.name}
    merged = select_results(site, branch.results, merged)
  end
  return merged
end

function methods:ELSE(fn)
  core.close_chain(self.ticket or nil)
  branch_function("ELSE", fn)
  if self.finished then
    core.fail("ELSE: this chain already ended with ELSE")
  end
  self.finished = true
  insert(self, {fn = fn})
  for position = 1, #self do
    self[position].name = branch_name(position, #self)
  end
  local deciding, before, position = deciding_branches(self), {}, 1
  while position <= #deciding do
    local branch = deciding[position]
    local captured = core.capturing()
    -- What runs last of several in eager code decides all that is left, whatever its condition.
    local condition = (captured or position < #deciding) and branch.condition or nil
    branch.results = pack(core.in_branch(branch.fn, condition, before))
    before[position] = branch.condition
    if captured and not core.capturing() then
      deciding, position, before = decide_eagerly(self, position)
    end
    position = position + 1
  end
  local merged = core.merge_branches(self, deciding, merge_results)
  expect_results(self, merged.n)
  return unpack(merged, 1, merged.n)
end

methods.ELIF = core.forwarding(methods.ELIF, "chain:ELIF")
methods.ELSE = core.forwarding(methods.ELSE, "chain:ELSE")

function globals.IF(condition, fn)
  local chain = add_branch(setmetatable({finished = false}, Chain), "IF", condition, fn)
  chain.place, chain.ticket = core.open_chain()
  return chain
end

--- `value` of WHERE as a branch.
local function as_branch(name, value)
  if core.is_tensor(value) or type(value) == "number" then
    return function() return value end
  end
  if not core.is_callable(value) then
    core.fail(("WHERE: expected a function, a tensor or a number as `%s`, got %s"):format(name, core.describe(value)))
  end
  return value
end

--- A number beside a tensor, where samples are selected: of the tensor's form.
local function fill_numbers(a, b)
  for i = 1, a.n == b.n and a.n or 0 do
    local x, y = core.plain(a[i]), core.plain(b[i])
    if type(x) == "number" and core.is_tensor(y) then
      a[i] = full_like(core.data_of(y), x)
    elseif type(y) == "number" and core.is_tensor(x) then
      b[i] = full_like(core.data_of(x), y)
    end
  end
end

function globals.WHERE(condition, a, b)
  condition = core.data_of(condition)
  local rank = core.condition_rank(condition, "WHERE")
  a, b = as_branch("a", a), as_branch("b", b)
  -- Both branches always run: as in `where`, a condition of shape () is not read. It is one element for all results.
  local taken = rank == 0 and reshape(condition, {1, 1}) or condition
  local ours = pack(core.in_branch(a, taken, {}))
  local theirs = pack(core.in_branch(b, nil, {taken}))
  if rank == 1 then
    fill_numbers(ours, theirs)
  end
  local site = {condition = condition, by_element = rank ~= 1, construct = "WHERE", name = "a", other = "b"}
  local merged = select_results(site, ours, theirs)
  return unpack(merged, 1, merged.n)
end

function globals.HAS(flags, options)
  return any_err(arguments.asked("HAS", flags, options))
end

function globals.IS(code, flags, options)
  return any(has_code(arguments.asked("IS", flags, options), core.code(code, "IS")))
end

local function combine(operation, operator)
  return function(...)
    if select("#", ...) == 0 then
      core.fail(operation .. ": expected at least one condition")
    end
    local result = core.batch_condition((...), operation)
    for i = 2, select("#", ...) do
      result = operator(result, core.batch_condition((select(i, ...)), operation))
    end
    return result
  end
end

globals.AND = combine("AND", logical_and)
globals.OR = combine("OR", logical_or)

function globals.NOT(condition)
  return logical_not(core.batch_condition(condition, "NOT"))
end
