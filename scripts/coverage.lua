-- What each rule of a policy did to which samples. `triage test` runs the policy's source with every rule announced by
-- its number (bindings/lua/rewriter/findings/rules.h); the functions returned here stand behind those announcements. As
-- in the prelude, this is plain Lua that the rewriter never sees: masks are combined by methods and `&`, `|`, `~`.
-- `note(id, mask)` takes the samples, a bool tensor of shape (N,) or ().
local core, note = ...
local pack, unpack = table.pack, table.unpack
local err, torch = err, torch

local match = core.op("triage::match", "")
local any_code <const> = 0xFFFF
local WARN <const> = 1

local active   -- the samples that the branches around take; nil: all
local pending  -- the number that the branch now being added to a chain was announced with

--- One truth value a sample.
local function by_sample(mask)
  return mask:dim() > 1 and mask:flatten(1):any(-1) or mask
end

local function both(mask, other)
  if not other or (mask:dim() == 1 and other:dim() == 1 and mask:size(0) ~= other:size(0)) then
    return mask
  end
  return mask & other
end

--- `mask` where the branches around are taken, those of natural Lua too.
local function inside(mask)
  return both(both(mask, active), core.natural.samples())
end

local function take(id, mask)
  note(id, inside(by_sample(mask)))
end

--- `fn`, run while only the samples of `mask` count.
local function within(mask, fn)
  if core.is_tensor(fn) or not core.is_callable(fn) then
    return fn
  end
  return function(...)
    local outer = active
    active = inside(mask)
    local results = pack(fn(...))
    active = outer
    return unpack(results, 1, results.n)
  end
end

local function every_sample(f)
  return torch.ones({f:size(0)}, {dtype = torch.bool, device = f.device})
end

local function codes_of(options)
  if not options or not options.codes then
    return any_code
  end
  local set = 0
  for _, code in ipairs(options.codes) do
    set = set | 1 << core.code(code, "fix")
  end
  return set
end

local function pushed(_, _, f, code, _, options)
  local mask = options and options.where or every_sample(f)
  return core.is_tensor(code) and mask & code:ne(0) or mask
end

local function detected(_, fn, z, location, f, options)
  return err.is_err(fn(z, location, nil, type(f) == "table" and f or options))
end

local function has_errors(_, _, f) return err.is_err(f) end
local function is_fine(_, _, f) return err.is_ok(f) end

--- For each rule that is a function: the samples it took, told from its results and arguments when it has run.
local samples = {
  push = pushed,
  ["err.push"] = pushed,
  ["err.push_scalar"] = function(_, _, f) return every_sample(f) end,
  flag_nan = detected,
  flag_inf = detected,
  flag_nan_and_inf = detected,
  flag_oob_indices = function(_, fn, ids, n, location, f, options)
    return err.is_err(fn(ids, n, location, nil, type(f) == "table" and f or options))
  end,
  fix = function(_, _, _, f, _, options)
    local least = options and options.min_severity
    return match(f, codes_of(options), least and core.severity(least, "fix") or WARN)
  end,
  ["err.replace"] = function(results, _, z)
    local replaced = core.data_of(results[1])
    return z:ne(replaced) & ~(z:ne(z) & replaced:ne(replaced))
  end,
  ["err.recover_with_fallback"] = has_errors,
  ["err.take_ok"] = function(_, _, f) return err.is_err(f) end,  -- what it drops
  ["err.take_err"] = function(_, _, f) return err.is_ok(f) end,
  ["err.take_ok_p"] = has_errors,  -- what it fills
  ["err.take_err_p"] = is_fine,
  ["err.ensure_mask"] = function(_, _, _, mask) return ~mask end,
  ["err.clear"] = function(_, _, f, code) return err.has_code(f, code) end,
}

--- Rules that run a function: while it runs, only the samples it is for count.
local runs_function = {
  ["err.map_ok"] = function(f) return err.is_ok(f) end,
  ["err.map_err"] = function(f) return err.is_err(f) end,
  ["err.and_then"] = function(f) return err.is_ok(f) end,
  ["err.bind"] = function(f) return err.is_ok(f) end,
}

local Chain = {}
Chain.__index = Chain

