#pragma once
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/diagnose/isolation/recording.h"

namespace triage::diagnose {

/// Something that holds in some samples of a batch and not in others: a side of a comparison that one element takes, a
/// record that has an entry, or an operator that makes NaN or Inf of finite values.
struct SampleFact {
  enum class Kind : uint8_t { is_true, is_false, not_finite };
  /// Operator and line, which of the calls there, which result; or which value that no operator made. Recordings of one
  /// policy have the same, also where its script goes another way before.
  using Key = std::tuple<std::string, size_t, size_t, Kind>;
  Key key;
  std::string what;           // "aten::gt of line 3 is true"
  bool is_comparison;         // of numbers: it has a boundary between samples
  std::vector<bool> samples;  // in which it holds
};

/// What is known of the samples of one recorded batch. Values of all samples together tell nothing of one.
std::vector<SampleFact> facts_of(const Recording& recording, int64_t samples);

}  // namespace triage::diagnose
