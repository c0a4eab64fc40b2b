#pragma once
#include <ATen/core/Tensor.h>
#include <triage/front_end.h>

#include <cstdint>
#include <optional>

#include "runtime/diagnose/isolation/recording.h"

/// Which operator breaks a law: read from recordings of a batch with the one sample that shows it. Nothing where no
/// operator can be named, because the value did not come from an operator that was recorded.
namespace triage::diagnose {

/// The operator that made the NaN of an output out of values without it; where the output has none, the Inf, or what is
/// outside of `range`. Where it came with an input: the one that lost the entry that told of it; of a sample with a
/// clean record the last one that looked for bad values; else the last one that let it through. `row`: of a batch, what
/// sample shows it; its record is not read then.
std::optional<RecordedStep> made_bad(const Recording& recording, size_t output,
                                     const std::optional<OutputRange>& range = {}, std::optional<int64_t> row = {});

/// The operator that first gives other bits than `input`, on the way to an output. Of what is chosen between, the way
/// goes on in what was taken, but a choice by values of the sample is to blame itself.
std::optional<RecordedStep> changed(const Recording& recording, size_t output, const at::Tensor& input);

/// The first operator on the way to flags that differ for one sample, between two runs whose batches have other sizes,
/// whose result differs for that sample though what it read does not. What depends on no sample, such as a range over
/// the batch, is named only where nothing else can be.
struct RunOfSample {
  const Recording& recording;
  int64_t samples, row;
};
std::optional<RecordedStep> first_other(const RunOfSample& one, const RunOfSample& other);

/// The last operator of a computation that raised.
std::optional<RecordedStep> raised(const Recording& recording);

}  // namespace triage::diagnose
