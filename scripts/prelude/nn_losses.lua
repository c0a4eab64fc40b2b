-- Rows of the table of layers: activations, distances and losses.
local core = ...
local arguments = core.arguments
local torch = torch
local layer, misfit = core.layers.add, core.layers.misfit
local log, pi, unpack = math.log, math.pi, table.unpack

-- Activations

--- Of those that may overwrite their input, as `inplace` of PyTorch does.
local function activation(name, signature, repr, forward, in_place)
  layer(name, in_place and signature .. " inplace:boolean=false" or signature, {
    forward = in_place and function(self, x) return (self.inplace and in_place or forward)(self, x) end or forward,
    repr = repr,
  })
end

activation("ReLU", "", "", function(_, x) return torch.relu(x) end, function(_, x) return torch.relu_(x) end)
activation("ReLU6", "", "", function(_, x) return torch.hardtanh(x, 0, 6) end,
  function(_, x) return torch.hardtanh_(x, 0, 6) end)
activation("RReLU", "lower:number=0.125 upper:number=0.3333333333333333", "lower={lower}, upper={upper}",
  function(self, x)
    if not self.training then
      return torch.leaky_relu(x, (self.lower + self.upper) / 2)
    end
    return torch.rrelu(x, self.lower, self.upper, true)
  end,
  function(self, x) return torch.rrelu_(x, self.lower, self.upper, self.training) end)
activation("LeakyReLU", "negative_slope:number=0.01", "negative_slope={negative_slope}",
  function(self, x) return torch.leaky_relu(x, self.negative_slope) end,
  function(self, x) return torch.leaky_relu_(x, self.negative_slope) end)
activation("ELU", "alpha:number=1.0", "alpha={alpha}", function(self, x) return torch.elu(x, self.alpha) end,
  function(self, x) return torch.elu_(x, self.alpha) end)
activation("SELU", "", "", function(_, x) return torch.selu(x) end, function(_, x) return torch.selu_(x) end)
activation("CELU", "alpha:number=1.0", "alpha={alpha}", function(self, x) return torch.celu(x, self.alpha) end,
  function(self, x) return torch.celu_(x, self.alpha) end)
activation("GELU", "approximate:one(none|tanh)=none", "approximate='{approximate}'",
  function(self, x) return torch.gelu(x, {approximate = self.approximate}) end)
activation("SiLU", "", "", function(_, x) return torch.silu(x) end, function(_, x) return torch.silu_(x) end)
activation("Mish", "", "", function(_, x) return torch.mish(x) end, function(_, x) return torch.mish_(x) end)
activation("Sigmoid", "", "", function(_, x) return torch.sigmoid(x) end)
activation("LogSigmoid", "", "", function(_, x) return torch.log_sigmoid(x) end)
activation("Hardsigmoid", "", "", function(_, x) return torch.hardsigmoid(x) end,
  function(_, x) return torch.hardsigmoid_(x) end)
activation("Hardswish", "", "", function(_, x) return torch.hardswish(x) end,
  function(_, x) return torch.hardswish_(x) end)
layer("Hardtanh", "min_val:number=-1.0 max_val:number=1.0 inplace:boolean=false", {
  init = function(_, a, make)
    if a.max_val <= a.min_val then
      misfit(make.operation, "max_val", ("a number above `min_val`, which is %s"):format(a.min_val), a.max_val)
    end
  end,
  forward = function(self, x)
    return (self.inplace and torch.hardtanh_ or torch.hardtanh)(x, self.min_val, self.max_val)
  end,
  repr = "min_val={min_val}, max_val={max_val}",
})
activation("Hardshrink", "lambd:number=0.5", "{lambd}", function(self, x) return torch.hardshrink(x, self.lambd) end)
activation("Softshrink", "lambd:number=0.5", "{lambd}", function(self, x) return torch.softshrink(x, self.lambd) end)
activation("Softplus", "beta:number=1.0 threshold:number=20.0", "beta={beta}, threshold={threshold}",
  function(self, x) return torch.softplus(x, self.beta, self.threshold) end)
activation("Softsign", "", "", function(_, x) return x / (x:abs() + 1) end)
activation("Tanh", "", "", function(_, x) return torch.tanh(x) end)
activation("Tanhshrink", "", "", function(_, x) return x - x:tanh() end)
activation("Threshold", "threshold:number value:number", "threshold={threshold}, value={value}",
  function(self, x) return torch.threshold(x, self.threshold, self.value) end,
  function(self, x) return torch.threshold_(x, self.threshold, self.value) end)
activation("GLU", "dim:integer=-1", "dim={dim}", function(self, x) return torch.glu(x, self.dim) end)

--- Without a dimension it is 0 for 0, 1 and 3 dimensions and 1 for others, as PyTorch takes it, which warns.
local function implied_dim(self, x)
  if self.dim ~= nil then
    return self.dim
  end
  local rank = x:dim()
  return (rank == 0 or rank == 1 or rank == 3) and 0 or 1
