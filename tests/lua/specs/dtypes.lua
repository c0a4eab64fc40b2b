-- Every dtype goes through repairs and branches, eager and captured (row T34).
local floats = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
local others = {torch.complex64, torch.complex128, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
                torch.int64}
local batches = {0, 1, 2, 31, 32, 33}

local function data(dtype, n, strided)
  local z = (torch.arange(n * 2):reshape({n, 2}) % 2):to(torch.float64)
  local one = torch.ones({1}, {dtype = dtype})
  if one:is_floating_point() or one:is_complex() then
    z = z:masked_fill((torch.arange(n) % 3 == 1):unsqueeze(-1), 0 / 0)
  end
  z = z:to(dtype)
  if strided then return z:t():contiguous():t() end
  return z
end

local programs = {
  repair = function(z)
    local f = flag_nan_and_inf(z, 1)
    local one = torch.ones_like(z)
    local y, g = fix(z, f, 2, {fallback = one})
    return y, g, err.take_ok_p(f, z, 1), err.take_err_p(f, z, 1), err.replace(z, 1, {err.NAN, "inf"})
  end,
  branches = function(z)
    local f = flag_nan(z, 1)
    local y = IF(err.has_nan(f), function() return torch.zeros_like(z) end):ELSE(function() return z end)
    local w = IF(HAS(f), function() return torch.ones_like(z) end):ELSE(function() return z:clone() end)
    return y, w, err.map_err(f, z, function(x) return torch.ones_like(x) end)
  end,
}

local function plain(t)
  if t:is_complex() then return torch.view_as_real(t) end
  return t
end

local function all_plain(...)
  local list = {...}
  for i, t in ipairs(list) do list[i] = plain(t) end
  return list
end

for _, backend in ipairs{"eager", "fused"} do
  test("T34: repairs and branches in every dtype, " .. backend, function()
    for name, program in pairs(programs) do
      for _, group in ipairs{floats, others} do
        for _, dtype in ipairs(group) do
          local compiled = triage.compile(program, {fullgraph = true, backend = backend})
          for _, n in ipairs(batches) do
            local z = data(dtype, n, n % 2 == 1)
            local got, expected = all_plain(compiled(z)), all_plain(program(z))
            eq(got, expected, ("%s: %s, %d samples"):format(name, tostring(dtype), n))
          end
        end
      end
    end
  end)
end

test("T34: the Meta device foretells dtypes and shapes", function()
  for _, group in ipairs{floats, others} do
    for _, dtype in ipairs(group) do
      local z = data(dtype, 4)
      local told, real = {programs.repair(z:to("meta"))}, {programs.repair(z)}
      for i = 1, #real do
        eq({told[i].dtype, told[i].shape, told[i].device}, {real[i].dtype, real[i].shape, "meta"}, tostring(dtype))
      end
    end
  end
end)

test("T34: powers of float16 have the interpreter's bits in loops", function()
  local x = torch.tensor({{-0.0, -1 / 0, 1 / 0, 0.0031, 4}, {0.25, -2, 0.1, 3.3, 0}}):to(torch.float16)
  for _, e in ipairs({0.5, 2, 3}) do
    local fn = function(z)
      local y = z:pow(e)
      return y * 1, flag_nan_and_inf(y, "power")
    end
    eq(table.pack(triage.compile(fn, {backend = "fused", fullgraph = true})(x)), table.pack(fn(x)))
  end
end)

-- Kernels that lack float16 do not say so of 0 elements, but the graph of an empty batch runs on full ones too.
local narrow_programs = {
  cumsum = function(z) return z:cumsum(1) end,
  cumprod = function(z) return z:cumprod(1) end,
  softmax = function(z) return z:softmax(1) end,
  log_softmax = function(z) return z:log_softmax(1) end,
  matmul = function(z) return z:matmul(z:t()):sum(1) end,
  several = function(z) return torch.cat({z, z:exp()}, 1):cumsum(0), z:mean(1), z:sum(0) end,
  -- more elements in a row than are asked with
  wide = function(z) return z:repeat_interleave(16384, 1):cumsum(1) end,
  chosen = function(z) return z:index_select(0, torch.arange(z:size(0))):cumsum(1), z:sigmoid() end,
}

for _, backend in ipairs{"eager", "aot_eager", "fused"} do
  test("T34: a graph of an empty float16 batch runs on full ones, " .. backend, function()
    for name, program in pairs(narrow_programs) do
      local fn = function(z) return flag_nan(z, "z"), program(z) end
      local compiled = triage.compile(fn, {backend = backend})
      for _, n in ipairs{0, 4, 1, 0, 33} do
        local z = (torch.arange(n * 8):reshape({n, 8}) % 7 / 8 - 0.25):to(torch.float16)
        local got, expected = table.pack(compiled(z)), table.pack(fn(z))
        for i = 1, expected.n do
          local what = ("%s: result %d of %d samples"):format(name, i, n)
          eq({got[i].dtype, got[i].shape}, {expected[i].dtype, expected[i].shape}, what)
          assert(torch.allclose(got[i]:float(), expected[i]:float(), 1e-2, 1e-2), what)
        end
      end
    end
  end)
end

test("T34: to ask an operator for float16 draws no random numbers and takes no notice of huge sizes", function()
  local empty = torch.zeros({0, 8}, {dtype = torch.float16})
  torch.manual_seed(3)
  local expected = torch.rand({4})
  torch.manual_seed(3)
  empty:bernoulli(0.5)
  eq(torch.rand({4}), expected)
  eq(torch.zeros({0, 1 << 40}, {dtype = torch.float16}):cumsum(0).shape, {0, 1 << 40})
end)

test("float16 beside a value that is computed later, in a batch of no rows", function()
  local function scaled(x, s, least)
    local low = least:item()
    local half = x:to(torch.float16)
    local most = s:clamp({min = low})
    return half, most, torch.add(most, half)
  end
  for _, backend in ipairs({"eager", "fused"}) do
    local f = triage.compile(scaled, {backend = backend})
    for _, rows in ipairs({33, 2, 0, 31, 0}) do
      local x, s, least = torch.ones({rows, 4}), torch.tensor(3), torch.tensor(0.5)
      local expected = {scaled(x, s, least)}
      for i, result in ipairs({f(x, s, least)}) do eq(result, expected[i]) end
    end
  end
end)
