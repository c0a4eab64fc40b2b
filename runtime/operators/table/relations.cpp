#include "runtime/operators/table/relations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "runtime/operators/division.h"
#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/shapes_of.h"

namespace triage::operators {
namespace {

/// (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1
int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil) {
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return 0;
  return (room + (ceil ? stride - 1 : 0)) / stride + 1;
}

/// The letters of one part of an equation, with the dimensions that "..." stands for as '0', '1', ... from the last on.
std::optional<std::string> labels(std::string_view text, int64_t rank) {
  std::string before, after;
  bool dots = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "..." && !dots) {
      dots = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i]))) {
      (dots ? after : before) += text[i];
    } else {
      return std::nullopt;
    }
  }
  const int64_t rest = rank - static_cast<int64_t>(before.size() + after.size());
  if (rank >= 0 && (rest < 0 || (rest > 0 && !dots))) return std::nullopt;
  if (rank < 0) return before + (dots ? "." : "") + after;
  for (int64_t i = rest; i-- > 0;) before += static_cast<char>('0' + i);
  return before + after;
}

}  // namespace

std::vector<int64_t> filled_up(const OperatorCall& call, ArgumentName name, int64_t otherwise) {
  const std::string& op = call.schema.name();
  const size_t count = op.find("1d") != std::string::npos ? 1 : op.find("3d") != std::string::npos ? 3 : 2;
  std::vector<int64_t> numbers = call.integers(name);
  if (numbers.empty()) numbers.push_back(otherwise);
  numbers.resize(count, numbers.back());
  return numbers;
}

std::vector<int64_t> convolved(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const auto stride = filled_up(call, "stride", 1), padding = filled_up(call, "padding", 0),
             dilation = filled_up(call, "dilation", 1);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < stride.size(); ++i) {
    const auto at = static_cast<int64_t>(i), count = static_cast<int64_t>(stride.size());
    sizes.push_back(windows(input->size(input->dim() - count + at), weight->size(2 + at), stride[i], padding[i],
                            dilation[i], false));
  }
  return sizes;
}

std::vector<int64_t> unconvolved(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const auto stride = filled_up(call, "stride", 1), padding = filled_up(call, "padding", 0),
             dilation = filled_up(call, "dilation", 1), added = filled_up(call, "output_padding", 0);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < stride.size(); ++i) {
    const auto at = static_cast<int64_t>(i), count = static_cast<int64_t>(stride.size());
    sizes.push_back((input->size(input->dim() - count + at) - 1) * stride[i] - 2 * padding[i] +
                    dilation[i] * (weight->size(2 + at) - 1) + added[i] + 1);
  }
  return sizes;
}

std::vector<int64_t> pooled(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const auto kernel = filled_up(call, "kernel_size", 1), padding = filled_up(call, "padding", 0),
             dilation = filled_up(call, "dilation", 1);
  const auto stride = call.integers("stride").empty() ? kernel : filled_up(call, "stride", 1);
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const auto at = static_cast<int64_t>(i), count = static_cast<int64_t>(kernel.size());
    sizes.push_back(windows(self->size(self->dim() - count + at), kernel[i], stride[i], padding[i], dilation[i],
                            call.boolean("ceil_mode", false)));
  }
  return sizes;
}

std::vector<int64_t> padded(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  std::vector<int64_t> sizes = self->sizes().vec();
  const std::vector<int64_t> pad = call.integers("pad");
  for (size_t i = 0; i + 1 < pad.size() && i / 2 < sizes.size(); i += 2)
    sizes[sizes.size() - 1 - i / 2] += pad[i] + pad[i + 1];
  return sizes;
}

