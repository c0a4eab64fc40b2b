-- In the call that is captured, as in every other, a branch that a condition of the whole batch rules out has no
-- effects.
-- luacheck: globals printed_under_test
local plus, minus = torch.ones({2}), -torch.ones({2})

local function positive(x) return (x > 0):all() end

test("a branch that the batch does not take writes nothing", function()
  local seen = 0
  local f = triage.compile(function(x)
    return IF(positive(x), function() seen = seen + 1 return x * 2 end):ELSE(function() return x end)
  end)
  for _ = 1, 3 do eq(f(minus), minus) end
  eq(seen, 0)
  for i = 1, 3 do
    eq(f(plus), plus * 2)
    eq(seen, i)
  end
end)

test("nor to locals of the function, tensors, tables, globals, the generator or the outside", function()
  local state = {last = "none"}
  local branches = {
    locals = function(x)
      local c = 0
      local y = IF(positive(x), function() c = c + 1 return x * 2 end):ELSE(function() return x end)
      return y + c
    end,
    in_place = function(x)
      local c = torch.zeros({2})
      local y = IF(positive(x), function() c:add_(100) return x * 2 end):ELSE(function() return x end)
      return y + c
    end,
    tables = function(x)
      local y = IF(positive(x), function() state.last = "plus" return x * 2 end):ELSE(function() return x end)
      return y + #state.last
    end,
    random = function(x)
      local y = IF(positive(x), function() return torch.rand({2}) end):ELSE(function() return x end)
      return y + torch.rand({2})
    end,
    protected = function(x)
      local c = 0
      local y = IF(positive(x), function() pcall(function() c = 5 end) c = c + 1 return x end)
        :ELSE(function() return x end)
      return y + c
    end,
    last = function(x)
      local c = 0
      local y = IF(~positive(x), function() return x end):ELSE(function() c = c + 1 return x * 2 end)
      return y + c
    end,
    after_a_break = function(x)
      local c = 0
      local y = IF(~positive(x), function() c = c + 1 return x end):ELSE(function() c = c + 10 return x * 2 end)
      return y + c
    end,
    nested = function(x)
      local c = 0
      local y = IF(positive(x), function()
        return IF((x < 0):any(), function() c = c + 1 return x end):ELSE(function() c = c + 10 return x end)
      end):ELIF((x < -5):any(), function() c = c + 100 return x end):ELSE(function() return x * 3 end)
      return y + c
    end,
    per_sample = function(x)
      local c = 0
      local y = IF(x > 0, function() return x * 2 end):ELIF(positive(x), function() c = 1 return x * 3 end)
        :ELSE(function() return x end)
      return y + c
    end,
  }
  for name, fn in pairs(branches) do
    for _, first in ipairs({minus, plus}) do
      local results = {}
      for _, form in ipairs({fn, triage.compile(fn)}) do
        state.last = "none"
        torch.manual_seed(0)
        local list = {}
        for i, x in ipairs({first, minus, plus, minus, plus}) do list[i] = form(x) end
        results[#results + 1] = list
      end
      eq(results[2], results[1], name)
    end
  end
end)

test("an error in a branch that is left is the script's own", function()
  local f = triage.compile(function(x)
    return IF(positive(x), function() error("wrong way") end):ELSE(function() return x end)
  end)
  fails(function() f(plus) end, "wrong way")
end)

test("what happens once is an error in a branch on a mask", function()
  local x = torch.tensor({1.0, -1.0}):requires_grad_()
  local co = coroutine.create(function() while true do coroutine.yield(1) end end)
  local it = ("1 2 3"):gmatch("%d")
  local function in_branch(body)
    local head = "--!tensor\nlocal x, co, it = ...\nlocal y = x * 1\nif x > 0 then "
    return load(head .. body .. " y = x * 2 end\nreturn y")
  end
  for _, body in ipairs({"coroutine.resume(co)", "coroutine.close(co)", "it()", "math.randomseed(1)",
                         "torch.manual_seed(1)", "torch.set_grad_enabled(false)", "ErrorLocation.reset()",
                         "os.remove('/nonexistent')",
                         "x:sum():backward()", "debug.setlocal(1, 1, 2)", "x.grad = nil",
                         "triage.reset()", "triage.set_stance('default')", "triage.set_logs {}",
                         "triage.config.recompile_limit = 8", "torch.save(x, '/nonexistent/x.pt')",
                         "set_config(ErrorConfig {num_slots = 4})"}) do
    local before = get_config().num_slots
    fails(function() in_branch(body)(x, co, it) end, "mask")
    eq(torch.is_grad_enabled(), true)
    eq(get_config().num_slots, before)
  end
  eq(it(), "1")
  in_branch("local _ <close> = set_config(ErrorConfig {num_slots = 4})")(x, co, it)
  in_branch("local _ <close> = torch.no_grad() for d in ('1 2'):gmatch('%d') do y = x * tonumber(d) end")(x, co, it)
end)
