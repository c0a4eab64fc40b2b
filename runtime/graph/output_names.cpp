#include "runtime/graph/output_names.h"

namespace triage::graph {

std::string output_name(const std::vector<std::string>& names, size_t index) {
  return index < names.size() && !names[index].empty() ? names[index] : "out" + std::to_string(index);
}

std::vector<std::string> output_names(const std::vector<std::string>& names, size_t count) {
  std::vector<std::string> all;
  for (size_t i = 0; i < count; ++i) all.push_back(output_name(names, i));
  return all;
}

}  // namespace triage::graph
