-- Fall back: give bad samples a value that the rest of the program can live with.
--     triage exec examples/patterns/fall_back.lua
-- Each line marked with an arrow is what the program prints.

local function show(label, z)
  local rows = {}
  for _, row in ipairs(z:totable()) do
    rows[#rows + 1] = ("%g %g"):format(row[1], row[2])
  end
  print(label .. ": " .. table.concat(rows, " | "))
end

local z = torch.tensor({{1.0, 2.0}, {0 / 0, 4.0}, {5.0, math.huge}})
local f = flag_nan_and_inf(z, "head")

show("a number", (fix(z, f, "head", {fallback = 0.0})))                         --> a number: 1 2 | 0 0 | 0 0
show("a row", (fix(z, f, "head", {fallback = torch.tensor({0.5, 0.5})})))       --> a row: 1 2 | 0.5 0.5 | 0.5 0.5
show("a function", (fix(z, f, "head", {fallback = function()
  return err.take_ok_p(f, z):sum(0, true)
end})))                                                                          --> a function: 1 2 | 1 2 | 1 2
show("only NaN", (fix(z, f, "head", {codes = {err.NAN}, fallback = -1.0})))     --> only NaN: 1 2 | -1 -1 | 5 inf

-- The record says that a fallback stands there; what was wrong comes first.
local repaired, record = fix(z, f, "head", {fallback = 0.0})
print(repaired:isfinite():all():item(), err.has_fallback(record):sum():item() .. " fallbacks")    --> true	2 fallbacks
print(flags.unpack(record, 1)[1].code_name, flags.unpack(record, 1)[2].code_name)    --> NAN	FALLBACK_VALUE
