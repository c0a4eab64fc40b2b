#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace triage::capture {

/// What an operator does whatever its arguments are, as its schema tells.
struct OperatorTraits {
  /// Why no graph can hold a call of it.
  enum class Refused : uint8_t { no, writes_to_out, reads_value, mixes_lists };
  Refused refused = Refused::no;
  bool computes = false;         // plain tensors of its arguments, and does nothing else
  bool aliases = false;          // a result may be a view
  bool writes_noise = false;     // to an argument, which the schema does not say
  std::vector<size_t> training;  // arguments that make a normalisation write to its statistics, which no schema says
};

/// Found out once a thread: every call that is recorded or followed asks, and no lock is taken then.
const OperatorTraits& traits_of(const c10::OperatorHandle& op);

}  // namespace triage::capture
