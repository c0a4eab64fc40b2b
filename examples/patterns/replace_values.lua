-- Replace values: single elements, not whole samples, and numbers that stand for "missing" as well as NaN and Inf.
--     triage exec examples/patterns/replace_values.lua
-- Each line marked with an arrow is what the program prints.

local function show(label, z)
  print(label .. ": " .. table.concat(z:totable(), " "))
end

local z = torch.tensor({1.0, 0 / 0, 999.0, math.huge, -math.huge})
show("NaN and Inf", err.replace(z, 0.0, {err.NAN, err.INF}))    --> NaN and Inf: 1.0 0.0 999.0 0.0 0.0
show("999 is missing", err.replace(z, -1.0, {999, err.NAN}))    --> 999 is missing: 1.0 -1.0 -1.0 inf -inf
show("one side", err.replace(z, 50.0, {"posinf"}):nan_to_num(0.0, 0.0, -50.0))    --> one side: 1.0 0.0 999.0 50.0 -50.0

-- No gradient flows where a value was replaced, so one NaN does not spoil the weights.
local w = torch.tensor({2.0, 3.0}, {requires_grad = true})
local mended = err.replace(w * torch.tensor({1.0, 0 / 0}), 0.0, {err.NAN})
mended:sum():backward()
show("gradient", w.grad:nan_to_num(0.0))    --> gradient: 1.0 0.0