std::optional<Einsum> read_einsum(const OperatorCall& call) {
  const std::string& equation = call.value("equation").toStringRef();
  const std::vector<at::Tensor> tensors = call.tensors("tensors");
  const size_t arrow = equation.find("->");
  std::string_view left = std::string_view(equation).substr(0, arrow);
  std::map<char, int64_t> sizes;
  std::map<char, int> times;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const size_t comma = left.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == tensors.size())) return std::nullopt;
    const auto own = labels(left.substr(0, comma), tensors[i].dim());
    if (!own) return std::nullopt;
    for (size_t k = 0; k < own->size(); ++k) {
      int64_t& size = sizes.try_emplace((*own)[k], 1).first->second;
      const int64_t here = tensors[i].size(static_cast<int64_t>(k));
      if (size != 1 && here != 1 && size != here) return std::nullopt;
      if (here != 1) size = here;
      ++times[(*own)[k]];
    }
    left = comma == std::string_view::npos ? std::string_view() : left.substr(comma + 1);
  }
  for (auto& [label, size] : sizes) size = std::max<int64_t>(size, 1);
  Einsum read;
  for (const auto& [label, size] : sizes) {
    read.all *= static_cast<double>(size);
    if (times[label] > 1 &&
        (tensors.size() > 2 || arrow == std::string::npos || equation.find(label, arrow) != std::string::npos ||
         !std::isalpha(static_cast<unsigned char>(label))))
      read.batch *= static_cast<double>(size);
  }
  if (arrow == std::string::npos) {
    for (const auto& [label, size] : sizes)
      if (!std::isalpha(static_cast<unsigned char>(label)) || times[label] == 1)
        read.result *= static_cast<double>(size);
    return read;
  }
  const auto right = labels(std::string_view(equation).substr(arrow + 2), -1);
  if (!right) return std::nullopt;
  std::map<char, int> given;
  for (const char label : *right) {
    if (label != '.' && (!sizes.count(label) || given[label]++ > 0)) return std::nullopt;
    if (label != '.') read.result *= static_cast<double>(sizes[label]);
  }
  for (const auto& [label, size] : sizes)
    if (!std::isalpha(static_cast<unsigned char>(label))) read.result *= static_cast<double>(size);
  return read;
}

}  // namespace triage::operators

namespace triage::operators::relation {
namespace {

constexpr double kMostElements = 1099511627776;
constexpr int64_t kMostPieces = 100'000;

Wrong too_many_elements(const char* what, double elements) {
  if (elements <= kMostElements) return std::nullopt;
  return fmt::format("{} would have {:.0f} elements; expected at most {:.0f}", what, elements, kMostElements);
}

/// The elements of a tensor that lie apart: what is expanded repeats them.
at::Tensor unexpanded(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  return tensor;
}

bool is_whole(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true); }

}  // namespace

Wrong pieces(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  if (!self || self->dim() == 0) return std::nullopt;
  int64_t dim = call.integer("dim", 0);
  if (dim < 0) dim += self->dim();
  const int64_t size = self->size(dim), step = std::max<int64_t>(1, call.integer("split_size", 1));
  const int64_t count = call.value("chunks").isNone() ? size / step : std::min(size, call.integer("chunks", 1));
  if (count <= kMostPieces) return std::nullopt;
  return fmt::format("argument 'self' would be cut into {} tensors; expected at most {}", count, kMostPieces);
}

Wrong broadcasts(const OperatorCall& call) { return too_many_elements("each result", cost::broadcast_elements(call)); }

Wrong meshes(const OperatorCall& call) {
  double elements = 1;
  for (const at::Tensor& tensor : call.tensors("tensors")) elements *= static_cast<double>(tensor.numel());
  return too_many_elements("each result", elements);
}

Wrong adds_to_self(const OperatorCall& call) {
  if (call.number("beta", 1) != 0) return std::nullopt;
  return "argument 'beta' is 0; expected another number (torch.bmm multiplies and adds nothing)";
}

Wrong indexes(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  int64_t taken = 0;
  for (const c10::IValue& item : call.value("indices").toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      ++taken;
      continue;
    }
    const at::Tensor& index = item.toTensor();
    const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    if (!mask && index.scalar_type() != at::kLong)
      return fmt::format("argument 'indices' holds a tensor of {}; expected Long or Bool",
                         c10::toString(index.scalar_type()));
    taken += mask ? index.dim() : 1;
  }
  if (self && taken > self->dim())
    return fmt::format("argument 'indices' is for {} dimensions; the tensor has {}", taken, self->dim());
  return std::nullopt;
}

Wrong vector_norm(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  if (!self || call.value("ord").isNone()) return std::nullopt;
  const std::vector<int64_t> dims = call.integers("dim");
  const int64_t count = call.value("dim").isNone() ? self->dim() : static_cast<int64_t>(dims.size());
  if (count < 2) return std::nullopt;
  return "argument 'ord' asks for a norm of matrices; expected None, or one dimension";
}

Wrong same_sizes(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  for (const ArgumentName name : {ArgumentName("target"), ArgumentName("weight")}) {
    const at::Tensor* other = call.tensor(name);
    if (self && other && other->sizes() != self->sizes())
      return fmt::format("argument '{}' is of shape [{}]; expected [{}], as argument 'self' is", name.text(),
                         fmt::join(other->sizes(), ", "), fmt::join(self->sizes(), ", "));
  }
  return std::nullopt;
}

