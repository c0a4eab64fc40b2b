-- Rows of the table of layers: linear maps, convolutions, normalisations, embeddings, attention, and lists of layers.
local core = ...
local arguments = core.arguments
local modules = core.modules
local nn = modules.nn
local torch = torch
local type = type
local new, class_of, register = modules.new, modules.class_of, modules.register
local insert, pack, unpack = table.insert, table.pack, table.unpack
local layer, misfit, shown = core.layers.add, core.layers.misfit, core.layers.shown

-- Linear maps

layer("Linear", "in_features:count out_features:count bias:boolean!=true", {
  placed = true,
  init = function(self, a, make)
    make:weight_and_bias(self, {a.out_features, a.in_features}, a.out_features, a.bias)
  end,
  forward = function(self, x) return torch.linear(x, self.weight, self.bias) end,
  repr = function(self)
    return ("in_features=%d, out_features=%d, bias=%s"):format(self.in_features, self.out_features, self.bias ~= nil)
  end,
})

layer("Bilinear", "in1_features:count in2_features:count out_features:count bias:boolean!=true", {
  placed = true,
  init = function(self, a, make)
    local bound = 1 / math.sqrt(a.in1_features)
    self.weight = make:uniform({a.out_features, a.in1_features, a.in2_features}, bound)
    if a.bias then
      self.bias = make:uniform({a.out_features}, bound)
    end
  end,
  forward = function(self, x, y) return torch.bilinear(x, y, self.weight, self.bias) end,
  repr = function(self)
    return ("in1_features=%d, in2_features=%d, out_features=%d, bias=%s")
      :format(self.in1_features, self.in2_features, self.out_features, self.bias ~= nil)
  end,
})

-- Convolutions

local pad_modes = {zeros = "constant", reflect = "reflect", replicate = "replicate", circular = "circular"}

--- What torch.pad adds on both sides of each axis, the last one first, so that a convolution without padding gives the
--- same size.
local function padded_sizes(self, dims)
  local sizes = {}
  for axis = dims, 1, -1 do
    local before, after
    if self.padding == "valid" then
      before, after = 0, 0
    elseif self.padding == "same" then
      local total = self.dilation[axis] * (self.kernel_size[axis] - 1)
      before, after = total // 2, total - total // 2
    else
      before, after = self.padding[axis], self.padding[axis]
    end
    insert(sizes, before)
    insert(sizes, after)
  end
  return sizes
end

--- What the operator itself adds; nil where it adds the same on both sides of no axis.
local function own_padding(self, dims)
  local padding = {}
  for axis = 1, dims do
    local before, after = self.padded[2 * (dims - axis) + 1], self.padded[2 * (dims - axis) + 2]
    if before ~= after then
      return nil
    end
    padding[axis] = before
  end
  return padding
end

local function all_are(list, value)
  for _, item in ipairs(list) do
    if item ~= value then
      return false
    end
  end
  return true
end

local function describe_conv(self)
  local text = ("%d, %d, kernel_size=%s, stride=%s")
    :format(self.in_channels, self.out_channels, shown(self.kernel_size), shown(self.stride))
  local padded = self.padding
  if type(padded) == "string" or not all_are(padded, 0) then
    text = text .. ", padding=" .. shown(padded)
  end
  if not all_are(self.dilation, 1) then
    text = text .. ", dilation=" .. shown(self.dilation)
  end
  if self.output_padding and not all_are(self.output_padding, 0) then
    text = text .. ", output_padding=" .. shown(self.output_padding)
  end
  if self.groups ~= 1 then
    text = text .. ", groups=" .. self.groups
  end
  if self.bias == nil then
    text = text .. ", bias=false"
  end
  return self.padding_mode == "zeros" and text or text .. ", padding_mode=" .. self.padding_mode
end

local function check_groups(a, operation)
  if a.in_channels % a.groups ~= 0 or a.out_channels % a.groups ~= 0 then
    core.fail(("%s: groups = %d does not divide the channels, %d and %d")
      :format(operation, a.groups, a.in_channels, a.out_channels))
  end
end

local function weight_sizes(first, second, kernel)
  return {first, second, unpack(kernel)}
end

