-- What reads or writes where it must not, or returns memory that nobody wrote. Each block ends in an error with the words after
-- its name, when the policy loads and when it is called.

-- scales of upsampling: is not among the operators of policies
torch.upsample_linear1d(z:unsqueeze(0), {1 << 20}, false, 1.0)

-- bincount of a huge number: is not among the operators of policies
torch.bincount(torch.tensor({math.maxinteger}))

-- embedding_bag without embeddings: is not among the operators of policies
torch.embedding_bag(torch.ones({2, 3}), torch.zeros({0, 3}, {dtype = torch.int64}), torch.zeros({1, 1, 4, 4}, {dtype = torch.int64}))

-- padding without sizes: is not among the operators of policies
torch.reflection_pad1d(torch.ones({1, 4}), {})

-- reflection without sizes: expected
torch.pad(torch.ones({1, 1, 4, 4}), {1}, {mode = "reflect"})

-- repeats in a tensor alone: argument 'repeats' (int) is missing
torch.repeat_interleave(torch.tensor({math.maxinteger, math.maxinteger, 4}))

-- repeats that overflow: expected int, got Tensor
torch.repeat_interleave(torch.ones(3), torch.tensor({math.maxinteger, math.maxinteger, 4}))

-- unpooling beyond: is not among the operators of policies
torch.max_unpool2d(torch.ones({1, 1, 2, 2}), torch.full({1, 1, 2, 2}, 1 << 40), {4, 4})

-- histogram without edges: is not among the operators of policies
torch.histogramdd(z, {0, 0})

-- pivots beyond: is not among the operators of policies
torch.lu_unpack(z, torch.full({8}, 1000, {dtype = torch.int32}))

-- sums to nothing: is not among the operators of policies
z:sum_to_size({1, 1, 1, 1})

-- a division by nothing: is not among the operators of policies
torch.lcm(torch.tensor({math.mininteger}), torch.tensor({-1}))

-- a quotient by nothing: ZeroDivisionError
torch.floor_divide(torch.tensor({math.mininteger}), 0)

-- shuffled pixels: expected 1 to 65536
torch.pixel_shuffle(torch.ones({2, 3, 4}), 1 << 33)

-- a mode of sampling: is not among the operators of policies
torch.grid_sampler_2d(torch.ones({1, 1, 4, 4}), torch.zeros({1, 2, 2, 2}), 99, 0, false)

-- an exponential of NaN: is not among the operators of policies
torch.matrix_exp(z * (0 / 0))

-- a transform along nothing: is not among the operators of policies
torch.fft_fftn(z, {})

-- a reduction: expected 0 to 2
torch.soft_margin_loss(z, z, 77)

-- a median of what is expanded: call x:contiguous()
torch.median(torch.tensor({5.0}):expand({7}), 0)

-- a median of integers that are expanded: call x:contiguous()
torch.nanmedian(torch.tensor({5}):expand({7}), 0)

-- a k-th value of what is expanded: call x:contiguous()
torch.kthvalue(torch.tensor({5.0}):expand({7}), 1, 0)

-- a sorter of positions beyond: is given; policies cannot pass it
torch.searchsorted(torch.tensor({1, 2, 3}), torch.tensor({2}), {sorter = torch.tensor({1 << 40, 0, 1})})

-- a sum onto memory that nobody wrote: argument 'beta' is 0
torch.baddbmm(torch.ones({7}), torch.ones({7, 7, 1}), torch.ones({7, 1, 7}), {beta = 0})

-- running statistics that are views: expected
torch.batch_norm(z, nil, nil, z[0], z[1], true, 1.0, 1e-5, false)

-- running statistics of instances: policies cannot pass it
torch.instance_norm(z:unsqueeze(0), nil, nil, z[0], z[1], true, 1.0, 1e-5, false)

-- a write to what is expanded: call x:clone()
torch.zeros(1):expand({4}):add_(torch.ones(4))

-- memory of another: is not among the operators of policies
z:as_strided({1000}, {1}, 0)

-- a device without data: is not a device that holds data
torch.zeros({2}, {device = "meta"})

-- a layout without strides: is not torch.strided
torch.zeros({2}, {layout = torch.sparse_coo})

-- an empty index into a 0-dim tensor: 'self' has 0 dimensions
torch.index_select(z:sum(), 0, torch.zeros({0}, {dtype = torch.int64}))
