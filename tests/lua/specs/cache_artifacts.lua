-- Bundles of what a process compiled: triage.save_cache_artifacts and triage.load_cache_artifacts.
test("N01: wrong uses of bundles are told", function()
  fails(function() triage.save_cache_artifacts() end, "triage.save_cache_artifacts: expected a string as `path`")
  fails(function() triage.load_cache_artifacts({}) end, "triage.load_cache_artifacts: expected a string as `path`")
  fails(function() triage.load_cache_artifacts("/nowhere/warm.bundle") end, "there is no such file")
  local file = os.tmpname()
  fails(function() triage.load_cache_artifacts(file) end,
    "it is no file that `triage cache save` has made, or its end is missing")
  os.remove(file)
end)

test("N01: compiled code that saves a bundle breaks its graph", function()
  local f = triage.compile(function(x)
    pcall(triage.load_cache_artifacts, "/nowhere/warm.bundle")
    return x + 1
  end, {fullgraph = true})
  fails(function() f(torch.ones({2})) end, "`triage.load_cache_artifacts` reaches a file")
end)
