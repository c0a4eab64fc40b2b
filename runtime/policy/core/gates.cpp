#include "runtime/policy/core/gates.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/capture/graph_break.h"
#include "runtime/messages/enum_names.h"
#include "runtime/policy/core/rehearsal.h"

namespace triage {

const char* to_string(ReloadGate gate) noexcept {
  return messages::name_in<ReloadGate::shadow>({"warn", "refuse", "shadow"}, gate);
}

}  // namespace triage

namespace triage::policy {
namespace {

double ms(CallTimes::Time time) { return static_cast<double>(time.count()) / 1e6; }

/// Without the stack of the script.
std::string without_stack(const std::string& text) { return text.substr(0, text.find("\n\n")); }

}  // namespace

/// What a host passes breaks no graph of the script's own.
std::optional<MetBreak> met_break(const PolicyVersion& version) {
  for (const capture::GraphBreak& met : version.compiled.breaks())
    if (met.kind != capture::Break::other_argument) return MetBreak{without_stack(met.text()), met.where};
  return std::nullopt;
}

std::optional<MetBreak> find_break(PolicyVersion& version, const Kind& kind, at::ArrayRef<at::Tensor> params) {
  const capture::OnGraphBreak stop(capture::OnGraphBreak::Then::raise);
  try {
    version.compiled.prepare(kind, params);
  } catch (const GraphBreakError& error) {
    return MetBreak{without_stack(error.what()), error.source()};
  } catch (const std::exception&) {  // of values that nobody sent
  }
  return std::nullopt;
}

std::string told_of_break(const MetBreak& met, const PolicyVersion& before, std::optional<ReloadGate> gate) {
  const char* const advice =
      !gate ? "Gates stop no candidate: a promotion makes it live as it is"
      : gate == ReloadGate::warn
          ? "With RuntimeOptions::on_new_graph_breaks = refuse or shadow, no such version goes live"
          : "RuntimeOptions::on_new_graph_breaks keeps it from calls; remove the break, or set that to warn";
  return fmt::format(
      "the new source breaks its graph, so that its script runs on every call, and version {} does not. {}: {}",
      before.number, advice, met.text);
}

std::string told_of_slow(const SlowKind& slow, const PolicyVersion& before, double ratio, ReloadGate gate) {
  const double now = ms(slow.times.next), then = ms(slow.times.before);
  const char* const advice =
      gate == ReloadGate::warn
          ? "With RuntimeOptions::on_slow_reload = refuse or shadow, no such version goes live"
          : "Make it faster, raise the ratio (0: nothing is timed), or set RuntimeOptions::on_slow_reload to warn";
  return fmt::format(
      "the new source is slower than version {}: a call with inputs of sizes {} takes {:.3g} ms, and {:.3g} ms there "
      "(each the fastest of {}, on synthetic values), so {:.3g} times as long; RuntimeOptions::reload_latency_ratio "
      "allows {:g} times. {}",
      before.number, sizes_text(slow.kind), now, then, slow.times.rounds, now / std::max(then, 1e-6), ratio, advice);
}

}  // namespace triage::policy
