#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace triage::operators {

/// The name of an argument that bounds and relations of the table ask for. Each is a number when the program is
/// compiled, and where a schema has it is found once, when the table is read: calls look no text up.
class ArgumentName {
 public:
  static constexpr std::string_view all[] = {"A",
                                             "B",
                                             "b_hh",
                                             "b_ih",
                                             "batch1",
                                             "batch2",
                                             "batch_first",
                                             "beta",
                                             "bias",
                                             "bidirectional",
                                             "ceil_mode",
                                             "chunks",
                                             "codes",
                                             "diagonal",
                                             "dilation",
                                             "dim",
                                             "dims",
                                             "downscale_factor",
                                             "dtype",
                                             "elements",
                                             "end",
                                             "equation",
                                             "fill_value",
                                             "flags",
                                             "groups",
                                             "has_biases",
                                             "hx",
                                             "index",
                                             "indices",
                                             "input",
                                             "input1",
                                             "input2",
                                             "integers",
                                             "k",
                                             "kernel_size",
                                             "left",
                                             "m",
                                             "mask",
                                             "mat",
                                             "mat1",
                                             "mat2",
                                             "min_severity",
                                             "mode",
                                             "n",
                                             "num_classes",
                                             "num_groups",
                                             "num_layers",
                                             "num_samples",
                                             "num_slots",
                                             "offset",
                                             "ord",
                                             "other",
                                             "output_padding",
                                             "output_size",
                                             "p",
                                             "pad",
                                             "padding",
                                             "params",
                                             "q",
                                             "repeats",
                                             "rounding_mode",
                                             "running_mean",
                                             "running_var",
                                             "self",
                                             "shifts",
                                             "size",
                                             "split_size",
                                             "start",
                                             "step",
                                             "steps",
                                             "stride",
                                             "target",
                                             "tensor",
                                             "tensors",
                                             "test_elements",
                                             "training",
                                             "upscale_factor",
                                             "use_input_stats",
                                             "values",
                                             "vec",
                                             "vec2",
                                             "w_hh",
                                             "w_ih",
                                             "weight",
                                             "x1",
                                             "x2"};

  /// A literal stands for its name; one that is not among them does not compile.
  consteval ArgumentName(const char* text) : number_(0) {  // NOLINT(google-explicit-constructor)
    while (all[number_] != text) ++number_;
  }
  constexpr size_t number() const { return number_; }
  constexpr std::string_view text() const { return all[number_]; }

 private:
  size_t number_;
};

/// Where a schema has the arguments of these names.
class ArgumentPositions {
 public:
  explicit ArgumentPositions(const c10::FunctionSchema& schema);
  int of(ArgumentName name) const { return positions_[name.number()]; }  // -1: it has none

 private:
  std::array<int8_t, std::size(ArgumentName::all)> positions_;
};

/// One call, as bounds and relations of the table look at it. What is not there, or None, gives the value that stands
/// for it.
struct OperatorCall {
  const c10::FunctionSchema& schema;
  const ArgumentPositions& positions;
  c10::ArrayRef<c10::IValue> arguments;

  const c10::IValue& value(ArgumentName name) const;
  const at::Tensor* tensor(ArgumentName name) const;  // null: none
  int64_t integer(ArgumentName name, int64_t otherwise) const;
  double number(ArgumentName name, double otherwise) const;
  bool boolean(ArgumentName name, bool otherwise) const;
  std::vector<int64_t> integers(ArgumentName name) const;
  std::vector<at::Tensor> tensors(ArgumentName name) const;
};

/// A number that may stand as a tensor of one element.
int64_t integer_of(const c10::IValue& value);
double number_of(const c10::IValue& value);
std::vector<int64_t> integers_of(const c10::IValue& value);

/// Calls `visit` with every tensor of the arguments that is defined.
template <typename Visit>
void for_each_tensor(c10::ArrayRef<c10::IValue> arguments, const Visit& visit) {
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) {
      if (value.toTensor().defined()) visit(value.toTensor());
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor() && item.toTensor().defined()) visit(item.toTensor());
    }
  }
}

}  // namespace triage::operators
