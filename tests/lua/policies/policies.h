#pragma once
#include <ATen/ATen.h>
#include <triage/diagnostics.h>

#include <limits>
#include <string>

/// What tests of policies put in, and what they look at.
namespace triage::test {

inline constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
inline constexpr const char* backends[] = {"eager", "aot_eager", "fused"};

inline at::Tensor positive_batch() { return at::linspace(0.1, 1.0, 32).view({4, 8}); }

/// A NaN in sample 1, an Inf in sample 31.
inline at::Tensor batch_with_bad_values(int64_t rows) {
  at::Tensor z = at::arange(rows * 3, at::kFloat).reshape({rows, 3});
  if (rows > 1) z[1][2] = nan_value;
  if (rows > 31) z[31][0] = std::numeric_limits<float>::infinity();
  return z;
}

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Ends what a test has set_diagnostics do.
struct RestoreDiagnostics {
  ~RestoreDiagnostics() { set_diagnostics({}); }
};

}  // namespace triage::test
