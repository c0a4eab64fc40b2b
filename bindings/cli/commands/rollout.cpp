// `triage watch POLICY --canary FILE` and `--shadow FILE`: calls the policy with a candidate beside it, and prints how
// that ends.
#include <fmt/format.h>
#include <poll.h>
#include <triage/decisions.h>
#include <triage/runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/commands/watch_events.h"
#include "bindings/cli/terminal.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;
using Batch = std::vector<at::Tensor>;

constexpr double canary_share = 0.05, shadow_share = 1;
constexpr int64_t shadow_calls = 1000;

/// What the policy is called with, in turn. A generator without a seed gives several batches; anything else is the same
/// in each.
std::vector<Batch> batches_of(const Assignments& inputs, const Batch& first) {
  constexpr int64_t most = 16;
  const auto varies = [](const std::string& text) {
    return text.find("seed=") == std::string::npos && text.find(':') != std::string::npos && !fs::exists(text) &&
           (text.rfind("rand", 0) == 0);
  };
  std::vector<Batch> batches = {first};
  if (std::none_of(inputs.begin(), inputs.end(), [&](const auto& input) { return varies(input.second); }))
    return batches;
  while (static_cast<int64_t>(batches.size()) < most) {
    Batch batch = first;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (varies(inputs[i].second))
        batch[i] = read_input(fmt::format("{},seed={}", inputs[i].second, batches.size()), at::kCPU);
    batches.push_back(std::move(batch));
  }
  return batches;
}

CandidateKind kind_of(const WatchCommand& options) {
  return options.canary.empty() ? CandidateKind::shadow : CandidateKind::canary;
}

double share_of(const WatchCommand& options) {
  if (options.share > 0) return options.share;
  return kind_of(options) == CandidateKind::canary ? canary_share : shadow_share;
}

VersionInfo start(const Policy& policy, const WatchCommand& options) {
  if (kind_of(options) == CandidateKind::shadow) {
    ShadowOptions shadow;
    shadow.share = share_of(options);
    shadow.tolerance = options.tolerance;
    return policy.shadow(options.shadow, shadow);
  }
  CanaryOptions canary;
  canary.share = share_of(options);
  canary.promote_after = static_cast<uint64_t>(options.promote_after);
  canary.revert_if = {static_cast<uint64_t>(options.failures), options.flagged_ratio, options.p99_ratio};
  return policy.canary(options.canary, canary);
}

uint64_t seen_by_shadow(const ShadowReport& shadow) {
  return shadow.compared + shadow.failed + shadow.dropped + shadow.not_comparable;
}

/// Calls the policy until the candidate has ended, there were enough calls, or somebody wants it to stop.
class Rollout {
 public:
  Rollout(const WatchCommand& options, PreparedCall call)
      : options_(options),
        call_(std::move(call)),
        batches_(batches_of(match_inputs(options.call.inputs, call_.policy.signature().inputs, options.call.policy),
                            call_.inputs)) {}

  int run(const StopSignal& stop) {
    call_.policy.prepare(call_.inputs, call_.options);
    const VersionInfo live = call_.policy.version(), candidate = start(call_.policy, options_);
    print_line({"loaded", options_.call.policy, live.number, live.hash, "", 0}, options_.json);
    print_line({to_string(kind_of(options_)), candidate.path, candidate.number, candidate.hash, "", 0}, options_.json);
    Watch watch = follow();
    make_calls(stop);
    watch.rescan();
    print_events();
    const CandidateReport report = end();
    print(report);
    return report.state == CandidateState::reverted ? 1 : 0;
  }

 private:
  Watch follow() {
    WatchOptions watch;
    watch.debounce = std::chrono::milliseconds(options_.debounce_ms);
    watch.poll_interval = std::chrono::milliseconds(options_.poll_ms);
    watch.on_event = [this](const WatchEvent& event) { events_.push(event); };
    return call_.runtime.watch(fs::absolute(options_.call.policy).parent_path(), watch);
  }

  void make_calls(const StopSignal& stop) {
    const bool is_shadow = kind_of(options_) == CandidateKind::shadow;
    const int64_t most = options_.calls >= 0 ? options_.calls : is_shadow ? shadow_calls : -1;
    pollfd waiting[] = {{stop.descriptor(), POLLIN, 0}, {events_.descriptor(), POLLIN, 0}};
    for (int64_t calls = 0; most < 0 || calls < most; ++calls) {
      if (::poll(waiting, 2, 0) > 0) {
        if (waiting[0].revents) return;
        print_events();
      }
      const CandidateReport now = *call_.policy.candidate();
      if (now.state != CandidateState::running) return;
      if (is_shadow) keep_pace(now);
      call_.policy.run(batches_[static_cast<size_t>(calls) % batches_.size()], call_.options);
      ++calls_;
    }
    if (is_shadow) keep_pace(*call_.policy.candidate(), /*behind=*/0);
  }

  /// The candidate runs on a thread of its own: calls wait for it, for none is to be dropped.
  void keep_pace(CandidateReport now, uint64_t behind = 16) {
    if (now.restarts != restarts_) {
      restarts_ = now.restarts;
      calls_ = 0;
    }
    const auto handed = static_cast<uint64_t>(std::floor(static_cast<double>(calls_) * share_of(options_)));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (seen_by_shadow(now.shadow) + behind < handed && now.restarts == restarts_ &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      now = *call_.policy.candidate();
    }
  }

  void print_events() {
    for (const WatchEvent& event : events_.take()) {
      if (event.path != options_.call.policy) continue;
      print_line({to_string(event.kind), event.path, event.version, call_.policy.version().hash, event.message,
                  event.source.line},
                 options_.json);
    }
  }

  CandidateReport end() const {
    try {
      if (call_.policy.candidate()->state == CandidateState::running) return call_.policy.end_candidate();
    } catch (const InputError&) {  // it was promoted or reverted meanwhile
    }
    return *call_.policy.candidate();
  }

  void print(const CandidateReport& report) const {
    if (!options_.json) return say("\n{}", report.text());
    nlohmann::ordered_json object = {{"event", "report"}};
    object.update(nlohmann::ordered_json::parse(report.json()));
    print_json(object, /*on_one_line=*/true);
  }

  const WatchCommand& options_;
  PreparedCall call_;
  std::vector<Batch> batches_;
  EventQueue events_;
  uint64_t calls_ = 0, restarts_ = 0;  // since the comparison began
};

std::shared_ptr<DecisionLog> decision_log(const WatchCommand& options) {
  if (options.decisions.empty()) return nullptr;
  check_destination("--decisions", options.decisions, options.folder);
  DecisionLogOptions log;
  log.file = options.decisions;
  return std::make_shared<DecisionLog>(std::move(log));
}

}  // namespace

int try_candidate(const WatchCommand& options) {
  if (fs::is_directory(options.folder))
    throw UsageError(
        fmt::format("--canary and --shadow need one policy, and \"{}\" is a folder; give a Lua file", options.folder));
  const std::string& file = options.canary.empty() ? options.shadow : options.canary;
  if (!fs::exists(file))
    throw FileError(fmt::format("cannot read \"{}\": there is no such file", messages::one_line(file)));
  const StopSignal stop;
  WatchCommand all = options;
  all.call.policy = options.folder;
  const std::shared_ptr<DecisionLog> log = decision_log(options);
  return Rollout(all, prepare_call(all.call, options.json, log, options.cache)).run(stop);
}

}  // namespace triage::cli
