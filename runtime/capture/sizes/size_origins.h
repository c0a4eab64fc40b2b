#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/operators/semantics.h"

/// Where sizes come from. A recorded call replays on inputs of other sizes, so that what a script learnt of a size
/// holds again only if it follows from the sizes of inputs. For common operators the relation is known
/// (size_rules.cpp); any other gives results of unknown sizes.
namespace triage::capture {

/// The size of one dimension of a tensor of a capture.
struct Extent {
  enum class From : uint8_t {
    unknown,
    constant,  // the same in every replay
    input,     // that of one dimension of one input
  };
  From from = From::unknown;
  int64_t size = 0;  // of a constant
  size_t input = 0;
  int64_t dim = 0;

  static Extent constant(int64_t size) { return {From::constant, size, 0, 0}; }
  bool is(int64_t known) const { return from == From::constant && size == known; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

/// One extent a dimension; nothing where even their number may differ in a replay.
using Shape = std::optional<std::vector<Extent>>;

/// The shapes of the tensors of one capture. A tensor that was never added was there before: its sizes are constant.
/// The caller keeps the addresses of the tensors from being used again.
class SizeOrigins {
 public:
  void add_input(const at::Tensor& traced, size_t input);
  /// The results of a call. `arguments` as the graph has them: a param may stand where the schema wants a number.
  void add_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                   const std::vector<at::Tensor*>& results);
  /// `target` was written to and now has the shape of `value`.
  void replace(const at::Tensor& target, const at::Tensor& value);
  /// From now on a dimension of an input is known to be of one size with another, or of a constant size, in every
  /// replay.
  void unite(const Extent& a, const Extent& b);

  bool knows(const at::Tensor& tensor) const { return shapes_.count(tensor.unsafeGetTensorImpl()) != 0; }
  Shape shape(const at::Tensor& tensor) const;
  Extent extent(const at::Tensor& tensor, int64_t dim) const;

 private:
  /// United dimensions have one representative, so that extents can be compared with ==.
  Extent representative(Extent extent) const;
  Shape checked(Shape shape, const at::Tensor& result) const;

  std::unordered_map<const c10::TensorImpl*, Shape> shapes_;
  std::vector<at::Tensor> inputs_;
  std::vector<std::pair<Extent, Extent>> united_;  // each first one is represented by its second one
};

/// The shape that an operator gives its result number `result`, as far as a rule is known; `shape_of` tells those of
/// its tensor arguments. Holds for all sizes for which the call does not raise.
class SizeRules {
 public:
  SizeRules(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, const SizeOrigins& origins);
  Shape result(size_t index) const;
  /// Nothing that the call was given differs in a replay, so neither do the shapes it gives (torch.zeros({3})).
  bool repeats_itself() const;

 private:
  /// Of the one result.
  Shape of_one() const;

  // What the call was given.
  const c10::IValue* argument(const char* name) const;
  Shape shape(const char* name) const;
  Shape shape(const at::Tensor& tensor) const { return origins_.shape(tensor); }
  Shape first() const;
  std::optional<int64_t> integer(const char* name) const;
  std::vector<at::Tensor> tensors() const;
  std::optional<std::vector<int64_t>> wrapped_dims(const char* name, size_t rank) const;
  Extent broadcast(const Extent& a, const Extent& b) const;
  Shape broadcast(const Shape& a, const Shape& b) const;

  // The rules.
  Shape pointwise() const;
  Shape rows_of_first() const;
  Shape record() const;
  Shape reduction() const;
  Shape linear() const;
  Shape matmul() const;
  Shape addmm() const;
  Shape embedding() const;
  Shape convolution() const;
  Shape flatten() const;
  Shape view() const;
  Shape unsqueeze() const;
  Shape swapped(int64_t a, int64_t b) const;
  Shape transpose() const;
  Shape swap_two() const;
  Shape permute() const;
  Shape select() const;
  Shape slice() const;
  Shape stack() const;
  Shape concatenate() const;
  Shape rows_by_mask() const;
  Shape list_of_positions() const;
  Shape part(size_t index) const;
  Shape of_host(size_t index) const;

  const c10::OperatorHandle& op_;
  const std::vector<c10::IValue>& arguments_;
  const SizeOrigins& origins_;
  const operators::ResultSizes sizes_;
  bool number_is_param_ = false;  // some number of the call may differ in a replay
};

/// The dimension along which an operator cuts its first argument into a list, whose length follows from that size
/// alone.
std::optional<int64_t> parted_dim(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

}  // namespace triage::capture
