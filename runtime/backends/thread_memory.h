#pragma once
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <vector>

namespace triage {

/// Of the interpreter (eager.cpp).
struct Workspace {
  torch::jit::Stack stack;
  std::vector<c10::IValue> registers;  // results of nodes
  bool busy = false;
};

/// What runs of graphs use again, so that a warm call takes no memory but for its outputs.
struct ThreadMemory {
  Workspace interpreter;
  std::vector<char> loops;           // scratch memory of fused loops
  std::vector<c10::Scalar> numbers;  // of fused loops, as the host finds them
};

/// Of the thread, because any number of threads run one Executable, and its rows run on LibTorch's threads.
inline thread_local ThreadMemory thread_memory;

}  // namespace triage
