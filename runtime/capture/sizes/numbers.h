#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/symbols/table.h"

/// Numbers of a capture that a replay finds out again: items of tensors, sizes, and what is computed of them. A front
/// end holds each as the 0-dim tensor (int64, float64 or bool) that stands for it in the graph, and records arithmetic
/// as ATen calls.
namespace triage::capture {

class Recorder;

class CapturedNumbers {
 public:
  /// `is_literal`: whether a value is a number that stands in the script.
  CapturedNumbers(symbols::SymbolTable::SizeName size_name, std::function<bool(const graph::Value*)> is_literal)
      : table(std::move(size_name)), is_literal_(std::move(is_literal)) {}

  struct TensorSize {
    at::Tensor tensor;
    int64_t dim = 0;
  };
  void add_size(const graph::Value* value, const at::Tensor& tensor, int64_t dim) { sizes_[value] = {tensor, dim}; }
  /// Whether the number is computed of sizes alone: of no item and no param.
  bool is_of_sizes(const graph::Value* number) const;
  /// The sizes that the number is computed of; nothing where it also follows from something else.
  std::optional<std::vector<TensorSize>> sizes_behind(const graph::Value* number) const;
  /// Null where the value is not itself a size.
  const TensorSize* find_size(const graph::Value* number) const;

  symbols::SymbolTable table;
  bool keep_items = false;  // `x:item()` is a number of the graph, whatever is configured

 private:
  std::unordered_map<const graph::Value*, TensorSize> sizes_;
  mutable std::unordered_map<const graph::Value*, bool>
      of_sizes_;  // those that were asked for, and what they are computed of
  std::function<bool(const graph::Value*)> is_literal_;
};

/// What follows records with the recorder of this thread, and asks it. An operator may be a graph break, behind which
/// nothing is captured: numbers are then plain tensors, of which nothing is known.

/// The element of `tensor`, which has one.
at::Tensor record_item(const at::Tensor& tensor);
/// The size of a dimension; nothing where it is the same in every replay. A recorder is there.
std::optional<at::Tensor> record_size(const at::Tensor& tensor, int64_t dim);
/// Whether this is such a number of the capture that runs now.
bool is_captured_number(const at::Tensor& number);
/// The truth of a condition as far as it follows from what was checked before.
std::optional<bool> known_truth(const at::Tensor& condition);
/// Leaves an assertion in the graph: a replay raises where the condition, in words `expression`, does not hold.
void record_check(const at::Tensor& condition, const std::string& expression, const std::string& message);
/// The script goes its way by the number's value. A condition on sizes becomes a guard: the graph holds for all sizes
/// that take the same way. Any other number of sizes: it holds for these sizes only. An item is a graph break.
void specialize(const at::Tensor& number);
/// "u0 + 1", for messages; empty where it has no words.
std::string number_text(const at::Tensor& number);
/// "u0 lies in VR[0, 5]", for each symbol of such a number; empty where it has none.
std::string what_is_known(const at::Tensor& number);
symbols::Range range_of(const at::Tensor& number);
/// Whether it is computed of sizes alone.
bool follows_from_sizes(const at::Tensor& number);

}  // namespace triage::capture
