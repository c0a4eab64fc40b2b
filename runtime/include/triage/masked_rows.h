#pragma once
#include <triage/api.h>
#include <triage/error.h>

#include <cstdint>
#include <string>

namespace triage {

/// What happens where values of rows that a policy masks may reach gradients: where the backend has no graph of the
/// gradients, or an operator mixes rows (docs/training.md lists the cases).
enum class MaskedRows : uint8_t {
  warn,     ///< the log says it once a graph, with the operator and its script line
  require,  ///< GraphError: at the capture, so that a load or reload that tries the policy is refused, or at the
            ///< gradient
};

/// Why values of rows that a graph masks may reach gradients: "`aten::mean.dim` may mix masked rows with others", and
/// its script line (docs/training.md).
struct UnmaskedRows {
  std::string reason;
  Source where = {};
};

/// "warn" or "require"; throws ConfigError that lists them.
TRIAGE_API MaskedRows masked_rows_from(const std::string& name);
TRIAGE_API const char* masked_rows_name(MaskedRows mode) noexcept;

}  // namespace triage
