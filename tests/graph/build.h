#pragma once
#include <ATen/ATen.h>
#include <triage/backend.h>
#include <triage/graph.h>

#include <functional>
#include <string>
#include <vector>

/// What the tests of graphs share: building them by hand, running them, comparing bits.
namespace triage::test {

using Tensors = std::vector<at::Tensor>;

inline constexpr int64_t BATCHES[] = {0, 1, 2, 31, 32, 33};

/// "aten::add.Tensor"
inline c10::OperatorHandle op(const std::string& name) {
  size_t dot = name.find('.');
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(), overload.c_str());
}

/// Appends a call; the trailing arguments that are not given get the schema's defaults.
inline graph::Node* append(graph::Graph& graph, const std::string& name, std::vector<graph::Operand> operands,
                           size_t num_results = 1, Source source = {}) {
  c10::OperatorHandle handle = op(name);
  const auto& arguments = handle.schema().arguments();
  for (size_t i = operands.size(); i < arguments.size(); ++i)
    operands.emplace_back(arguments[i].default_value().value_or(c10::IValue()));
  return graph.append(handle, std::move(operands), num_results, std::move(source));
}

inline graph::Value* add(graph::Graph& graph, const std::string& name, std::vector<graph::Operand> operands) {
  return append(graph, name, std::move(operands))->results.at(0);
}

inline c10::IValue number(double value) { return value; }
inline c10::IValue integer(int64_t value) { return value; }
inline c10::IValue none() { return {}; }
inline c10::IValue sizes(std::vector<int64_t> values) { return values; }

inline graph::TensorMeta meta(std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
  return {dtype, std::move(sizes), c10::kCPU};
}

inline std::vector<at::Tensor> run(const graph::Graph& graph, const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> outputs;
  find_backend("eager")(graph, inputs)->run(inputs, outputs);
  return outputs;
}

/// Same dtype, shape and bits: NaN equals itself, -0.0 is not 0.0.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return a.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// The message of the E that `body` throws; a text that says what happened instead where it throws none.
template <typename E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("(another exception) ") + error.what();
  }
  return "(nothing was thrown)";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace triage::test

/// The message of what `expression` throws must hold `part`.
#define CHECK_ERROR(type, expression, part)                                                       \
  do {                                                                                            \
    std::string message = triage::test::message_of<type>([&] { static_cast<void>(expression); }); \
    INFO(message);                                                                                \
    CHECK(triage::test::contains(message, part));                                                 \
  } while (false)
