#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

/// The state that a policy keeps between calls (`state = {...}` in its table), as a host reads and sets it.
namespace triage {

/// State of one key (RunOptions::state_key): tensors by name.
struct KeyState {
  std::string key;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
};

/// State of all keys, the least recently used first.
using PolicyState = std::vector<KeyState>;

}  // namespace triage
