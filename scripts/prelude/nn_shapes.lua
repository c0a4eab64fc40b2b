-- Rows of the table of layers: pooling, padding, dropout, and layers that change sizes.
local core = ...
local arguments = core.arguments
local torch = torch
local layer, misfit, shown = core.layers.add, core.layers.misfit, core.layers.shown
local insert, unpack = table.insert, table.unpack

-- Pooling

local function operator_of(name, dims)
  return ("%s%dd"):format(name, dims)
end

local function signature(text, dims)
  return (text:gsub("#", tostring(dims)))
end

local function add_max_pool(dims)
  local plain, with_indices = operator_of("max_pool", dims), operator_of("max_pool", dims) .. "_with_indices"
  layer(operator_of("MaxPool", dims), signature([[kernel_size:sizes(#) stride:sizes(#)? padding:pads(#)=0
    dilation:sizes(#)=1 return_indices:boolean=false ceil_mode:boolean=false]], dims), {
    init = function(self) self.stride = self.stride or self.kernel_size end,
    forward = function(self, x)
      return torch[self.return_indices and with_indices or plain](x, self.kernel_size, self.stride, self.padding,
        self.dilation, self.ceil_mode)
    end,
    repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}, dilation={dilation}, ceil_mode={ceil_mode}",
  })
end

local function add_average_pool(dims)
  local name = operator_of("avg_pool", dims)
  local divisor = dims > 1 and " divisor_override:count?" or ""
  layer(operator_of("AvgPool", dims), signature([[kernel_size:sizes(#) stride:sizes(#)? padding:pads(#)=0
    ceil_mode:boolean=false count_include_pad:boolean=true]], dims) .. divisor, {
    init = function(self) self.stride = self.stride or self.kernel_size end,
    forward = function(self, x)
      if dims == 1 then
        return torch.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
      end
      return torch[name](x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
        self.divisor_override)
    end,
    repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}",
  })
end

--- Sizes of which some may be None, as those of the input.
local function sizes_or_given(operation, value, dims)
  local list = type(value) == "table" and value or nil
  local sizes = {}
  for axis = 1, dims do
    local size = value
    if list then
      size = list[axis]
    end
    size = core.plain(size)
    if math.type(size) == "integer" and size >= 0 then
      sizes[axis] = size
    elseif rawequal(size, torch.None) then
      sizes[axis] = false
    else
      misfit(operation, "output_size", ("an integer or None, or a list of %d of them"):format(dims), value)
    end
  end
  if list and #list ~= dims then
    misfit(operation, "output_size", ("an integer or None, or a list of %d of them"):format(dims), value)
  end
  return sizes
end

local function output_size(self, x, dims)
  local sizes = {}
  for axis = 1, dims do
    sizes[axis] = self.output_size[axis] or x:size(axis - 1 - dims)
  end
  return sizes
end

local function add_adaptive_pool(dims)
  local maximum, average = operator_of("adaptive_max_pool", dims), operator_of("adaptive_avg_pool", dims)
  layer(operator_of("AdaptiveMaxPool", dims), "output_size:any return_indices:boolean=false", {
    init = function(self, a, make) self.output_size = sizes_or_given(make.operation, a.output_size, dims) end,
    forward = function(self, x)
      local values, indices = torch[maximum](x, output_size(self, x, dims))
      if self.return_indices then
        return values, indices
      end
      return values
    end,
    repr = "output_size={output_size}",
  })
  layer(operator_of("AdaptiveAvgPool", dims), "output_size:any", {
    init = function(self, a, make) self.output_size = sizes_or_given(make.operation, a.output_size, dims) end,
    forward = function(self, x) return torch[average](x, output_size(self, x, dims)) end,
    repr = "output_size={output_size}",
  })
end

--- The norm of each window: sign and relu keep it 0 where all is 0.
local function add_power_pool(dims)
  local average = operator_of("avg_pool", dims)
  layer(operator_of("LPPool", dims), signature([[norm_type:number kernel_size:sizes(#) stride:sizes(#)?
    ceil_mode:boolean=false]], dims), {
    init = function(self) self.stride = self.stride or self.kernel_size end,
    forward = function(self, x)
      local count = 1
      for _, size in ipairs(self.kernel_size) do
        count = count * size
      end
      local means = torch[average](x ^ self.norm_type, self.kernel_size, self.stride, 0, self.ceil_mode)
      return (torch.sign(means) * torch.relu(torch.abs(means)) * count) ^ (1.0 / self.norm_type)
    end,
    repr = "norm_type={norm_type}, kernel_size={kernel_size}, stride={stride}, ceil_mode={ceil_mode}",
  })
end

--- Sizes of what was pooled, of which several may give the same result.
local function unpooled_sizes(self, x, wanted, dims)
  local name, sizes, first = "nn." .. core.module_name(self), {}, wanted and #wanted - dims or 0
  for axis = 1, dims do
    local stride, kernel, padding = self.stride[axis], self.kernel_size[axis], self.padding[axis]
    local size = (core.plain(x:size(axis - 1 - dims)) - 1) * stride + kernel - 2 * padding
    sizes[axis] = wanted and wanted[first + axis] or size
    if first < 0 or sizes[axis] <= size - stride or sizes[axis] >= size + stride then
      core.fail(("%s: output_size = %s: axis %d can be from %d to %d"):format(name, shown(wanted), axis - 1,
        size - stride + 1, size + stride - 1))
    end
  end
  return sizes
end

local function add_unpool(dims)
  layer(operator_of("MaxUnpool", dims), signature("kernel_size:sizes(#) stride:sizes(#)? padding:pads(#)=0", dims), {
    init = function(self) self.stride = self.stride or self.kernel_size end,
    forward = function(self, x, indices, wanted)
      local sizes = unpooled_sizes(self, x, wanted, dims)
      if dims == 1 then
        return torch.max_unpool2d(x:unsqueeze(-1), indices:unsqueeze(-1), {sizes[1], 1}):squeeze(-1)
      elseif dims == 2 then
        return torch.max_unpool2d(x, indices, sizes)
      end
      return torch.max_unpool3d(x, indices, sizes, self.stride, self.padding)
    end,
    repr = "kernel_size={kernel_size}, stride={stride}, padding={padding}",
  })
end

for dims = 1, 3 do
  add_max_pool(dims)
  add_average_pool(dims)
  add_adaptive_pool(dims)
  add_power_pool(dims)
  add_unpool(dims)
end

-- Padding: {left, right, top, bottom, front, back}

local function add_padding(dims, name, mode)
  local value = name == "ConstantPad" and " value:number" or ""
  layer(operator_of(name, dims), signature("padding:crops(#)", 2 * dims) .. value, {
    forward = function(self, x)
      if mode ~= "constant" and (x:dim() < dims + 1 or x:dim() > dims + 2) then
        misfit("nn." .. core.module_name(self), "input",
          ("a tensor of %d or %d dimensions"):format(dims + 1, dims + 2), x)
      end
      if mode == "circular" and x:dim() == dims + 1 then   -- LibTorch 1.13 wants samples
        return torch.pad(x:unsqueeze(0), self.padding, mode):squeeze(0)
      end
      return torch.pad(x, self.padding, mode, mode == "constant" and (self.value or 0.0) or nil)
    end,
    repr = name == "ConstantPad" and "padding={padding}, value={value}" or "{padding}",
  })
end

for dims = 1, 3 do
  add_padding(dims, "ReflectionPad", "reflect")
  add_padding(dims, "ReplicationPad", "replicate")
  add_padding(dims, "CircularPad", "circular")
  add_padding(dims, "ZeroPad", "constant")
  add_padding(dims, "ConstantPad", "constant")
end

-- Dropout. What is dropped in evaluation, or with a probability of 0, is nothing: the input itself comes back.

local function add_dropout(name, drop)
  layer(name, "p:probability=0.5 inplace:boolean=false", {
    forward = function(self, x)
      if not self.training or self.p == 0 then
        return x
      end
      return drop(self, x)
    end,
    repr = "p={p}",
  })
end

--- Whole channels: an input without a batch gets one.
local function drop_channels(dims)
  return function(self, x)
    if x:dim() == dims + 1 then
      return torch.feature_dropout(x:unsqueeze(0), self.p, true):squeeze(0)
    end
    return torch.feature_dropout(x, self.p, true)
  end
end

add_dropout("Dropout", function(self, x)
  if self.inplace then
    return torch.dropout_(x, self.p, true)
  end
  return torch.dropout(x, self.p, true)
end)
add_dropout("Dropout1d", drop_channels(1))
add_dropout("Dropout2d", function(self, x) return torch.feature_dropout(x, self.p, true) end)
add_dropout("Dropout3d", drop_channels(3))
add_dropout("AlphaDropout", function(self, x) return torch.alpha_dropout(x, self.p, true) end)
add_dropout("FeatureAlphaDropout", function(self, x) return torch.feature_alpha_dropout(x, self.p, true) end)

-- Sizes

layer("Identity", "", {forward = function(_, ...) return ... end})

layer("Flatten", "start_dim:integer=1 end_dim:integer=-1", {
  forward = function(self, x) return x:flatten(self.start_dim, self.end_dim) end,
  repr = "start_dim={start_dim}, end_dim={end_dim}",
})

layer("Unflatten", "dim:integer unflattened_size:any", {
  init = function(self, a, make)
    self.unflattened_size = core.layers.shape(make.operation, "unflattened_size", a.unflattened_size, -1)
  end,
  forward = function(self, x) return x:unflatten(self.dim, self.unflattened_size) end,
  repr = "dim={dim}, unflattened_size={unflattened_size}",
})

layer("PixelShuffle", "upscale_factor:count", {
  forward = function(self, x) return torch.pixel_shuffle(x, self.upscale_factor) end,
  repr = "upscale_factor={upscale_factor}",
})
layer("PixelUnshuffle", "downscale_factor:count", {
  forward = function(self, x) return torch.pixel_unshuffle(x, self.downscale_factor) end,
  repr = "downscale_factor={downscale_factor}",
})
layer("ChannelShuffle", "groups:count", {   -- the operator has no derivative in every LibTorch
  forward = function(self, x) return x:unflatten(1, {self.groups, -1}):transpose(1, 2):flatten(1, 2) end,
  repr = "groups={groups}",
})

layer("Unfold", "kernel_size:sizes(2) dilation:sizes(2)=1 padding:pads(2)=0 stride:sizes(2)=1", {
  forward = function(self, x) return torch.im2col(x, self.kernel_size, self.dilation, self.padding, self.stride) end,
  repr = "kernel_size={kernel_size}, dilation={dilation}, padding={padding}, stride={stride}",
})
layer("Fold", "output_size:sizes(2) kernel_size:sizes(2) dilation:sizes(2)=1 padding:pads(2)=0 stride:sizes(2)=1", {
  forward = function(self, x)
    return torch.col2im(x, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)
  end,
  repr = "output_size={output_size}, kernel_size={kernel_size}, dilation={dilation}, padding={padding}, "
    .. "stride={stride}",
})

local upsampling = {
  nearest = {"upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"},
  ["nearest-exact"] = {"_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"},
  linear = {"upsample_linear1d"},
  bilinear = {false, "upsample_bilinear2d"},
  bicubic = {false, "upsample_bicubic2d"},
  trilinear = {false, false, "upsample_trilinear3d"},
}

--- A number for all spatial dimensions, or a list of one for each.
local function for_each_dim(self, name, dims)
  local value = self[name]
  if value == nil then
    return nil
  end
  local list = type(value) == "table" and value or {}
  for axis = 1, type(value) == "table" and 0 or dims do
    insert(list, value)
  end
  if #list ~= dims then
    misfit("nn." .. core.module_name(self), name, ("one number, or %d"):format(dims), value)
  end
  return {unpack(list)}
end

layer("Upsample", [[size:any? scale_factor:any?
  mode:one(nearest|linear|bilinear|bicubic|trilinear|nearest-exact)=nearest align_corners:boolean?]], {
  init = function(self, a, make)
    if (a.size == nil) == (a.scale_factor == nil) then
      core.fail(make.operation .. ": expected either `size` or `scale_factor`")
    elseif a.align_corners ~= nil and a.mode:find("nearest", 1, true) then
      core.fail(make.operation .. ": `align_corners` says nothing of mode = \"" .. a.mode .. "\"")
    end
  end,
  forward = function(self, x)
    local dims = arguments.tensor("nn.Upsample", "input", x):dim() - 2
    local name = upsampling[self.mode][dims]
    if not name then
      misfit("nn.Upsample", "input", "a tensor that mode = \"" .. self.mode .. "\" is for", x)
    end
    local size, scale = for_each_dim(self, "size", dims), for_each_dim(self, "scale_factor", dims)
    for axis = 1, scale and dims or 0 do
      scale[axis] = scale[axis] + 0.0
    end
    local upsample = core.op("aten::" .. name, "vec")
    if self.mode:find("nearest", 1, true) then
      return upsample(x, size, scale)
    end
    return upsample(x, size, self.align_corners or false, scale)
  end,
  repr = function(self)
    local what = self.size ~= nil and "size=" .. shown(self.size) or "scale_factor=" .. shown(self.scale_factor)
    return what .. ", mode='" .. self.mode .. "'"
  end,
})
