// What follows the disk: a policy alone, or the policies of a bundle together.
#include <algorithm>

#include "tests/policy/lives/model.h"

namespace lives {

bool Whole::on_trial() const {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part->trial.on; });
}

bool Whole::taken_back() const {
  return std::any_of(parts.begin(), parts.end(), [](const auto& part) { return part->taken_back; });
}

bool Whole::is_untried() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const auto& part) { return part->trial.on && part->trial.untried; });
}

Release::Release(const Options& options, bool is_bundle, Contents first)
    : options_(options), is_bundle_(is_bundle), count_(first.size()) {
  disk.contents = std::move(first);
}

/// What was chosen before a restart, where the disk is as it was then, or it was pinned; else what the disk has; else
/// what was good last.
std::optional<Contents> Release::start_with() {
  if (kept.choice && kept.choice->by != ChosenBy::pin && kept.choice->on_disk != disk.contents) kept.choice.reset();
  seen_ = disk.contents;
  choice_ = kept.choice;
  if (choice_) {
    pinned = choice_->by == ChosenBy::pin;
    return choice_->live;
  }
  deleted_ = !disk.contents;
  incomplete_ = !disk.complete;
  const auto loads = [](const Source& source) { return source.defect != Defect::broken; };
  if (disk.contents && disk.complete && std::all_of(disk.contents->begin(), disk.contents->end(), loads))
    return disk.contents;
  refused_ = is_bundle_ || disk.contents;
  return kept.good;
}

bool Release::start() {
  seen_.reset();
  choice_.reset();
  error.reset();
  wholes_.clear();
  live_ = was_live_ = nullptr;
  deleted_ = refused_ = incomplete_ = pinned = false;
  kept_number_ = 0;
  next_number_ = 1;
  policies.clear();
  for (size_t i = 0; i < count_; ++i) policies.emplace_back(*this, i);
  const std::optional<Contents> first = start_with();
  if (!first) return false;
  auto whole = std::make_shared<Whole>();
  for (size_t i = 0; i < count_; ++i) {
    whole->parts.push_back(std::make_shared<Version>());
    whole->parts[i]->source = (*first)[i];
    policies[i].begin_with(whole->parts[i]);
  }
  if (is_bundle_) exchange(whole);
  keep_source();
  if (!choice_ && (refused_ || deleted_)) note_error(incomplete_ ? why_incomplete() : "the disk cannot be used");
  if (choice_ && choice_->by == ChosenBy::failure) {
    note_error("failed");
    refused_ = true;
  }
  if (choice_ && choice_->by == ChosenBy::trial && disk.contents) take_up(/*retry=*/true);
  return true;
}

void Release::follow(bool retry) {
  if (pinned) return look_while_pinned();
  if (!disk.contents) return note_gone(retry);
  const bool was_deleted = std::exchange(deleted_, false);
  if (take_up(retry || (was_deleted && refused_)) || !was_deleted) return;
  if (choice_ && choice_->by == ChosenBy::failure)
    note_error("failed");
  else
    clear_error();
}

/// It is noted what lies there, so that a rollback that ends the pin is not undone by it.
void Release::look_while_pinned() {
  if (disk.contents && std::exchange(deleted_, false)) clear_error();
  seen_ = disk.contents;
}

/// What is live stays so. Where the host asked, the file is followed as soon as it is back, also with the bytes it had.
void Release::note_gone(bool retry) {
  if (retry) {
    seen_.reset();
    choose(std::nullopt);
  }
  if (deleted_ && !retry) return;
  note_error("gone");
  deleted_ = true;
}

/// The same for the same files.
std::string Release::why_incomplete() const {
  std::string why = "incomplete";
  for (const Source& source : *disk.contents) why += " " + std::to_string(source.adds);
  return why;
}

/// False: nothing has changed, and nothing was refused.
bool Release::take_up(bool retry) {
  if (!retry && !incomplete_ && seen_ == disk.contents) return false;
  const bool was_refused = std::exchange(refused_, false), was_seen = seen_ == disk.contents;
  seen_ = disk.contents;
  incomplete_ = !disk.complete;
  std::string why;
  if (incomplete_) {
    why = why_incomplete();
  } else if (*disk.contents == live_contents()) {
    if (choice_) choose(std::nullopt);
    clear_error();
    return false;
  } else {
    why = is_bundle_ ? bring_all(*disk.contents) : bring_alone(disk.contents->front());
  }
  if (!why.empty()) refuse(why, retry || !was_refused || !was_seen);
  return true;
}