local function add_convolution(dims)
  local name = ("conv%dd"):format(dims)
  layer(("Conv%dd"):format(dims), ([[in_channels:count out_channels:count kernel_size:sizes(%d) stride:sizes(%d)=1
    padding:padding(%d)=0 dilation:sizes(%d)=1 groups:count=1 bias:boolean!=true
    padding_mode:one(zeros|reflect|replicate|circular)=zeros]]):format(dims, dims, dims, dims), {
    placed = true,
    init = function(self, a, make)
      check_groups(a, make.operation)
      if a.padding == "same" and not all_are(a.stride, 1) then
        core.fail(make.operation .. ": padding = \"same\" needs a stride of 1")
      end
      self.padded = padded_sizes(self, dims)
      self.own_padding = a.padding_mode == "zeros" and own_padding(self, dims) or nil
      make:weight_and_bias(self, weight_sizes(a.out_channels, a.in_channels // a.groups, a.kernel_size), a.out_channels,
        a.bias)
    end,
    forward = function(self, x)
      local padding = self.own_padding
      if padding == nil then
        x = torch.pad(x, self.padded, pad_modes[self.padding_mode])
        padding = 0
      end
      return torch[name](x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
    end,
    repr = describe_conv,
  })
end

--- Of a transposed convolution that is to give these spatial sizes: what it adds at the end of each axis.
local function output_padding_for(self, x, sizes, dims)
  local operation = "nn." .. core.module_name(self)
  sizes = core.layers.shape(operation, "output_size", sizes, 1)
  local added, first = {}, #sizes - dims
  for axis = 1, dims do
    local least = (core.plain(x:size(axis - 1 - dims)) - 1) * self.stride[axis] - 2 * self.padding[axis]
      + self.dilation[axis] * (self.kernel_size[axis] - 1) + 1
    added[axis] = (sizes[first + axis] or -1) - least
    if first < 0 or added[axis] < 0 or added[axis] >= math.max(self.stride[axis], self.dilation[axis]) then
      core.fail(("%s: output_size = %s: axis %d can be from %d to %d"):format(operation, shown(sizes), axis - 1, least,
        least + self.stride[axis] - 1))
    end
  end
  return added
end

local function add_transposed(dims)
  local name = ("conv_transpose%dd"):format(dims)
  layer(("ConvTranspose%dd"):format(dims), ([[in_channels:count out_channels:count kernel_size:sizes(%d)
    stride:sizes(%d)=1 padding:pads(%d)=0 output_padding:pads(%d)=0 groups:count=1 bias:boolean!=true
    dilation:sizes(%d)=1 padding_mode:one(zeros)=zeros]]):format(dims, dims, dims, dims, dims), {
    placed = true,
    init = function(self, a, make)
      check_groups(a, make.operation)
      make:weight_and_bias(self, weight_sizes(a.in_channels, a.out_channels // a.groups, a.kernel_size), a.out_channels,
        a.bias)
    end,
    forward = function(self, x, output_size)
      local added = output_size == nil and self.output_padding or output_padding_for(self, x, output_size, dims)
      return torch[name](x, self.weight, self.bias, self.stride, self.padding, added, self.groups, self.dilation)
    end,
    repr = describe_conv,
  })
end

for dims = 1, 3 do
  add_convolution(dims)
  add_transposed(dims)
end

-- Normalisations

local function check_rank(self, x, low, high)
  local rank = arguments.tensor("nn." .. core.module_name(self), "input", x):dim()
  if rank < low or rank > high then
    core.fail(("nn.%s: expected an input of %s dimensions, got %s"):format(core.module_name(self),
      low == high and tostring(low) or low .. " to " .. high, core.describe(x)))
  end
end

--- More than one value has to stand behind each statistic; none is ATen's matter.
local function check_count(self, x, first)
  local count = 1
  for dim = first, x:dim() - 1 do
    if dim ~= 1 then
      count = count * x:size(dim)
    end
  end
  if not (count > 1 or count < 1) then
    core.fail(("nn.%s: training takes more than one value for each channel, got %s"):format(core.module_name(self),
      core.describe(x)))
  end
end

local norm_signature = [[num_features:count eps:number=1e-05 momentum:number?=0.1 affine:boolean=%s
  track_running_stats:boolean=%s]]

local function init_norm(self, a, make)
  if a.affine then
    self.weight = make:constant({a.num_features}, 1)
    self.bias = make:constant({a.num_features}, 0)
  end
  if a.track_running_stats then
    make:buffer(self, "running_mean", {a.num_features}, 0)
    make:buffer(self, "running_var", {a.num_features}, 1)
    self:register_buffer("num_batches_tracked", make:draw("count", {}, 0))
  end
end

local describe_norm = "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, "
  .. "track_running_stats={track_running_stats}"

local function batch_mixes(self)
  if self.training or self.running_mean == nil then
    return "it normalizes by the mean and variance of the batch"
  end
end

--- In training, with running statistics.
local function batch_norm_step(self, x)
  if core.is_sandboxed() then
    core.fail(("nn.%s: in training it writes its running statistics, which a policy may not; call model:eval(), or "
      .. "make it with track_running_stats = false"):format(core.module_name(self)))
  end
  core.writes_statistics(self.running_mean, "batch normalization in training")
  return torch.ops.triage.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var,
    self.num_batches_tracked, true, self.momentum, self.eps)
end

local function batch_norm(self, x)
  local by_batch = self.training or self.running_mean == nil
  if by_batch then
    check_count(self, x, 0)
  end
  if self.training and self.running_mean ~= nil then
    return batch_norm_step(self, x)
  end
  return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, by_batch,
    self.momentum or 0.0, self.eps, true)
end

local function instance_norm(self, x, batched)
  local single = x:dim() < batched
  if core.plain(x:size(single and 0 or 1)) ~= self.num_features and self.affine then
    core.fail(("nn.%s: expected %d channels, got %s"):format(core.module_name(self), self.num_features,
      core.describe(x)))
  end
  if single then
    x = x:unsqueeze(0)
  end
  if not self.training and self.running_mean ~= nil then   -- the operator would write the statistics back
    x = torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, false, 0.0, self.eps, true)
  else
    check_count(self, x, 2)
    if self.running_mean ~= nil then
      core.writes_statistics(self.running_mean, "instance normalization in training")
    end
    x = torch.instance_norm(x, self.weight, self.bias, self.running_mean, self.running_var, true, self.momentum or 0.0,
      self.eps, true)
  end
  return single and x:squeeze(0) or x
