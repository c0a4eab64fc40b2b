-- What a coroutine set while it runs holds for it alone, and waits with it.

test("error_on_graph_break: a coroutine that waits keeps its scopes to itself", function()
  local function raises()
    local f = triage.compile(function(v) triage.graph_break("asked for") return v * 2 end, {backend = "eager"})
    return not pcall(f, torch.ones({2}))
  end
  local function body()
    local _ <close> = triage.error_on_graph_break(true)
    coroutine.yield(raises())
    coroutine.yield(raises())
    return raises()
  end
  for _, start in ipairs({
    function() return coroutine.wrap(body) end,
    function()
      local co = coroutine.create(body)
      return function() return select(2, coroutine.resume(co)) end
    end,
  }) do
    local go_on = start()
    for _ = 1, 3 do
      eq({go_on(), raises()}, {true, false})
    end
  end
  local follows = coroutine.wrap(function() while true do coroutine.yield(raises()) end end)
  eq(follows(), false)
  do
    local _ <close> = triage.error_on_graph_break(true)
    eq({follows(), raises()}, {true, true})   -- it has no scope of its own
    local relaxes = coroutine.wrap(function()
      local _ <close> = triage.error_on_graph_break(false)
      coroutine.yield(raises())
    end)
    eq({relaxes(), raises()}, {false, true})
  end
  eq({follows(), raises()}, {false, false})
  local closed = coroutine.create(body)
  coroutine.resume(closed)
  coroutine.close(closed)
  eq(raises(), false)
  local failing = coroutine.wrap(function()
    local _ <close> = triage.error_on_graph_break(true)
    coroutine.yield()
    error("on purpose")
  end)
  failing()
  fails(failing, "on purpose")
  eq(raises(), false)
end)
