-- Rows of the table of layers: attention, the layers of transformers, stacks of them, and both halves together.
local core = ...
local arguments = core.arguments
local modules = core.modules
local nn = modules.nn
local torch = torch
local layer, misfit = core.layers.add, core.layers.misfit
local rawequal, type = rawequal, type
local sqrt = math.sqrt

-- MultiheadAttention

local call_options = {key_padding_mask = true, attn_mask = true, need_weights = true, average_attn_weights = true,
                      is_causal = true}

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

local function over_heads(mask)
  return mask:unsqueeze(-2):unsqueeze(-2)
end

--- One more key that every query sees: `row` (1, 1, E) at the end of keys (N, S, E).
local function with_row(keys, row)
  if keys:dim() == 2 then
    return torch.cat({keys, row[0]}, 0)
  end
  return torch.cat({keys, row:expand({keys:size(0), 1, row:size(-1)})}, 1)
end

--- Keys and values with those that the layer itself adds, and the masks, which forbid none of them.
local function with_own_keys(self, k, v, options)
  local masks, added = {options.attn_mask, options.key_padding_mask}, 0
  if self.bias_k ~= nil then
    k, v, added = with_row(k, self.bias_k), with_row(v, self.bias_v), added + 1
  end
  if self.add_zero_attn then
    local zero = k:new_zeros({1, 1, self.embed_dim})
    k, v, added = with_row(k, zero), with_row(v, zero), added + 1
  end
  for position = 1, 2 do
    if added > 0 and masks[position] ~= nil then
      masks[position] = torch.constant_pad_nd(masks[position], {0, added})
    end
  end
  return k, v, masks[1], masks[2]
end

--- Where the weights are not asked for, a query without any key has the weights 0, as in PyTorch since 2.5; else NaN.
local function softmax_of_keys(scores, may_have_none)
  if not may_have_none then
    return scores:softmax(-1)
  end
  local none = scores:eq(-math.huge):all(-1, true)
  return scores:masked_fill(none, 0.0):softmax(-1):masked_fill(none, 0.0)
end

--- With batch_first no rank is read, which a graph would hold the sizes for where they come of a layer before.
local function attention(self, query, key, value, options)
  local q, k, v = projected(self, query, key, value)
  if not self.batch_first and query:dim() == 3 then
    q, k, v = q:transpose(0, 1), k:transpose(0, 1), v:transpose(0, 1)
  end
  local attn_mask, padding_mask
  k, v, attn_mask, padding_mask = with_own_keys(self, k, v, options)
  q, k, v = in_heads(self, q), in_heads(self, k), in_heads(self, v)
  local scores = torch.matmul(q * self.scale, k:transpose(-2, -1))
  scores = masked(scores, attn_mask, function(mask)
    return mask:dim() == 3 and mask:unflatten(0, {-1, self.num_heads}) or mask   -- one for each head
  end)
  scores = masked(scores, padding_mask, over_heads)
  local weights = softmax_of_keys(scores, options.need_weights == false and (attn_mask ~= nil or padding_mask ~= nil))
  if self.dropout > 0 and self.training then
    weights = torch.dropout(weights, self.dropout, true)
  end
  return torch.matmul(weights, v):transpose(-2, -3):flatten(-2), weights
end

local function init_attention(self, a, make)
  local width = a.embed_dim
  if width % a.num_heads ~= 0 then
    core.fail(("%s: embed_dim = %d is not divisible by num_heads = %d"):format(make.operation, width, a.num_heads))
  end
  local kdim, vdim = a.kdim or width, a.vdim or width
  self.head_dim = width // a.num_heads
  self.scale = self.head_dim ^ -0.5
  -- Drawn first, as in PyTorch.
  local output = nn.Linear(width, width, {bias = a.bias, dtype = a.dtype, device = a.device})
  if kdim == width and vdim == width then
    self.in_proj_weight = make:xavier({3 * width, width})
  else
    self.q_proj_weight = make:xavier({width, width})
    self.k_proj_weight = make:xavier({width, kdim})
    self.v_proj_weight = make:xavier({width, vdim})
  end
  if a.bias then
    self.in_proj_bias = make:constant({3 * width}, 0)
    torch.no_grad(function() output.bias:zero_() end)
  end
  if a.add_bias_kv then
    local deviation = sqrt(2.0 / (1 * width + width))   -- xavier_normal_ of (1, 1, width)
    self.bias_k = make:draw("normal", {1, 1, width}, 0, deviation)
    self.bias_v = make:draw("normal", {1, 1, width}, 0, deviation)
  end
  self.out_proj = output
end

