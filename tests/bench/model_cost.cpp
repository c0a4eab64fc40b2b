// What flags cost on a whole model: an MLP, a block of a ResNet and a stack of transformer blocks, with flags after
// every layer and a repair at the end, against the same model without; the forward pass, and a step of training
// (forward, loss, backward, SGD). On the fused backend the model is a policy that takes its parameters as inputs. In
// TorchScript `triage::instrument` looks.
#include "models.h"
#include "table.h"

#include <ATen/ATen.h>
#include <benchmark/benchmark.h>
#include <triage/error.h>
#include <triage/flags.h>
#include <triage/instrument.h>
#include <triage/location.h>
#include <triage/runtime.h>

#include <functional>
#include <string>

namespace triage::bench {
namespace {

constexpr double forward_goal = 1.02, step_goal = 1.03, learning_rate = 1e-3;
constexpr int warm_calls = 4;      // the first ones capture, or let TorchScript specialise
constexpr int most_rounds = 1000;  // a hundredth is told from the noise of a machine by many rounds
constexpr double seconds_a_line = 8;

using Forward = std::function<at::Tensor()>;

void descend(const Tensors& parameters, const at::Tensor& loss) {
  loss.backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) {
    parameter.add_(parameter.grad(), -learning_rate);
    parameter.mutable_grad() = at::Tensor();
  }
}

void compare(const Add& add, const std::string& work, const Model& model, bool training, const Forward& plain,
             const Forward& flagged) {
  const auto call = [&](const Forward& forward) {
    return [&model, &forward, training] {
      const at::AutoGradMode grad(training);
      const at::Tensor output = forward();
      benchmark::DoNotOptimize(output.unsafeGetTensorImpl());
      if (training) descend(model.parameters, at::mse_loss(output, model.target));
    };
  };
  for (int i = 0; i < warm_calls; ++i) call(plain)(), call(flagged)();
  const Timing timing = measure({call(plain), call(flagged)}, most_rounds, seconds_a_line);
  add(line_of(timing, 1, work, model.shape, "without", training ? step_goal : forward_goal));
}

void measure_fused(const Add& add, const std::string& work, const Model& model, bool training) {
  Runtime runtime;
  Tensors inputs = model.parameters;
  inputs.insert(inputs.begin(), model.input);
  const Policy plain = runtime.load_source(policy_source(model, false), model.name + " without flags"),
               flagged = runtime.load_source(policy_source(model, true), model.name);
  compare(
      add, work + ", fused", model, training, [&] { return plain.run(inputs)[0]; },
      [&] { return flagged.run(inputs)[0]; });
}

void measure_script(const Add& add, const std::string& work, const Model& model, bool training) {
  torch::jit::Module module = model.script;
  const Instrumented instrumented = instrument(module);
  const int64_t location = ErrorLocation::register_path("output");
  compare(
      add, work + ", TorchScript", model, training, [&] { return module.forward({model.input}).toTensor(); },
      [&] {
        const Instrumented::Result result = instrumented({model.input});
        return fix(result.output.toTensor(), result.flags, location).first;
      });
}

void measure_models(const Add& add) {
  for (const bool training : {false, true}) {
    for (const Model& model : models(training)) {
      const std::string work = model.name + (training ? ", step" : ", forward");
      measure_fused(add, work, model, training);
      measure_script(add, work, model, training);
    }
  }
}

const Table models_table("models", "Models with flags after every layer and a repair, against the same without (us)",
                         measure_models);

}  // namespace
}  // namespace triage::bench
