-- Which outputs, inputs and variables of a function share memory, which of them are one tensor, in which order their
-- elements lie, and how many random numbers are drawn, is the same compiled and as a script, whatever it writes to in
-- place. Random programs: every tensor that can be seen is written to in turn, and all of them must look the same
-- after it.
-- TRIAGE_DIFFERENTIAL=N makes N programs, TRIAGE_DIFFERENTIAL_SEED begins elsewhere.
local random, pick, seeds = random_programs(40, 104729)

local views = {":t()", ":contiguous()", ":to(torch.float32)", ":to(torch.float64)", ":view({-1, 2})",
  ":reshape({2, -1})",
  ":reshape({-1})", ":flatten()", "[0]", "[{{0, 1}}]", ":unsqueeze(0)", ":squeeze()", ":detach()", ":expand({2, 2})",
  ":narrow(0, 0, 1)", ":select(0, 1)", ":chunk(2)", ":type_as(x)", ":unbind(0)", ":clone()", ":expand_as(x)",
  ":dropout(0.5, false)", ":atleast_2d()", ":permute({1, 0})", ":diagonal()", ":view_as(x)", ":ravel()", ":positive()",
  ":split(1)", ":broadcast_to({2, 2})", ":movedim(0, 1)", ":swapaxes(0, 1)", ":clone():t()", ":mul(2):t()",
  ":dropout(0.5, true)", ":dropout(0.5, true):t()", ":t():dropout(0.5, true)", ":alpha_dropout(0.5, true)",
  ":feature_dropout(0.5, true)", ":dropout(0, true)"}
local computed = {"(%s + 1)", "(%s * 2)", "%s:neg()", "%s:relu()", "(%s + %s)", "(%s * %s)", "torch.zeros({2, 2})",
  "torch.tensor({{1.0, 2.0}, {3.0, 4.0}})", "torch.where(%s > 0, %s, %s)", "torch.einsum(\"ij->ji\", {%s})",
  "torch.ones({2, 2}):t()", "(%s - k)", "(%s:t() + 1)", "(%s:t() * %s:t())", "torch.rand_like(%s)", "%s:t():clone()",
  "nn.Dropout(0.5)(%s)", "torch.empty_like(%s):copy_(%s)"}
local writes = {"%s:add_(1)", "%s:mul_(2)", "%s:t():mul_(%s)", "%s:fill_(2)", "%s[0] = 3", "%s:copy_(%s)", "%s:neg_()",
  "%s[{{}, 0}]:add_(%s)", "%s:clamp_({min = 0})", "%s:view({-1}):add_(1)", "%s:masked_fill_(x > 0, 2)", "%s:zero_()",
  "%s[x > 0] = 1", "%s[{{}, 1}] = 2", "%s:cumsum_(0)", "%s:cumsum_(-1)", "%s:tril_()", "%s:triu_(1)",
  "%s:index_add_(0, both, %s)", "%s:index_copy_(1, both, %s)", "%s:scatter_(0, torch.stack({both, both}), %s)",
  "%s:addmm_(x, y)", "%s:renorm_(2, 0, 1.5)", "%s:masked_scatter_(x > 0, %s)", "%s:index_fill_(0, both, 3)",
  "%s:index_put_({both}, %s)", "%s:put_(both, x[0])", "%s:scatter_add_(1, torch.stack({both, both}), %s)",
  "%s:cumprod_(1)", "%s:lt_(%s)", "%s:addcmul_(x, y)", "%s:where(x > 0, 1)", "%s:t_()", "%s:transpose_(0, 1)",
  "%s:squeeze_()", "%s:clamp_min_(0)", "%s:relu_()", "%s:baddbmm_(x, y)", "%s:fill_diagonal_(1)", "%s:logical_not_()"}