layer("MultiheadAttention", [[embed_dim:count num_heads:count dropout:probability=0.0 bias:boolean!=true
  add_bias_kv:boolean!=false add_zero_attn:boolean=false kdim:count!? vdim:count!? batch_first:boolean=false]], {
  placed = true,
  init = init_attention,
  forward = function(self, query, key, value, options)
    local operation = "nn.MultiheadAttention"
    if type(key) == "table" and not core.is_tensor(key) and options == nil then
      key, options = nil, key
    end
    options = arguments.options(operation, options, call_options)
    key = key or arguments.tensor(operation, "query", query)
    local mixed, weights = attention(self, query, key, value or key, options)
    local batch_second = not self.batch_first and query:dim() == 3
    local output = self.out_proj(batch_second and mixed:transpose(0, 1) or mixed)
    if options.need_weights == false then
      return output
    end
    return output, options.average_attn_weights == false and weights or weights:mean(-3)
  end,
  repr = function(self)
    local dropout = self.dropout > 0 and ", dropout=" .. self.dropout or ""
    local order = self.batch_first and ", batch_first=true" or ""
    return ("%d, %d%s%s"):format(self.embed_dim, self.num_heads, dropout, order)
  end,
})

-- Layers of transformers

local layer_signature = [[d_model:count nhead:count dim_feedforward:count=2048 dropout:probability!=0.1
  activation:any=relu layer_norm_eps:number=1e-05 batch_first:boolean=false norm_first:boolean=false
  bias:boolean!=true]]

local activations = {relu = "relu", gelu = "gelu"}

local function check_activation(a, operation)
  if not activations[a.activation] and not core.is_callable(a.activation) then
    misfit(operation, "activation", "\"relu\", \"gelu\" or a function", a.activation)
  end
end

local function activated(self, x)
  local name = activations[self.activation]
  return name and torch[name](x) or self.activation(x)
end

--- In PyTorch's order, for that is the one in which numbers are drawn.
local function init_layer(attentions, norms)
  return function(self, a, make)
    check_activation(a, make.operation)
    local placed = {bias = a.bias, dtype = a.dtype, device = a.device}
    for _, name in ipairs(attentions) do
      self[name] = nn.MultiheadAttention(a.d_model, a.nhead, {
        dropout = a.dropout, batch_first = a.batch_first, bias = a.bias, dtype = a.dtype, device = a.device})
    end
    self.linear1 = nn.Linear(a.d_model, a.dim_feedforward, placed)
    self.dropout = nn.Dropout(a.dropout)
    self.linear2 = nn.Linear(a.dim_feedforward, a.d_model, placed)
    for number = 1, norms do
      self["norm" .. number] = nn.LayerNorm(a.d_model, {eps = a.layer_norm_eps, bias = a.bias, dtype = a.dtype,
                                                        device = a.device})
    end
    for number = 1, norms do
      self["dropout" .. number] = nn.Dropout(a.dropout)
    end
  end
end

local function feed_forward(self, x, drop)
  return drop(self.linear2(self.dropout(activated(self, self.linear1(x)))))
end

--- Adds what `block` gives to x, normalised before or afterwards.
local function with_rest(self, x, norm, block)
  if self.norm_first then
    return x + block(norm(x))
  end
  return norm(x + block(x))
end

local function attend(module, query, memory, mask, padding_mask)
  return (module(query, memory, memory, {attn_mask = mask, key_padding_mask = padding_mask, need_weights = false}))
end

local encoder_options = {src_mask = true, src_key_padding_mask = true, mask = true, is_causal = true}

--- Masks by position, or as options.
local function masks(operation, allowed, names, list)
  local first, found = list[1], {}
  if type(first) == "table" and not core.is_tensor(first) then
    return arguments.options(operation, first, allowed)
  end
  for position, name in ipairs(names) do
    found[name] = list[position]
  end
  return found
end

layer("TransformerEncoderLayer", layer_signature, {
  placed = true,
  init = init_layer({"self_attn"}, 2),
  forward = function(self, src, src_mask, src_key_padding_mask)
    local given = masks("nn.TransformerEncoderLayer", encoder_options, {"src_mask", "src_key_padding_mask"},
      {src_mask, src_key_padding_mask})
    local x = with_rest(self, src, self.norm1, function(y)
      return self.dropout1(attend(self.self_attn, y, y, given.src_mask, given.src_key_padding_mask))
    end)
    return with_rest(self, x, self.norm2, function(y) return feed_forward(self, y, self.dropout2) end)
  end,
})

local decoder_names = {"tgt_mask", "memory_mask", "tgt_key_padding_mask", "memory_key_padding_mask"}
local decoder_options = {tgt_mask = true, memory_mask = true, tgt_key_padding_mask = true,
                         memory_key_padding_mask = true, tgt_is_causal = true, memory_is_causal = true}

