#pragma once
#include <string>
#include <vector>

namespace triage::graph {

/// What the output `index`, from 0, is called in text: its name among `names`, else "out1".
std::string output_name(const std::vector<std::string>& names, size_t index);
/// Of `count` outputs.
std::vector<std::string> output_names(const std::vector<std::string>& names, size_t count);

}  // namespace triage::graph
