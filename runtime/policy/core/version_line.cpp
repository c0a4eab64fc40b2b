#include "runtime/policy/core/version_line.h"

#include "runtime/messages/assert.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <utility>

namespace triage::policy {
namespace {

bool by_number(const std::shared_ptr<PolicyVersion>& a, const std::shared_ptr<PolicyVersion>& b) {
  return a->number < b->number;
}

bool contains(const VersionLine::Versions& versions, const std::shared_ptr<PolicyVersion>& version) {
  return std::find(versions.begin(), versions.end(), version) != versions.end();
}

/// Live for the first time before the version that has or will have this turn. A candidate never was: its turn is 0.
bool was_live_before(const PolicyVersion& version, uint64_t turn) { return version.turn > 0 && version.turn < turn; }

/// A param that it has as another type has its default there.
void check_for_candidate(const Lineup& candidate, const Params& values) {
  try {
    override_params(*candidate.version, candidate.params, those_of(*candidate.version, values), Reading::all);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}. So says version {}, the candidate; end it first, or give a value that both allow",
                                 error.what(), candidate.version->number));
  }
}

}  // namespace

VersionLine::~VersionLine() {
  TRIAGE_ASSERT(Grace().passed(*epochs_));  // a call holds the policy
  delete lineup_.load(std::memory_order_seq_cst);
}

std::shared_ptr<PolicyVersion> VersionLine::live() const {
  const std::lock_guard lock(mutex_);
  return now()->version;
}

void VersionLine::check_params(const PolicyVersion& next) const {
  if (next.turn == 0 && !known_sources_.proven(next.contents)) check_set_params(next, params_);
}

void VersionLine::begin_with(const PolicyVersion& version) { param_names_ = param_names_with(version); }

VersionLine::ParamNames VersionLine::param_names_with(const PolicyVersion& version) const {
  const bool is_first = param_names_.former.empty() && versions_.empty();
  ParamNames names{{}, param_names_.former};
  for (const Param& param : version.signature.params) {
    if (is_first || param_names_.lasting.count(param.name)) names.lasting.insert(param.name);
    names.former.insert(param.name);
  }
  return names;
}

/// What is kept where `version` is live: the oldest of the others go.
VersionLine::Versions VersionLine::keep(const std::shared_ptr<PolicyVersion>& version, Versions& dropped) const {
  Versions kept = versions_;
  if (!contains(kept, version)) kept.insert(std::upper_bound(kept.begin(), kept.end(), version, by_number), version);
  for (auto other = kept.begin(); kept.size() > std::max<size_t>(1, runtime_->options().keep_versions);) {
    if (*other == version) {
      ++other;
      continue;
    }
    dropped.push_back(std::move(*other));
    other = kept.erase(other);
  }
  return kept;
}

VersionLine::Staged VersionLine::stage(const std::shared_ptr<PolicyVersion>& version, Params params) {
  const bool is_new = version->turn == 0;
  const uint64_t turn = is_new ? went_live_ + 1 : version->turn;
  auto retired = std::make_shared<Retired>();
  Versions kept = keep(version, retired->versions);
  auto next = std::make_unique<Lineup>();
  next->version = version;
  next->params = param_tensors(version->signature, params);
  next->last_good = find_last_good(turn, kept);
  if (next->last_good) next->last_good_params = param_tensors(next->last_good->signature, params);
  next->before = find_stand_in(*version, turn, kept);
  if (next->before) next->before_params = param_tensors(next->before->signature, params);
  if (candidate_) next->beside = make_candidate_lineup(version, params);
  for (const auto& one : {next->version, next->last_good, next->before})
    next->has_state = next->has_state || (one && !one->signature.state.empty());

  TRIAGE_ASSERT(version->number > 0 && version->number < next_number_ && next->before != version);
  TRIAGE_ASSERT(next->params.size() == version->signature.params.size());
  TRIAGE_ASSERT(!next->last_good || was_live_before(*next->last_good, turn));
  TRIAGE_ASSERT(std::is_sorted(kept.begin(), kept.end(), by_number));
  TRIAGE_ASSERT(contains(kept, version));

  Reclaimer::Garbage garbage = Reclaimer::garbage(epochs_, retired);
  Staged staged{
      std::move(next), std::move(kept), std::move(params), std::move(retired), std::move(garbage), turn, {}, {}};
  if (!is_new) return staged;
  staged.known = known_sources_.to_note(version->contents, /*proven=*/!version->trial.on());
  staged.param_names = param_names_with(*version);
  return staged;
}

