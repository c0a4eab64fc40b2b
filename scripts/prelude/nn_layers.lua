-- The layers. LibTorch's own modules make and initialise their parameters; what they compute are single operators.
local core = ...
local arguments = core.arguments
local modules = core.modules
local nn = modules.nn
local torch = torch
local type = type
local new, class_of, register = modules.new, modules.class_of, modules.register
local insert, pack, unpack = table.insert, table.pack, table.unpack

-- Arguments

local function whole(operation, name, value, low)
  value = core.plain(value)
  if math.type(value) == "integer" and value >= low then
    return value
  end
  core.fail(("%s: expected an integer of at least %d as `%s`, got %s")
    :format(operation, low, name, core.describe(value)))
end

local function boolean(operation, name, value, default)
  value = core.plain(value)
  if value == nil then
    return default
  elseif type(value) == "boolean" then
    return value
  end
  core.fail(("%s: option '%s': expected a boolean, got %s"):format(operation, name, core.describe(value)))
end

local function probability(operation, value)
  value = core.plain(value)
  if type(value) == "number" and value >= 0 and value <= 1 then
    return value
  end
  core.fail(("%s: expected a probability (0..1), got %s"):format(operation, core.describe(value)))
end

--- {height, width} of an argument that is both, or a table of the two.
local function pair(operation, name, value, low)
  if type(value) ~= "table" then
    value = {value, value}
  end
  local count = 0
  for _ in next, value do
    count = count + 1
  end
  if count ~= 2 or #value ~= 2 then
    core.fail(("%s: expected one or two integers as `%s`, got %s"):format(operation, name, core.describe(value)))
  end
  return {whole(operation, name, value[1], low), whole(operation, name, value[2], low)}
end

local function joined(pair_of)
  return ("(%d, %d)"):format(pair_of[1], pair_of[2])
end

local placement = {dtype = true, device = true}

local function with_placement(options)
  for name in next, placement do
    options[name] = true
  end
  return options
end

--- Assigns fresh parameters; `skip` names one that is not wanted.
local function add_parameters(module, list, options, skip)
  for _, item in ipairs(list) do
    if item[1] ~= skip then
      module[item[1]] = item[2]
    end
  end
  if options.dtype or options.device then
    module:to({dtype = options.dtype, device = options.device})
  end
  return module
end

-- Linear

local Linear = {}
local linear_options = with_placement({bias = true})

function Linear:forward(x)
  return torch.linear(x, self.weight, self.bias)
end

local linear_class = class_of(Linear)

local function describe_linear(self)
  return ("in_features=%d, out_features=%d, bias=%s"):format(self.in_features, self.out_features, self.bias ~= nil)
end

register("Linear", linear_class, describe_linear)

function nn.Linear(in_features, out_features, options)
  options = arguments.options("nn.Linear", options, linear_options)
  in_features = whole("nn.Linear", "in_features", in_features, 1)
  out_features = whole("nn.Linear", "out_features", out_features, 1)
  local bias = boolean("nn.Linear", "bias", options.bias, true)
  local module = new(linear_class, "Linear", describe_linear)
  module.in_features, module.out_features = in_features, out_features
  return add_parameters(module, core.linear_parameters(in_features, out_features, bias), options)
end

-- Conv2d

local Conv2d = {}
local conv_options = with_placement({stride = true, padding = true, dilation = true, groups = true, bias = true,
                                     padding_mode = true})
local padding_modes = {zeros = "constant", reflect = "reflect", replicate = "replicate", circular = "circular"}

function Conv2d:forward(x)
  local padding = self.padding
  if self.padding_mode ~= "zeros" then
    x = torch.pad(x, self.padded, padding_modes[self.padding_mode])
    padding = {0, 0}
  end
  return torch.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
end

local conv_class = class_of(Conv2d)

local function describe_conv(self)
  local text = ("%d, %d, kernel_size=%s, stride=%s"):format(self.in_channels, self.out_channels,
    joined(self.kernel_size), joined(self.stride))
  local padding = type(self.padding) == "string" and self.padding or joined(self.padding)
  if padding ~= "(0, 0)" then
    text = text .. ", padding=" .. padding
  end
  if joined(self.dilation) ~= "(1, 1)" then
    text = text .. ", dilation=" .. joined(self.dilation)
  end
  if self.groups ~= 1 then
    text = text .. ", groups=" .. self.groups
  end
  if self.bias == nil then
    text = text .. ", bias=false"
  end
  return self.padding_mode == "zeros" and text or text .. ", padding_mode=" .. self.padding_mode
