// One policy of the model: how its calls are answered, and how a version comes in.
#include <algorithm>
#include <cmath>

#include "tests/policy/lives/model.h"

namespace lives {

using triage::Answered;
using triage::CandidateKind;
using triage::CandidateState;
using triage::OnError;

namespace {

bool fits(ParamKind kind, double value) {
  return kind == ParamKind::number || (kind == ParamKind::integer && value == std::trunc(value));
}

}  // namespace

std::string Source::text() const {
  std::string text = "outputs z\n";
  if (remembers) text += "remember\n";
  if (passes_through) text += "pass_through\n";
  if (defect == Defect::broken) text += "broken on purpose\n";
  if (defect == Defect::other_inputs) text += "inputs a b\n";
  if (defect == Defect::failing_test) text += "test sums fails\n";
  if (fails == Fails::above) text += "raise_above 1000\n";
  if (fails == Fails::overruns) text += "overrun_above 1000\n";
  if (fails == Fails::always) text += "raise always\n";
  if (param == ParamKind::number) text += "param limit 0.25\nadd_param limit\n";
  if (param == ParamKind::integer) text += "int_param limit 1\nadd_param limit\n";
  return text + "add " + std::to_string(adds);
}

void Trial::begin(const Options& options) {
  on = compares = options.trial_calls > 0;
  lasts = options.trials_last;
  calls_left = options.trial_calls;
  most_left = 100 * options.trial_calls;
}

bool Trial::pass() {
  untried = false;
  if (calls_left > 0) --calls_left;
  if (most_left > 0) --most_left;
  if (calls_left > 0 && most_left > 0) return false;
  compares = false;
  if (lasts) return false;
  form_known = false;
  return std::exchange(on, false);
}

void Trial::pass_beside() {
  const bool lasts_when_live = std::exchange(lasts, false);
  pass();
  lasts = lasts_when_live;
}

bool Candidate::takes_turn() {
  if (share >= 1) return true;
  const auto before = static_cast<double>(turns++);
  return std::floor((before + 1) * share) > std::floor(before * share);
}

bool Policy::is_mistake(const Version& version, const Call& call) const {
  if (version.source.defect == Defect::other_inputs) return true;
  if (!call.param) return false;
  if (version.source.param == ParamKind::none) return !version.forgives_param;
  return !fits(version.source.param, *call.param);
}

/// `bounded`: it is asked with a deadline, whatever the call has.
bool Policy::answers(const Version& version, const Call& call, bool bounded) {
  if (call.late) return false;
  switch (version.source.fails) {
    case Fails::never:
      return true;
    case Fails::above:
      return !call.large;
    case Fails::overruns:
      return !call.large || !(bounded || call.bounded);
    case Fails::always:
      return false;
  }
  return false;
}

/// `calls`: that its state has counted.
double Policy::value(const Version& version, const Call& call, int calls) const {
  const ParamKind kind = version.source.param;
  double value = version.source.adds;
  if (call.param && fits(kind, *call.param))
    value += *call.param;
  else if (param_ && fits(kind, *param_))
    value += *param_;
  else if (kind != ParamKind::none)
    value += kind == ParamKind::number ? 0.25 : 1.0;
  return version.source.remembers ? value + calls : value;
}

int Policy::calls_of(const std::string& key) const {
  const auto state = state_.find(key);
  return state == state_.end() ? 0 : state->second.calls;
}

Answer Policy::call(const Call& call) {
  if (candidate_ && candidate_->is_beside) return answer_beside(call);
  return answer_live(call);
}

Answer Policy::answered(Answered by, const VersionPtr& version, const Call& call, int calls) {
  version->knows_inputs = true;
  return {by, version->number, value(*version, call, calls)};
}

/// The state that the call began with is kept with one more, where the version that answered has any, and is, or was,
/// live.
Answer Policy::answer_live(const Call& call) {
  const VersionPtr version = live_.version;
  if (is_mistake(*version, call)) return {Answered::failed, version->number, 0, true};
  const bool on_trial = version->trial.on;
  const int calls = calls_of(call.key);
  const auto keep_state = [&](const Version& answering) {
    if (answering.source.remembers) state_[call.key] = {calls + 1, ++clock_};
  };
  if (answers(*version, call, /*bounded=*/on_trial && live_.before)) {
    const Answer answer = answered(Answered::live, version, call, calls);
    if (version->trial.compares && live_.before) ask_for_form(*version, live_.before, call);
    version->has_run = true;
    version->failures_in_row = 0;
    if (on_trial) pass_trial();
    keep_state(*version);
    return answer;
  }
  const size_t limit = release_->options().failures_to_revert;
  const bool too_often = !on_trial && ++version->failures_in_row >= limit && limit > 0 && !call.donates;
  if (const VersionPtr before = live_.before;
      (on_trial || too_often) && before && answers(*before, call, /*bounded=*/false)) {
    const Answer answer = answered(Answered::previous, before, call, calls);
    release_->take_back(*this, before);
    keep_state(*before);
    return answer;
  }
  ++version->failures;
  return recover(call);
}

Answer Policy::recover(const Call& call) {
  const Version& version = *live_.version;
  const OnError by_source = version.source.passes_through ? OnError::pass_through : release_->options().on_error;
  const OnError on_error = call.on_error.value_or(by_source);
  if (on_error == OnError::pass_through) return {Answered::passed_through, version.number, 0};
  if (on_error == OnError::raise || !live_.last_good) return {Answered::failed, version.number};
  if (answers(*live_.last_good, call, /*bounded=*/false))
    return answered(Answered::last_good, live_.last_good, call, calls_of(call.key));
  ++live_.last_good->failures;
  return {Answered::failed, version.number};
}

/// What the version before would have answered is compared with the first answers on trial. Where nothing is known of
/// that, the question takes as long as the call may.
void Policy::ask_for_form(Version& version, const VersionPtr& before, const Call& call) {
  if (version.trial.form_known || !answers(*before, call, /*bounded=*/false)) return;
  before->knows_inputs = true;
  version.trial.form_known = true;
}

void Policy::pass_trial() {
  Version& version = *live_.version;
  const bool was_untried = version.trial.untried;
  const bool is_over = version.trial.pass();
  if (!is_over && !was_untried) return;
  if (is_over) {
    publish(live_.version);
    known_[version.source.adds] = true;
  }
  drop_state();
  release_->keep_source();
  release_->end_trial();
}

Answer Policy::answer_beside(const Call& call) {
  const std::shared_ptr<Comparison> comparison = candidate_->comparison;
  const VersionPtr version = candidate_->version;
  const bool is_canary = candidate_->kind == CandidateKind::canary;
  const bool chosen = candidate_->takes_turn();
  if (chosen && is_canary) return answer_as_canary(call);
  const Answer answer = answer_live(call);
  if (is_canary && answer.by == Answered::live) ++comparison->live_calls;
  if (!chosen || is_canary) return answer;
  if (answer.by != Answered::live) {
    ++comparison->not_comparable;
  } else if (answers(*version, call, /*bounded=*/true)) {
    version->knows_inputs = true;
    ++comparison->calls;
  } else {
    ++comparison->failures;
  }
  return answer;
}

/// Where it fails, and the live version answers, it is to blame; where that fails, too, the call is. It has state of
/// its own, which begins as the live version's.
Answer Policy::answer_as_canary(const Call& call) {
  const VersionPtr version = candidate_->version;
  const std::shared_ptr<Comparison> comparison = candidate_->comparison;
  if (!is_mistake(*live_.version, call) && answers(*version, call, /*bounded=*/true)) {
    const auto own = candidate_->own.find(call.key);
    const int calls = own == candidate_->own.end() ? calls_of(call.key) : own->second.calls;
    const Answer answer = answered(Answered::canary, version, call, calls);
    if (version->source.remembers) candidate_->own[call.key] = {calls + 1, ++clock_};
    if (version->trial.compares) ask_for_form(*version, live_.version, call);
    version->has_run = true;
    ++comparison->calls;
    if (version->trial.on) version->trial.pass_beside();
    if (comparison->calls % 64 == 0 || comparison->calls == candidate_->promote_after) judge_canary();
    return answer;
  }
  Answer answer = answer_live(call);
  if (answer.by != Answered::live) return answer;
  answer.by = Answered::previous;
  ++version->failures;
  ++comparison->failures;
  if (candidate_->most_failures > 0 && comparison->failures >= candidate_->most_failures)
    finish_candidate(CandidateState::reverted);
  return answer;
}

void Policy::judge_canary() {
  if (candidate_->promote_after == 0 || candidate_->comparison->calls < candidate_->promote_after) return;
  promotion_in_vain_ = release_->pinned;
  if (!promotion_in_vain_ && !promote()) finish_candidate(CandidateState::reverted);
}

/// Changes no version where it throws. The host may set a param that only the candidate has.
bool Policy::set_param(double value) {
  const auto has = [](const Version& version) { return version.source.param != ParamKind::none; };
  const bool of_candidate = candidate_ && candidate_->is_beside && !has(*live_.version) && has(*candidate_->version);
  const Version& version = of_candidate ? *candidate_->version : *live_.version;
  if (has(version) ? !fits(version.source.param, value) : !version.forgives_param) return false;
  param_ = value;
  publish(live_.version);
  return true;
}

std::map<std::string, int> Policy::saved_state() const {
  std::map<std::string, int> saved;
  if (live_.version->source.remembers)
    for (const auto& [key, kept] : state_) saved[key] = kept.calls;
  return saved;
}

void Policy::load_state(std::map<std::string, int> state) {
  state_.clear();
  for (const auto& [key, calls] : state) state_[key] = {calls, ++clock_};
  if (candidate_) candidate_->own.clear();
  drop_state();
}

void Policy::reset_state(const std::string& key) {
  state_.erase(key);
  if (candidate_) candidate_->own.erase(key);
}

/// While the live version is on trial, the one before may have to go on with it.
void Policy::drop_state() {
  if (!live_.version->trial.on && !live_.version->source.remembers) state_.clear();
}

std::string Policy::broken_contract(const Version& next) const {
  const Source &before = live_.version->source, &after = next.source;
  if ((before.defect == Defect::other_inputs) != (after.defect == Defect::other_inputs)) return "inputs";
  const bool is_gone = before.param != ParamKind::none && after.param == ParamKind::none;
  if (is_gone && param_lasts_) return "param gone";
  const bool is_kept = before.param != ParamKind::none && after.param != ParamKind::none;
  return is_kept && before.param != after.param ? "param of another type" : "";
}

/// What a new source must pass before anybody calls it. Null: it is refused. One that was live before is a way back:
/// it may break the contract, and only its trial says whether it works.
VersionPtr Policy::successor(const Source& source, std::string& why) {
  if (source.defect == Defect::broken) return why = "broken", nullptr;
  auto next = std::make_shared<Version>();
  next->source = source;
  next->knows_inputs = live_.version->knows_inputs;
  const Version& usual = live_.version->trial.on && live_.before ? *live_.before : *live_.version;
  const auto known = known_.find(source.adds);
  const bool was_live = known != known_.end(), is_proven = was_live && known->second;
  if (!is_proven) {
    why = broken_contract(*next);
    if (why.empty() && source.defect == Defect::failing_test) why = "test";
    if (why.empty() && next->knows_inputs) {
      const bool fails = source.fails == Fails::always, both_fail = fails && usual.source.fails == Fails::always;
      next->trial.untried = both_fail;
      next->trial.form_known = !fails && usual.source.fails != Fails::always;
      if (fails && !both_fail) why = "fails";
    }
    if (!why.empty() && !was_live) return nullptr;
    if (!why.empty()) next->trial.untried = next->knows_inputs;
    why.clear();
  }
  next->forgives_param = had_param_ && source.param == ParamKind::none;
  if (!is_proven) next->trial.begin(release_->options());
  return next;
}

/// Of a Runtime that starts: nothing is compared, nothing is on trial.
void Policy::begin_with(const VersionPtr& first) {
  param_lasts_ = had_param_ = first->source.param != ParamKind::none;
  go_live(first);
}

void Policy::go_live(const VersionPtr& version) {
  if (version->number == 0) version->number = next_number_++;
  version->turn = static_cast<int>(++went_live);
  publish(version);
  bool& is_proven = known_[version->source.adds];
  is_proven = is_proven || !version->trial.on;
  param_lasts_ = param_lasts_ && version->source.param != ParamKind::none;
  had_param_ = had_param_ || version->source.param != ParamKind::none;
  error.reset();
  drop_state();
}

/// Makes it live; it may be so already.
void Policy::publish(const VersionPtr& version) {
  const Live previous = live_;
  const auto by_number = [](const auto& a, const auto& b) { return a->number < b->number; };
  if (std::find(versions_.begin(), versions_.end(), version) == versions_.end())
    versions_.insert(std::upper_bound(versions_.begin(), versions_.end(), version, by_number), version);
  while (versions_.size() > std::max<size_t>(1, release_->options().keep_versions))
    versions_.erase(std::find_if(versions_.begin(), versions_.end(), [&](const auto& one) { return one != version; }));
  live_ = {version, find_last_good(*version), find_stand_in(*version, previous)};
  if (!live_.last_good && previous.last_good && previous.last_good->turn < version->turn &&
      previous.last_good->has_run && previous.last_good->can_stand_in())
    live_.last_good = previous.last_good;
  if (candidate_) put_beside(version, previous);
}

/// The latest kept version that went live earlier, has answered calls, and was not taken back.
VersionPtr Policy::find_last_good(const Version& version) const {
  VersionPtr latest;
  for (const VersionPtr& other : versions_)
    if (other->turn < version.turn && other->has_run && other->can_stand_in() &&
        (!latest || other->turn > latest->turn))
      latest = other;
  return latest;
}

/// Of a version on trial: the one that was live, or that stood in for it, else the latest earlier one. After the
/// trial only one that is kept and went live earlier, and none where the host wants no version taken back then.
VersionPtr Policy::find_stand_in(const Version& version, const Live& previous) const {
  const bool on_trial = version.trial.on;
  if (!on_trial && release_->options().failures_to_revert == 0) return nullptr;
  const auto is_kept = [&](const VersionPtr& one) {
    return std::find(versions_.begin(), versions_.end(), one) != versions_.end();
  };
  for (const VersionPtr& other : {previous.version, previous.before})
    if (other && other.get() != &version && other->can_stand_in() &&
        (on_trial || (other->turn < version.turn && is_kept(other))))
      return other;
  VersionPtr latest;
  for (const VersionPtr& other : versions_)
    if (other->turn < version.turn && other->can_stand_in() && (!latest || other->turn > latest->turn)) latest = other;
  return latest;
}

/// Beside another live version the comparison begins anew.
void Policy::put_beside(const VersionPtr& version, const Live& previous) {
  Candidate& candidate = *candidate_;
  const bool goes_on = candidate.is_beside, same = goes_on && previous.version == version;
  candidate.is_beside = candidate.version != version;
  if (!candidate.is_beside || same) return;
  candidate.comparison = std::make_shared<Comparison>(Comparison{version->number});
  if (!goes_on) return;
  ++candidate.restarts;
  candidate.version->trial = {};
  candidate.version->trial.begin(release_->options());
}

bool Policy::start_candidate(const Source& source, const Candidate& as) {
  std::string why;
  if (candidate_ || live_.version->source == source) return false;
  const VersionPtr version = successor(source, why);
  if (!version) return false;
  version->number = next_number_++;
  candidate_ = as;
  candidate_->version = version;
  promotion_in_vain_ = false;
  publish(live_.version);
  return true;
}

bool Policy::end_candidate() {
  if (!candidate_) return false;
  finish_candidate(CandidateState::ended);
  return true;
}

void Policy::finish_candidate(CandidateState end) {
  ended_ = std::move(candidate_);
  ended_->state = end;
  candidate_.reset();
  publish(live_.version);
}

/// It holds over a restart as a rollback does, until the file changes.
bool Policy::promote() {
  if (!candidate_ || release_->pinned || !broken_contract(*candidate_->version).empty()) return false;
  for (const auto& [key, kept] : candidate_->own)
    if (KeptState& state = state_[key]; kept.at > state.at) state = kept;
  go_live(candidate_->version);
  release_->keep_source();
  release_->choose(Contents{live_.version->source});
  finish_candidate(CandidateState::promoted);
  return true;
}

}  // namespace lives