Wrong few_reals(const OperatorCall& call) {
  constexpr int64_t most = 10000;
  for (const ArgumentName name : {ArgumentName("elements"), ArgumentName("test_elements")}) {
    const at::Tensor* given = call.tensor(name);
    if (given && at::isFloatingType(given->scalar_type()) && given->numel() > most)
      return fmt::format(
          "argument '{}' has {} real numbers; expected at most {}, because each NaN among them would be "
          "compared with every other. Whole numbers may be more (x:long())",
          name.text(), given->numel(), most);
  }
  return std::nullopt;
}

Wrong groups(const OperatorCall& call) {
  const int64_t channels = call.tensor("input")->size(1), count = call.integer("num_groups", 1);
  if (count <= std::max<int64_t>(1, channels)) return std::nullopt;  // of no channels, any number would divide them
  return fmt::format("argument 'num_groups' is {}; expected at most {}, the channels", count,
                     std::max<int64_t>(1, channels));
}

Wrong batch_norm(const OperatorCall& call) {
  const at::Tensor* input = call.tensor("input");
  for (const ArgumentName name :
       {ArgumentName("weight"), ArgumentName("bias"), ArgumentName("running_mean"), ArgumentName("running_var")}) {
    const at::Tensor* given = call.tensor(name);
    if (input && given && given->numel() != input->size(1))
      return fmt::format("argument '{}' has {} elements; expected {}, one for each channel", name.text(),
                         given->numel(), input->size(1));
  }
  if (call.boolean("training", false) && (call.tensor("running_mean") || call.tensor("running_var")))
    return "argument 'training' is true, and the running statistics would be written to; expected none of them, or "
           "training = false";
  if (!call.boolean("training", false) && !(call.tensor("running_mean") && call.tensor("running_var")))
    return "argument 'running_mean' or 'running_var' is missing; expected both where training = false";
  return std::nullopt;
}

Wrong convolution(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight"), *bias = call.tensor("bias");
  const int64_t spatial = weight->dim() - 2, groups = call.integer("groups", 1);
  const int64_t channels = input->size(input->dim() - spatial - 1);
  if (weight->size(1) > channels / groups || weight->size(1) * groups != channels || weight->size(0) % groups != 0)
    return fmt::format("argument 'weight' is of shape [{}]; it does not fit {} channels in {} groups",
                       fmt::join(weight->sizes(), ", "), channels, groups);
  if (bias && bias->size(0) != weight->size(0))
    return fmt::format("argument 'bias' has {} elements; expected {}", bias->size(0), weight->size(0));
  for (const int64_t size : convolved(call))
    if (size < 1) return "argument 'weight' is larger than the padded input";
  return std::nullopt;
}

Wrong transposed_convolution(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight"), *bias = call.tensor("bias");
  const int64_t spatial = weight->dim() - 2, groups = call.integer("groups", 1);
  const int64_t channels = input->size(input->dim() - spatial - 1);
  if (weight->size(0) != channels || channels % groups != 0)
    return fmt::format("argument 'weight' is of shape [{}]; it does not fit {} channels in {} groups",
                       fmt::join(weight->sizes(), ", "), channels, groups);
  if (bias && (bias->size(0) % groups != 0 || bias->size(0) / groups != weight->size(1)))
    return fmt::format("argument 'bias' has {} elements; expected {} in each of {} groups", bias->size(0),
                       weight->size(1), groups);
  const auto stride = filled_up(call, "stride", 1), dilation = filled_up(call, "dilation", 1),
             added = filled_up(call, "output_padding", 0);
  double elements = static_cast<double>(weight->size(1)) * static_cast<double>(groups);
  for (size_t i = 0; i < stride.size(); ++i)
    if (added[i] >= std::max(stride[i], dilation[i]))
      return fmt::format("argument 'output_padding' is {}; expected less than stride or dilation, {}", added[i],
                         std::max(stride[i], dilation[i]));
  for (const int64_t size : unconvolved(call)) {
    if (size < 1) return "argument 'padding' leaves nothing of the result";
    elements *= static_cast<double>(size);
  }
  return too_many_elements("each result", elements);
}