end

for dims, ranks in ipairs({{2, 3}, {4, 4}, {5, 5}}) do
  layer(("BatchNorm%dd"):format(dims), norm_signature:format("true", "true"), {
    placed = true,
    init = init_norm,
    forward = function(self, x)
      check_rank(self, x, ranks[1], ranks[2])
      return batch_norm(self, x)
    end,
    repr = describe_norm,
    mixes = batch_mixes,
  })
  layer(("InstanceNorm%dd"):format(dims), norm_signature:format("false", "false"), {
    placed = true,
    init = init_norm,
    forward = function(self, x)
      check_rank(self, x, dims + 1, dims + 2)
      return instance_norm(self, x, dims + 2)
    end,
    repr = describe_norm,
  })
end

layer("GroupNorm", "num_groups:count num_channels:count eps:number=1e-05 affine:boolean=true", {
  placed = true,
  init = function(self, a, make)
    if a.num_channels % a.num_groups ~= 0 then
      core.fail(("%s: num_groups = %d does not divide num_channels = %d"):format(make.operation, a.num_groups,
        a.num_channels))
    end
    if a.affine then
      self.weight = make:constant({a.num_channels}, 1)
      self.bias = make:constant({a.num_channels}, 0)
    end
  end,
  forward = function(self, x) return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps) end,
  repr = "{num_groups}, {num_channels}, eps={eps}, affine={affine}",
})

layer("LayerNorm", "normalized_shape:shape eps:number=1e-05 elementwise_affine:boolean=true bias:boolean!=true", {
  placed = true,
  init = function(self, a, make)
    if a.elementwise_affine then
      self.weight = make:constant(a.normalized_shape, 1)
      self.bias = a.bias and make:constant(a.normalized_shape, 0) or nil
    end
  end,
  forward = function(self, x) return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps) end,
  repr = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}",
})

