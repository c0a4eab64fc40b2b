-- The layers compute what LibTorch's operators compute, with parameters that LibTorch's modules initialise.

test("Linear", function()
  torch.manual_seed(0)
  local layer = nn.Linear(4, 3)
  eq(layer.weight.shape, {3, 4})
  assert(layer.weight:abs():max():item() <= 0.5 and layer.bias:abs():max():item() <= 0.5)   -- 1 / sqrt(4)
  torch.manual_seed(0)
  eq(nn.Linear(4, 3).weight:detach(), layer.weight:detach())
  for _, rows in ipairs({0, 1, 33}) do
    local x = torch.randn({rows, 4})
    close_to(layer(x):detach():sum(), (x:matmul(layer.weight:t()) + layer.bias):detach():sum(), 1e-4)
  end
  eq(layer(torch.ones({4})).shape, {3})
  assert(rawequal(nn.Linear(2, 2, {bias = false}).bias, nil))
end)

test("Conv2d: strides, paddings, groups, and paddings by mode", function()
  local x = torch.randn({2, 4, 7, 6})
  local plain = nn.Conv2d(4, 6, 3, {stride = {2, 1}, padding = 1, dilation = 2, groups = 2})
  eq(plain.weight.shape, {6, 2, 3, 3})
  eq(plain(x), torch.conv2d(x, plain.weight, plain.bias, {2, 1}, {1, 1}, {2, 2}, 2))
  eq(tostring(plain), "Conv2d(4, 6, kernel_size=(3, 3), stride=(2, 1), padding=(1, 1), dilation=(2, 2), groups=2)")
  eq(nn.Conv2d(4, 1, {3, 2}, {padding = "same", bias = false})(x).shape, {2, 1, 7, 6})
  for _, mode in ipairs({"reflect", "replicate", "circular"}) do
    local padded = nn.Conv2d(4, 2, 3, {padding = {1, 2}, padding_mode = mode})
    local names = {reflect = "reflect", replicate = "replicate", circular = "circular"}
    eq(padded(x), torch.conv2d(torch.pad(x, {2, 2, 1, 1}, names[mode]), padded.weight, padded.bias))
    eq(nn.Conv2d(4, 1, {3, 2}, {padding = "same", padding_mode = mode})(x).shape, {2, 1, 7, 6})
  end
  fails(function() nn.Conv2d(4, 6, 3, {groups = 3}) end, "groups = 3 does not divide the channels, 4 and 6")
  fails(function() nn.Conv2d(4, 6, 3, {padding = "same", stride = 2}) end, "needs a stride of 1")
  fails(function() nn.Conv2d(4, 6, 3, {padding_mode = "mirror"}) end, "as `padding_mode`, got string \"mirror\"")
  fails(function() nn.Conv2d(4, 6, {1, 2, 3}) end, "expected one or two integers of at least 1 as `kernel_size`, got")
end)