/// A restart tries it again, over what is live now.
void Release::refuse(const std::string& why, bool is_news) {
  refused_ = true;
  if (!note_error(why) && is_bundle_ && !is_news) return;
  choose(live_contents(), ChosenBy::trial);
}

/// Returns why it is refused.
std::string Release::bring_alone(const Source& source) {
  std::string why;
  const VersionPtr next = policies[0].successor(source, why);
  if (!next) return why;
  policies[0].go_live(next);
  keep_source();
  if (pinned)
    choose(live_contents(), ChosenBy::pin);
  else if (!(next->trial.on && choice_ && choice_->retries({source})))
    choose(std::nullopt);
  return {};
}

/// All or none. A policy whose source is as it was keeps its version.
std::string Release::bring_all(const Contents& contents) {
  auto whole = std::make_shared<Whole>();
  for (size_t i = 0; i < count_; ++i) {
    std::string why;
    VersionPtr part = policies[i].live();
    if (part->source != contents[i]) part = policies[i].successor(contents[i], why);
    if (!part) {
      policies[i].error = why;
      return why;
    }
    whole->parts.push_back(std::move(part));
  }
  exchange(whole);
  keep_source();
  if (!(live_->on_trial() && choice_ && choice_->retries(contents))) choose(std::nullopt);
  return {};
}

void Release::exchange(const WholePtr& whole) {
  const bool is_new = whole->number == 0;
  if (is_new) {
    whole->number = next_number_++;
    wholes_.push_back(whole);
    if (wholes_.size() > std::max<size_t>(2, options_.keep_versions)) drop_oldest(wholes_);
  }
  for (size_t i = 0; i < count_; ++i) {
    Policy& policy = policies[i];
    if (policy.live() == whole->parts[i]) continue;
    if (whole->parts[i]->number == 0)
      policy.go_live(whole->parts[i]);
    else
      policy.publish(whole->parts[i]);
  }
  if (is_new) clear_error();
  if (live_ != whole) was_live_ = live_;
  live_ = whole;
}

/// Not the live one, nor the latest one that could answer for all.
void Release::drop_oldest(std::vector<WholePtr>& wholes) const {
  const auto can_stand_in = [](const VersionPtr& part) { return part->can_stand_in(); };
  const auto is_way_back = [&](const WholePtr& whole) {
    return std::all_of(whole->parts.begin(), whole->parts.end(), can_stand_in);
  };
  const auto way_back = std::find_if(std::next(wholes.rbegin()), wholes.rend(), is_way_back);
  const WholePtr kept = way_back == wholes.rend() ? nullptr : *way_back;
  const auto last = std::prev(wholes.end());
  const auto oldest =
      std::find_if(wholes.begin(), last, [&](const WholePtr& one) { return one != live_ && one != kept; });
  if (oldest != last) wholes.erase(oldest);
}

/// `policy` failed, and `answered` has answered for it. False: it stays live.
bool Release::take_back(Policy& policy, const VersionPtr& answered) {
  const VersionPtr failed = policy.live();
  const bool done = !pinned && (is_bundle_ ? take_back_all(policy, answered) : take_back_alone(policy, answered));
  ++failed->failures;
  return done;
}

bool Release::take_back_alone(Policy& policy, const VersionPtr& before) {
  const VersionPtr failed = policy.live();
  failed->taken_back = true;
  choice_.reset();
  if (seen_ && *seen_ != Contents{before->source}) choice_ = Choice{ChosenBy::failure, {before->source}, seen_};
  policy.publish(before);
  ++policy.reverted;
  policy.known_.erase(failed->source.adds);
  note_error("failed");
  keep_source();
  kept.choice = choice_;
  policy.drop_state();
  return true;
}

bool Release::take_back_all(Policy& policy, const VersionPtr& answered) {
  const WholePtr to = find_before(policy, answered);
  if (!to) return false;
  const VersionPtr failed = policy.live();
  const Contents contents = contents_of(*to);
  failed->taken_back = true;
  choice_.reset();
  if (seen_ && seen_ != contents) choice_ = Choice{ChosenBy::failure, contents, seen_};
  exchange(to);
  ++policy.reverted;
  policy.known_.erase(failed->source.adds);
  error = "failed";
  for (Policy& one : policies) one.error = "failed";
  keep_source();
  kept.choice = choice_;
  for (Policy& one : policies) one.drop_state();
  return true;
}

