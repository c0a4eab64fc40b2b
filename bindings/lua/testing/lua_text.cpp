#include "bindings/lua/testing/lua_text.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <map>
#include <vector>

#include "runtime/graph/text/describe.h"

namespace triage::lua {
namespace {

constexpr int64_t most_listed = 64;     // elements that are listed whatever they are
constexpr int64_t most_other = 64;      // elements beside one value that all others have
constexpr int64_t most_numbers = 1024;  // elements that are listed where no value is that of most

std::string number_text(const at::Tensor& element) {
  if (element.scalar_type() == at::kBool) return element.item<bool>() ? "true" : "false";
  if (!element.is_floating_point()) return fmt::format("{}", element.item<int64_t>());
  const double value = element.item<double>();
  if (std::isnan(value)) return "0/0";
  if (std::isinf(value)) return value > 0 ? "1/0" : "-1/0";
  std::string text =
      element.scalar_type() == at::kDouble ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string rows_text(const at::Tensor& tensor) {
  if (tensor.dim() == 0) return number_text(tensor);
  std::string text;
  for (int64_t i = 0; i < tensor.size(0); ++i) text += (i > 0 ? ", " : "") + rows_text(tensor[i]);
  return "{" + text + "}";
}

/// `, {dtype = torch.int64}`; nothing for what numbers of Lua become by themselves.
std::string dtype_text(const at::Tensor& tensor) {
  const bool is_default = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBool;
  return is_default ? "" : fmt::format(", {{dtype = torch.{}}}", graph::dtype_name(tensor.scalar_type()));
}

/// "[0][5]", from the place in memory.
std::string index_text(int64_t place, at::IntArrayRef sizes) {
  std::string text;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    text.insert(0, fmt::format("[{}]", place % sizes[dim]));
    place /= sizes[dim];
  }
  return text;
}

/// One value, then the elements that have another; empty where those are too many.
std::string filled_text(const at::Tensor& tensor) {
  const at::Tensor elements = tensor.contiguous().flatten();
  std::map<std::string, int64_t> count;
  std::vector<std::string> texts;
  for (int64_t i = 0; i < elements.numel(); ++i) {
    texts.push_back(number_text(elements[i]));
    ++count[texts.back()];
    if (static_cast<int64_t>(count.size()) > most_other + 1) return "";
  }
  std::string most = texts.front();
  for (const auto& [text, times] : count)
    if (times > count[most]) most = text;
  if (elements.numel() - count[most] > most_other) return "";
  const std::string sizes = fmt::format("{{{}}}", fmt::join(tensor.sizes(), ", "));
  const std::string made = most == "0.0" ? fmt::format("torch.zeros({}{})", sizes, dtype_text(tensor))
                                         : fmt::format("torch.full({}, {}{})", sizes, most, dtype_text(tensor));
  if (count.size() == 1) return made;
  std::string others;
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i] != most)
      others += fmt::format("t{} = {}; ", index_text(static_cast<int64_t>(i), tensor.sizes()), texts[i]);
  return fmt::format("(function() local t = {}; {}return t end)()", made, others);
}

}  // namespace

std::string lua_text(const at::Tensor& tensor) {
  constexpr int64_t most_read = int64_t{1} << 20;  // reading more takes seconds
  const std::string form =
      fmt::format("{} {}", graph::dtype_name(tensor.scalar_type()), fmt::join(tensor.sizes(), "x"));
  if (tensor.numel() == 0 || tensor.numel() > most_read || tensor.is_complex()) return form;
  const at::Tensor here = tensor.cpu();
  if (here.numel() > most_listed) {
    const std::string filled = filled_text(here);
    if (!filled.empty()) return filled;
    if (here.numel() > most_numbers) return form;
  }
  return fmt::format("torch.tensor({}{})", rows_text(here), dtype_text(here));
}

}  // namespace triage::lua