end

--- Over the samples of an input that has them in dimension 0, with dim = 0.
local function mixes_by_dim(self)
  if self.dim == 0 then
    return "it normalizes over dimension 0"
  end
end

for name, forward in next, {
  Softmax = function(self, x) return torch.softmax(x, implied_dim(self, x)) end,
  LogSoftmax = function(self, x) return torch.log_softmax(x, implied_dim(self, x)) end,
  Softmin = function(self, x) return torch.softmax(-x, implied_dim(self, x)) end,
} do
  layer(name, "dim:integer?", {forward = forward, repr = "dim={dim}", mixes = mixes_by_dim})
end

activation("Softmax2d", "", "", function(_, x)
  if x:dim() ~= 3 and x:dim() ~= 4 then
    misfit("nn.Softmax2d", "input", "a tensor of 3 or 4 dimensions", x)
  end
  return torch.softmax(x, -3)
end)

layer("PReLU", "num_parameters:count=1 init:number!=0.25", {
  placed = true,
  init = function(self, a, make) self.weight = make:constant({a.num_parameters}, a.init) end,
  forward = function(self, x) return torch.prelu(x, self.weight) end,
  repr = "num_parameters={num_parameters}",
})

-- Distances

layer("CosineSimilarity", "dim:integer=1 eps:number=1e-08", {
  forward = function(self, x1, x2) return torch.cosine_similarity(x1, x2, self.dim, self.eps) end,
  repr = "dim={dim}, eps={eps}",
})
layer("PairwiseDistance", "p:number=2.0 eps:number=1e-06 keepdim:boolean=false", {
  forward = function(self, x1, x2) return torch.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim) end,
  repr = "p={p}, eps={eps}, keepdim={keepdim}",
})

-- Losses

local reductions = {none = 0, mean = 1, sum = 2}

local function reduced(self, losses)
  if self.reduction == "none" then
    return losses
  end
  return self.reduction == "mean" and losses:mean() or losses:sum()
end

--- `weights` names tensors among the arguments that are buffers, as in PyTorch.
local function loss(name, signature, forward, weights, kinds)
  layer(name, signature .. " reduction:one(none|mean|" .. (kinds or "sum") .. ")=mean", {
    init = function(self, a)
      for weight in (weights or ""):gmatch("%S+") do
        if a[weight] ~= nil then
          self:register_buffer(weight, a[weight])
        end
      end
    end,
    forward = function(self, ...) return forward(self, reductions[self.reduction], ...) end,
  })
end

--- A loss of differences, on an input and a target of the same sizes and dtype: LibTorch 1.13 needs both.
local function difference(name, signature, of)
  local operation = "nn." .. name
  loss(name, signature, function(self, by, x, y)
    x, y = arguments.tensor(operation, "input", x), arguments.tensor(operation, "target", y)
    if not core.same_sizes(x, y) then
      core.warn(("%s: the target has other sizes than the input, %s and %s, so both are broadcast: every element of "
        .. "one meets several of the other. Give them the same sizes")
        :format(operation, core.describe(y), core.describe(x)))
      x, y = unpack(torch.broadcast_tensors({x, y}))
    end
    if x.dtype ~= y.dtype then
      local wide = (y.dtype == torch.float64 or not x:is_floating_point()) and y.dtype or x.dtype
      x, y = x:to(wide), y:to(wide)
    end
    return of(self, by, x, y)
  end)
end

difference("L1Loss", "", function(_, by, x, y) return torch.l1_loss(x, y, by) end)
difference("MSELoss", "", function(_, by, x, y) return torch.mse_loss(x, y, by) end)
difference("SmoothL1Loss", "beta:number=1.0", function(self, by, x, y)
  if self.beta == 0 then
    return torch.l1_loss(x, y, by)   -- as PyTorch; the operator's derivative of equal elements is not 0
  end
  return torch.smooth_l1_loss(x, y, by, self.beta)
end)
difference("HuberLoss", "delta:positive=1.0", function(self, by, x, y)
  return torch.huber_loss(x, y, by, self.delta)
end)
loss("SoftMarginLoss", "", function(_, by, x, y) return torch.soft_margin_loss(x, y, by) end)
loss("CrossEntropyLoss", "weight:tensor!? ignore_index:integer=-100 label_smoothing:probability=0.0",
  function(self, by, x, y)
    return torch.cross_entropy_loss(x, y, self.weight, by, self.ignore_index, self.label_smoothing)
  end, "weight")
loss("NLLLoss", "weight:tensor!? ignore_index:integer=-100",
  function(self, by, x, y)
    return torch[x:dim() > 2 and "nll_loss_nd" or "nll_loss"](x, y, self.weight, by, self.ignore_index)
  end, "weight")
loss("BCELoss", "weight:tensor!?",
  function(self, by, x, y)
    if not core.same_sizes(x, arguments.tensor("nn.BCELoss", "target", y)) then
      misfit("nn.BCELoss", "target", "the sizes of the input, " .. core.describe(x), y)
    end
    return torch.binary_cross_entropy(x, y, self.weight, by)
  end, "weight")
