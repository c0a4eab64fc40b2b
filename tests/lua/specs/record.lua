-- Record and replay of compiled functions (D10). What a replay gives is tested by tests/cli/commands/replay_test.cpp.

local function capsule()
  return os.tmpname() .. ".pt"
end

test("D10: triage.record calls a function, and writes what the call was", function()
  local file = capsule()
  local factor = torch.full({3}, 2.0)
  local f = triage.compile(function(x, n) return x * factor + n end, {name = "recorded"})
  local y = triage.record(f, {torch.ones({2, 3}), 5}, {file = file})
  assert(torch.equal(y, torch.full({2, 3}, 7.0)))
  local parts = torch.load(file)
  assert(parts.capsule:find('"name": "recorded"', 1, true))
  assert(parts.capsule:find("return x * factor + n", 1, true))
  assert(parts.capsule:find('"result 1"', 1, true))
  os.remove(file)
end)

test("D10: a plain function is recorded as a compiled one, and its error passes on", function()
  local file = capsule()
  local ok, message = pcall(triage.record, function(x) return x:reshape({7}) end, {torch.ones({2})}, {file = file})
  assert(not ok)
  assert(tostring(message):find("record.lua:%d+: ") ~= nil, tostring(message))
  assert(torch.load(file).capsule:find('"error"', 1, true))
  os.remove(file)
end)

test("D10: masked values are not in a capsule", function()
  local file = capsule()
  local key = ("ab"):rep(30)
  local hidden = torch.full({4}, 1234.5)
  local f = triage.compile(function(x) return x + hidden * #key end, {name = "masked"})
  triage.record(f, {torch.ones({4})}, {file = file, masked = {"key", "hidden", "result 1"}})
  local parts = torch.load(file)
  assert(not parts.capsule:find(("ab"):rep(9), 1, true))
  for _, memory in ipairs(parts.memories) do
    assert(memory.dtype ~= torch.float32 or not (memory == 1234.5):any():item())
  end
  os.remove(file)
end)

test("D10: what triage.record does not understand is an error that says what there is", function()
  fails(function() triage.record(1, {}, {file = "x.pt"}) end, "triage.record")
  fails(function() triage.record(print, {}, {}) end, 'file = "NAME.pt"')
  fails(function() triage.record(print, {}, {file = "x.txt"}) end, ".pt")
  fails(function() triage.record(print, {}, {fle = "x.pt"}) end, "`fle` is unknown")
end)

test("D10: calls that fail are written to triage.config.replay_dir", function()
  local folder = os.tmpname() .. "-capsules"
  triage.config.replay_dir = folder
  local f = triage.compile(function(x) return x:reshape({7}) end, {name = "failing"})
  assert(not pcall(f, torch.ones({2})))
  triage.config.replay_dir = false
  assert(triage.config.replay_dir == false)
  local list = io.popen("ls " .. folder)
  local name = list:read("a"):match("failing%-pid_%d+%-%d+%.pt")
  list:close()
  assert(name, "no capsule")
  assert(torch.load(folder .. "/" .. name).capsule:find("shape '[7]'", 1, true))
  os.execute("rm -r " .. folder)
end)
