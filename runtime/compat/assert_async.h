#pragma once
#include <ATen/core/Tensor.h>
#include <torch/library.h>
#include <torch/version.h>
#include <triage/error.h>

#include <string>

/// `aten::_assert_async.msg`, an assertion with words of its own. LibTorch has it since 2.1; for those before it is
/// defined here, so that graphs in plain ATen read the same everywhere. Registers an operator: for one source file to
/// include.
#if TORCH_VERSION_MAJOR < 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 1)
namespace triage::compat {

inline void assert_async(const at::Tensor& self, c10::string_view message) {
  if (!self.item().toBool()) throw Error(std::string(message.data(), message.size()));
}

TORCH_LIBRARY_FRAGMENT(aten, m) { m.def("_assert_async.msg(Tensor self, str assert_msg) -> ()"); }
TORCH_LIBRARY_IMPL(aten, CompositeExplicitAutograd, m) { m.impl("_assert_async.msg", assert_async); }

}  // namespace triage::compat
#endif
