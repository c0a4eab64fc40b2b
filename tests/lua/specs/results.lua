-- Ok, Err, their methods, and functions that trade errors for Results (row T24).
local half = as_result(function(n)
  if n % 2 ~= 0 then error("odd: " .. n) end
  return n // 2
end)

test("T24: methods of a value and of an error", function()
  local ok, bad = Ok(42), Err("no")
  eq({ok:is_ok(), ok:is_err(), bad:is_ok(), bad:is_err()}, {true, false, false, true})
  eq(ok:unwrap(), 42)
  eq(bad:unwrap_err(), "no")
  eq({ok:unwrap_or(1), bad:unwrap_or(1)}, {42, 1})
  eq(ok:map(function(n) return n + 1 end):unwrap(), 43)
  eq(bad:map(function() error("not called") end):unwrap_err(), "no")
  eq(bad:map_err(function(e) return e .. "!" end):unwrap_err(), "no!")
  eq(ok:map_err(function() error("not called") end):unwrap(), 42)
  eq(ok:and_then(function(n) return Err(n) end):unwrap_err(), 42)
  eq(bad:and_then(function() error("not called") end):unwrap_err(), "no")
end)

test("T24: a Result holds all that a function returned, nil too", function()
  eq({Ok(1, 2, 3):unwrap()}, {1, 2, 3})
  eq(select("#", Ok(nil, nil):unwrap()), 2)
  eq({Ok(1, 2):map(function(a, b) return b, a end):unwrap()}, {2, 1})
  eq(select("#", Ok():unwrap()), 0)
end)

test("T24: how a Result reads", function()
  eq(tostring(Ok(42)), "Ok(int 42)")
  eq(tostring(Ok(torch.zeros({2, 3}), "x")), 'Ok(Tensor float32[2, 3], string "x")')
  eq(tostring(Err("no")), 'Err(string "no")')
  eq(tostring(Ok(Err("no"))), 'Ok(Err(string "no"))')
  eq(tostring(Ok()), "Ok()")
  local problem = type_cast(float32_t, 3)
  local text = tostring(problem)
  assert(text:find("^Err%(specs/results.lua:%d+: InvalidParameterError: type_cast: argument 'x'"), text)
end)

test("T24: as_result catches what is raised, as it was raised", function()
  eq(half(8):unwrap(), 4)
  assert(half(3):unwrap_err():find("^specs/results.lua:%d+: odd: 3"), half(3):unwrap_err())
  local thrown = {why = "because"}
  eq(rawequal(as_result(function() error(thrown) end)():unwrap_err(), thrown), true)
  local checked = as_result(tensorcheck(function(x) return x end, {args = {Tensor(float32_t, {"N"})}}))
  assert(DimensionMismatchError.is(checked(torch.zeros({2, 3})):unwrap_err()))
  assert(as_result(function(x) return x:no_such_op() end)(torch.ones({1})):unwrap_err():find("no_such_op", 1, true))
end)

test("T24: chains", function()
  eq(half(8):and_then(half):and_then(half):unwrap(), 1)
  assert(half(6):and_then(half):unwrap_err():find("odd: 3", 1, true))
end)

test("T24: as_exception and unwrap give the value, or raise the error", function()
  for _, raising in ipairs({as_exception, unwrap}) do
    local fn = raising(half)
    eq(fn(8), 4)
    local ok, message = pcall(fn, 3)
    eq(ok, false)
    assert(message:find("^specs/results.lua:%d+: odd: 3$"), message)
    local thrown = {why = "because"}
    eq(rawequal(select(2, pcall(raising(function() return Err(thrown) end))), thrown), true)
    eq({raising(function() return Ok(1, 2) end)()}, {1, 2})
    local _, problem = pcall(raising(function() return 3 end))
    assert(InvalidReturnTypeError.is(problem))
    assert(problem.message:find("must return a Result, Ok(...) or Err(...), not int 3", 1, true), problem.message)
  end
end)

test("T24: wrong use says what is expected", function()
  assert(fails(function() Err("no"):unwrap() end):find("^specs/results.lua:%d+: unwrap: the result is an error: no"))
  local thrown = {message = "mine"}
  eq(rawequal(select(2, pcall(function() Err(thrown):unwrap() end)), thrown), true)
  fails(function() Ok(3):unwrap_err() end, "unwrap_err: the result is Ok(int 3); ask is_err() first")
  fails(function() Ok(3):and_then(function() return 4 end) end, "`fn` must return a Result")
  fails(function() Ok(3):map(4) end, "map: expected a function as `fn`")
  fails(function() Ok(3).is_ok(4) end, "is_ok: expected a Result, got int 4")
  fails(function() as_result(3) end, "as_result: expected a function")
end)

test("T24: Results in captured code", function()
  local f = triage.compile(function(x)
    return Ok(x):map(function(y) return y * 2 end):and_then(function(y) return Ok(y + 1) end):unwrap_or(x)
  end, {fullgraph = true})
  for _, rows in ipairs({2, 0, 1, 31, 32, 33}) do
    local x = torch.randn({rows, 3})
    eq(f(x), x * 2 + 1)
  end
end)

test("T24: as_result hides no graph break", function()
  local function reads(x) return x:sum():item() end
  local f = triage.compile(function(x) return x * as_result(reads)(x):unwrap_or(0) end, {fullgraph = true})
  fails(function() f(torch.ones({2})) end, "graph break: `item` reads a value")
  local g = triage.compile(function(x) return x * as_result(reads)(x):unwrap_or(0) end)
  eq(g(torch.ones({2})), torch.ones({2}) * 2)
  eq(g(torch.ones({3})), torch.ones({3}) * 3)
end)

test("T24: an error of an operator that is caught is no path to freeze", function()
  local function invert(x) return torch.linalg.cholesky(x) end
  local function safe(x)
    local result = as_result(invert)(x)
    if result:is_err() then return torch.zeros_like(x) end
    return result:unwrap()
  end
  local bad, good = torch.zeros({2, 2}), torch.eye(2)
  local f = triage.compile(safe)
  eq(f(bad), bad)
  eq(f(good), good)
  eq(f(bad), bad)
  local strict = triage.compile(safe, {fullgraph = true})
  fails(function() strict(bad) end, "the script caught an error that other inputs may not raise")
end)