layer("TransformerDecoderLayer", layer_signature, {
  placed = true,
  init = init_layer({"self_attn", "multihead_attn"}, 3),
  forward = function(self, tgt, memory, a, b, c, d)
    arguments.tensor("nn.TransformerDecoderLayer", "memory", memory)
    local given = masks("nn.TransformerDecoderLayer", decoder_options, decoder_names, {a, b, c, d})
    local x = with_rest(self, tgt, self.norm1, function(y)
      return self.dropout1(attend(self.self_attn, y, y, given.tgt_mask, given.tgt_key_padding_mask))
    end)
    x = with_rest(self, x, self.norm2, function(y)
      return self.dropout2(attend(self.multihead_attn, y, memory, given.memory_mask, given.memory_key_padding_mask))
    end)
    return with_rest(self, x, self.norm3, function(y) return feed_forward(self, y, self.dropout3) end)
  end,
})

-- Stacks: copies of one layer, which begin with the same weights, as in PyTorch.

local function init_stack(self, a)
  self.layers = nn.ModuleList()
  for number = 0, a.num_layers - 1 do
    self.layers[tostring(number)] = modules.copied(a.encoder_layer or a.decoder_layer)
  end
  if a.norm ~= nil then
    self.norm = a.norm
  end
end

local function through_layers(self, x, ...)
  for _, pair in ipairs(self.layers:named_children()) do
    x = pair[2](x, ...)
  end
  return self.norm and self.norm(x) or x
end

layer("TransformerEncoder", [[encoder_layer:module! num_layers:count norm:module!? enable_nested_tensor:boolean=true
  mask_check:boolean=true]], {
  init = init_stack,
  forward = function(self, src, mask, src_key_padding_mask)
    local given = masks("nn.TransformerEncoder", encoder_options, {"mask", "src_key_padding_mask"},
      {mask, src_key_padding_mask})
    local src_mask = given.mask
    if src_mask == nil then
      src_mask = given.src_mask
    end
    return through_layers(self, src, {src_mask = src_mask, src_key_padding_mask = given.src_key_padding_mask})
  end,
})

layer("TransformerDecoder", "decoder_layer:module! num_layers:count norm:module!?", {
  init = init_stack,
  forward = function(self, tgt, memory, a, b, c, d)
    local given = masks("nn.TransformerDecoder", decoder_options, decoder_names, {a, b, c, d})
    return through_layers(self, tgt, memory, given)
  end,
})

local transformer_options = {src_mask = true, tgt_mask = true, memory_mask = true, src_key_padding_mask = true,
                             tgt_key_padding_mask = true, memory_key_padding_mask = true, src_is_causal = true,
                             tgt_is_causal = true, memory_is_causal = true}

local function init_transformer(self, a)
  local function part(kind, layers)
    local one = nn["Transformer" .. kind .. "Layer"]({
      d_model = a.d_model, nhead = a.nhead, dim_feedforward = a.dim_feedforward, dropout = a.dropout,
      activation = a.activation, layer_norm_eps = a.layer_norm_eps, batch_first = a.batch_first,
      norm_first = a.norm_first, bias = a.bias, dtype = a.dtype, device = a.device})
    local norm = nn.LayerNorm(a.d_model, {eps = a.layer_norm_eps, bias = a.bias, dtype = a.dtype, device = a.device})
    return nn["Transformer" .. kind](one, layers, norm)
  end
  self.encoder = a.custom_encoder or part("Encoder", a.num_encoder_layers)
  self.decoder = a.custom_decoder or part("Decoder", a.num_decoder_layers)
  for _, parameter in ipairs(self:parameters()) do
    if parameter:dim() > 1 then
      local bound = sqrt(3.0) * sqrt(2.0 / (parameter:size(0) + parameter:size(1)))
      torch.no_grad(function() parameter:uniform_(-bound, bound) end)
    end
  end
end

layer("Transformer", [[d_model:count=512 nhead:count=8 num_encoder_layers:count=6 num_decoder_layers:count=6
  dim_feedforward:count=2048 dropout:probability!=0.1 activation:any=relu custom_encoder:module!?
  custom_decoder:module!? layer_norm_eps:number=1e-05 batch_first:boolean=false norm_first:boolean=false
  bias:boolean!=true]], {
  placed = true,
  methods = {
    --- A mask that forbids each place to look at later ones.
    generate_square_subsequent_mask = function(_, size)
      return torch.full({size, size}, -math.huge):triu(1)
    end,
  },
  init = init_transformer,
  forward = function(self, src, tgt, options)
    local given = arguments.options("nn.Transformer", options, transformer_options)
    local memory = self.encoder(src, {mask = given.src_mask, src_key_padding_mask = given.src_key_padding_mask})
    return self.decoder(tgt, memory, {tgt_mask = given.tgt_mask, memory_mask = given.memory_mask,
                                      tgt_key_padding_mask = given.tgt_key_padding_mask,
                                      memory_key_padding_mask = given.memory_key_padding_mask})
  end,
})
