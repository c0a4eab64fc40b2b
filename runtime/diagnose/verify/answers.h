#pragma once
#include <triage/flags.h>
#include <triage/front_end.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/diagnose/isolation/check.h"

/// What a call answered, sample by sample.
namespace triage::diagnose {

using Record = std::vector<flags::UnpackedError>;

struct Answers {
  Tensors outputs;
  std::vector<std::string> names;  // of the outputs
  std::vector<bool> is_flags;
  int64_t samples = 0;
  CodeNames codes = {};

  bool is_flags_output(size_t output) const { return output < is_flags.size() && is_flags[output]; }
  /// Data with a row for each sample.
  bool has_samples(size_t output) const;
  bool gives_flags() const;
  /// The entries of each sample, those of all outputs of flags.
  std::vector<Record> records() const;
  /// Whether a record of this sample tells of a value that is still bad: it has an entry of severity ERROR or worse
  /// that no repair came after. Each output of flags is one record, because a repair in one says nothing of what
  /// another tells. `kept`: how errors accumulated.
  bool tells_of_bad(int64_t row, const AccumulationConfig& kept) const;

 private:
  bool has_records(size_t output) const;
};

/// "NAN @ x, FALLBACK_VALUE @ x"; the first of many.
std::string text_of(const Record& record);

/// How an output breaks Law::finite in a row: it has NaN or Inf (`only_nan`: NaN), and `record` does not tell of it.
std::optional<std::string> not_finite(const Answers& answers, size_t output, int64_t row, const Record& record,
                                      bool only_nan, const AccumulationConfig& kept);
/// Which elements are not within a declared range.
at::Tensor outside(const at::Tensor& values, const OutputRange& range);
/// How an output is not within its declared range in a row, whatever its record says.
std::optional<std::string> out_of_range(const Answers& answers, size_t output, int64_t row, const OutputRange& range);
/// How many values of an output differ in their bits from the input that it belongs to; none of those in another form.
int64_t changed_values(const at::Tensor& output, const at::Tensor& input);

}  // namespace triage::diagnose
