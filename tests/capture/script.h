#pragma once
#include "runtime/capture/compiled.h"
#include "runtime/capture/recording/recorder.h"

#include <ATen/ATen.h>

#include <functional>

/// A Script made of a C++ function, and calls through the door that front ends use.
namespace triage::test {

inline at::Tensor op(const char* name, const char* overload, torch::jit::Stack arguments) {
  auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  capture::call(handle, arguments);
  return arguments.back().toTensor();
}

inline at::Tensor op_add(const at::Tensor& a, const at::Tensor& b) { return op("aten::add", "Tensor", {a, b, 1}); }
inline at::Tensor op_relu(const at::Tensor& x) { return op("aten::relu", "", {x}); }

class FunctionScript : public Script {
 public:
  using Function = std::function<std::vector<at::Tensor>(at::ArrayRef<at::Tensor>, at::ArrayRef<at::Tensor>)>;
  explicit FunctionScript(Function function, Signature signature = {{"z"}, {}, {}})
      : function_(std::move(function)), signature_(std::move(signature)) {}
  const std::string& name() const override { return name_; }
  const Signature& signature() const override { return signature_; }
  bool fullgraph() const override { return false; }
  std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                               std::optional<std::chrono::steady_clock::time_point>) override {
    ++calls;
    return function_(inputs, params);
  }
  const std::vector<bool>& flags_outputs() const override { return flags_; }
  std::vector<std::pair<std::string, std::string>> run_tests() override { return {}; }
  Definition definition() const override { return ++definitions, Definition{}; }

  int calls = 0;
  mutable int definitions = 0;

 private:
  Function function_;
  std::string name_ = "test";
  Signature signature_;
  std::vector<bool> flags_;
};

inline std::shared_ptr<FunctionScript> script(FunctionScript::Function function,
                                              Signature signature = {{"z"}, {}, {}}) {
  return std::make_shared<FunctionScript>(std::move(function), std::move(signature));
}

inline std::vector<at::Tensor> run(capture::Compiled& compiled, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& params = {}) {
  std::vector<at::Tensor> outputs;
  compiled.run(inputs, params, {}, outputs);
  return outputs;
}

}  // namespace triage::test

/// The message of the E that `expression` throws must contain `text`.
#define CHECK_THROWS_SAYING(E, expression, text)                                \
  do {                                                                          \
    std::string said_;                                                          \
    try {                                                                       \
      (void)(expression);                                                       \
      said_ = "(nothing was thrown)";                                           \
    } catch (const E& error_) {                                                 \
      said_ = error_.what();                                                    \
    }                                                                           \
    CHECK_MESSAGE(said_.find(text) != std::string::npos, "it said: " << said_); \
  } while (false)
