-- tostring gives the form that PyTorch prints; these were printed by it.

local function prints(tensor, expected)
  eq(tostring(tensor), expected)
end

test("numbers share one form", function()
  prints(torch.tensor({ { 1.0, 2.0 }, { 3.0, 4.0 } }), "tensor([[1., 2.],\n        [3., 4.]])")
  prints(torch.tensor({ 1.5, -2.0 }), "tensor([ 1.5000, -2.0000])")
  prints(torch.tensor({ 1e-5, 1.0 }), "tensor([1.0000e-05, 1.0000e+00])")
  prints(torch.tensor({ 0 / 0, 1 / 0, -1 / 0, 1.0 }), "tensor([nan, inf, -inf, 1.])")
  prints(torch.tensor({ 1, -20, 300 }), "tensor([  1, -20, 300])")
  prints(torch.tensor({ true, false }), "tensor([ True, False])")
  prints(torch.tensor(2.5), "tensor(2.5000)")
  prints(torch.tensor({ 1e9, 1.0 }), "tensor([1.0000e+09, 1.0000e+00])")
end)

test("dtype, size and gradient where they are not the default", function()
  prints(torch.zeros({ 2 }, { dtype = torch.float64 }), "tensor([0., 0.], dtype=torch.float64)")
  prints(torch.tensor({ 1 }, { dtype = torch.int32 }), "tensor([1], dtype=torch.int32)")
  prints(torch.zeros(0), "tensor([])")
  prints(torch.zeros({ 0 }, { dtype = torch.int64 }), "tensor([], dtype=torch.int64)")
  prints(torch.zeros(0, 3), "tensor([], size=(0, 3))")
  prints(torch.ones(1, { requires_grad = true }), "tensor([1.], requires_grad=True)")
  prints(torch.zeros({ 2 }, { device = "meta" }), "tensor(..., device='meta', size=(2,))")
end)

test("more dimensions, long rows, many elements", function()
  prints(torch.zeros(2, 1, 2), "tensor([[[0., 0.]],\n\n        [[0., 0.]]])")
  prints(torch.arange(30),
    "tensor([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16, 17,\n" ..
    "        18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29])")
  prints(torch.arange(1001), "tensor([   0,    1,    2,  ...,  998,  999, 1000])")
  prints(torch.zeros(2, 1000),
    "tensor([[0., 0., 0.,  ..., 0., 0., 0.],\n        [0., 0., 0.,  ..., 0., 0., 0.]])")
end)
