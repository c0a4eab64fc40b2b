#include "bindings/cli/calls/made_call.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Why the call found no graph that fits.
std::string reason_for(const std::vector<CompileProfiler::Recompile>& before,
                       const std::vector<CompileProfiler::Recompile>& after) {
  for (size_t i = 0; i < after.size(); ++i)
    if (i >= before.size() || after[i].count > before[i].count) return after[i].example;
  return "";
}

std::string graph_text(const MadeCall& call) {
  if (!call.recompiled.empty()) return "recompiled: " + call.recompiled;
  return call.captured ? "captured" : "no new graph";
}

}  // namespace

CallWatch::CallWatch(const PreparedCall& call)
    : call_(call), graphs_(graphs_of(call.policy).size()), recompiles_(call.profiler->recompiles()) {}

MadeCall CallWatch::finish(const std::vector<at::Tensor>& outputs) const {
  MadeCall made;
  const Signature signature = call_.policy.signature();
  for (size_t i = 0; i < call_.inputs.size(); ++i) made.inputs.emplace_back(signature.inputs[i], call_.inputs[i]);
  const std::vector<bool> is_flags = call_.policy.flags_outputs();
  const auto flags = std::find(is_flags.begin(), is_flags.end(), true);
  if (flags != is_flags.end() && static_cast<size_t>(flags - is_flags.begin()) < outputs.size()) {
    const at::Tensor bad = err::is_err(outputs[static_cast<size_t>(flags - is_flags.begin())]);
    made.flagged = bad.sum().item<int64_t>();
    made.samples = bad.numel();
  }
  made.captured = graphs_of(call_.policy).size() > graphs_;
  made.recompiled = reason_for(recompiles_, call_.profiler->recompiles());
  return made;
}

void print_calls(const std::vector<MadeCall>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<std::string> parts;
    for (const auto& [name, tensor] : calls[i].inputs) parts.push_back(name + " " + describe(tensor));
    const std::string flagged =
        calls[i].flagged ? fmt::format("; {} of {} samples flagged", *calls[i].flagged, *calls[i].samples) : "";
    say("  {:<8} {:<8} {}\n", i == 0 ? "calls" : "", i + 1,
        messages::one_line(fmt::format("{}{}; {}", fmt::join(parts, ", "), flagged, graph_text(calls[i]))));
  }
}

Json calls_json(const std::vector<MadeCall>& calls) {
  Json list = Json::array();
  for (const MadeCall& call : calls) {
    Json inputs = Json::array();
    for (const auto& [name, tensor] : call.inputs)
      inputs.push_back({{"name", name}, {"dtype", dtype_name(tensor.scalar_type())}, {"shape", tensor.sizes().vec()}});
    list.push_back({{"inputs", inputs},
                    {"flagged", call.flagged ? Json(*call.flagged) : Json()},
                    {"captured", call.captured},
                    {"recompiled", call.recompiled.empty() ? Json() : Json(call.recompiled)}});
  }
  return list;
}

}  // namespace triage::cli