--- Adds a branch for the samples of `mask` that no earlier branch took; those of `rest` go on. A sample can be in both,
-- where a condition is over elements.
local function branch(chain, id, mask, rest, fn)
  local taken = both(mask, chain.left)
  take(id, taken)
  chain.left = both(rest, chain.left)
  return within(taken, fn)
end

local function is_condition(value)
  return core.is_tensor(value) and core.is_bool(value)
end

local function covered_if(id, original, condition, fn)
  if not is_condition(condition) then
    return original(condition, fn)  -- which says what is wrong
  end
  local chain = setmetatable({}, Chain)
  chain.inner = original(condition, branch(chain, id, by_sample(condition), by_sample(~condition), fn))
  return chain
end

function Chain:ELIF(condition, fn)
  if is_condition(condition) then
    fn = branch(self, pending, by_sample(condition), by_sample(~condition), fn)
  end
  self.inner = self.inner:ELIF(condition, fn)
  return self
end

function Chain:ELSE(fn)
  return self.inner:ELSE(branch(self, pending, self.left, self.left, fn))
end

local function covered_where(id, original, condition, a, b)
  local result = original(condition, a, b)
  if core.is_tensor(condition) and core.is_bool(condition) then
    take(id, condition)
    take(id + 1, ~condition)
  end
  return result
end

local function covered_choice(id, original, condition, a, b, ...)
  if not is_condition(condition) then
    return original(condition, a, b, ...)
  end
  local taken, left = by_sample(condition), by_sample(~condition)
  take(id, taken)
  take(id + 1, left)
  return original(condition, within(taken, a), within(left, b), ...)
end

local function covered_guard(id, original, f, z, predicate, ...)
  local guarded, fine = core.is_guarded(f), nil   -- flags and data are one argument: all others come one earlier
  local ask = predicate
  if guarded then
    ask = z
  end
  local function seen(...)
    fine = ask(...)
    return fine
  end
  local watched = core.is_callable(ask) and seen or ask
  local results = guarded and pack(original(f, watched, predicate, ...)) or pack(original(f, z, watched, ...))
  take(id, fine:to(torch.bool):logical_not())
  return unpack(results, 1, results.n)
end

local function covered_map(id, name, original, f, z, fn, ...)
  if not core.is_tensor(f) then
    return original(f, z, fn, ...)
  end
  local mask = runs_function[name](f)
  take(id, mask)
  if core.is_guarded(f) then
    return original(f, within(mask, z), fn, ...)
  end
  return original(f, z, within(mask, fn), ...)
end

local function covered_map_flags(id, original, f, fn)
  if not core.is_tensor(f) then
    return original(f, fn)
  end
  local mask = err.is_err(f)
  take(id, mask)
  return original(f, within(mask, fn))
end

local takes_data = {flag_nan = true, flag_inf = true, flag_nan_and_inf = true, flag_oob_indices = true,
                    ["err.replace"] = true}

--- The arguments of a rule as they are without guarded tensors.
local function explicit(name, x, ...)
  if not core.is_guarded(x) then
    return x, ...
  elseif name == "fix" then
    return core.data_of(x), core.flags_of(x), ...
  end
  return takes_data[name] and core.data_of(x) or core.flags_of(x), ...
end

local function covered(id, name, original)
  if name == "IF" then
    return function(...) return covered_if(id, original, ...) end
  elseif name == "torch.where" then
    return function(...) return covered_where(id, original, ...) end
  elseif name == "WHERE" then
    return function(...) return covered_choice(id, original, ...) end
  elseif name == "err.guard" then
    return function(...) return covered_guard(id, original, ...) end
  elseif name == "err.map_err_flags" then
    return function(...) return covered_map_flags(id, original, ...) end
  elseif runs_function[name] then
    return function(...) return covered_map(id, name, original, ...) end
  end
  return function(...)
    local results = pack(original(...))
    take(id, samples[name](results, original, explicit(name, ...)))
    return unpack(results, 1, results.n)
  end
end

local function announce_branch(id, ...)
  pending = id
  return ...
end

--- A branch of natural Lua begins.
local function announce_arm(id)
  take(id, torch.tensor(true))
end

local function start()
  active = nil
end

return covered, announce_branch, announce_arm, start