/// The version that was live before, where it has what has just answered, else the latest such one; else an earlier
/// one in which that policy has not failed.
WholePtr Release::find_before(const Policy& policy, const VersionPtr& answered) const {
  WholePtr earlier, same;
  const auto prefer = [&](WholePtr& best, const WholePtr& whole) {
    if (!best || best != was_live_) best = whole;
  };
  for (const WholePtr& whole : wholes_) {
    const VersionPtr& part = whole->parts[policy.place_];
    if (whole == live_ || whole->taken_back() || part == policy.live() || !part->can_stand_in()) continue;
    if (whole->number < live_->number) prefer(earlier, whole);
    if (part == answered) prefer(same, whole);
  }
  return same ? same : earlier;
}

/// A source that was refused once is no longer tried again by restarts.
void Release::end_trial() {
  const bool on_trial = is_bundle_ ? live_->on_trial() : policies[0].live()->trial.on;
  if (!on_trial && choice_ && choice_->retries(live_contents())) choose(std::nullopt);
}

/// For a restart that cannot use the disk: what is live, once it could be tried.
void Release::keep_source() {
  const Version& alone = *policies[0].live();
  const int number = is_bundle_ ? live_->number : alone.number;
  const bool is_untried = is_bundle_ ? live_->is_untried() : alone.trial.on && alone.trial.untried;
  if (number == kept_number_ || is_untried) return;
  kept_number_ = number;
  kept.good = live_contents();
}

/// What is live after a restart; nothing: what the disk says.
void Release::choose(const std::optional<Contents>& live, ChosenBy by) {
  choice_.reset();
  if (live && deleted_) seen_.reset();
  if (live && (by == ChosenBy::pin || seen_ != live)) choice_ = Choice{by, *live, deleted_ ? std::nullopt : seen_};
  kept.choice = choice_;
}

std::vector<int> Release::numbers() const {
  std::vector<int> numbers;
  if (is_bundle_)
    for (const WholePtr& whole : wholes_) numbers.push_back(whole->number);
  else
    for (const VersionPtr& version : policies[0].versions()) numbers.push_back(version->number);
  return numbers;
}

/// A version that was taken back is on trial again.
bool Release::return_to(int number, bool pin) {
  WholePtr whole;
  VersionPtr version;
  for (const WholePtr& one : wholes_)
    if (one->number == number) whole = one;
  for (const VersionPtr& one : policies[0].versions())
    if (!is_bundle_ && one->number == number) version = one;
  if (!whole && !version) return false;
  if (pinned) look_while_pinned();
  for (const VersionPtr& part : whole ? whole->parts : std::vector<VersionPtr>{version})
    if (std::exchange(part->taken_back, false)) part->trial.begin(options_);
  if (whole)
    exchange(whole);
  else
    policies[0].publish(version);
  pinned = pin;
  if (!deleted_ && !incomplete_ && seen_ == live_contents()) clear_error();
  incomplete_ = false;
  choose(live_contents(), pin ? ChosenBy::pin : ChosenBy::rollback);
  keep_source();
  for (Policy& policy : policies) policy.drop_state();
  return true;
}

void Release::unpin() {
  pinned = false;
  reload();
}

/// Of a policy alone: text of the host in the place of a file.
bool Release::replace(const Source& source) {
  refused_ = false;
  if (live_contents() == Contents{source}) {
    clear_error();
    return true;
  }
  const std::string why = bring_alone(source);
  if (why.empty()) return true;
  refused_ = true;
  note_error(why);
  return false;
}

Contents Release::contents_of(const Whole& whole) {
  Contents contents;
  for (const VersionPtr& part : whole.parts) contents.push_back(part->source);
  return contents;
}

Contents Release::live_contents() const {
  return is_bundle_ ? contents_of(*live_) : Contents{policies[0].live()->source};
}

bool Release::note_error(const std::string& message) {
  std::optional<std::string>& mine = own_error();
  if (mine == message) return false;
  mine = message;
  return true;
}

void Release::clear_error() {
  error.reset();
  for (Policy& policy : policies) policy.error.reset();
}

}  // namespace lives