local has_rms_norm, rms_norm_of_libtorch = pcall(core.op, "aten::rms_norm", "")

--- LibTorch has the operator since 2.4; what stands for it computes narrow inputs as float32, as it does.
local function rms_norm(x, normalized_shape, weight, eps)
  local dtype = x.dtype
  local narrow = dtype == torch.float16 or dtype == torch.bfloat16
  if narrow then
    x = x:float()
  end
  local dims = {}
  for position = 1, #normalized_shape do
    dims[position] = -position
  end
  local y = x * (x:square():mean(dims, true) + eps):rsqrt()
  if narrow then
    y = y:to(dtype)
  end
  return weight == nil and y or y * weight
end

local epsilons = {[torch.float64] = 2.220446049250313e-16, [torch.float32] = 1.1920928955078125e-07,
                  [torch.float16] = 0.0009765625, [torch.bfloat16] = 0.0078125}

layer("RMSNorm", "normalized_shape:shape eps:number? elementwise_affine:boolean=true", {
  placed = true,
  init = function(self, a, make)
    if a.elementwise_affine then
      self.weight = make:constant(a.normalized_shape, 1)
    end
  end,
  forward = function(self, x)
    if has_rms_norm then
      return rms_norm_of_libtorch(x, self.normalized_shape, self.weight, self.eps)
    end
    return rms_norm(x, self.normalized_shape, self.weight, self.eps or epsilons[x.dtype])
  end,
  repr = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}",
})

layer("LocalResponseNorm", "size:count alpha:number=0.0001 beta:number=0.75 k:number=1", {
  forward = function(self, x)
    check_rank(self, x, 3, 16)
    local before, after = self.size // 2, (self.size - 1) // 2
    local squares
    if x:dim() == 3 then
      squares = torch.pad(x:square():unsqueeze(1), {0, 0, before, after})
      squares = torch.avg_pool2d(squares, {self.size, 1}, 1):squeeze(1)
    else
      squares = torch.pad(x:square():flatten(3):unsqueeze(1), {0, 0, 0, 0, before, after})
      squares = torch.avg_pool3d(squares, {self.size, 1, 1}, 1):squeeze(1):view_as(x)
    end
    return x / (squares * self.alpha + self.k) ^ self.beta
  end,
  repr = "{size}, alpha={alpha}, beta={beta}, k={k}",
})

-- Embeddings

--- A row as a number from 0 on, or nil.
local function padding_row(operation, padding, count)
  if padding == nil then
    return nil
  end
  local row = padding < 0 and padding + count or padding
  if row < 0 or row >= count then
    core.fail(("%s: padding_idx = %d is not one of the %d rows"):format(operation, padding, count))
  end
  return row
end

local function init_embedding(self, a, make)
  self.padding_idx = padding_row(make.operation, a.padding_idx, a.num_embeddings)
  self.weight = make:draw("normal", {a.num_embeddings, a.embedding_dim}, 0, 1)
  if self.padding_idx then
    torch.no_grad(function() self.weight[self.padding_idx]:zero_() end)
  end
end

--- Rows that are longer than the layer allows are cut in the weight, as PyTorch does.
local function renormalise(self, ids)
  if self.max_norm then
    torch.no_grad(function() torch.embedding_renorm_(self.weight:detach(), ids, self.max_norm, self.norm_type) end)
  end
end

local function describe_embedding(self)
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  return self.padding_idx and text .. ", padding_idx=" .. self.padding_idx or text
end

layer("Embedding", [[num_embeddings:count embedding_dim:count padding_idx:integer!? max_norm:positive?
  norm_type:number=2.0 scale_grad_by_freq:boolean=false sparse:boolean=false]], {
  placed = true,
  init = init_embedding,
  forward = function(self, ids)
    renormalise(self, ids)
    return torch.embedding(self.weight, ids, self.padding_idx or -1, self.scale_grad_by_freq, self.sparse)
  end,
  repr = describe_embedding,
})

local bag_modes = {sum = 0, mean = 1, max = 2}

