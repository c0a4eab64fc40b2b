#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "runtime/diagnose/isolation/recording.h"

/// Which operator breaks a law: read from recordings of a batch with the one sample that shows it. Nothing where no operator can be
/// named, because the value did not come from an operator that was recorded.
namespace triage::diagnose {

/// The operator that made NaN or Inf out of finite values on the way to an output. Where they came with an input: the one that
/// lost their entry, because the record was full, else the last one that let them through.
std::optional<Step> made_not_finite(const Recording& recording, size_t output);

/// The operator that first gives other bits than `input`, on the way to an output that has its form.
std::optional<Step> changed(const Recording& recording, size_t output, const at::Tensor& input);

/// The first operator whose result differs in a row, between two runs whose batches have that sample in other places.
struct RunOfSample {
  const Recording& recording;
  int64_t samples, row;
};
std::optional<Step> first_other(const RunOfSample& one, const RunOfSample& other);

/// The last operator of a computation that raised.
std::optional<Step> raised(const Recording& recording);

}  // namespace triage::diagnose