Wrong instance_norm(const OperatorCall& call) {
  const at::Tensor* input = call.tensor("input");
  for (const ArgumentName name : {ArgumentName("weight"), ArgumentName("bias")})
    if (const at::Tensor* given = call.tensor(name); given && given->numel() != input->size(1))
      return fmt::format("argument '{}' has {} elements; expected {}, one for each channel", name.text(),
                         given->numel(), input->size(1));
  if (!call.boolean("use_input_stats", true)) return "argument 'use_input_stats' is false; expected true";
  return std::nullopt;
}

Wrong shuffled_pixels(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const int64_t up = call.integer("upscale_factor", 1), down = call.integer("downscale_factor", 1);
  const int64_t channels = self->size(-3), height = self->size(-2), width = self->size(-1);
  if (channels % (up * up) != 0)
    return fmt::format("argument 'upscale_factor' is {}; its square does not divide {} channels", up, channels);
  if (height % down != 0 || width % down != 0)
    return fmt::format("argument 'downscale_factor' is {}; it does not divide {} and {}", down, height, width);
  return std::nullopt;
}

namespace {

/// What a tensor of a recurrent layer is to be.
Wrong expect_sizes(const at::Tensor& tensor, const char* argument, size_t number, at::IntArrayRef sizes) {
  if (tensor.sizes() == sizes) return std::nullopt;
  return fmt::format("argument '{}' holds a tensor of shape [{}] at {}; expected [{}]", argument,
                     fmt::join(tensor.sizes(), ", "), number, fmt::join(sizes, ", "));
}

/// How many rows of a weight belong to each hidden unit.
int64_t gates_of(const std::string& op) {
  return op.find("lstm") != std::string::npos ? 4 : op.find("gru") != std::string::npos ? 3 : 1;
}

}  // namespace

/// All sizes follow from those of the states, the input and the numbers.
Wrong recurrent(const OperatorCall& call) {
  const at::Tensor& input = *call.tensor("input");
  const bool lstm = call.schema.name() == "aten::lstm", biases = call.boolean("has_biases", true);
  const std::vector<at::Tensor> states = lstm ? call.tensors("hx") : std::vector<at::Tensor>{*call.tensor("hx")};
  const std::vector<at::Tensor> weights = call.tensors("params");
  if (states.size() != (lstm ? 2U : 1U)) return fmt::format("argument 'hx' has {} elements; expected 2", states.size());
  const int64_t directions = call.boolean("bidirectional", false) ? 2 : 1,
                cells = call.integer("num_layers", 1) * directions;
  const int64_t batch = input.size(call.boolean("batch_first", false) ? 0 : 1);
  const int64_t hidden = states.back().size(2), seen = states.front().size(2),
                gates = gates_of(call.schema.name()) * hidden;
  const size_t each = (biases ? 4 : 2) + (seen != hidden ? 1 : 0);
  for (size_t i = 0; i < states.size(); ++i)
    if (Wrong wrong = expect_sizes(states[i], "hx", i, {cells, batch, states[i].size(2)})) return wrong;
  if (hidden < 1 || seen < 1 || weights.size() != each * static_cast<size_t>(cells))
    return fmt::format("argument 'params' has {} elements; expected {}", weights.size(),
                       each * static_cast<size_t>(cells));
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t part = i % each;
    const int64_t inputs = i < each * static_cast<size_t>(directions) ? input.size(2) : seen * directions;
    Wrong wrong = part == 0             ? expect_sizes(weights[i], "params", i, {gates, inputs})
                  : part == 1           ? expect_sizes(weights[i], "params", i, {gates, seen})
                  : biases && part <= 3 ? expect_sizes(weights[i], "params", i, {gates})
                                        : expect_sizes(weights[i], "params", i, {seen, hidden});
    if (wrong) return wrong;
  }
  return std::nullopt;
}

/// One step of such a layer.
Wrong recurrent_cell(const OperatorCall& call) {
  const at::Tensor& input = *call.tensor("input");
  const bool lstm = call.schema.name() == "aten::lstm_cell";
  const std::vector<at::Tensor> states = lstm ? call.tensors("hx") : std::vector<at::Tensor>{*call.tensor("hx")};
  if (states.size() != (lstm ? 2U : 1U)) return fmt::format("argument 'hx' has {} elements; expected 2", states.size());
  const int64_t hidden = call.tensor("w_hh")->size(1), gates = gates_of(call.schema.name()) * hidden;
  for (size_t i = 0; i < states.size(); ++i)
    if (Wrong wrong = expect_sizes(states[i], "hx", i, {input.size(0), hidden})) return wrong;
  if (Wrong wrong = expect_sizes(*call.tensor("w_ih"), "w_ih", 0, {gates, input.size(1)})) return wrong;
  if (Wrong wrong = expect_sizes(*call.tensor("w_hh"), "w_hh", 0, {gates, hidden})) return wrong;
  for (const ArgumentName name : {ArgumentName("b_ih"), ArgumentName("b_hh")})
    if (const at::Tensor* bias = call.tensor(name))
      if (Wrong wrong = expect_sizes(*bias, name.text().data(), 0, {gates})) return wrong;
  return std::nullopt;
}

