#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/flags.h>
#include <triage/layout.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

/// The errors of many samples, counted: of a batch (`report_of`), of several (`+=`), or of all ranks of a group
/// (`reduce`, triage/distributed.h). A value, independent of the flags that it was made of.
namespace triage {

struct TRIAGE_API ErrorReport {
  /// How many errors of one kind there are. A sample with two such errors counts twice.
  struct Count {
    std::string location;
    Code code;
    Severity severity;
    int64_t count;
    std::string code_name = {};  ///< of a free code that the policy names; else empty: `triage::code_name(code)`
    friend bool operator==(const Count&, const Count&) = default;
  };
  /// One sample with errors.
  struct Example {
    int64_t rank;      ///< 0 without a group
    int64_t sample;    ///< its place in the batch that it was reported from
    std::string text;  ///< its errors: "NAN @ encoder, INF @ head"
    friend bool operator==(const Example&, const Example&) = default;
  };

  int64_t samples = 0;
  int64_t flagged = 0;                 ///< samples with an error
  int64_t dropped = 0;                 ///< errors that found no slot (track_overflow, layout.h)
  std::vector<Count> counts = {};      ///< by location, code and its name, and severity; each kind once
  std::vector<Example> examples = {};  ///< some of the flagged samples, in order of rank

  /// The worst severity; Severity::ok without errors.
  Severity worst() const noexcept;
  /// Adds the counts. The examples stay, and those of `other` follow.
  ErrorReport& operator+=(const ErrorReport& other);
  /// Several lines: the sums, each kind of error, and the examples.
  std::string text() const;
  friend bool operator==(const ErrorReport&, const ErrorReport&) = default;
};

struct ReportOptions {
  size_t examples = 4;  ///< flagged samples to name at most, the first ones
  std::optional<ErrorConfig> config = {};
  CodeNames codes = {};  ///< as in InspectOptions
};

/// Counts the errors in a flags tensor. Reads its values, so it synchronizes with an accelerator.
TRIAGE_API ErrorReport report_of(const at::Tensor& f, const ReportOptions& options = {});

}  // namespace triage
