#include "runtime/policy/attribution/positions.h"

#include <utility>

namespace triage::policy {

std::vector<FirstPositions> take_positions(const Signature& signature, std::vector<at::Tensor>& outputs) {
  std::vector<FirstPositions> positions;
  size_t result = outputs.size() - signature.positions.size();
  for (const std::string& location : signature.positions) positions.push_back({location, std::move(outputs[result++])});
  return positions;
}

}  // namespace triage::policy