Wrong pooling(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const auto kernel = filled_up(call, "kernel_size", 1), padding = filled_up(call, "padding", 0);
  for (size_t i = 0; i < kernel.size(); ++i)
    if (padding[i] > kernel[i] / 2)
      return fmt::format("argument 'padding' is {}; expected at most half of the kernel, {}", padding[i],
                         kernel[i] / 2);
  for (const int64_t size : pooled(call))
    if (size < 1)
      return fmt::format("argument 'kernel_size' is larger than the padded input of shape [{}]",
                         fmt::join(self->sizes(), ", "));
  return std::nullopt;
}

Wrong constant_padding(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const std::vector<int64_t> pad = call.integers("pad");
  if (pad.size() % 2 != 0 || static_cast<int64_t>(pad.size()) > 2 * self->dim())
    return fmt::format("argument 'pad' has {} elements; expected two for each of up to {} dimensions", pad.size(),
                       self->dim());
  for (const int64_t size : padded(call))
    if (size < 0) return "argument 'pad' takes away more than there is";
  return std::nullopt;
}

Wrong padding(const OperatorCall& call) {
  const c10::IValue& mode = call.value("mode");
  if (Wrong wrong = constant_padding(call)) return wrong;
  if (!mode.isString() || mode.toStringRef() == "constant") return std::nullopt;
  const at::Tensor* self = call.tensor("self");
  const std::vector<int64_t> pad = call.integers("pad");
  const auto count = static_cast<int64_t>(pad.size() / 2);
  if (count < 1 || count > 3 || self->dim() < count + 1 || self->dim() > count + 2 || self->numel() == 0)
    return fmt::format(
        "argument 'pad' has {} elements; the last one to three dimensions of a tensor with elements and one or two "
        "more dimensions can be padded so, got shape [{}]",
        pad.size(), fmt::join(self->sizes(), ", "));
  if (!at::isFloatingType(self->scalar_type())) return "argument 'self' is not a tensor of floats";
  for (size_t i = 0; i < pad.size(); ++i) {
    const int64_t size = self->size(self->dim() - 1 - static_cast<int64_t>(i / 2));
    const int64_t most = mode.toStringRef() == "reflect" ? size - 1 : mode.toStringRef() == "circular" ? size : 1 << 30;
    if (pad[i] < 0 || pad[i] > most) return fmt::format("argument 'pad' holds {}; expected 0 to {}", pad[i], most);
  }
  return std::nullopt;
}

Wrong einsum(const OperatorCall& call) {
  if (read_einsum(call)) return std::nullopt;
  return fmt::format(
      "argument 'equation' is \"{}\"; expected letters for the dimensions of each tensor, as in \"ij,jk->ik\"",
      call.value("equation").toStringRef());
}

Wrong divides(const OperatorCall& call) {
  const c10::IValue &self = call.value("self"), &other = call.value("other"), &mode = call.value("rounding_mode");
  const bool quotient = call.schema.name().find("div") != std::string::npos;
  const bool as_floats = quotient && mode.isNone() && call.schema.overload_name().find("_mode") != std::string::npos;
  const auto whole = [](const c10::IValue& value) {
    return value.isTensor() ? value.toTensor().defined() && is_whole(value.toTensor()) : !value.isDouble();
  };
  if (as_floats || !whole(self) || !whole(other)) return std::nullopt;
  const at::ScalarType dtype = dtype_of_division(call.schema, self, other);
  if (dtype == at::kBool || dtype == at::kByte) return std::nullopt;
  const bool by_minus_one = other.isTensor() ? unexpanded(other.toTensor()).to(dtype).eq(-1).any().item<bool>()
                                             : is_minus_one(static_cast<int64_t>(number_of(other)), dtype);
  if (!by_minus_one) return std::nullopt;
  return "argument 'other' holds -1, by which ATen does not divide the least integer; divide by 1 and negate";
}

}  // namespace triage::operators::relation