void VersionLine::commit(Staged staged) noexcept {
  const Lineup* previous = now();
  PolicyVersion& version = *staged.next->version;
  if (!previous || previous->version.get() != &version) version.since = std::chrono::system_clock::now();
  if (staged.next->beside) comparison_ = staged.next->beside->comparison;
  versions_.swap(staged.kept);
  params_.swap(staged.params);
  known_sources_.note(std::move(staged.known));
  version.turn = staged.turn;
  if (staged.param_names) {
    param_names_ = std::move(*staged.param_names);
    ++went_live_;
    newest_live_ = version.number;
  }
  staged.retired->lineup.reset(lineup_.exchange(staged.next.release(), std::memory_order_seq_cst));
  if (staged.retired->lineup) runtime_->reclaimer().retire(std::move(staged.garbage));
}

std::shared_ptr<PolicyVersion> VersionLine::find_last_good(uint64_t turn, const Versions& kept) const {
  const auto fits = [&](const std::shared_ptr<PolicyVersion>& other) {
    return other && was_live_before(*other, turn) && other->has_run.load(std::memory_order_relaxed) &&
           other->can_stand_in();
  };
  std::shared_ptr<PolicyVersion> latest;
  for (const auto& other : kept)
    if (fits(other) && (!latest || other->turn > latest->turn)) latest = other;
  if (latest) return latest;
  return now() && fits(now()->last_good) ? now()->last_good : nullptr;
}

/// What answers where `version` fails, or changes the form of its answers. After its trial only what is kept anyway.
std::shared_ptr<PolicyVersion> VersionLine::find_stand_in(const PolicyVersion& version, uint64_t turn,
                                                          const Versions& kept) const {
  const bool on_trial = version.trial.on();
  if (!on_trial && runtime_->options().failures_to_revert == 0) return nullptr;
  const auto fits = [&](const std::shared_ptr<PolicyVersion>& other) {
    return other && other.get() != &version && other->can_stand_in() && (on_trial || was_live_before(*other, turn));
  };
  if (const Lineup* const previous = now())
    for (const auto& other : {previous->version, previous->before})
      if (fits(other) && (on_trial || contains(kept, other))) return other;
  std::shared_ptr<PolicyVersion> latest;
  for (const auto& other : kept)
    if (was_live_before(*other, turn) && fits(other) && (!latest || other->turn > latest->turn)) latest = other;
  return latest;
}

/// Beside another live version the comparison begins anew, also of the form of what they give.
std::shared_ptr<const CandidateLineup> VersionLine::make_candidate_lineup(const std::shared_ptr<PolicyVersion>& live,
                                                                          const Params& params) const {
  PolicyVersion& version = *candidate_->version;
  if (candidate_->version == live || !candidate_->running()) return nullptr;
  const Lineup* const previous = now();
  const bool goes_on = previous && previous->beside && previous->beside->candidate == candidate_;
  const bool same = goes_on && previous->version == live;
  auto beside = std::make_shared<CandidateLineup>();
  beside->candidate = candidate_;
  beside->comparison = same ? previous->beside->comparison : std::make_shared<Comparison>(live->number, live->hash);
  beside->lineup.version = candidate_->version;
  beside->lineup.params = param_tensors(version.signature, params);
  beside->lineup.before = live;
  beside->lineup.before_params = param_tensors(live->signature, params);
  if (goes_on && !same) {
    ++candidate_->restarts;
    version.trial.begin({}, trial_length(runtime_->options()));
  }
  return beside;
}

void VersionLine::set_candidate(std::shared_ptr<Candidate> candidate) {
  candidate_.swap(candidate);
  try {
    commit(stage(now()->version));
  } catch (const std::exception&) {
    candidate_.swap(candidate);
    throw;
  }
}

std::optional<ParamValue> VersionLine::set_param(const std::string& name, ParamValue value) {
  const std::lock_guard lock(mutex_);
  const Lineup& lineup = *now();
  const Lineup* const of_candidate = lineup.beside ? &lineup.beside->lineup : nullptr;
  const Params given = {{name, value}};
  const bool of_candidate_alone =
      of_candidate && !has_param(*lineup.version, name) && has_param(*of_candidate->version, name);
  const Lineup& taking = of_candidate_alone ? *of_candidate : lineup;
  override_params(*taking.version, taking.params, given, Reading::all);  // throws where it is not taken
  if (of_candidate) check_for_candidate(*of_candidate, given);
  Params params = params_;
  const auto same = std::find_if(params.begin(), params.end(), [&](const auto& param) { return param.first == name; });
  std::optional<ParamValue> before;
  if (same == params.end())
    params.emplace_back(name, std::move(value));
  else
    before = std::exchange(same->second, std::move(value));
  lineup.version->forms.forget();  // the host wants something else
  if (of_candidate) of_candidate->version->forms.forget();
  commit(stage(lineup.version, std::move(params)));
  return before;
}

}  // namespace triage::policy
