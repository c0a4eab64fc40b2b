-- What a wrong call says.

local x = torch.zeros(2, 3)

test("a value of a wrong type", function()
  eq((fails(function() return x:softmax("x") end):gsub("^[^ ]+ ", "")),
    [[x:softmax: argument 'dim': expected int, got string "x"]] ..
    "\n  softmax(self: Tensor, dim: int, dtype: dtype = nil) -> Tensor")
  fails(function() return torch.add(x, "a") end, "argument 'other': expected number or Tensor, got string \"a\"")
  fails(function() return torch.cat({ x, 3 }) end, "argument 'tensors': expected {Tensor}, but element 2 is int 3")
  fails(function() return torch.zeros(2, "x") end, "argument 'size': expected int, got string \"x\"")
  fails(function() return x:sum("x") end, "argument 'dim': expected int or {int}")
  fails(function() return x:to(3) end, "expected a dtype such as torch.float32")
  fails(function() return torch.zeros({ 2 }, { dtype = "float32" }) end,
    "argument 'dtype': expected dtype such as torch.float32")
  fails(function() return torch.zeros({ 2 }, { device = "gpu" }) end, '"gpu" is not a device')
end)

test("every overload is listed", function()
  local message = fails(function() return x:sum({ 1, "a" }) end)
  assert(message:find("\n  overloads:\n", 1, true), message)
  assert(message:find("sum(self: Tensor, {dtype: dtype = nil}) -> Tensor", 1, true), message)
  assert(message:find("sum(self: Tensor, dim: {int} or nil, keepdim: boolean = false, {dtype", 1, true), message)
end)

test("unknown options", function()
  fails(function() return x:sum({ dmi = 1 }) end, "unknown option 'dmi'; did you mean 'dim'?")
  fails(function() return x:mean(-1, { kepdim = true }) end, "unknown option 'kepdim'; did you mean 'keepdim'?")
  fails(function() return x:sum(0, { dim = 0 }) end, "argument 'dim' is given twice")
  fails(function() return torch.zeros({ 2, dtype = torch.int64 }) end, "mixes options with list elements")
end)

test("too many and too few", function()
  fails(function() return x:abs(1, 2) end, "it takes 1 argument by position, but 3 were given")
  fails(function() return torch.mm(x) end, "argument 'mat2' (Tensor) is missing")
end)

test("unknown names", function()
  fails(function() return torch.sofmax end, "torch.sofmax: there is no such operator; did you mean 'softmax'")
  fails(function() return x:nan_to_nun() end, "did you mean 'nan_to_num'")
  fails(function() return torch.qqqqqqq end, "there is no such operator")
end)

test("what LibTorch says, with the name of the operator and no C++ frames", function()
  local message = fails(function() return torch.mm(x, x) end,
    "torch.mm: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)")
  assert(not message:find("Exception raised from", 1, true), message)
  assert(message:find("^specs/tensor_errors.lua:%d+: "), message)
end)

test("ragged tables", function()
  fails(function() return torch.tensor({ { 1, 2 }, { 3 } }) end, "ragged: element [2] has 1 elements, expected 2")
  fails(function() return torch.tensor({ 1, { 2 } }) end, "ragged: element [2] is table of 1, expected a number")
  fails(function() return torch.tensor({ { 1 }, 2 }) end, "ragged: element [2] is int 2, expected a table of 1")
  fails(function() return torch.tensor({ 1, "a" }) end, 'element [2] is string "a"')
  fails(function() return torch.tensor({ 1 }, { dtyp = torch.int64 }) end, "unknown option 'dtyp'")
  local deep = {}
  for _ = 1, 100 do deep = { deep } end
  fails(function() return torch.tensor(deep) end, "64 deep")
end)

test("wrong selves and forged tensors", function()
  local add, shape = x.add, getmetatable(x)
  eq(shape, "Tensor")
  fails(function() return add(nil, 1) end, "x:add: expected a tensor to work on, got nil")
  fails(function() return add({ __name = "Tensor" }, 1) end, "expected a tensor")
  fails(function() return x.size({}) end, "expected a tensor")
  fails(function() return x.item(io.stdout) end, "expected a tensor")
  fails(function() return x.to(torch.float32) end, "expected a tensor")
  fails(function() return x.abs() end, "x:abs: expected a tensor to work on, got nothing; a method is called with ':'")
  fails(function() return x.sum(-1) end, "got int -1; a method is called with ':', as in z:sum(")
  fails(function() return x.size(0) end, "x:size: expected a tensor to work on, got int 0; a method is called with ':'")
  fails(function() return x.item() end, "x:item: expected a tensor to work on, got nothing")
  fails(function() return x.lt(1, 2) end, "takes tensors and numbers")
  fails(function() setmetatable(x, {}) end)
end)

test("an error inside of a coroutine, xpcall and a <close> block", function()
  local ok, message = coroutine.resume(coroutine.create(function() return torch.mm(x, x) end))
  assert(not ok and tostring(message):find("cannot be multiplied", 1, true))
  ok, message = xpcall(function() return torch.mm(x, x) end, function(m) return "handled " .. m end)
  assert(not ok and message:find("^handled .*cannot be multiplied"))
  local closed = false
  pcall(function()
    local _ <close> = setmetatable({}, { __close = function() closed = true end })
    return torch.mm(x, x)
  end)
  assert(closed)
end)
