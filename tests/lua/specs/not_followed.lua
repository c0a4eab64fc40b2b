-- A function with graph breaks whose segments spare no calls: its script runs as it is, and cannot tell.

test("N01: results are the script's, in calls that are followed and in those that are not", function()
  local f = triage.compile(function(x)
    local y = x + 1
    triage.graph_break("between")
    return y * 2, y
  end, {warn = false})
  for call = 1, 140 do
    local x = torch.randn({call % 5, 3})
    eq({f(x)}, {(x + 1) * 2, x + 1}, "call " .. call)
  end
end)

test("N01: triage.is_compiling says the same in all calls", function()
  local f = triage.compile(function(x)
    triage.graph_break("between")
    return triage.is_compiling() and x * 2 or x * 3
  end, {warn = false})
  local x = torch.ones({2, 3})
  for _ = 1, 140 do eq(f(x), x * 2) end
  eq(triage.is_compiling(), false)
end)

test("N01: another way through the script that is worth following is found", function()
  local f = triage.compile(function(x)
    if x:sum():item() > 0 then return ((x * 2 + 1):relu() - 3):abs() * 0.5 end
    return x
  end, {warn = false})
  local negative, positive = -torch.ones({4, 5}), torch.ones({4, 5})
  for _ = 1, 10 do eq(f(negative), negative) end
  eq(f:cache().tapes, 0)
  for _ = 1, 200 do eq(f(positive), torch.zeros({4, 5})) end
  eq(f:cache().tapes, 1)
end)

test("N01: under error_on_graph_break a break is an error in every call", function()
  local f = triage.compile(function(x) triage.graph_break("between") return x + 1 end, {warn = false})
  local x = torch.ones({2})
  for _ = 1, 20 do f(x) end
  fails(function() triage.error_on_graph_break(true, f)(x) end, "between")
  eq(f(x), x + 1)
end)

test("A02: a value that one step reads twice is there", function()
  local functions = {
    function(a, b) local t = a * b return t + t end,
    function(a, b) local t = a - b return t * t end,
    function(a, b) local t = a + b return t * t + t end,
    function(a) local t = a:sigmoid() return t * t, a * t end,
    function(a, b) local t = a * b return t + t, t end,
  }
  for _, fn in ipairs(functions) do
    local f = triage.compile(fn, {fullgraph = true})
    for _, rows in ipairs({2, 1, 0, 31, 33}) do
      local a, b = torch.randn({rows, 70}), torch.randn({rows, 70})
      local got, expected = table.pack(f(a, b)), table.pack(fn(a, b))
      for i = 1, expected.n do assert(torch.allclose(got[i], expected[i], 1e-6, 1e-6)) end
    end
  end
end)
