#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/graph.h>
#include <triage/typing.h>

#include <functional>
#include <string>
#include <vector>

#include "runtime/capture/recording/traced_tensors.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/capture/sizes/numbers.h"
#include "runtime/capture/sizes/size_condition.h"
#include "runtime/capture/sizes/size_origins.h"

namespace triage::capture {

/// What a capture learns of sizes and goes by: each becomes a guard of the graph.
class HeldSizes {
 public:
  struct SizeGuard {
    size_t input;
    int64_t dim;
    int64_t size;
    Source where;  // the line that reads it, as below; nowhere where that is no line of a script
  };
  struct SameSizeGuard {
    size_t input;
    int64_t dim;
    size_t other;
    int64_t other_dim;
    Source where;
  };
  struct SizeGuards {
    std::vector<SizeGuard> sizes;           // specialised sizes of inputs
    std::vector<SameSizeGuard> same_sizes;  // sizes of inputs that must be equal, whatever they are
    std::vector<SizeCondition> conditions;  // on sizes of inputs, by which the script went its way
    std::vector<Source> condition_lines;    // one for each of these
  };
  HeldSizes(const graph::Graph& graph, const TracedTensors& tensors, std::function<Source()> guard_line);

  /// The script goes its way by a size or the rank: the graph then holds for these sizes only. A size of something
  /// computed is traced back to the inputs (SizeOrigins); where that cannot be done, every size is held fast.
  void read_size(const at::Tensor& tensor, int64_t dim);
  void read_rank(const at::Tensor& tensor);
  /// What comes next follows from these facts (TensorMatcher): the graph then holds wherever they do.
  void rely_on(const std::vector<SizeFact>& facts);
  /// The script goes its way by a comparison of sizes, which is `truth` here. False where it cannot be a guard, because
  /// it is not computed of sizes of inputs alone.
  bool hold_condition(const graph::Value* condition, bool truth);
  void hold_size(const Extent& extent, int64_t size);
  void hold_same_size(const Extent& a, const Extent& b);
  void hold_count(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);
  /// The size is the same in every replay.
  bool has_fixed_size(const at::Tensor& tensor, int64_t dim) const {
    return !tensors_.knows(tensor) || origins.extent(tensor, dim).from == Extent::From::constant;
  }
  /// A param was taken as a number, and may decide the shape of a result, if another number does.
  void note_param(const std::vector<c10::IValue>& arguments) { shaped_by_params_ |= varies(arguments); }
  /// Whether the shape of a result depends on values.
  void note_shape(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
    shaped_by_values_ |= gives_dynamic_shape(op, arguments);
  }
  bool numbers_vary(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const;
  SizeGuards take();

  SizeOrigins origins;
  CapturedNumbers numbers;  // that only a replay knows

 private:
  void require_same_size(const SizeFact& fact);
  void hold_all_sizes();
  void note_all_sizes();
  SizeCondition::SizeOrigin size_origin(const graph::Value* number) const;
  const at::Tensor* literal(const graph::Value* value) const {
    return graph_.is_variable(value) ? nullptr : graph_.constant_of(value);
  }
  std::string size_name(const graph::Value* value, int64_t dim) const;
  bool varies(const std::vector<c10::IValue>& arguments) const;

  const graph::Graph& graph_;
  const TracedTensors& tensors_;
  const std::function<Source()> guard_line_;
  SizeGuards held_;
  Source all_sizes_line_;  // that made `all_sizes_` true
  bool all_sizes_ = false;
  bool shaped_by_params_ = false;
  bool shaped_by_values_ = false;
};

}  // namespace triage::capture
