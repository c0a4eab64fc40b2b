#include <ATen/ATen.h>
#include <triage/config.h>
#include <triage/positions.h>

namespace triage {

std::vector<int64_t> FirstPositions::of(int64_t sample, Code code) const {
  if (!at.defined() || at.dim() != 3 || sample < 0 || sample >= at.size(0)) return {};
  const int64_t kind = code == err::nan ? 0 : code == err::inf ? 1 : code == err::out_of_bounds ? 2 : -1;
  if (kind < 0) return {};
  const at::Tensor indices = at[sample][kind].cpu();
  std::vector<int64_t> position(indices.data_ptr<int64_t>(), indices.data_ptr<int64_t>() + indices.numel());
  return position.empty() || position[0] < 0 ? std::vector<int64_t>() : position;
}

std::vector<int64_t> find_position(const std::vector<FirstPositions>& positions, const std::string& location,
                                   int64_t sample, Code code) {
  for (const FirstPositions& first : positions)
    if (first.location == location) return first.of(sample, code);
  return {};
}

std::string position_text(const std::vector<int64_t>& position) {
  std::string text;
  for (const int64_t index : position) text += (text.empty() ? "[" : ", ") + std::to_string(index);
  return text + "]";
}

}  // namespace triage
