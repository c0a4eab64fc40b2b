-- triage.instrument on modules written in Lua: flags through a model that knows nothing of them.

--- A module with this forward, these children (a list of {name, module}), and the parameter `weight` where it is given.
local function module(forward, children, weight)
  local made = nn.Module()
  made.forward, made.weight = forward, weight
  for _, child in ipairs(children or {}) do made[child[1]] = child[2] end
  return made
end

local function ones() return torch.ones({1}, {requires_grad = true}) end

local function scaled(factor)
  return module(function(self, x) return x * self.weight end, {}, torch.tensor({factor}, {requires_grad = true}))
end

--- `first` scales, `log` has no parameters, `last` scales again.
local function network()
  local first, log, last = scaled(2.0), module(function(_, x) return x:log() end), scaled(3.0)
  return module(function(_, x) return last(log(first(x))) end, {{"first", first}, {"log", log}, {"last", last}})
end

local function batch(n)
  return torch.arange(1, 3 * n + 1):reshape({n, 3}):to(torch.float32)
end

test("T01 T16: an instrumented model gives its own output and flags, a location a submodule", function()
  ErrorLocation.reset()
  local model = network()
  local looked_at = triage.instrument(model)
  eq(looked_at:locations(), {"root", "first", "last"})
  for _, n in ipairs({0, 1, 2, 31, 32, 33}) do
    local x = batch(n)
    if n > 0 then x[{n - 1, 1}] = -1.0 end
    local y, f = looked_at(x)
    eq(y, model(x))
    eq(f.shape, {n, 4})
    eq(err.is_err(f):sum():item(), n > 0 and 1 or 0)
    if n > 0 then
      eq(flags.unpack(f, n - 1)[1].location_name, "last")   -- the first that saw it: log holds no parameters
      eq(flags.unpack(f, n - 1)[2].location_name, "root")
    end
  end
  eq(looked_at:unseen(), {})
  eq(looked_at:unlooked(), {})
  eq(looked_at:checked(), true)
end)

test("instrument leaves the model as it was, after an error too", function()
  ErrorLocation.reset()
  local before = debug.getmetatable(nn.Module()).__call
  local broken = module(function() error("no weather today") end, {{"a", scaled(1.0)}}, ones())
  local looked_at = triage.instrument(broken)
  fails(function() looked_at(batch(2)) end, "no weather today")
  eq(rawequal(debug.getmetatable(nn.Module()).__call, before), true)
  eq(triage.instrument(network())(batch(2)):dim(), 2)
end)

test("benign: locations and codes that are expected", function()
  ErrorLocation.reset()
  local model = network()
  local x = batch(3)
  x[{1, 0}] = -1.0
  x[{2, 0}] = 0.0
  local function summary(benign)
    local _, f = triage.instrument(model, {benign = benign})(x)
    return flags.summary(f)
  end
  eq(summary(nil), {last = {NAN = 1, INF = 1}, root = {NAN = 1, INF = 1}})
  eq(summary({"la*"}), {root = {NAN = 1, INF = 1}})
  eq(summary({err.INF}), {last = {NAN = 1}, root = {NAN = 1}})
  eq(summary({{"last", err.NAN}, "root"}), {last = {INF = 1}})
  eq(summary({"*"}), {})
  fails(function() summary({err.OVERFLOW}) end, "takes only err.NAN and err.INF")
  fails(function() summary({true}) end, "an entry of `benign`")
  fails(function() summary("last") end, "expected a list as `benign`")
end)

test("every: only every n-th call looks", function()
  ErrorLocation.reset()
  local looked_at = triage.instrument(network(), {every = 3})
  for call = 0, 6 do
    local _, f = looked_at(-batch(2))
    eq(looked_at:checked(), call % 3 == 0)
    eq(has_err(f), call % 3 == 0)
  end
  fails(function() triage.instrument(network(), {every = 0}) end, "`every`")
end)

test("instrument says what it did not look at", function()
  ErrorLocation.reset()
  local unused, summing = scaled(1.0), module(function(_, x) return x:sum() end, {}, ones())
  local model = module(function(_, x) return {loss = summing(x), hidden = {x:log()}}, "plain" end,
    {{"unused", unused}, {"summing", summing}})
  local looked_at = triage.instrument(model, {prefix = "net"})
  local result, text, f = looked_at(-batch(2))
  eq(text, "plain")
  eq(result.hidden[1].shape, {2, 3})
  eq(flags.summary(f), {net = {NAN = 2}})   -- within the tables that it returned
  eq(looked_at:unseen(), {"net.unused"})
  eq(looked_at:unlooked(), {"net", "net.summing"})
  fails(function() looked_at(5) end, "expected an argument tensor with the batch as its first dimension")
  fails(function() triage.instrument(5) end, "triage.instrument: expected")
  fails(function() triage.instrument(model, {prefixes = 1}) end, "there is no option 'prefixes'")
end)

test("T01: an instrumented model in compiled code is one graph", function()
  ErrorLocation.reset()
  local looked_at = triage.instrument(network())
  local compiled = triage.compile(function(x)
    local y, f = looked_at(x)
    return fix(y, f, "repair")
  end, {fullgraph = true})
  for _, n in ipairs({1, 2, 31, 32, 33}) do
    local x = batch(n)
    x[{0, 0}] = -1.0
    local z, f = compiled(x)
    local y, expected = looked_at(x)
    y, expected = fix(y, expected, "repair")
    eq(z, y)
    eq(f, expected)
    eq(flags.unpack(f, 0)[1].location_name, "last")
  end
end)