test("LayerNorm", function()
  local x = torch.randn({3, 4, 5})
  local norm = nn.LayerNorm({4, 5}, {eps = 1e-3})
  eq(norm(x), torch.layer_norm(x, {4, 5}, norm.weight, norm.bias, 1e-3))
  eq(norm.weight:detach(), torch.ones({4, 5}))
  eq(#nn.LayerNorm(5, {elementwise_affine = false}):parameters(), 0)
  eq(#nn.LayerNorm(5, {bias = false}):parameters(), 1)
  eq(tostring(nn.LayerNorm(5)), "LayerNorm((5), eps=1e-05, elementwise_affine=true)")
end)

test("Embedding", function()
  local table_of_rows = nn.Embedding(10, 3, {padding_idx = -1})
  eq(table_of_rows.weight[9]:detach(), torch.zeros({3}))
  local ids = torch.tensor({{1, 9}, {0, 1}})
  eq(table_of_rows(ids), table_of_rows.weight[ids])
  table_of_rows(ids):sum():backward()
  eq(table_of_rows.weight.grad[9], torch.zeros({3}))
  eq(table_of_rows.weight.grad[1], torch.full({3}, 2.0))
  fails(function() nn.Embedding(10, 3, {padding_idx = 10}) end, "padding_idx = 10 is not one of the 10 rows")
end)

--- Attention written out, head by head, for one sample (L, E).
local function attended(layer, q, k, v)
  local width, depth = layer.embed_dim, layer.head_dim
  local function project(x, part)
    return torch.linear(x, layer.in_proj_weight[{{part * width, (part + 1) * width}}],
      layer.in_proj_bias[{{part * width, (part + 1) * width}}])
  end
  q, k, v = project(q, 0), project(k, 1), project(v, 2)
  local heads = {}
  for head = 0, layer.num_heads - 1 do
    local columns = {":", {head * depth, (head + 1) * depth}}
    local weights = (q[columns]:matmul(k[columns]:t()) / math.sqrt(depth)):softmax(-1)
    heads[head + 1] = weights:matmul(v[columns])
  end
  return layer.out_proj(torch.cat(heads, -1))
end

test("MultiheadAttention", function()
  local layer = nn.MultiheadAttention(6, 2, {batch_first = true})
  local q, k, v = torch.randn({3, 5, 6}), torch.randn({3, 4, 6}), torch.randn({3, 4, 6})
  local y, weights = layer(q, k, v)
  eq(weights.shape, {3, 5, 4})
  for i = 0, 2 do close_to(y[i], attended(layer, q[i], k[i], v[i])) end
  close_to(layer(q)[1], attended(layer, q[1], q[1], q[1]))
  eq(select("#", layer(q, k, v, {need_weights = false})), 1)
  local second = nn.MultiheadAttention(6, 2)
  second:load_state_dict(layer:state_dict())
  close_to(second(q:transpose(0, 1), k:transpose(0, 1), v:transpose(0, 1)):transpose(0, 1), y)
  local padded = torch.tensor({{false, false, false, true}}):expand({3, 4})
  local _, masked = layer(q, k, v, {key_padding_mask = padded})
  eq(masked[{":", ":", 3}]:detach(), torch.zeros({3, 5}))
  local causal = torch.ones({5, 5}, {dtype = torch.bool}):triu(1)
  local _, seen = layer(q, {attn_mask = causal})
  close_to(seen:detach():triu(1), torch.zeros({3, 5, 5}))
  local other = nn.MultiheadAttention(6, 2, {kdim = 3, vdim = 2, batch_first = true, bias = false})
  eq(other(q, torch.randn({3, 4, 3}), torch.randn({3, 4, 2})).shape, {3, 5, 6})
  eq(#other:parameters(), 4)
  eq(layer(q[0], k[0], v[0]).shape, {5, 6})   -- without a batch
  fails(function() nn.MultiheadAttention(6, 4) end, "embed_dim = 6 is not divisible by num_heads = 4")
end)

test("a query without any key gives 0 where no weights are asked for, else NaN, as in PyTorch", function()
  local layer = nn.MultiheadAttention(6, 2, {batch_first = true})
  local padding = torch.tensor({{true, true, true}, {false, false, true}})
  local options = {key_padding_mask = padding, need_weights = false}
  for _, backend in ipairs({"script", "eager", "fused"}) do
    local function run(x) return (layer(x, x, x, options)) end
    if backend ~= "script" then run = triage.compile(run, {backend = backend}) end
    local x = torch.randn({2, 3, 6}):requires_grad_(true)
    local y = run(x)
    eq(y[0], torch.zeros({3, 6}) + layer.out_proj.bias)
    close_to(y[1], (layer(x, x, x, {key_padding_mask = padding}))[1], 1e-6)
    local of_x, of_weight = torch.autograd.grad(y:sum(), {x, layer.in_proj_weight})
    eq(of_x[0], torch.zeros({3, 6}))
    eq(of_weight:isfinite():all():item(), true)
  end
  eq((layer(torch.ones({2, 3, 6}), {key_padding_mask = padding}))[0]:isnan():all():item(), true)
end)

test("layers without parameters", function()
  local x = torch.randn({3, 4})
  eq(nn.ReLU()(x), x:relu())
  eq(nn.GELU()(x), torch.gelu(x))
  eq(nn.GELU({approximate = "tanh"})(x), torch.gelu(x, {approximate = "tanh"}))
  assert(rawequal(nn.Identity()(x), x))
  local drop = nn.Dropout(0.5)
  torch.manual_seed(1)
  local once = drop(x)
  torch.manual_seed(1)
  eq(drop(x), once)
  assert(once:eq(0):any():item())
  assert(rawequal(drop:eval()(x), x))
  fails(function() nn.Dropout(2) end, "nn.Dropout: expected a probability (0..1) as `p`, got int 2")
  fails(function() nn.GELU({approximate = "erf"}) end, "nn.GELU: expected \"none\" or \"tanh\" as `approximate`")
end)

test("Sequential from a list", function()
  local model = nn.Sequential({nn.Linear(2, 3), nn.ReLU()})
  eq(#model, 2)
  assert(rawequal(model[-1], model[1]))
  eq(tostring(model[1]), "ReLU()")
end)
