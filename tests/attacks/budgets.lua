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

-- adaptive averages: expected 1 to 1048576
torch.adaptive_avg_pool3d(torch.ones({1, 1, 2, 2, 2}), {1 << 40, 1 << 20, 1})

-- differences of differences: expected 0 to 64
torch.diff(z, 1 << 40)

-- pieces: expected
torch.ones({1, 1}):expand({1, 1 << 30}):unbind(1)

-- rotations: expected
z:rot90(1 << 40, {0, 1})

-- products of rows without elements: budget
torch.linear(torch.zeros(300000, 0), torch.zeros(300000, 0))

-- the same inside: budget
torch.inner(torch.zeros(300000, 0), torch.zeros(300000, 0))

-- the same of matrices: budget
torch.mm(torch.zeros(300000, 0), torch.zeros(0, 300000))

-- a sum of no products: budget
torch.addbmm(torch.zeros(1), torch.zeros(0, 300000, 1), torch.zeros(0, 1, 300000))

-- einsum over nothing: budget
torch.einsum("ik,jk,k->ij", {torch.zeros(300000, 0), torch.zeros(300000, 0), torch.zeros(0)})

-- einsum that keeps nothing: budget
torch.einsum("i,j,k->ijk", {torch.ones(300000), torch.ones(300000), torch.zeros(0)})

-- rows of nothing many times: budget
torch.zeros(300000, 0):repeat_interleave(300000, 0)

-- determinants of nothing: budget
torch.linalg_det(torch.zeros(50000000000, 0, 0))

-- inverses of nothing: budget
torch.linalg_inv_ex(torch.zeros(50000000000, 0, 0))

-- signs of nothing: budget
torch.linalg_slogdet(torch.zeros(50000000000, 0, 0))

-- factors of nothing: budget
torch.linalg_cholesky_ex(torch.zeros(50000000000, 0, 0))

-- many solutions of few systems: budget
torch.linalg_solve(torch.eye(2):expand({1000000, 2, 2}), torch.ones(1, 2, 10000))

-- sums of nothing: budget
torch.zeros(50000000000, 0):sum(1)

-- norms of nothing: budget
torch.zeros(50000000000, 0):norm(2, {1})

-- a k-th value whose elements lie badly: budget
torch.ones(400000):kthvalue(399998)

-- one shift after another: budget
torch.zeros({1, 1, 1, 1, 1, 1, 1, 1}):expand({80000000, 1, 1, 1, 1, 1, 1, 1}):roll({1, 1, 1, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6})

-- distances of what broadcasts: budget
torch.cdist(torch.zeros(1, 1000, 1000), torch.zeros(2000, 1, 1000), 1.0)

-- a step that is cut: budget
torch.arange(0, 400000000, 1.999, {dtype = torch.int64})

-- bits and a number: budget
torch.zeros({1}, {dtype = torch.bool}):expand({200000000}):add(1)

-- groups one after the other: budget
torch.conv1d(torch.ones({1, 1048576, 1}, {dtype = torch.float64}), torch.ones({1048576, 1, 1}, {dtype = torch.float64}), nil, {1}, {0}, {1}, 1048576)

-- many small matrices: budget
torch.linalg_qr(torch.ones(1):expand({20000000, 1, 1}))

-- many small products: budget
torch.bmm(torch.ones(1):expand({1600000, 8, 8}), torch.ones(1):expand({1600000, 8, 8}))

-- NaN, each of which equals no other: expected at most 10000
torch.isin(torch.full({100000}, 0 / 0), torch.full({100000}, 0 / 0))
