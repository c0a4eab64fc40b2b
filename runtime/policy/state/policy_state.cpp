// The state of a policy: what its versions can take of it, and what hosts do with it.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "runtime/compat/readable_memory.h"
#include "runtime/compat/readable_values.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/afterwards.h"
#include "runtime/policy/attribution/flagged.h"
#include "runtime/policy/core.h"
#include "runtime/policy/state/state_file.h"

namespace triage::policy {
namespace {

const StateSpec* find_spec(const Signature& signature, const std::string& name) {
  const auto& state = signature.state;
  const auto found = std::find_if(state.begin(), state.end(), [&](const StateSpec& spec) { return spec.name == name; });
  return found == state.end() ? nullptr : &*found;
}

std::string described(const at::Tensor& tensor) {
  return fmt::format("{} of shape [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

std::string declared_names(const Signature& signature) {
  std::vector<std::string> names;
  for (const StateSpec& spec : signature.state) names.push_back(spec.name);
  return names.empty() ? "it declares none" : fmt::format("it declares ({})", fmt::join(names, ", "));
}

bool takes(const Signature& signature, const std::string& name, const at::Tensor& tensor) {
  const StateSpec* const spec = find_spec(signature, name);
  return spec && fits(*spec, tensor);
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

/// With what `signature` cannot take of `rest`. So a name may be there twice, in another dtype or shape.
KeptState named(const Signature& signature, std::vector<at::Tensor> tensors, const KeptState& rest) {
  auto state = std::make_shared<StateTensors>();
  for (size_t i = 0; i < tensors.size(); ++i) state->emplace_back(signature.state[i].name, std::move(tensors[i]));
  if (rest)
    for (const auto& [name, tensor] : *rest)
      if (!takes(signature, name, tensor)) state->emplace_back(name, tensor);
  return state;
}

}  // namespace

/// Where a call is answered by a version that is live, or was and is again, its state is what the next one begins with.
void PolicyCore::find_answer_with_state(const Live& live, at::ArrayRef<at::Tensor> inputs, const RunOptions& options,
                                        Answer& answer) {
  std::optional<StateTurn> waiting;
  try {
    waiting.emplace(state_, options.state_key, options.deadline, name_);
  } catch (const capture::WaitedError& error) {
    answer.note_failure(error);
    if (on_error(*live.version, options) == OnError::raise) throw;
    return recover(live, inputs, options, answer);
  }
  StateTurn& turn = *waiting;
  answer.begin_with(turn.state());
  ask_live(live, inputs, options, answer);
  if (answer.by != Answered::live && answer.by != Answered::previous) return;
  if (answer.version->signature.state.empty()) return;
  // Another version may be live, or be live again after a trial: what it has that this one does not know stays as it is.
  const bool is_live = answer.version == live_.load(std::memory_order_acquire)->version.get();
  const bool may_go = is_live && !answer.version->trial.on();
  turn.keep(named(answer.version->signature, std::move(answer.state->after), may_go ? nullptr : answer.state->before));
  afterwards(runtime_->logger(), [&] {
    if (answer.state->other_batch) tell_other_batch(rows_of(inputs));
    tell_dropped_keys();
  });
}

/// As rarely as failures: batches of every size may come.
void PolicyCore::tell_other_batch(int64_t rows) {
  const uint64_t count = other_batches_.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!is_power_of_two(count)) return;
  log(LogLevel::warn,
      fmt::format(
          "policy '{}': a batch of {} samples came after one of another size with the same state key, so the "
          "state with the shape {{\"N\", ...}} started anew (time {}); send batches of one size for each key, or "
          "declare the state with a fixed shape",
          name_, rows, count));
}

void PolicyCore::tell_dropped_keys() {
  const uint64_t dropped = state_.dropped();
  uint64_t told = dropped_told_.load(std::memory_order_relaxed);
  if (dropped < std::max<uint64_t>(1, 2 * told) || !dropped_told_.compare_exchange_strong(told, dropped)) return;
  log(LogLevel::warn,
      fmt::format("policy '{}': state of {} keys is gone, because calls used more than {} of them; raise "
                  "RuntimeOptions::state_keys, or use fewer keys",
                  name_, dropped, runtime_->options().state_keys));
}

/// Of the key that was used last: the others are as it is, or older.
void PolicyCore::tell_state(const PolicyVersion& version) {
  const KeptState newest = state_.newest();
  std::vector<std::string> clauses;
  if (newest) clauses = unfitting_state(version.signature, *newest);
  {
    const std::lock_guard lock(mutex_);
    state_note_ = fmt::format("{}", fmt::join(clauses, "; "));
  }
  for (const std::string& clause : clauses)
    log(LogLevel::warn, fmt::format("policy '{}' version {}: {}", name_, version.number, clause), {}, version.number);
  drop_unfitting_state();
}

/// Of keys that no call uses, too: another version may declare it again. While the live version is on trial, the one before may have
/// to go on with it.
void PolicyCore::drop_unfitting_state() {
  const std::lock_guard lock(mutex_);
  const PolicyVersion& live = *live_.load(std::memory_order_relaxed)->version;
  if (live.trial.on()) return;
  state_.keep_only(
      [&](const std::string& name, const at::Tensor& tensor) { return takes(live.signature, name, tensor); });
}

std::string PolicyCore::take_state_note() {
  const std::lock_guard lock(mutex_);
  return std::exchange(state_note_, {});
}

/// Shared with calls; without what the live version would begin anew.
StateOfKeys PolicyCore::fitting_state() const {
  const Signature signature = with_live([](const PolicyVersion& live) { return live.signature; });
  StateOfKeys all = state_.all();
  for (auto& [key, state] : all) {
    auto fitting = std::make_shared<StateTensors>();
    for (const auto& [name, tensor] : *state)
      if (takes(signature, name, tensor)) fitting->emplace_back(name, tensor);
    state = std::move(fitting);
  }
  return all;
}

PolicyState PolicyCore::state() const {
  const c10::InferenceMode outside(false);
  PolicyState copies;
  for (const auto& [key, state] : fitting_state()) {
    copies.push_back({key, {}});
    for (const auto& [name, tensor] : *state) copies.back().tensors.emplace_back(name, tensor.clone());
  }
  return copies;
}

void PolicyCore::set_state(const PolicyState& state) {
  const Signature signature = with_live([](const PolicyVersion& live) { return live.signature; });
  StateOfKeys all;
  std::set<std::string> keys;
  for (const KeyState& one : state) {
    if (!keys.insert(one.key).second)
      throw InputError(fmt::format("policy '{}': set_state got the key '{}' twice", name_, one.key));
    auto tensors = std::make_shared<StateTensors>();
    for (const auto& [name, tensor] : one.tensors) {
      const StateSpec* const spec = find_spec(signature, name);
      if (!spec)
        throw InputError(fmt::format("policy '{}' has no state '{}'; {}", name_, name, declared_names(signature)));
      if (!tensor.defined() || !fits(*spec, tensor))
        throw InputError(fmt::format("policy '{}': the state '{}' is declared as {}, and set_state got {}", name_, name,
                                     spec->type.text(), tensor.defined() ? described(tensor) : "an undefined tensor"));
      const c10::InferenceMode outside(false);
      const at::Tensor values = compat::is_readable(tensor) ? tensor : compat::readable_values(tensor);
      tensors->emplace_back(name, values.detach().clone(at::MemoryFormat::Contiguous));
    }
    all.emplace_back(one.key, std::move(tensors));
  }
  state_.replace(std::move(all));
}

void PolicyCore::reset_state(std::optional<std::string_view> key) { key ? state_.reset(*key) : state_.reset(); }

void PolicyCore::save_state(const std::filesystem::path& file) const { write_state(file, name_, fitting_state()); }

void PolicyCore::load_state(const std::filesystem::path& file) {
  StateOfKeys all = read_state(file, name_);
  const Signature signature = with_live([](const PolicyVersion& live) { return live.signature; });
  constexpr size_t most_told = 16;
  std::set<std::string> told;
  for (const auto& [key, state] : all)
    for (std::string& clause : unfitting_state(signature, *state))
      if (told.size() < most_told) told.insert(std::move(clause));
  state_.replace(std::move(all));
  drop_unfitting_state();
  for (const std::string& clause : told)
    log(LogLevel::warn, fmt::format("policy '{}', state from \"{}\": {}", name_, file.string(), clause));
}

}  // namespace triage::policy
