#include "runtime/operators/table/shapes_of.h"

#include <algorithm>
#include <cctype>
#include <map>

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

std::vector<int64_t> filled_up(const Call& call, Name name, int64_t otherwise) {
  const bool one = call.schema.name().find("1d") != std::string::npos;
  std::vector<int64_t> numbers = call.integers(name);
  if (numbers.empty()) numbers.push_back(otherwise);
  numbers.resize(one ? 1 : 2, numbers.back());
  return numbers;
}

std::vector<int64_t> convolved(const Call& call) {
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

std::vector<int64_t> pooled(const Call& call) {
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

std::vector<int64_t> padded(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  std::vector<int64_t> sizes = self->sizes().vec();
  const std::vector<int64_t> pad = call.integers("pad");
  for (size_t i = 0; i + 1 < pad.size() && i / 2 < sizes.size(); i += 2)
    sizes[sizes.size() - 1 - i / 2] += pad[i] + pad[i + 1];
  return sizes;
}

std::optional<Einsum> read_einsum(const Call& call) {
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
