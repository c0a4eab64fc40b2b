#pragma once
#include <exception>
#include <string>
#include <vector>

#include "runtime/capsule/capsule.h"

namespace triage::capsule {

/// "2 outputs", "PolicyError: ..."
std::string describe_result(const Json& result);
/// Sentences: results whose values were left out.
std::vector<std::string> notes_of_result(const Json& result);
/// How what a replay gave differs from what was recorded; empty: nowhere. Of masked results, values are not compared.
std::string difference(const Json& recorded, const RestoredTensors& tensors, const std::vector<at::Tensor>& outputs);
std::string difference(const Json& recorded, const std::exception& error);

}  // namespace triage::capsule
