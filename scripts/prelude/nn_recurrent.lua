-- Rows of the table of layers: RNN, LSTM and GRU, and single cells of them.
local core = ...
local arguments = core.arguments
local torch = torch
local layer, misfit = core.layers.add, core.layers.misfit
local insert, sqrt = table.insert, math.sqrt

local signature = [[input_size:count hidden_size:count num_layers:count=1 %sbias:boolean=true batch_first:boolean=false
  dropout:probability=0.0 bidirectional:boolean=false %s]]

--- Fills the layer with weight_ih_l0, weight_hh_l0, bias_ih_l0, ..., in the order in which the operators take them.
local function init_layers(gates)
  return function(self, a, make)
    local width, projected = a.hidden_size, a.proj_size or 0
    if projected >= width then
      core.fail(("%s: expected `proj_size` below hidden_size = %d, got %d"):format(make.operation, width, projected))
    end
    local bound, seen = 1.0 / sqrt(width), projected > 0 and projected or width
    local directions = a.bidirectional and {"", "_reverse"} or {""}
    self.names = {}
    for number = 0, a.num_layers - 1 do
      for _, direction in ipairs(directions) do
        local inputs = number == 0 and a.input_size or seen * #directions
        local function add(name, sizes)
          name = name .. "_l" .. number .. direction
          self[name] = make:uniform(sizes, bound)
          insert(self.names, name)
        end
        add("weight_ih", {gates * width, inputs})
        add("weight_hh", {gates * width, seen})
        if a.bias then
          add("bias_ih", {gates * width})
          add("bias_hh", {gates * width})
        end
        if projected > 0 then
          add("weight_hr", {projected, width})
        end
      end
    end
  end
end

local function weights_of(self)
  local weights = {}
  for position, name in ipairs(self.names) do
    weights[position] = self[name]
  end
  return weights
end

local function describe(self)
  local text = ("%d, %d"):format(self.input_size, self.hidden_size)
  local function add(name, default)
    if self[name] ~= nil and self[name] ~= default then
      text = text .. ", " .. name .. "=" .. core.layers.shown(self[name])
    end
  end
  add("proj_size", 0)
  add("num_layers", 1)
  add("bias", true)
  add("batch_first", false)
  add("dropout", 0)
  add("bidirectional", false)
  return text
end

--- The input with a batch, which it may lack, and the sizes of a state for it.
local function batched(self, x, width)
  local name = "nn." .. core.module_name(self)
  local rank = arguments.tensor(name, "input", x):dim()
  if rank ~= 2 and rank ~= 3 then
    misfit(name, "input", "a tensor of 2 dimensions, or of 3 with a batch", x)
  end
  if core.plain(x:size(-1)) ~= self.input_size then
    misfit(name, "input", ("%d features in the last dimension"):format(self.input_size), x)
  end
  local batch_dim = self.batch_first and 0 or 1
  if rank == 2 then
    x = x:unsqueeze(batch_dim)
  end
  return x, {self.num_layers * (self.bidirectional and 2 or 1), x:size(batch_dim), width}, rank == 2, batch_dim
end

local function with_batch(name, state, rank, single)
  rank = single and rank - 1 or rank
  if arguments.tensor(name, "hx", state):dim() ~= rank then
    misfit(name, "hx", ("a state of %d dimensions, for such an input"):format(rank), state)
  end
  return single and state:unsqueeze(1) or state
end

--- Layers of which each has one state.
local function forward_simple(operator)
  return function(self, x, state)
    local input, sizes, single, batch_dim = batched(self, x, self.hidden_size)
    if state == nil then
      state = input:new_zeros(sizes)
    else
      state = with_batch("nn." .. core.module_name(self), state, 3, single)
    end
    local run = core.op("aten::" .. operator(self), "input")
    local y, last = run(input, state, weights_of(self), self.bias, self.num_layers, self.dropout, self.training,
      self.bidirectional, self.batch_first)
    if single then
      return y:squeeze(batch_dim), last:squeeze(1)
    end
    return y, last
  end
end

