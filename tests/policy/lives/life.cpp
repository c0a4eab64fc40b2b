// Steps of a life, in the model and in a host.
#include "tests/policy/lives/life.h"

#include <fmt/format.h>

#include <cmath>

namespace lives {

using triage::CandidateKind;
using triage::CandidateState;
using triage::OnError;

namespace {

const Source& source(size_t choice) {
  static const auto* const all = new std::vector<Source>{
      {100},
      {200},
      {300, Defect::none, Fails::above},
      {400, Defect::none, Fails::never, ParamKind::none, true},
      {500, Defect::none, Fails::above, ParamKind::none, true},
      {600, Defect::none, Fails::overruns},
      {700, Defect::none, Fails::never, ParamKind::number},
      {800, Defect::none, Fails::above, ParamKind::number, true},
      {900, Defect::none, Fails::never, ParamKind::integer},
      {1000, Defect::none, Fails::above, ParamKind::none, false, true},
      {1100, Defect::none, Fails::always},
      {1200, Defect::broken},
      {1300, Defect::other_inputs},
      {1400, Defect::failing_test},
      {1500, Defect::none, Fails::overruns, ParamKind::integer, true},
      {1600, Defect::none, Fails::above},
  };
  return (*all)[choice % all->size()];
}

std::string text_of(const Answer& answer) {
  if (answer.mistake) return "a mistake of the host";
  return fmt::format("{} by version {}, adding {}", to_string(answer.by), answer.version, answer.adds);
}

bool same(const Answer& a, const Answer& b) {
  if (a.mistake || b.mistake) return a.mistake == b.mistake;
  if (a.by != b.by) return false;
  if (a.by == triage::Answered::failed) return true;
  return a.adds == b.adds && (a.by == triage::Answered::passed_through || a.version == b.version);
}

}  // namespace

const std::vector<Life::Entry>& Life::table() {
  static const auto* const table = new std::vector<Entry>{
      {"call", 30, &Life::call},          {"save", 14, &Life::save},
      {"look", 8, &Life::look},           {"reload", 5, &Life::reload},
      {"remove", 3, &Life::remove},       {"put back", 3, &Life::put_back},
      {"rollback", 5, &Life::rollback},   {"pin", 3, &Life::pin},
      {"unpin", 4, &Life::unpin},         {"replace", 2, &Life::replace},
      {"shadow", 3, &Life::shadow},       {"canary", 5, &Life::canary},
      {"promote", 4, &Life::promote},     {"end candidate", 2, &Life::end_candidate},
      {"set param", 5, &Life::set_param}, {"reset state", 2, &Life::reset_state},
      {"restart", 3, &Life::restart},     {"restart with other", 2, &Life::restart_with_other},
  };
  return *table;
}

Life::Life(const Kind& kind, Host* host, std::function<void(const Outside&)> before_arrow)
    : model_(kind.options, kind.is_bundle, Contents(kind.count, source(0))),
      host_(host),
      before_arrow_(std::move(before_arrow)) {
  saved_ = *model_.disk.contents;
  write();
  start();
}

Life::Life(const Kind& kind, const Outside& outside, Host& host, bool is_started)
    : model_(kind.options, kind.is_bundle, Contents(kind.count, source(0))), host_(&host) {
  model_.disk = outside.disk;
  model_.kept = outside.kept;
  is_started_ = model_.start();
  expect_same("it can be loaded", is_started_, is_started);
}

void Life::take(const Step& step) {
  int all = 0;
  for (const Entry& entry : table()) all += entry.weight;
  int place = step[0] % all;
  const Entry* chosen = table().data();
  while (place >= chosen->weight) place -= (chosen++)->weight;
  history_ += fmt::format("{} ({}, {}); ", chosen->name, step[1], step[2]);
  (this->*chosen->act)(step[1], step[2]);
  if (!host_) return;
  if (const std::string found = difference(); !found.empty()) throw Different{found};
}

void Life::expect_same(const char* what, bool expected, bool found) const {
  if (expected != found) throw Different{fmt::format("{}: {}, expected {}", what, found, expected)};
}

void Life::arrow() {
  if (before_arrow_) before_arrow_({model_.disk, model_.kept});
}

void Life::write() {
  if (host_) host_->save(model_.disk);
}

void Life::start() {
  arrow();
  is_started_ = model_.start();
  if (host_) expect_same("it can be loaded", is_started_, host_->start());
}

/// In a bundle other policies keep their sources.
void Life::save(uint8_t what, uint8_t how) {
  saved_[how % saved_.size()] = source(what);
  put_back(0, how / 2);
  if (how >= 128) look(0, 0);
}

void Life::put_back(uint8_t, uint8_t how) {
  model_.disk = {saved_, !model_.is_bundle() || how % 8 != 1};
  write();
}

void Life::remove(uint8_t, uint8_t how) {
  model_.disk = {};
  write();
  if (how >= 128) look(0, 0);
}

void Life::look(uint8_t, uint8_t) {
  arrow();
  model_.look();
  if (host_) host_->look();
}

void Life::reload(uint8_t, uint8_t) {
  arrow();
  model_.reload();
  if (host_) host_->reload();
}

void Life::call(uint8_t what, uint8_t how) {
  constexpr std::optional<OnError> ways[] = {{}, {}, {}, {}, OnError::raise, OnError::pass_through, OnError::last_good,
                                             {}};
  constexpr std::optional<double> params[] = {{}, {}, {}, {}, {}, 0.5, 2.0, {}};
  Call call;
  call.large = what & 1;
  call.donates = what & 2;
  call.bounded = (what >> 2) % 4 == 2;
  call.late = (what >> 2) % 4 == 3;
  call.on_error = ways[(what >> 4) % 8];
  call.param = params[how % 8];
  call.key = how & 8 ? "other" : "";
  const size_t place = (how >> 4) % model_.policies.size();
  for (int i = 0; i <= (how >> 6); ++i) expect_answer(place, call);
}

void Life::expect_answer(size_t place, const Call& call) {
  arrow();
  const Answer expected = model_.policies[place].call(call);
  if (!host_) return;
  const Answer found = host_->call(place, call);
  if (!same(expected, found))
    throw Different{fmt::format("policy {} of a {}{}call: {}, expected {}", place, call.large ? "large " : "",
                                call.late ? "late " : "", text_of(found), text_of(expected))};
  settle(place);
}

/// What the thread for candidates does follows from calls before.
void Life::settle(size_t place) {
  if (model_.policies[place].last_candidate()) host_->drain();
}

void Life::return_to(uint8_t what, uint8_t how, bool pin) {
  const std::vector<int> numbers = model_.numbers();
  const int number = how == 255 ? 1000 : numbers[what % numbers.size()];
  arrow();
  const bool done = model_.return_to(number, pin);
  if (host_) expect_same("a rollback", done, host_->return_to(number, pin));
}

void Life::unpin(uint8_t, uint8_t) {
  arrow();
  model_.unpin();
  if (host_) host_->unpin();
}

void Life::replace(uint8_t what, uint8_t) {
  arrow();
  const bool done = !model_.is_bundle() && model_.replace(source(what));
  if (host_) expect_same("replace", done, host_->replace(source(what)));
}

void Life::shadow(uint8_t what, uint8_t how) {
  Candidate as;
  as.share = how & 64 ? 0.5 : 1;
  start_candidate(what, how, as);
}

void Life::canary(uint8_t what, uint8_t how) {
  Candidate as;
  as.kind = CandidateKind::canary;
  as.share = how & 64 ? 0.5 : 1;
  as.promote_after = how & 2 ? 3 : how & 4 ? 5 : 0;
  as.most_failures = how / 8 % 3;
  start_candidate(what, how, as);
}

void Life::start_candidate(uint8_t what, uint8_t how, Candidate as) {
  const size_t place = how % model_.policies.size();
  const bool may_be = as.kind == CandidateKind::shadow || !model_.is_bundle();
  arrow();
  const bool done = may_be && model_.policies[place].start_candidate(source(what), as);
  if (host_) expect_same("a candidate starts", done, host_->start_candidate(place, source(what), as));
}

void Life::promote(uint8_t, uint8_t how) {
  const size_t place = how % model_.policies.size();
  arrow();
  const bool done = !model_.is_bundle() && model_.policies[place].promote();
  if (host_) expect_same("a promotion", done, host_->promote(place));
}

void Life::end_candidate(uint8_t, uint8_t how) {
  const size_t place = how % model_.policies.size();
  arrow();
  const bool done = model_.policies[place].end_candidate();
  if (host_) expect_same("the end of a candidate", done, host_->end_candidate(place));
}

void Life::set_param(uint8_t what, uint8_t how) {
  const size_t place = how % model_.policies.size();
  const double value = what & 1 ? 0.5 : 2.0;
  arrow();
  const bool done = model_.policies[place].set_param(value);
  if (host_) expect_same("set_param", done, host_->set_param(place, value));
}

void Life::reset_state(uint8_t what, uint8_t how) {
  const size_t place = how % model_.policies.size();
  const std::string key = what & 1 ? "other" : "";
  model_.policies[place].reset_state(key);
  if (host_) host_->policy(place).reset_state(key);
}

void Life::restart(uint8_t, uint8_t how) {
  const bool saves_state = how & 1;
  std::vector<std::map<std::string, int>> states;
  for (size_t i = 0; saves_state && i < model_.policies.size(); ++i) {
    states.push_back(model_.policies[i].saved_state());
    if (host_) host_->policy(i).save_state(host_->state_file(i));
  }
  start();
  for (size_t i = 0; i < states.size(); ++i) {
    model_.policies[i].load_state(states[i]);
    if (host_) host_->policy(i).load_state(host_->state_file(i));
  }
}

/// The disk has changed while no Runtime ran.
void Life::restart_with_other(uint8_t what, uint8_t how) {
  saved_[how % saved_.size()] = source(what);
  model_.disk = {saved_, !model_.is_bundle() || how % 16 != 1};
  if (how >= 240) model_.disk = {};
  write();
  restart(0, how / 2);
}

}  // namespace lives
