#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "tests/paths.h"

#include <doctest/doctest.h>

#include <cstdlib>

namespace {

/// TorchScript's own loops, which a LibTorch with LLVM has (Debian 13), give other values for NaN than ATen does.
[[maybe_unused]] const int without_loops_of_torchscript = ::setenv("PYTORCH_TENSOREXPR", "0", /*overwrite=*/0);

}  // namespace

const std::string& triage::test::source_dir() {
  static const std::string path = TRIAGE_SOURCE_DIR;
  return path;
}
