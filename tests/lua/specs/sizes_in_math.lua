-- What Lua's `math`, powers, bits and `tonumber` make of a size stays open: one graph serves every size, with the bits
-- that the script gives (D19).

local function graphs(f) return tonumber(tostring(f):match("%((%d+) graph")) end
local rows = {2, 1, 31, 32, 33, 7, 1000, 4096, 5, 3}

local open_programs = {
  "math.sqrt(n)", "1 / math.sqrt(n)", "n ^ 0.5", "n ^ -0.5", "n ^ 2", "n ^ 3", "2 ^ n", "n ^ (n % 3)", "math.exp(-n)",
  "math.log(n)", "math.log(n, 2)", "math.log(n, 10)", "math.log(n, 3)",
  "math.sin(n)", "math.cos(n)", "math.tan(n)", "math.asin(1 / n)", "math.acos(1 / n)", "math.atan(n)",
  "math.atan(n, 3)",
  "math.atan(2, n)", "math.abs(n - 5)", "math.abs(0.5 - n)", "math.abs(n)", "math.floor(n / 2)", "math.ceil(n / 3)",
  "math.floor(n)", "math.ceil(math.sqrt(n))", "math.floor(n * 0.75)", "math.max(n, 4)", "math.min(4, n)",
  "math.max(n, 4, 2 * n)", "math.max(1, 2, n)", "math.min(n, z:size(1), 9)", "math.max(n / 2, 4.0)",
  "math.min(0.5, n / 3)",
  "math.fmod(n, 3)", "math.fmod(n / 2, 3)", "math.fmod(7 - n, 3)", "math.deg(n)", "math.rad(n)", "math.tointeger(n)",
  "tonumber(n)", "n & 3", "5 | n", "n ~ 6", "~n", "n << 2", "n >> 1", "(n & 6) >> 1", "n << 62", "math.max(n)",
}

local function program(text)
  return load("return function(z) local n = z:size(0) local v = " .. text .. " return z * v, z:sum() - v end")()
end

for _, text in ipairs(open_programs) do
  test("D19: one graph for every size: " .. text, function()
    local script = program(text)
    local f = triage.compile(program(text), {fullgraph = true})
    for _, count in ipairs(rows) do
      local z = torch.randn({count, 3}, {dtype = torch.float64})
      eq({f(z)}, {script(z)}, text .. ", " .. count .. " rows")
    end
    eq(graphs(f), 1)
  end)
end

test("D19: what such numbers are is the script's own: floats and integers", function()
  for _, text in ipairs({"math.floor(n / 2)", "math.max(n, 4)", "n & 1", "n << 1", "math.sqrt(n)", "n ^ 2",
    "tonumber(n)"}) do
    local source = "return function(z) local n = z:size(0) return z * 2, math.type(" .. text .. "), " .. text .. " end"
    local script = load(source)()
    local z = torch.ones({9, 2})
    eq({triage.compile(load(source)())(z)}, {script(z)}, text)
  end
end)

test("D19: where the graph cannot give what Lua gives, it holds for these sizes only", function()
  for _, text in ipairs({"math.max(n, 2.5)", "math.log(n, n + 1)", "math.modf(n / 2)", "math.ult(n, 3) and 1 or 2",
    "(n - 40) >> 1", "n << n % 4",
    "1 << n % 8", "math.fmod(n, -3)", "n & 3.0", "tonumber(n, 10 - n + n) or 1", "math.tointeger(n / 2) or 0"}) do
    local z = function(count) return torch.randn({count, 3}, {dtype = torch.float64}) end
    local script = function(make) return function(x) return pcall(make, x) end end
    local f = triage.compile(program(text))
    for _, count in ipairs({2, 1, 31, 40}) do
      local x = z(count)
      local expected, got = {script(program(text))(x)}, {pcall(f, x)}
      if not expected[1] then expected[2], got[2] = nil, nil end   -- which names its place
      eq(got, expected, text .. ", " .. count .. " rows")
    end
  end
end)

test("D19: conditions on such numbers are guards, one graph for each way", function()
  local programs = {
    {2, function(z) if #z & 1 == 0 then return z * 2 end return z end},
    {2, function(z) if math.max(#z, 4) > 31 then return z * 2 end return z end},
    {2, function(z) if math.min(#z, 40) < 8 and #z >> 1 < 100 then return z * 2 end return z end},
    {1, function(z) return math.abs(#z) >= 0 and math.sqrt(#z) >= 0 and z * 2 or z end},
    {1, function(z) return math.floor(#z / 2) >= 0 and z * 2 or z end},
  }
  for i, case in ipairs(programs) do
    local f = triage.compile(case[2], {fullgraph = true})
    for _, count in ipairs(rows) do
      local z = torch.randn({count, 3})
      eq(f(z), case[2](z), "program " .. i .. ", " .. count .. " rows")
    end
    eq(graphs(f), case[1], "program " .. i)
  end
end)

test("D19: attention scaled by the root of its width keeps one graph for every length", function()
  local function attention(q, k, v)
    local weights = torch.softmax(q:matmul(k:transpose(-2, -1)) * (1 / math.sqrt(q:size(-1))), -1)
    return weights:matmul(v)
  end
  for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
    local f = triage.compile(attention, {fullgraph = true, backend = backend})
    for _, length in ipairs({2, 3, 31, 32, 33}) do
      local q, k, v = torch.randn({2, length, 8}), torch.randn({2, length, 8}), torch.randn({2, length, 8})
      assert(torch.allclose(f(q, k, v), attention(q, k, v), 1e-5, 1e-6))
    end
    eq(graphs(f), 1, backend)
  end
end)

test("E05: an exported program keeps them, in words and in plain ATen", function()
  local function scale(z)
    local n = z:size(0)
    return z * (1 / math.sqrt(n)) + math.floor(n / 2) * n ^ 0.25 + math.max(n, 4)
  end
  local program_of = triage.export(scale, {torch.ones({8, 3}, {dtype = torch.float64})}, {dynamic_shapes = "batch"})
  for _, part in ipairs({'"Sym(sqrt(s0))"', '"Sym(floor(s0 / 2.0))"', '"Sym(s0 ^ 0.25)"', '"Sym(max(s0, 4))"'}) do
    assert(tostring(program_of):find(part, 1, true), part .. "\n" .. tostring(program_of))
  end
  local plain = program_of:run_decompositions()
  eq(tostring(plain):find("triage::", 1, true), nil)
  for _, count in ipairs({2, 31, 32, 33, 4096}) do
    local z = torch.randn({count, 3}, {dtype = torch.float64})
    eq(program_of(z), scale(z), count .. " rows")
    assert(torch.allclose(plain(z), scale(z), 1e-14, 1e-14))
  end
end)
