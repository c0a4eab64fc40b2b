-- What takes more memory or time than a policy has, inside of one operator.

-- a range: budget
torch.arange(1.6e9)

-- a step next to nothing: budget
torch.arange(0, 1, 1e-12)

-- many ones: budget
torch.ones({1 << 20, 1 << 20})

-- ones like expanded ones: budget
torch.ones_like(torch.ones(1):expand({1 << 30}))

-- a copy of what is expanded: budget
torch.ones({1, 1}):expand({1 << 20, 1 << 20}):contiguous()

-- a repetition: budget
z:repeat_interleave(1 << 40)

-- tiles: budget
z:tile({1 << 20, 1 << 20})

-- padding: budget
torch.pad(z, {1 << 30, 1 << 30})

-- an outer product: budget
torch.outer(torch.ones(100000), torch.ones(100000))

-- a diagonal: budget
torch.diag(torch.ones(100000))

-- classes: budget
torch.one_hot(torch.zeros({100}, {dtype = torch.int64}), 1 << 30)

-- samples: budget
torch.multinomial(torch.ones(4), 1 << 36, true)

-- a permutation: budget
torch.randperm(1 << 38)

-- steps: budget
torch.linspace(0, 1, 1 << 38)

-- a square of numbers: budget
torch.eye(1 << 20)

-- a power of an index: expected
torch.arange(0, 0 / 0)

-- all pairs: is not among the operators of policies
torch.cartesian_prod(torch.ones(100000), torch.ones(100000))

-- all pairs of one: is not among the operators of policies
torch.combinations(torch.ones(100000), 3)

-- indices of a triangle: is not among the operators of policies
torch.tril_indices(1 << 20, 1 << 20)

-- a zeta function: is not among the operators of policies
torch.special_zeta(torch.tensor({2.0}, {dtype = torch.float64}), torch.tensor({-4503599627370495.5}, {dtype = torch.float64}))

-- a derivative of gamma: is not among the operators of policies
torch.polygamma(2, torch.tensor({-4503599627370495.5}, {dtype = torch.float64}))

-- a draw from NaN: is not among the operators of policies
torch.binomial(torch.tensor({0 / 0}), torch.tensor({0.5}))

-- a pool as wide as memory: expected
torch.max_pool1d(torch.ones({2, 3, 4}), {1 << 62}, {1})

-- a pool of averages: expected
torch.avg_pool2d(torch.ones({1, 1, 4, 4}), {1 << 62, 1}, {1, 1})

-- columns to images: is not among the operators of policies
torch.col2im(torch.ones({1, 4, 9}), {1 << 40, 1 << 40}, {2, 2}, {1, 1}, {0, 0}, {1, 1})

-- adaptive averages: is not among the operators of policies
torch.adaptive_avg_pool3d(torch.ones({1, 1, 2, 2, 2}), {1 << 40, 1 << 20, 1})

-- differences of differences: expected 0 to 64
torch.diff(z, 1 << 40)

-- pieces: expected
torch.ones({1, 1}):expand({1, 1 << 30}):unbind(1)

-- rotations: expected
z:rot90(1 << 40, {0, 1})
