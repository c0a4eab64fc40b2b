#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace triage::lua {

/// A tensor as a test of a policy makes it: `torch.tensor({{0/0, 1.0}})`, and of many elements, most of which are one
/// value,
/// `(function() local t = torch.zeros(1, 128); t[0][5] = 0/0; return t end)()`. Its form alone where that would be too
/// long.
std::string lua_text(const at::Tensor& tensor);

}  // namespace triage::lua
