-- Whether a tensor can be viewed in other sizes depends on how it lies in memory: what a view raises, a script may
-- catch. Random programs of views and computations, captured on data of one layout and called with others, catch the
-- same errors as the script and have its bits, on every backend. TRIAGE_DIFFERENTIAL=N makes N programs,
-- TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(60, 32452843)

local function filled(sizes)
  local count = 1
  for _, size in ipairs(sizes) do count = count * size end
  return (torch.arange(count + 0.0) - 7):reshape(sizes)
end

--- Data of n rows of 4 times 6.
local layouts = {
  function(n) return filled({n, 4, 6}) end,
  function(n) return filled({n, 4, 9}):narrow(2, 1, 6) end,
  function(n) return filled({n, 8, 6}):narrow(1, 2, 4) end,
  function(n) return filled({n, 6, 4}):transpose(1, 2) end,
  function(n) return filled({4, n, 6}):transpose(0, 1) end,
  function(n) return filled({n, 1, 6}):expand({n, 4, 6}) end,
  function(n) return filled({n, 4, 1}):expand({n, 4, 6}) end,
  function(n) return filled({2 * n + 1, 4, 6}):narrow(0, 1, n) end,
  function(n) return filled({n, 4, 12}):unflatten(2, {6, 2}):select(3, 0) end,
}
local batches = {3, 1, 0, 2, 32}

local steps = {
  "z:detach()", "z:to(torch.float32)", "z:to(torch.float64)", "z:contiguous()", "z * 2", "z + 1", "z:relu()",
  "z:unsqueeze(1)", "z:squeeze(1)", "z:flatten(1)", "z:reshape({n, -1})", "z:reshape({n, 4, -1})", "z:clone()",
  "z:unsqueeze(1):expand({n, 2, table.unpack(z.shape, 2)})", "z:transpose(1, -1)", "z:narrow(-1, 0, 2)",
  "z:select(-1, 0):unsqueeze(-1)", "torch.where(z > 0, z, -z)", "z:clamp(-3, 3)", "z:to(z.dtype)", "z:expand_as(z)",
  "z:flip({-1})", "z:unflatten(-1, {-1, 2})", "torch.cat({z, z}, -1)", "z:alias()", "z - z:amax(-1, true)",
  "z:to(torch.bfloat16):to(torch.float32)", "z:matmul(torch.eye(z:size(-1), {dtype = z.dtype}))",
  "(z + 1):to(torch.int32):to(torch.float32)", "z:matmul(torch.eye(z:size(-1), {dtype = z.dtype})):to(torch.float32)",
  "err.map_err(flag_nan(z, 'in'), z, function(v) return v * 2 end)",
}
local views = {
  "z:view({n, -1})", "z:view({-1})", "z:view({n, 2, -1})", "z:view({n, 4, -1})", "z:view_as(z:flatten(1))",
  "z:view(torch.int32)", "z:view({-1, 2}):view({n, -1})", "z:view({n, -1}):view({n, -1, 2})",
  "z:flatten(0, 1):view({n, -1})",
}

local function source()
  local lines, results = {"return function(x)", "  local n, z = x:size(0), x"}, {"z"}
  local function line(text, ...) lines[#lines + 1] = "  " .. text:format(...) end
  for i = 1, 1 + random(3) do
    for _ = 1, random(4) - 1 do line("z = %s", pick(steps)) end
    line("local ok%d, v%d = pcall(function() return %s end)", i, i, pick(views))
    line("local r%d = z", i)
    line("if ok%d then %s end", i, (pick({"z = v", "z = v * 2", "r = v + 1", "r = z + 100", "r = z * v:size(1)"})
      :gsub("%f[rv]([rv])%f[^rv]", "%1" .. i)))
    results[#results + 1] = "r" .. i
    if i == 1 and random(2) == 1 then line("z = %s", pick({"z:to(torch.float32) + 1", "z:abs()", "z * z"})) end
  end
  line("return %s", table.concat(results, ", "))
  lines[#lines + 1] = "end"
  return table.concat(lines, "\n")
end

local function check(text, backend)
  local compiled = triage.compile(assert(load(text))(), {backend = backend, warn = false})
  for call = 1, 8 do
    local layout, n = random(#layouts), pick(batches)
    local x = layouts[layout](n)
    local expected = table.pack(pcall(assert(load(text))(), x))
    local got = table.pack(pcall(compiled, x))
    local what = ("%s\non %s, call %d, layout %d of %d rows"):format(text, backend, call, layout, n)
    eq(got.n, expected.n, what .. ": how many results")
    for i = 1, expected[1] and expected.n or 1 do eq(got[i], expected[i], ("%s: result %d"):format(what, i - 1)) end
  end
end

test("views that a script catches are caught on every backend", function()
  for seed in seeds() do
    local text = ("-- seed %d\n%s"):format(seed, source())
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do check(text, backend) end
  end
end)
