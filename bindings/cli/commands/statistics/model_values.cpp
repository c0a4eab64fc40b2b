#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/instrument.h>

#include <utility>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/model_call.h"
#include "bindings/cli/commands/statistics/counted_values.h"

namespace triage::cli {

CountedValues values_of_model(const CallOptions& options) {
  CountedValues found{"model", options.policy, 0, {}, "", {}};
  std::optional<Instrumented> model;
  CallOptions one = options;
  for (const auto& texts : inputs_of_calls(options.inputs)) {
    one.inputs = texts;
    ModelCall call = prepare_model(one);
    if (!model) model.emplace(instrument(call.model, {.statistics = true}));
    (*model)(std::move(call.arguments));
    ++found.calls;
  }
  found.statistics = model->statistics();
  if (!model->unseen().empty())
    found.notes.push_back(fmt::format("not counted, because the model never calls them as modules: {}",
                                      fmt::join(model->unseen(), ", ")));
  return found;
}

}  // namespace triage::cli