test("modules that mix samples are named, as long as they do", function()
  local model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
  local looked_at = triage.instrument(model)
  eq(looked_at:mixing(), {"1"})
  model:eval()
  eq(looked_at:mixing(), {})
  model:train()
  local _, f = looked_at(torch.randn({8, 4}))
  eq(err.is_err(f):any():item(), false)
  local x = torch.randn({8, 4})
  x[{2, 1}] = 0 / 0
  _, f = looked_at(x)
  eq(err.is_err(f):sum():item(), 8)                        -- the statistics spread it
  eq(flags.unpack(f, 0)[1].location_name, "1")
  eq(triage.instrument(nn.Linear(2, 2)):mixing(), {})
end)

test("statistics: what each module's values come to, and the same flags", function()
  ErrorLocation.reset()
  local model = network()
  local plain, counted = triage.instrument(model), triage.instrument(model, {statistics = true})
  for _, n in ipairs({1, 3, 0}) do
    local x = batch(n)
    if n == 3 then x[{2, 1}] = -1.0 end
    local y, f = counted(x)
    local z, expected = plain(x)
    eq(y, z)
    eq(f, expected)
  end
  local found = counted:statistics()
  eq(#found, 4)   -- log, too, which has no parameters and no location
  local by = {}
  for _, one in ipairs(found) do by[one.location] = one end
  eq({by.first.batches, by.first.values, by.first.min, by.first.max, by.first.dtype}, {3, 12, -2.0, 18.0, "float32"})
  eq({by.log.values, by.log.nan}, {12, 1})
  eq(counted:locations(), {"root", "first", "last"})
  eq({by.last.nan, by.last.inf, by.last.near_limit, by.last.saturated}, {1, 0, 0, 0})
  eq(found[1].location, "first")   -- the largest of them
  eq(found[1].of_limit, 18.0 / found[1].limit)
  eq(tostring(found), found.text)
  eq(found.text:match("first +float32 +3 +12 +%-2 +18 ") ~= nil, true)
  eq(found.json:match('"location":"first","dtype":"float32"') ~= nil, true)
  eq(found.metrics:match('triage_values_total{location="first",dtype="float32"} 12\n') ~= nil, true)
  counted:reset_statistics()
  eq(#counted:statistics(), 0)
end)

test("statistics: activations count with their own paths, in a model without parameters too", function()
  ErrorLocation.reset()
  local inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
  local model = nn.Sequential(inner, nn.Dropout(0.5), inner)
  model:eval()
  local counted = triage.instrument(model, {statistics = true, prefix = "net"})
  counted(torch.ones({3, 2}))
  local by = {}
  for _, one in ipairs(counted:statistics()) do by[one.location] = one.batches .. "x" .. one.values end
  eq(by, {net = "1x6", ["net.0"] = "1x12", ["net.0.0"] = "1x12", ["net.0.1"] = "1x12", ["net.1"] = "1x6"})
  local bare = triage.instrument(nn.Sequential(nn.ReLU()), {statistics = true})
  bare(torch.tensor({{-1.0, 2.0, 0 / 0}}))
  local zeros = {}
  for _, one in ipairs(bare:statistics()) do zeros[one.location] = one.zeros end
  eq(zeros, {root = 1, ["0"] = 1})
end)

test("statistics: half comes near its limit, other outputs are left out", function()
  ErrorLocation.reset()
  local wide = module(function(self, x)
    return {(x * self.weight):to(torch.float16), x:to(torch.int64)}, 5, "text"
  end, {}, ones())
  local counted = triage.instrument(wide, {statistics = true, benign = {"*"}})
  counted(torch.tensor({{60000.0, -1.0}, {0.0, 0.0}}))
  local one = counted:statistics()[1]
  eq({one.location, one.dtype, one.limit, one.largest, one.zeros}, {"root", "float16", 65504.0, 60000.0, 2})
  eq({one.near_limit, one.saturated, one.values}, {1, 0, 4})
  eq(one.of_limit > 0.9 and one.of_limit < 1, true)
end)

test("statistics: every n-th call, wrong use, and compiled code around it", function()
  ErrorLocation.reset()
  local counted = triage.instrument(network(), {statistics = true, every = 2})
  for _ = 1, 5 do counted(batch(2)) end
  eq(counted:statistics()[1].batches, 3)
  local plain = triage.instrument(network())
  fails(function() plain:statistics() end, "model:statistics: the model was instrumented without `statistics`")
  fails(function() plain:reset_statistics() end, "without `statistics`")
  fails(function() counted.statistics() end, "statistics: expected an instrumented model")
  fails(function() triage.instrument(network(), {statistics = 1}) end,
    "expected true or false as `statistics`, got int 1")
  fails(function() triage.instrument(network(), {statistic = true}) end, "statistics")
  local inside = triage.instrument(network(), {statistics = true})
  local compiled = triage.compile(function(x)
    local y, f = inside(x)
    return y * 2, f
  end)
  for _ = 1, 3 do
    local y, f = compiled(batch(2))
    local expected = plain(batch(2))
    eq(y, expected * 2)
    eq(has_err(f), false)
  end
  eq(inside:statistics()[1].batches, 3)
  fails(function() triage.compile(function(x) return (inside(x)) end, {fullgraph = true})(batch(2)) end,
    "a model that counts its values")
end)