end

--- What torch.pad adds {left, right, top, bottom} so that a convolution without padding gives the same size.
local function padded_sizes(self)
  if self.padding == "valid" then
    return {0, 0, 0, 0}
  elseif self.padding ~= "same" then
    local height, width = self.padding[1], self.padding[2]
    return {width, width, height, height}
  end
  local sizes = {}
  for axis = 2, 1, -1 do
    local total = self.dilation[axis] * (self.kernel_size[axis] - 1)
    insert(sizes, total // 2)
    insert(sizes, total - total // 2)
  end
  return sizes
end

local function conv_padding(operation, padding, stride)
  if type(padding) ~= "string" then
    return pair(operation, "padding", padding or 0, 0)
  elseif padding ~= "same" and padding ~= "valid" then
    core.fail(("%s: option 'padding': expected integers, \"same\" or \"valid\", got %s")
      :format(operation, core.describe(padding)))
  elseif padding == "same" and joined(stride) ~= "(1, 1)" then
    core.fail(operation .. ": padding = \"same\" needs a stride of 1")
  end
  return padding
end

register("Conv2d", conv_class, describe_conv)

function nn.Conv2d(in_channels, out_channels, kernel_size, options)
  local operation = "nn.Conv2d"
  options = arguments.options(operation, options, conv_options)
  local module = new(conv_class, "Conv2d", describe_conv)
  module.in_channels = whole(operation, "in_channels", in_channels, 1)
  module.out_channels = whole(operation, "out_channels", out_channels, 1)
  module.kernel_size = pair(operation, "kernel_size", kernel_size, 1)
  module.stride = pair(operation, "stride", options.stride or 1, 1)
  module.padding = conv_padding(operation, options.padding, module.stride)
  module.dilation = pair(operation, "dilation", options.dilation or 1, 1)
  module.groups = whole(operation, "groups", options.groups or 1, 1)
  module.padding_mode = options.padding_mode or "zeros"
  if in_channels % module.groups ~= 0 or out_channels % module.groups ~= 0 then
    core.fail(("%s: groups = %d does not divide the channels, %d and %d")
      :format(operation, module.groups, in_channels, out_channels))
  elseif not padding_modes[module.padding_mode] then
    core.fail(("%s: option 'padding_mode': expected zeros, reflect, replicate or circular, got %s")
      :format(operation, core.describe(module.padding_mode)))
  end
  module.padded = padded_sizes(module)
  local bias = boolean(operation, "bias", options.bias, true)
  return add_parameters(module,
    core.conv2d_parameters(in_channels, out_channels, module.kernel_size, module.groups, bias), options)
end

-- LayerNorm

local LayerNorm = {}
local norm_options = with_placement({eps = true, elementwise_affine = true, bias = true})

function LayerNorm:forward(x)
  return torch.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
end

local norm_class = class_of(LayerNorm)

local function describe_norm(self)
  local shape = {}
  for position, size in ipairs(self.normalized_shape) do
    shape[position] = tostring(size)
  end
  return ("(%s), eps=%g, elementwise_affine=%s"):format(table.concat(shape, ", "), self.eps, self.weight ~= nil)
end

register("LayerNorm", norm_class, describe_norm)

function nn.LayerNorm(normalized_shape, options)
  local operation = "nn.LayerNorm"
  options = arguments.options(operation, options, norm_options)
  if type(normalized_shape) ~= "table" then
    normalized_shape = {normalized_shape}
  end
  local module = new(norm_class, "LayerNorm", describe_norm)
  module.normalized_shape = {}
  for position = 1, math.max(1, #normalized_shape) do
    module.normalized_shape[position] = whole(operation, "normalized_shape", normalized_shape[position], 1)
  end
  module.eps = core.plain(options.eps or 1e-5)
  if type(module.eps) ~= "number" then
    core.fail(("%s: option 'eps': expected a number, got %s"):format(operation, core.describe(module.eps)))
  end
  if not boolean(operation, "elementwise_affine", options.elementwise_affine, true) then
    return module
  end
  local bias = boolean(operation, "bias", options.bias, true)
  return add_parameters(module, core.layer_norm_parameters(module.normalized_shape), options,
    not bias and "bias" or nil)
end

-- Embedding

local Embedding = {}
local embedding_options = with_placement({padding_idx = true})

function Embedding:forward(ids)
  return torch.embedding(self.weight, ids, self.padding_idx or -1)
end

local embedding_class = class_of(Embedding)

local function describe_embedding(self)
  local text = ("%d, %d"):format(self.num_embeddings, self.embedding_dim)
  return self.padding_idx and text .. ", padding_idx=" .. self.padding_idx or text
end

register("Embedding", embedding_class, describe_embedding)

function nn.Embedding(num_embeddings, embedding_dim, options)
  local operation = "nn.Embedding"
  options = arguments.options(operation, options, embedding_options)
  local module = new(embedding_class, "Embedding", describe_embedding)
  num_embeddings = whole(operation, "num_embeddings", num_embeddings, 1)
  embedding_dim = whole(operation, "embedding_dim", embedding_dim, 1)
  module.num_embeddings, module.embedding_dim = num_embeddings, embedding_dim
  local padding = options.padding_idx
  if padding ~= nil then
    padding = whole(operation, "padding_idx", padding, -num_embeddings)
    padding = padding < 0 and padding + num_embeddings or padding
    if padding >= num_embeddings then
      core.fail(("%s: padding_idx = %d is not one of the %d rows"):format(operation, padding, num_embeddings))
    end
    module.padding_idx = padding
  end
  return add_parameters(module, core.embedding_parameters(num_embeddings, embedding_dim, padding), options)
end

-- MultiheadAttention

local Attention = {}
local attention_options = with_placement({dropout = true, bias = true, kdim = true, vdim = true, batch_first = true})
local call_options = {key_padding_mask = true, attn_mask = true, need_weights = true}

--- Query, key and value in the width of the heads.
local function projected(self, query, key, value)
  if self.in_proj_weight == nil then
    local biases = self.in_proj_bias and self.in_proj_bias:chunk(3) or {}
    return torch.linear(query, self.q_proj_weight, biases[1]), torch.linear(key, self.k_proj_weight, biases[2]),
      torch.linear(value, self.v_proj_weight, biases[3])
  end
  if rawequal(query, key) and rawequal(key, value) then
    local width = self.embed_dim
    local all = torch.linear(query, self.in_proj_weight, self.in_proj_bias)
    return all:narrow(-1, 0, width), all:narrow(-1, width, width), all:narrow(-1, 2 * width, width)
  end
  local function part(x, number)
    local first = number * self.embed_dim
    local bias = self.in_proj_bias and self.in_proj_bias:narrow(0, first, self.embed_dim) or nil
    return torch.linear(x, self.in_proj_weight:narrow(0, first, self.embed_dim), bias)
  end
  return part(query, 0), part(key, 1), part(value, 2)
end

--- (N, L, E) as (N, heads, L, E / heads), without reading a size.
local function in_heads(self, x)
  return x:unflatten(-1, {self.num_heads, self.head_dim}):transpose(-2, -3)
end

--- Masks are added to the scores: a boolean one forbids what it marks.
local function masked(scores, mask, broadcast)
  if mask == nil then
    return scores
  end
  mask = broadcast(mask)
  if core.is_bool(mask) then
    return scores:masked_fill(mask, -math.huge)
  end
  return scores + mask
end

local function same(mask)
  return mask
end

local function over_heads(mask)
  return mask:unsqueeze(-2):unsqueeze(-2)
end

function Attention:forward(query, key, value, options)
  local operation = "nn.MultiheadAttention"
  if type(key) == "table" and not core.is_tensor(key) and options == nil then
    key, options = nil, key
  end
  options = arguments.options(operation, options, call_options)
  key = key or query
  value = value or key
  local batch_second = arguments.tensor(operation, "query", query):dim() == 3 and not self.batch_first
  local q, k, v = projected(self, query, key, value)
  if batch_second then
    q, k, v = q:transpose(0, 1), k:transpose(0, 1), v:transpose(0, 1)
  end
  q, k, v = in_heads(self, q), in_heads(self, k), in_heads(self, v)
  local scores = torch.matmul(q * self.scale, k:transpose(-2, -1))
  scores = masked(scores, options.attn_mask, same)
  scores = masked(scores, options.key_padding_mask, over_heads)
  local weights = scores:softmax(-1)
  if self.dropout > 0 and self.training then
    weights = torch.dropout(weights, self.dropout, true)
  end
  local mixed = torch.matmul(weights, v):transpose(-2, -3):flatten(-2)
  if batch_second then
    mixed = mixed:transpose(0, 1)
  end
  local output = self.out_proj(mixed)
  if options.need_weights == false then
    return output
  end
  return output, weights:mean(-3)
end

local attention_class = class_of(Attention)

local function describe_attention(self)
  return ("%d, %d%s%s"):format(self.embed_dim, self.num_heads, self.dropout > 0 and ", dropout=" .. self.dropout or "",
    self.batch_first and ", batch_first=true" or "")
end

register("MultiheadAttention", attention_class, describe_attention)

function nn.MultiheadAttention(embed_dim, num_heads, options)
  local operation = "nn.MultiheadAttention"
  options = arguments.options(operation, options, attention_options)
  embed_dim = whole(operation, "embed_dim", embed_dim, 1)
  num_heads = whole(operation, "num_heads", num_heads, 1)
  if embed_dim % num_heads ~= 0 then
    core.fail(("%s: embed_dim = %d is not divisible by num_heads = %d"):format(operation, embed_dim, num_heads))
  end
  local module = new(attention_class, "MultiheadAttention", describe_attention)
  module.embed_dim, module.num_heads, module.head_dim = embed_dim, num_heads, embed_dim // num_heads
  module.scale = module.head_dim ^ -0.5
  module.dropout = probability(operation, options.dropout or 0.0)
  module.batch_first = boolean(operation, "batch_first", options.batch_first, false)
  local bias = boolean(operation, "bias", options.bias, true)
  local kdim = whole(operation, "kdim", options.kdim or embed_dim, 1)
  local vdim = whole(operation, "vdim", options.vdim or embed_dim, 1)
  local output = new(linear_class, "Linear", describe_linear)
  output.in_features, output.out_features = embed_dim, embed_dim
  for _, item in ipairs(core.attention_parameters(embed_dim, num_heads, bias, kdim, vdim)) do
    local inner = item[1]:match("^out_proj%.(.*)$")
    if inner then
      output[inner] = item[2]
    else
      module[item[1]] = item[2]
    end
  end
  module.out_proj = output
  return add_parameters(module, {}, options)
end

-- Sequential

local Sequential = {}

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

function Sequential:forward(...)
  local results = pack(...)
  for _, layer in ipairs(layers_of(self)) do
    results = pack(layer(unpack(results, 1, results.n)))
  end
  return unpack(results, 1, results.n)
end

local sequential_class = class_of(Sequential)

function sequential_class.__len(self)
  return #layers_of(self)
end

--- seq[i], from 0 and from the end, as in PyTorch.
function sequential_class.__index(self, key)
  key = core.plain(key)
  if math.type(key) ~= "integer" then
    return Sequential[key]
  end
  local layers = layers_of(self)
  local found = layers[key < 0 and #layers + key + 1 or key + 1]
  if not found then
    core.fail(("Sequential: there is no layer %d; it has %d, counted from 0"):format(key, #layers))
  end
  return found
end

register("Sequential", sequential_class)

function nn.Sequential(...)
  local list = pack(...)
  if list.n == 1 and type(list[1]) == "table" and not modules.is(list[1]) then
    list = pack(unpack(list[1], 1, #list[1]))
  end
  local module = new(sequential_class, "Sequential")
  for position = 1, list.n do
    local name = tostring(position - 1)
    module[name] = modules.check("nn.Sequential", "layer " .. name, list[position])
  end
  return module
end

-- Without parameters

local function stateless(name, forward, describe)
  local methods = {forward = forward}
  local class = class_of(methods)
  register(name, class, describe)
  return function()
    return new(class, name, describe)
  end
end

nn.ReLU = stateless("ReLU", function(_, x) return torch.relu(x) end)
nn.Identity = stateless("Identity", function(_, ...) return ... end)

local gelu_options = {approximate = true}

local function describe_gelu(self)
  return "approximate='" .. self.approximate .. "'"
end

local new_gelu = stateless("GELU", function(self, x)
  return torch.gelu(x, {approximate = self.approximate})
end, describe_gelu)

function nn.GELU(options)
  options = arguments.options("nn.GELU", options, gelu_options)
  local approximate = options.approximate or "none"
  if approximate ~= "none" and approximate ~= "tanh" then
    core.fail(("nn.GELU: option 'approximate': expected \"none\" or \"tanh\", got %s")
      :format(core.describe(approximate)))
  end
  local module = new_gelu()
  module.approximate = approximate
  return module
end

local new_dropout = stateless("Dropout", function(self, x)
  if not self.training or self.p == 0 then
    return x
  end
  return torch.dropout(x, self.p, true)
end, function(self) return ("p=%g"):format(self.p) end)

function nn.Dropout(p)
  local module = new_dropout()
  module.p = probability("nn.Dropout", p == nil and 0.5 or p)
  return module
end
