-- Flags are packed records, and known by where they come from: masks, ids and data of the same dtype and shape are no
-- flags, and flags that were moved, chosen or cast still are.
local nan = 0 / 0
local function batch(rows)
  return torch.arange(rows * 4):view({rows, 4}):to(torch.float32):masked_fill(torch.eye(rows, 4):gt(0), nan)
end

local function same_captured(fn, make)
  make = make or function(rows) return batch(rows) end
  local compiled = triage.compile(fn, {backend = "eager", fullgraph = true})
  for _, rows in ipairs({4, 2, 5}) do
    local given = table.pack(make(rows))
    local expected, got = table.pack(fn(table.unpack(given))), table.pack(compiled(table.unpack(given)))
    for i = 1, expected.n do eq(got[i], expected[i]) end
  end
end

test("masks in conditions of a chain are masks, behind other chains on flags too", function()
  same_captured(function(z)
    local f = flag_nan_and_inf(z, "in")
    f = IF((z:amax(-1) > 5) & (z:amin(-1) > 0), function() return push(f, err.SATURATED, "in") end)
      :ELSE(function() return f end)
    f = IF(~err.is_ok(f) | (z:amax(-1) > 9), function() return push(f, err.OVERFLOW, "in") end)
      :ELIF((z > 1):any(-1) & err.is_ok(f), function() return push(f, err.OOB, "in") end)
      :ELSE(function() return f end)
    f = torch.where((err.is_err(f) & (z[{":", 0}] > 2)):unsqueeze(-1), f, err.new(z))
    return fix(z, f, "in")
  end)
end)

test("tensors that take the form, the rows or the places of flags are no flags", function()
  same_captured(function(z, ids)
    local f = flag_nan(z, "in")
    local like = ids:view_as(f) + 1
    local spread = ids[{":", {0, 1}}]:expand_as(f) * 2
    local typed = z:nan_to_num():type_as(f) + 1
    local kept = err.take_ok_p(f, ids) + 1
    local chosen = torch.where(err.is_ok(f):unsqueeze(-1), ids, 0) // 2
    local filled = torch.zeros_like(f) + f:size(1)
    local blank = torch.full_like(f, 3) - 1
    local code = err.get_first_code(f) + err.count_errors(f) * 2
    local mask = (err.is_ok(f):to(torch.int64) + 1) & 3
    local picked = ids:index_select(0, err.get_first_code(f)) * 3
    return like, spread, typed, kept, chosen, filled, blank, code, mask, picked, f
  end, function(rows)
    local z = batch(rows)
    return z, torch.arange(rows * err.new(z):size(1)):view({rows, -1})
  end)
end)

test("ids that come out of a chain beside flags are ids", function()
  same_captured(function(z, ids)
    local f = flag_nan(z, "in")
    local f2, chosen = IF(err.is_err(f), function() return push(f, err.OOB, "in"), ids end)
      :ELSE(function() return f, ids + 1 end)
    local word = IF(err.is_ok(f2), function() return ids end):ELSE(function() return ids * 0 end)
    return chosen * 2 + word, (chosen & 1):eq(0), f2
  end, function(rows)
    local z = batch(rows)
    return z, torch.arange(rows * err.new(z):size(1)):view({rows, -1})
  end)
end)

test("arithmetic on flags is refused wherever the words went", function()
  local moves = {
    function(f) return f end,
    function(f) return f:view({-1}) end,
    function(f) return f[{":", 0}] end,
    function(f) return f:clone():t() end,
    function(f, z) return torch.where((z:amax(-1) > 1):unsqueeze(-1), f, 0) end,
    function(f) return torch.cat({f, f}, -1) end,
    function(f, z) return torch.stack({torch.zeros_like(f), f}) end,
    function(f, z) return (IF(z:amax(-1) > 3, function() return f end):ELSE(function() return err.new(z) end)) end,
    function(f, z)
      return (IF(z:amax(-1) > 3, function() return err.new(z) end):ELSE(function() return push(f, 1) end))
    end,
    function(f) return f:masked_fill(f:eq(0), 1) end,
    function(f) return f:expand_as(f) end,
    function(f) return torch.zeros_like(f):copy(f) end,
    function(f, z) return err.take_ok_p(f, f) end,
    function(f) return f:index_select(0, torch.tensor({0, 1})) end,
  }
  local operations = {
    function(w) return w + 1 end, function(w) return w & 15 end, function(w) return w:sum() end,
    function(w) return w:to(torch.float32) end, function(w) return w >> 4 end, function(w) return w:relu() end,
  }
  for number, move in ipairs(moves) do
    for position, operation in ipairs(operations) do
      local compiled = triage.compile(function(z)
        local f = flag_nan(z, "in")
        local words = move(f, z)
        return operation(words), f
      end, {backend = "eager"})
      local fine, why = pcall(compiled, batch(4))
      eq({fine, tostring(why):find("does arithmetic on a flags tensor", 1, true) ~= nil}, {false, true},
        number .. ", " .. position)
    end
  end
end)

test("what arithmetic made is not a flags tensor, whichever branch of a choice it came by", function()
  local makes = {
    function(w) return w + 1 end,
    function(w) return torch.where(w:gt(1), w, w * 2) end,
    function(w) return w:gt(1):to(torch.int64) end,
    function(w) return torch.cat({w[{":", {0, 1}}], w[{":", {1, 1000}}] // 2}, -1) end,
    function(w, z) return (IF(z:amax(-1) > 3, function() return w end):ELSE(function() return w & 3 end)) end,
    function(w, z)
      return (IF(z:amax(-1) > 3, function() return flag_nan(z, "in") end):ELSE(function() return w + 0 end))
    end,
  }
  for number, make in ipairs(makes) do
    local compiled = triage.compile(function(z, w) return err.is_ok(make(w, z)) end, {backend = "eager"})
    local z = batch(4)
    local fine, why = pcall(compiled, z, err.new(z))
    eq({fine, tostring(why):find("does arithmetic on a flags tensor", 1, true) ~= nil}, {false, true}, tostring(number))
  end
end)