--- The same in operators that policies have, for bags of one length; ATen's own trusts its offsets.
local function bags(self, ids)
  local rows = torch.embedding(self.weight, ids, self.padding_idx or -1)
  local counted = self.padding_idx and ids:ne(self.padding_idx):unsqueeze(-1)
  if self.mode == "max" then
    local largest = (counted and rows:masked_fill(~counted, -math.huge) or rows):amax(1)
    return counted and largest:masked_fill(~counted:any(1), 0) or largest
  end
  local sum = (counted and rows:masked_fill(~counted, 0) or rows):sum(1)
  if self.mode == "sum" then
    return sum
  end
  return sum / (counted and counted:sum(1):clamp({min = 1}) or ids:size(1))
end

layer("EmbeddingBag", [[num_embeddings:count embedding_dim:count max_norm:positive? norm_type:number=2.0
  scale_grad_by_freq:boolean=false mode:one(sum|mean|max)=mean sparse:boolean=false include_last_offset:boolean=false
  padding_idx:integer!?]], {
  placed = true,
  init = function(self, a, make)
    if a.mode == "max" and a.scale_grad_by_freq then
      core.fail(make.operation .. ": scale_grad_by_freq goes with mode = \"sum\" or \"mean\", not \"max\"")
    end
    init_embedding(self, a, make)
  end,
  forward = function(self, ids, offsets, per_sample_weights)
    local name = "nn.EmbeddingBag"
    if core.is_sandboxed() and ids:dim() == 2 and offsets == nil and per_sample_weights == nil then
      return bags(self, ids)
    elseif arguments.tensor(name, "input", ids):dim() == 2 then
      if offsets ~= nil then
        misfit(name, "offsets", "nothing beside an input of two dimensions", offsets)
      end
      local rows = ids:size(0)
      offsets = torch.arange(0, rows * ids:size(1), ids:size(1), {dtype = ids.dtype, device = ids.device})
      ids = ids:reshape(-1)
      per_sample_weights = per_sample_weights ~= nil and per_sample_weights:reshape(-1) or nil
    elseif offsets == nil then
      misfit(name, "offsets", "a tensor, where the bags stand one after the other in one dimension", offsets)
    end
    if per_sample_weights ~= nil and self.mode ~= "sum" then
      core.fail(name .. ": per_sample_weights need mode = \"sum\", not \"" .. self.mode .. "\"")
    end
    renormalise(self, ids)
    local result = torch.embedding_bag(self.weight, ids, offsets, self.scale_grad_by_freq, bag_modes[self.mode],
      self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx)
    return result
  end,
  repr = function(self) return describe_embedding(self) .. ", mode=" .. self.mode end,
})

-- Lists of layers

--- One that stands there twice is in the list twice.
local function layers_of(self)
  local layers = {}
  for _, value in modules.fields(self) do
    if modules.is(value) then
      insert(layers, value)
    end
  end
  return layers
end

--- A class whose modules are numbered from 0: list[i], also from the end, and #list, as in PyTorch.
local function list_class(name, methods)
  local class = class_of(methods)
  function class.__len(self)
    return #layers_of(self)
  end
  function class.__index(self, key)
    key = core.plain(key)
    if math.type(key) ~= "integer" then
      return methods[key]
    end
    local layers = layers_of(self)
    local found = layers[key < 0 and #layers + key + 1 or key + 1]
    if not found then
      core.fail(("%s: there is no layer %d; it has %d, counted from 0"):format(name, key, #layers))
    end
    return found
  end
  register(name, class)
  return function(...)
    local list = pack(...)
    if list.n == 1 and type(list[1]) == "table" and not modules.is(list[1]) then
      list = pack(unpack(list[1], 1, #list[1]))
    end
    local module = new(class, name)
    for position = 1, list.n do
      local number = tostring(position - 1)
      module[number] = modules.check("nn." .. name, "layer " .. number, list[position])
    end
    return module
  end
end

local Sequential = {}

function Sequential:forward(...)
  local results = pack(...)
  for _, one in ipairs(layers_of(self)) do
    results = pack(one(unpack(results, 1, results.n)))
  end
  return unpack(results, 1, results.n)
end

nn.Sequential = list_class("Sequential", Sequential)
nn.ModuleList = list_class("ModuleList", {})
