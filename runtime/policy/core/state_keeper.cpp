#include "runtime/policy/core/state_keeper.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runtime/compat/readable_memory.h"
#include "runtime/compat/readable_values.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/core/policy_core.h"
#include "runtime/policy/state/state_file.h"

namespace triage::policy {
namespace {

std::string described(const at::Tensor& tensor) {
  return fmt::format("{} of shape [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string declared_names(const Signature& signature) {
  std::vector<std::string> names;
  for (const StateSpec& spec : signature.state) names.push_back(spec.name);
  return names.empty() ? "it declares none" : fmt::format("it declares ({})", fmt::join(names, ", "));
}

/// What `signature` cannot take, a clause each.
std::vector<std::string> unfitting_state(const Signature& signature, const StateTensors& state) {
  std::vector<std::string> clauses;
  std::set<std::string> taken;
  for (const auto& [name, tensor] : state)
    if (takes(signature, name, tensor)) taken.insert(name);
  for (const auto& [name, tensor] : state) {
    const StateSpec* const spec = find_spec(signature, name);
    if (taken.count(name)) continue;
    if (!spec)
      clauses.push_back(fmt::format("the state '{}' is no longer declared, and goes", messages::one_line(name)));
    else
      clauses.push_back(fmt::format("the state '{}' starts anew: it was kept as {}, and is declared as {}", name,
                                    described(tensor), spec->type.text()));
  }
  return clauses;
}

bool is_power_of_two(uint64_t count) { return (count & (count - 1)) == 0; }

}  // namespace

StateKeeper::StateKeeper(PolicyCore& policy)
    : policy_(policy), store_(policy.runtime().options().state_keys, policy.runtime().options().state_age) {}

Signature StateKeeper::live_signature() const {
  return policy_.line().with_live([](const PolicyVersion& live) { return live.signature; });
}

/// As rarely as failures: batches of every size may come.
void StateKeeper::report_other_batch(int64_t rows) {
  const uint64_t count = other_batches_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!is_power_of_two(count)) return;
  policy_.log().write(
      LogLevel::warn,
      fmt::format(
          "a batch of {} samples came after one of another size with the same state key, so the "
          "state with the shape {{\"N\", ...}} started anew (time {}); send batches of one size for each key, or "
          "declare the state with a fixed shape",
          rows, count));
}

void StateKeeper::report_dropped_keys() {
  const uint64_t dropped = store_.dropped();
  uint64_t told = dropped_told_.load(std::memory_order_relaxed);
  if (dropped < std::max<uint64_t>(1, 2 * told) || !dropped_told_.compare_exchange_strong(told, dropped)) return;
  policy_.log().write(LogLevel::warn,
                      fmt::format("state of {} keys is gone, because calls used more than {} of them; raise "
                                  "RuntimeOptions::state_keys, or use fewer keys",
                                  dropped, policy_.runtime().options().state_keys));
}

StateCounts StateKeeper::counts() const {
  StateCounts all = store_.counts();
  const auto candidate = policy_.candidates().running();
  if (!candidate) return all;
  const StateCounts own = candidate->own_state.counts();
  return {all.keys + own.keys, all.bytes + own.bytes, all.dropped + own.dropped};
}

void StateKeeper::take_over(const Candidate& canary) {
  const Signature& signature = canary.version->signature;
  store_.take_over(canary.own_state,
                   [&](const std::string& name, const at::Tensor& tensor) { return takes(signature, name, tensor); });
}

/// Of the key that was used last: the others are as it is, or older.
void StateKeeper::tell(const PolicyVersion& version) {
  const KeptState newest = store_.newest();
  std::vector<std::string> clauses;
  if (newest) clauses = unfitting_state(version.signature, *newest);
  {
    const std::lock_guard lock(policy_.line().mutex());
    note_ = fmt::format("{}", fmt::join(clauses, "; "));
  }
  for (const std::string& clause : clauses)
    policy_.log().write(LogLevel::warn, fmt::format("version {}: {}", version.number, clause), {}, version.number);
  drop_unfitting();
}

void StateKeeper::drop_unfitting() {
  const std::lock_guard lock(policy_.line().mutex());
  const PolicyVersion& live = *policy_.line().now()->version;
  if (live.trial.on()) return;
  store_.keep_only(
      [&](const std::string& name, const at::Tensor& tensor) { return takes(live.signature, name, tensor); });
}

std::string StateKeeper::take_note() {
  const std::lock_guard lock(policy_.line().mutex());
  return std::exchange(note_, {});
}

/// Shared with calls; without what the live version would begin anew.
StateOfKeys StateKeeper::fitting() const {
  const Signature signature = live_signature();
  StateOfKeys all = store_.all();
  for (auto& [key, state] : all) {
    auto fitting = std::make_shared<StateTensors>();
    for (const auto& [name, tensor] : *state)
      if (takes(signature, name, tensor)) fitting->emplace_back(name, tensor);
    state = std::move(fitting);
  }
  return all;
}

PolicyState StateKeeper::state() const {
  const c10::InferenceMode outside(false);
  PolicyState copies;
  for (const auto& [key, state] : fitting()) {
    copies.push_back({key, {}});
    for (const auto& [name, tensor] : *state) copies.back().tensors.emplace_back(name, tensor.clone());
  }
  return copies;
}

void StateKeeper::set_state(const PolicyState& state) {
  const Signature signature = live_signature();
  StateOfKeys all;
  std::set<std::string> keys;
  for (const KeyState& one : state) {
    if (!keys.insert(one.key).second)
      throw InputError(fmt::format("policy '{}': set_state got the key '{}' twice", policy_.name(), one.key));
    auto tensors = std::make_shared<StateTensors>();
    for (const auto& [name, tensor] : one.tensors) {
      const StateSpec* const spec = find_spec(signature, name);
      if (!spec)
        throw InputError(
            fmt::format("policy '{}' has no state '{}'; {}", policy_.name(), name, declared_names(signature)));
      if (!tensor.defined() || !fits(*spec, tensor))
        throw InputError(fmt::format("policy '{}': the state '{}' is declared as {}, and set_state got {}",
                                     policy_.name(), name, spec->type.text(),
                                     tensor.defined() ? described(tensor) : "an undefined tensor"));
      const c10::InferenceMode outside(false);
      const at::Tensor values = compat::is_readable(tensor) ? tensor : compat::readable_values(tensor);
      tensors->emplace_back(name, values.detach().clone(at::MemoryFormat::Contiguous));
    }
    all.emplace_back(one.key, std::move(tensors));
  }
  replace(std::move(all));
}

void StateKeeper::reset(std::optional<std::string_view> key) {
  key ? store_.reset(*key) : store_.reset();
  if (const auto candidate = policy_.candidates().running())
    key ? candidate->own_state.reset(*key) : candidate->own_state.reset();
}

/// What the host sets is what a canary begins with, too.
void StateKeeper::replace(StateOfKeys all) {
  store_.replace(std::move(all));
  if (const auto candidate = policy_.candidates().running()) candidate->own_state.reset();
}

void StateKeeper::save(const std::filesystem::path& file) const { write_state(file, policy_.name(), fitting()); }

void StateKeeper::load(const std::filesystem::path& file) {
  StateOfKeys all = read_state(file, policy_.name());
  const Signature signature = live_signature();
  constexpr size_t most_told = 16;
  std::set<std::string> told;
  for (const auto& [key, state] : all)
    for (std::string& clause : unfitting_state(signature, *state))
      if (told.size() < most_told) told.insert(std::move(clause));
  replace(std::move(all));
  drop_unfitting();
  for (const std::string& clause : told)
    policy_.log().write(LogLevel::warn, fmt::format("state from \"{}\": {}", file.string(), clause));
}

}  // namespace triage::policy