--- An expression; half of them repeat one of before, so that there are equal calls.
local function expression(locals, said)
  if #said > 0 and random(4) == 1 then return pick(said) end
  local text
  if random(5) <= 3 then
    text = pick(locals) .. pick(views)
  else
    text = pick(computed):gsub("%%s", function() return pick(locals) end)
  end
  said[#said + 1] = text
  return text
end

local function source()
  local lines, locals, said = {}, {"x", "y", "w", "x", "k"}, {}
  for i = 1, 2 + random(6) do
    lines[i] = ("  local v%d = %s"):format(i, expression(locals, said))
    locals[#locals + 1] = "v" .. i
  end
  for _ = 1, random(3) == 1 and random(2) or 0 do
    local at = random(#lines)   -- what is known there: the arguments, the variable, and the locals before
    local known = {"x", "y", "w", "k"}
    for i = 1, at - 1 do known[#known + 1] = lines[i]:match("local (v%d+)") end
    table.insert(lines, at, "  " .. pick(writes):gsub("%%s", function() return pick(known) end))
  end
  if random(6) == 1 then table.insert(lines, random(#lines), "  triage.graph_break(\"asked for\")") end
  if random(6) == 1 then table.insert(lines, random(#lines), "  kept = x + 1 ") end
  local results = {}
  for i = 1, 1 + random(3) do
    results[i] = random(4) == 1 and expression(locals, said) or pick(locals)
  end
  return ([[
local w, kept = torch.tensor({{0.5, -1.0}, {2.0, 1.5}}), nil
local view_of_w = w[0]
local function f(x, y)
  local k, both = torch.tensor({{1.0, 0.5}, {-1.0, 3.0}}), torch.tensor({1, 0})
%s
  return %s
end
return f, w
]]):format(table.concat(lines, "\n"), table.concat(results, ", "))
end

--- Arguments of equal values, anew for each call.
local arguments = {
  function() return torch.tensor({{1.0, -2.0}, {3.0, 4.0}}), torch.tensor({{0.5, 1.0}, {2.0, -3.0}}) end,
  function() return torch.tensor({{1.0, -2.0}, {3.0, 4.0}}):t(), torch.tensor({{0.5, 1.0}, {2.0, -3.0}}) end,
  function() local x = torch.tensor({{1.0, -2.0}, {3.0, 4.0}}) return x, x:t() end,
  function() local x = torch.tensor({{1.0, -2.0}, {3.0, 4.0}}) return x, x end,
  function() local x = torch.tensor({{1.0, -2.0, 5.0}, {3.0, 4.0, 6.0}}) return x[{{}, {1, 3}}], x[{{}, {0, 2}}] end,
  function()
    return torch.tensor({{1.0, -2.0}, {3.0, 4.0}}, {requires_grad = true}), torch.tensor({{0.5, 1.0}, {2.0, -3.0}})
  end,
  function()
    return torch.tensor({{1.0, -2.0}, {3.0, 4.0}}), torch.tensor({{0.5, 1.0}, {2.0, -3.0}}, {requires_grad = true}) * 2
  end,
}

local function corner(tensor, last)
  tensor = tensor:detach()
  while tensor:dim() > 0 do
    if tensor:size(0) == 0 then return nil end
    tensor = tensor:select(0, last and tensor:size(0) - 1 or 0)
  end
  return tensor
end

--- Everything that can be seen of a call: results, arguments, the variable, and what the generator gives next.
local function world(fn, w, make)
  local x, y = make()
  torch.manual_seed(11)
  local seen = table.pack(pcall(fn, x, y))
  local ok = table.remove(seen, 1)
  if not ok then return {failed = tostring(seen[1])} end
  local flat = {next = torch.rand({2})}
  local function add(value)
    if torch.is_tensor(value) then flat[#flat + 1] = value end
  end
  for i = 1, seen.n - 1 do add(seen[i]) end
  add(x) add(y) add(w)
  return flat
end

--- `strides`: not where loops make results, which are row-major.
local function compare(a, b, strides)
  if a.failed or b.failed then
    if not a.failed or not b.failed then return "one failed: " .. tostring(a.failed) .. " / " .. tostring(b.failed) end
    return
  end
  if #a ~= #b then return "another number of results" end
  if not a.next:equal(b.next) then return "another number of random numbers" end
  for i = 1, strides and #a or 0 do
    for d = 0, a[i]:dim() - 1 do
      if a[i]:size(d) > 1 and a[i]:stride(d) ~= b[i]:stride(d) then return ("strides of tensor %d"):format(i) end
    end
  end
  local function equal(what)
    for i = 1, #a do
      local same, why = pcall(eq, b[i]:detach(), a[i]:detach(), what .. ", tensor " .. i)
      if not same then return why end
      if a[i].requires_grad ~= b[i].requires_grad then return ("requires_grad of tensor %d"):format(i) end
    end
  end
  local why = equal("values")
  for i = 1, #a - 1 do   -- a variable that is returned may come in another Lua value
    for j = 1, i - 1 do
      if rawequal(a[i], a[j]) and not rawequal(b[i], b[j]) then
        why = why or ("tensors %d and %d are two"):format(j, i)
      end
    end
  end
  for i = 1, #a do
    for _, last in ipairs({false, true}) do
      local one, other = corner(a[i], last), corner(b[i], last)
      if one and other then
        if one.dtype == torch.bool then
          one:fill_(true) other:fill_(true)
        else
          one:add_(10 * i) other:add_(10 * i)
        end
        why = why or equal(("after a write to tensor %d"):format(i))
      end
    end
  end
  return why
end

local function reset(w) w:copy_(torch.tensor({{0.5, -1.0}, {2.0, 1.5}})) end

local function differ(text, backend, wait)
  local plain, w_plain = assert(load(text))()
  local fn, w = assert(load(text))()
  local compiled = triage.compile(fn, {backend = backend})
  for step = 1, 10 do
    local make = arguments[step <= 3 and (#text % #arguments) + 1 or (step + #text) % #arguments + 1]
    local function call(f, v)
      if step % 5 == 0 then return torch.no_grad(function() return world(f, v, make) end) end
      return world(f, v, make)
    end
    local why = compare(call(plain, w_plain), call(compiled, w), backend ~= "fused")
    if why then return ("call %d: %s"):format(step, why) end
    reset(w_plain) reset(w)
    if step == 2 and wait then compiled:finish_compiling() end
  end
end

test("A01: outputs, inputs and variables share memory compiled as they do in the script", function()
  for seed in seeds() do
    local text = source()
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      local why = differ(text, backend, backend == "fused" and seed % 8 == 0)
      if why then error(("program %d differs with backend %s: %s\n%s"):format(seed, backend, why, text)) end
    end
  end
end)

test("A01: a view in which one element stands in many places is one compiled, too: writes to it are refused", function()
  for _, body in ipairs({"(x * 2)[{{0, 1}}]:expand_as(x)", "x:sum():expand({3, 2})",
                         "(x + 1)[0]:broadcast_to({2, 2}):t()"}) do
    for _, backend in ipairs({"eager", "aot_eager", "fused"}) do
      local fn = assert(load("return function(x) return " .. body .. " end"))()
      local f = triage.compile(fn, {backend = backend})
      for _ = 1, 3 do
        local y = f(torch.ones({2, 2}))
        fails(function() y:add_(1) end, "single memory location")
        f:finish_compiling()
      end
    end
  end
end)
