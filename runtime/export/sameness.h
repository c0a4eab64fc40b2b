#pragma once
#include <triage/export.h>

#include <functional>
#include <optional>
#include <vector>

#include "runtime/capture/recorder.h"

/// A function can tell whether two of its arguments are one tensor, and no operator shows that it did. So a program is recorded
/// with its inputs the same in every way that their types allow.
namespace triage::exporting {

/// Of each input, the first that is the same tensor.
using Sameness = std::vector<size_t>;

Sameness sameness_of(at::ArrayRef<at::Tensor> inputs);

struct Recorded {
  capture::Recorder::Result result;
  std::optional<Sameness> held_to;  // what the graph holds for; nothing where it holds for all
};

/// `record` runs the function on inputs that are the same as told, and throws what it throws. The first run is for what `inputs`
/// are, and its errors are passed on; an error of another one tells that the function then does something else. Those draw
/// no random numbers that anybody sees.
Recorded record_for_all_samenesses(at::ArrayRef<at::Tensor> inputs, const ExportOptions& options,
                                   const std::function<capture::Recorder::Result(const Sameness&)>& record);

}  // namespace triage::exporting
