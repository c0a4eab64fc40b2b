-- Runs layers on what test_layers.py gives, plainly and captured:
--   triage exec tests/python/layers.lua GIVEN.pt RESULTS.pt
local given, results = torch.load(arg[1]), {}

--- A list of all tensors in a result.
local function flat(list, ...)
  for _, value in ipairs({...}) do
    if torch.is_tensor(value) then
      list[#list + 1] = value
    else
      flat(list, table.unpack(value))
    end
  end
  return list
end

local function is_trained(value) return torch.is_tensor(value) and value:is_floating_point() end

local function fresh(values, fixed)
  local copies = {}
  for position, value in ipairs(values) do
    if torch.is_tensor(value) then
      copies[position] = value:clone()
      if is_trained(value) and not fixed[position] then copies[position]:requires_grad_() end
    else
      copies[position] = fresh(value, {})
    end
  end
  return copies
end

--- Outputs, gradients of inputs and parameters, and the state afterwards.
local function step(model, forward, case)
  model:zero_grad()
  local inputs = fresh(case.inputs, case.fixed)
  local leaves = flat({}, table.unpack(inputs))
  local arguments = {}
  for position, input in ipairs(inputs) do
    arguments[position] = case.in_place and input * 1 or input
  end
  if case.call ~= "" then
    arguments[#arguments + 1] = load("return " .. case.call)()
  end
  torch.manual_seed(5)
  local outputs = flat({}, forward(table.unpack(arguments)))
  local loss = torch.zeros({})
  for _, output in ipairs(outputs) do
    if is_trained(output) and output.requires_grad then
      loss = loss + (output * torch.arange(output:numel()):cos():view(output.shape)):sum()
    end
  end
  local found = {outputs = {}, inputs = {}, parameters = {}, state = {}}
  if loss.requires_grad then loss:backward() end
  for position, output in ipairs(outputs) do found.outputs[position] = output:detach() end
  for position, leaf in ipairs(leaves) do
    found.inputs[position] = leaf.grad or torch.zeros({})
  end
  for _, pair in ipairs(model:named_parameters()) do
    found.parameters[pair[1]] = pair[2].grad or torch.zeros({})
  end
  for path, tensor in pairs(model:state_dict()) do found.state[path] = tensor:clone() end
  return found
end

local function make(case)
  torch.manual_seed(case.seed)
  return load("return " .. case.code)()
end

local function run(case, mode)
  local model = make(case)
  local drawn = {}
  for path, tensor in pairs(model:state_dict()) do drawn[path] = tensor:clone() end
  model:load_state_dict(case.state)
  local forward = model
  if mode ~= "plain" then
    forward = triage.compile(function(...) return model(...) end, {backend = mode, name = case.code})
  end
  local trained = step(model, forward, case)
  if mode ~= "plain" then
    trained = step(model, forward, case)   -- of the graph
  end
  model:load_state_dict(case.state)
  model:eval()
  return {drawn = drawn, trained = trained, evaluated = step(model, forward, case), text = tostring(model)}
end

local modes = {"plain", "eager", "aot_eager", "fused"}
for number, case in ipairs(given) do
  results[number] = {}
  for _, mode in ipairs(arg[3] and {arg[3]} or modes) do
    local ok, result = pcall(run, case, mode)
    if not ok and type(result) == "table" then result = result.message end
    results[number][mode] = ok and result or {failed = tostring(result)}
  end
end
torch.save(results, arg[2])