loss("BCEWithLogitsLoss", "weight:tensor!? pos_weight:tensor!?",
  function(self, by, x, y) return torch.binary_cross_entropy_with_logits(x, y, self.weight, self.pos_weight, by) end,
  "weight pos_weight")
loss("PoissonNLLLoss", "log_input:boolean=true full:boolean=false eps:number=1e-08",
  function(self, by, x, y) return torch.poisson_nll_loss(x, y, self.log_input, self.full, self.eps, by) end)
loss("HingeEmbeddingLoss", "margin:number=1.0",
  function(self, by, x, y) return torch.hinge_embedding_loss(x, y, self.margin, by) end)
loss("MarginRankingLoss", "margin:number=0.0",
  function(self, by, x1, x2, y) return torch.margin_ranking_loss(x1, x2, y, self.margin, by) end)
loss("CosineEmbeddingLoss", "margin:number=0.0",
  function(self, by, x1, x2, y) return torch.cosine_embedding_loss(x1, x2, y, self.margin, by) end)
loss("TripletMarginLoss", "margin:positive=1.0 p:number=2.0 eps:number=1e-06 swap:boolean=false",
  function(self, by, anchor, positive, negative)
    return torch.triplet_margin_loss(anchor, positive, negative, self.margin, self.p, self.eps, self.swap, by)
  end)
loss("MultiMarginLoss", "p:one(1|2)=1 margin:number=1.0 weight:tensor!?",
  function(self, by, x, y) return torch.multi_margin_loss(x, y, self.p, self.margin, self.weight, by) end, "weight")
loss("MultiLabelMarginLoss", "", function(_, by, x, y) return torch.multilabel_margin_loss(x, y, by) end)
loss("CTCLoss", "blank:whole=0 zero_infinity:boolean=false",
  function(self, by, log_probabilities, targets, input_lengths, target_lengths)
    return torch.ctc_loss(log_probabilities, targets, input_lengths, target_lengths, self.blank, by, self.zero_infinity)
  end)

--- PyTorch's order of the arguments: reduction before log_target.
layer("KLDivLoss", "reduction:one(none|mean|sum|batchmean)=mean log_target:boolean=false", {
  forward = function(self, x, y)
    if self.reduction ~= "batchmean" then
      return torch.kl_div(x, y, reductions[self.reduction], {log_target = self.log_target})
    end
    local sum = torch.kl_div(x, y, reductions.sum, {log_target = self.log_target})
    return x:dim() == 0 and sum or sum / x:size(0)
  end,
})

loss("MultiLabelSoftMarginLoss", "weight:tensor!?", function(self, _, x, y)
  local losses = -(y * torch.log_sigmoid(x) + (1 - y) * torch.log_sigmoid(-x))
  if self.weight ~= nil then
    losses = losses * self.weight
  end
  return reduced(self, losses:sum(-1) / x:size(-1))
end, "weight")

--- One for each element, or one for all features of a sample.
local function fitting_variance(name, x, variance)
  local rank = arguments.tensor(name, "var", variance):dim()
  if core.same_shape(x, variance) then
    return variance
  elseif rank > 0 and rank == x:dim() - 1 and core.same_shape(x:select(-1, 0), variance) then
    return variance:unsqueeze(-1)
  elseif rank > 0 and rank == x:dim() and core.same_shape(x:narrow(-1, 0, 1), variance) then
    return variance
  end
  misfit(name, "var", "the sizes of the input, or these without the last or with 1 for it", variance)
end

layer("GaussianNLLLoss", "full:boolean=false eps:positive=1e-06 reduction:one(none|mean|sum)=mean", {
  forward = function(self, x, y, variance)
    local name = "nn.GaussianNLLLoss"
    if core.is_number(variance) then
      variance = torch.full_like(x, variance)
    end
    variance = fitting_variance(name, x, variance)
    core.op("aten::_assert_async", "msg")(variance:ge(0):all(), name .. ": var has a negative entry")
    -- A variance below eps counts as eps, and its gradient is that of itself.
    local kept = torch.where(variance:lt(self.eps), variance - variance:detach() + self.eps, variance)
    local losses = (kept:log() + (x - y):square() / kept) * 0.5
    if self.full then
      losses = losses + 0.5 * log(2 * pi)
    end
    return reduced(self, losses)
  end,
})

layer("TripletMarginWithDistanceLoss", [[distance_function:callable? margin:number=1.0 swap:boolean=false
  reduction:one(none|mean|sum)=mean]], {
  forward = function(self, anchor, positive, negative)
    local distance = self.distance_function or function(x, y) return torch.pairwise_distance(x, y) end
    local near, far = distance(anchor, positive), distance(anchor, negative)
    if self.swap then
      far = torch.minimum(far, distance(positive, negative))
    end
    return reduced(self, (near - far + self.margin):clamp({min = 0}))
  end,
})