local function forward_lstm(self, x, state)
  local name = "nn.LSTM"
  local width = self.proj_size > 0 and self.proj_size or self.hidden_size
  local input, sizes, single, batch_dim = batched(self, x, width)
  local hidden, cell
  if state == nil then
    hidden = input:new_zeros(sizes)
    cell = input:new_zeros({sizes[1], sizes[2], self.hidden_size})
  elseif type(state) ~= "table" or core.is_tensor(state) or state[1] == nil or state[2] == nil then
    misfit(name, "hx", "a list {h, c}", state)
  else
    hidden, cell = with_batch(name, state[1], 3, single), with_batch(name, state[2], 3, single)
  end
  local y, last, last_cell = core.op("aten::lstm", "input")(input, {hidden, cell}, weights_of(self), self.bias,
    self.num_layers, self.dropout, self.training, self.bidirectional, self.batch_first)
  if single then
    return y:squeeze(batch_dim), {last:squeeze(1), last_cell:squeeze(1)}
  end
  return y, {last, last_cell}
end

layer("LSTM", signature:format("", "proj_size:whole=0"), {
  placed = true, init = init_layers(4), forward = forward_lstm, repr = describe,
})
layer("GRU", signature:format("", ""), {
  placed = true, init = init_layers(3), forward = forward_simple(function() return "gru" end), repr = describe,
})
layer("RNN", signature:format("nonlinearity:one(tanh|relu)=tanh ", ""), {
  placed = true,
  init = init_layers(1),
  forward = forward_simple(function(self) return "rnn_" .. self.nonlinearity end),
  repr = describe,
})

-- Cells: one step

local function init_cell(gates)
  return function(self, a, make)
    local width, bound = a.hidden_size, 1.0 / sqrt(a.hidden_size)
    self.weight_ih = make:uniform({gates * width, a.input_size}, bound)
    self.weight_hh = make:uniform({gates * width, width}, bound)
    if a.bias then
      self.bias_ih = make:uniform({gates * width}, bound)
      self.bias_hh = make:uniform({gates * width}, bound)
    end
  end
end

local function cell_input(self, x)
  local name = "nn." .. core.module_name(self)
  local rank = arguments.tensor(name, "input", x):dim()
  if rank ~= 1 and rank ~= 2 then
    misfit(name, "input", "a tensor of 1 dimension, or of 2 with a batch", x)
  end
  return rank == 1 and x:unsqueeze(0) or x, rank == 1
end

local function state_of_cell(self, x, state, single)
  if state == nil then
    return x:new_zeros({x:size(0), self.hidden_size})
  end
  return single and state:unsqueeze(0) or state
end

local function forward_cell(operator)
  return function(self, x, state)
    local input, single = cell_input(self, x)
    local before = state_of_cell(self, input, state, single)
    local next_state = torch[operator(self)](input, before, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return single and next_state:squeeze(0) or next_state
  end
end

layer("LSTMCell", "input_size:count hidden_size:count bias:boolean!=true", {
  placed = true,
  init = init_cell(4),
  forward = function(self, x, state)
    local input, single = cell_input(self, x)
    state = state or {}
    local states = {state_of_cell(self, input, state[1], single), state_of_cell(self, input, state[2], single)}
    local hidden, cell = torch.lstm_cell(input, states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if single then
      return {hidden:squeeze(0), cell:squeeze(0)}
    end
    return {hidden, cell}
  end,
  repr = "{input_size}, {hidden_size}",
})
layer("GRUCell", "input_size:count hidden_size:count bias:boolean!=true", {
  placed = true, init = init_cell(3), forward = forward_cell(function() return "gru_cell" end),
  repr = "{input_size}, {hidden_size}",
})
layer("RNNCell", "input_size:count hidden_size:count bias:boolean!=true nonlinearity:one(tanh|relu)=tanh", {
  placed = true,
  init = init_cell(1),
  forward = forward_cell(function(self) return "rnn_" .. self.nonlinearity .. "_cell" end),
  repr = "{input_size}, {hidden_size}, nonlinearity={nonlinearity}",
})
