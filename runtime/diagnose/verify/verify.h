#pragma once
#include <triage/config.h>
#include <triage/verify.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

namespace triage::diagnose {

/// What laws are tried on.
class VerifySubject : public IsolationSubject {
 public:
  virtual std::vector<Promise> promises() const { return {}; }
  /// The numbers of the script and of its params: comparisons have their sides there.
  virtual std::vector<double> numbers() const { return {}; }
  /// Declared ranges of the outputs; empty if there are none.
  virtual std::vector<std::optional<OutputRange>> output_ranges() const { return {}; }
  /// How errors accumulate in its flags.
  virtual AccumulationConfig accumulation() const { return get_config().accumulation; }
};

struct LawsOptions {
  size_t search = VerifyOptions{}.search;
  uint64_t seed = 0;
  std::function<void(const std::string& step)> progress = {};  // as in VerifyOptions
};

/// Tries all laws with the samples of one batch. Throws InputError where no input has samples, and what the batch given
/// throws.
Verification check_laws(VerifySubject& subject, const std::vector<IsolationInput>& inputs,
                        const LawsOptions& options = {});

/// Laws of several batches become one result: a law that one of them breaks is broken.
void merge(Verification& all, Verification one);

}  // namespace triage::diagnose
