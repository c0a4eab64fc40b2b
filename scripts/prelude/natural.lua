-- What natural Lua makes of masks: `if` as IF/ELIF/ELSE with the variables that the branches assign for results, and
-- `and`, `or`, `not`. Rewritten code comes here through bindings/lua/semantics/natural_functions.cpp. What a chain
-- holds is in bindings/lua/rewriter/chain_fields.h.
local core = ...
local ipairs, pack, unpack = ipairs, table.pack, table.unpack

local logical = {[true] = core.op("aten::logical_and", ""), [false] = core.op("aten::logical_or", "")}
local bitwise = {[true] = core.op("aten::bitwise_and", "Tensor"), [false] = core.op("aten::bitwise_or", "Tensor")}
local ones_like, zeros_like = core.op("aten::ones_like", ""), core.op("aten::zeros_like", "")
local logical_not = core.op("aten::logical_not", "")
local bitwise_not = core.op("aten::bitwise_not", "")
local not_equal, reshape = core.op("aten::ne", "Scalar"), core.op("aten::reshape", "")

local field <const> = core.chain_fields
local arm <const>, masks <const>, names <const>, line <const> = field.arm, field.masks, field.names, field.line
local taken <const>, scope <const>, restore <const> = field.taken, field.scope, field.restore
local none <const>, all <const> = -1, 0   -- no branch runs; where no branch is taken

local rule <const> = "Every branch must give it the same structure, shapes and dtypes; a branch that does not "
  .. "assign it keeps the old value. For a number that differs per sample use a tensor, such as "
  .. "torch.where(mask, 1, 2)."

local natural = {}
core.natural = natural
local running   -- the chain of the innermost branch that runs

--- A condition that is a mask: of branch `position`.
function natural.ask(chain, position, mask)
  mask = core.data_of(mask)
  local per_sample = core.condition_rank(mask, "if") > 0
  chain[masks] = chain[masks] or {}
  local list = chain[masks]
  list[#list + 1] = {condition = mask, per_sample = per_sample, arm = position}
end

--- A tensor of numbers with one element as a mask of the batch: true unless it is 0.
function natural.truth(x)
  return reshape(not_equal(x, 0), {})
end

local function named(branch, position)
  if branch.arm == all then
    return "before the `if`"
  end
  if not branch.condition then
    return "the last branch"
  end
  return branch.arm == 1 and "`if`" or ("`elseif` %d"):format(position - 1)
end

--- All conditions are known: which branches decide, and what the variables hold before.
local function begin(chain, ...)
  local list = chain[masks]
  list[#list + 1] = {arm = chain[taken] or all}
  for position, branch in ipairs(list) do
    branch.name = named(branch, branch.arm == all and position or branch.arm)
  end
  chain.list, chain.captured = list, core.capturing()
  chain.deciding = core.deciding_branches(list)
  chain.before = pack(...)
  chain.conditions = {}
  chain.at = 0
end

local function select_variables(chain, deciding)
  local variables = {}
  for name in chain[names]:gmatch("[^,]+") do
    variables[#variables + 1] = ("variable '%s'"):format(name)
  end
  local merged = deciding[#deciding].results
  for position = #deciding - 1, 1, -1 do
    local branch = deciding[position]
    local site = {
      condition = branch.condition, name = branch.name, other = deciding[#deciding].name,
      construct = ("`if` of line %d"):format(chain[line]), leaves = variables, rule = rule,
    }
    merged = core.select_results(site, branch.results, merged)
  end
  return merged
end

--- `failed`: an error ended the branch, which may be nil.
local function leave_branch(chain, failed, failure)
  local branch = chain[scope]
  chain[scope] = nil
  running = chain.around
  core.leave_branch(branch, failed, failure)
end

--- The `if` ends in the middle, by an error: its variables hold again what they held before.
function natural.abandon(chain, failure)
  if chain.before and chain[restore] then
    chain[restore](unpack(chain.before, 1, chain.before.n))
  end
  if chain[scope] then
    leave_branch(chain, true, failure)
  end
end

--- `mask`, and where it is over elements the samples that have some of them.
local function by_sample(mask)
  return mask:dim() > 1 and mask:flatten(1):any(1) or mask
end

local function both(mask, other)
  if not mask or (mask:dim() == 1 and other:dim() == 1 and mask:size(0) ~= other:size(0)) then
    return other
  end
  return mask & other
end

--- The samples that the branches now running are for, as a mask of shape (N,) or (); nil outside of branches.
function natural.samples()
  local mask
  local chain = running
  while chain do
    if chain.own then
      mask = both(mask, by_sample(chain.own))
    end
    for _, condition in ipairs(chain.conditions) do
      mask = both(mask, by_sample(~condition))
    end
    chain = chain.around
  end
  return mask
end

--- Called when the `if` has come to its end: with what its variables hold, gives what they are to hold next.
function natural.advance(chain, ...)
  if chain[arm] > 0 then
    leave_branch(chain, false)
    chain.deciding[chain.at].results = pack(...)
    chain.conditions[chain.at] = chain.deciding[chain.at].condition
  else
    begin(chain, ...)
  end
  local next_one = chain.captured and chain.deciding[chain.at + 1]
  if next_one and next_one.arm ~= all then
    core.before_branch(next_one.condition, chain.conditions)
  end
  if chain.captured and not core.capturing() then
    chain.captured = false
    chain.deciding, chain.at, chain.conditions = core.decide_eagerly(chain.list, chain.at)
  end
  local before = chain.before
  chain.at = chain.at + 1
  local branch = chain.deciding[chain.at]
  if branch and branch.arm == all then
    branch.results = before
    branch = nil
  end
  if branch then
    -- What runs last of several in eager code decides all that is left, whatever its condition.
    local decides = core.capturing() or chain.at < #chain.deciding
    chain.own = decides and branch.condition or nil
    chain[scope] = core.enter_branch(chain.own, chain.conditions)
    chain.around, running = running, chain
    chain[arm] = branch.arm
    return unpack(before, 1, before.n)
  end
  chain[arm] = none
  local merged = core.merge_branches(chain.list, chain.deciding, function(deciding)
    return select_variables(chain, deciding)
  end)
  chain[restore] = nil
  return unpack(merged, 1, merged.n)
end

local function refuse(operator, value)
  local hint = "To choose values per sample use torch.where(mask, a, b), or `if`"
  if operator == "and" then
    hint = "`mask and a or b` does not select per sample: write torch.where(mask, a, b), or `if`"
  end
  core.fail(("`%s` of a mask and %s: expected another mask or a boolean. %s")
    :format(operator, core.describe(value), hint))
end

--- `mask and value`, or where `slot` is negative `mask or value`.
function natural.combine(slot, mask, value)
  local is_and = slot > 0
  if type(value) == "boolean" then
    if value == is_and then
      return mask
    end
    return (value and ones_like or zeros_like)(mask)
  end
  local rank = core.mask_rank(value)
  if not rank then
    refuse(is_and and "and" or "or", value)
  end
  -- As the DSL has AND and OR for conditions of the batch, and & and | for masks.
  local operators = core.mask_rank(mask) == 0 and rank == 0 and logical or bitwise
  return operators[is_and](mask, value)
end

function natural.negate(mask)
  return (core.mask_rank(mask) == 0 and logical_not or bitwise_not)(mask)
end
