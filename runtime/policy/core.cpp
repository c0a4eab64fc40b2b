// How a policy changes: loading, reloading, rolling back. Whatever goes wrong, the live version stays live.
#include "runtime/policy/core.h"

#include "runtime/files/checksum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace triage::policy {

using Clock = std::chrono::system_clock;

PolicyCore::PolicyCore(std::shared_ptr<RuntimeCore> runtime, std::string path, std::filesystem::path file)
    : runtime_(std::move(runtime)),
      path_(std::move(path)),
      file_(std::move(file)),
      random_(std::make_shared<random::Sequence>(runtime_->options().seed)) {}

PolicyCore::~PolicyCore() { delete live_.load(std::memory_order_seq_cst); }

void PolicyCore::load_first(std::optional<std::string> source) {
  std::lock_guard changing(changing_);
  std::shared_ptr<PolicyVersion> version;
  std::optional<Error> failure;
  try {
    if (!source) throw FileError(fmt::format("cannot load the policy '{}': there is no such file", path_), {path_, 0});
    seen_hash_ = files::checksum(*source);
    version = runtime_->load_version(*source, path_, /*run_tests=*/false, random_);
  } catch (const Error& error) {
    std::optional<std::string> kept = file_.empty() ? std::nullopt : runtime_->last_good().find(file_);
    if (!kept) throw;
    version = runtime_->load_version(std::move(*kept), path_, /*run_tests=*/false, random_);
    failure = error;
    deleted_ = !source;
    refused_ = source.has_value();
    runtime_->logger().error("policy '{}': {}; running its last good source instead", path_, error.what());
  }
  name_ = version->name;
  go_live(version);
  if (failure) note_failure(failure->what(), failure->source());
  runtime_->logger().debug("policy '{}' loaded from '{}' (source {})", name_, path_, version->hash);
}

PolicyCore::FileChange PolicyCore::follow_file(bool retry) {
  if (file_.empty()) return FileChange::unchanged;
  std::lock_guard changing(changing_);
  if (pinned()) return FileChange::unchanged;
  std::optional<std::string> source;
  try {
    source = read_source(file_);
  } catch (const FileError& error) {
    if (!note_failure(error.what(), error.source())) return FileChange::unchanged;
    seen_hash_ = 0;
    runtime_->logger().error("policy '{}': {}; version {} stays live", name_, error.what(), version().number);
    return FileChange::refused;
  }
  if (!source) {
    if (deleted_) return FileChange::unchanged;
    deleted_ = true;
    note_failure(fmt::format("the file '{}' was deleted", path_), {path_, 0});
    runtime_->logger().warn("policy '{}': the file '{}' was deleted; version {} stays live", name_, path_,
                            version().number);
    return FileChange::deleted;
  }
  const bool was_deleted = std::exchange(deleted_, false);
  const FileChange change = take_up(std::move(*source), retry || (was_deleted && refused_));
  if (!was_deleted || change != FileChange::unchanged) return change;
  clear_failure();  // the source that was there before, though another version is live (after a rollback)
  return FileChange::restored;
}

Reload PolicyCore::replace(std::string source) {
  std::lock_guard changing(changing_);
  switch (take_up(std::move(source), /*retry=*/true)) {
    case FileChange::swapped:
      return Reload::swapped;
    case FileChange::refused:
      return Reload::refused;
    default:
      return Reload::unchanged;
  }
}

PolicyCore::FileChange PolicyCore::take_up(std::string source, bool retry) {
  const uint64_t hash = files::checksum(source);
  if (hash == seen_hash_ && !retry) return FileChange::unchanged;
  seen_hash_ = hash;
  refused_ = false;
  if (hash_text(hash) == with_live([](const PolicyVersion& live) { return live.hash; })) {
    return clear_failure() ? FileChange::restored : FileChange::unchanged;
  }
  try {
    go_live(make_successor(std::move(source)));
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const Source where = known && !known->source().file.empty() ? known->source() : Source{path_, 0};
    refused_ = true;
    note_failure(error.what(), where);
    runtime_->logger().error("policy '{}': the new source was refused, version {} stays live: {}", name_,
                             version().number, error.what());
    return FileChange::refused;
  }
  const VersionInfo now = version();
  runtime_->logger().info("policy '{}': version {} is live (source {})", name_, now.number, now.hash);
  return FileChange::swapped;
}

/// Loads, checks and warms up what is to follow the live version; throws when it may not.
std::shared_ptr<PolicyVersion> PolicyCore::make_successor(std::string source) const {
  std::shared_ptr<PolicyVersion> next = runtime_->load_version(std::move(source), path_, /*run_tests=*/true, random_);
  Params params;
  {
    std::lock_guard lock(mutex_);
    params = params_;
  }
  with_live([&](const PolicyVersion& live) {
    // Names first: made-up inputs for the wrong number of inputs would only give a worse message.
    check_contract(live, *next);
    const std::vector<at::Tensor> values = param_tensors(next->signature, params);
    std::vector<std::vector<capture::InputShape>> shapes = live.compiled.shapes_in_use();
    for (auto& shape : live.trial.kinds()) shapes.push_back(std::move(shape));
    for (const auto& shape : shapes) {
      const auto refused = next->compiled.prepare(shape, values, donated());
      if (!refused) continue;
      next->trial.add(shape);
      runtime_->logger().warn(
          "policy '{}': the new source is not captured ahead, for it cannot run on made-up inputs: {}. Its first call "
          "captures it; should that fail, version {} answers and stays live",
          name_, *refused, live.number);
    }
    check_contract(live, *next);
  });
  return next;
}

void PolicyCore::go_live(const std::shared_ptr<PolicyVersion>& version) {
  std::shared_ptr<Retired> dropped = std::make_shared<Retired>();
  {
    std::lock_guard lock(mutex_);
    version->number = next_number_++;
    versions_.push_back(version);
    last_error_.reset();
    publish(version);
    while (versions_.size() > std::max<size_t>(1, runtime_->options().keep_versions)) {
      dropped->versions.push_back(std::move(versions_.front()));
      versions_.pop_front();
    }
  }
  if (!dropped->versions.empty()) runtime_->janitor().retire(epochs_, dropped);
  if (!version->trial.on()) keep_source(*version);  // else it is not known yet to be good
}

/// For a restart that finds the file broken.
void PolicyCore::keep_source(const PolicyVersion& version) const {
  if (file_.empty()) return;
  const std::string failure = runtime_->last_good().keep(file_, version.source);
  if (!failure.empty()) runtime_->logger().warn("policy '{}': cannot keep the last good source: {}", name_, failure);
}

void PolicyCore::publish(const std::shared_ptr<PolicyVersion>& version) {
  const Live* previous = live_.load(std::memory_order_relaxed);
  auto next = std::make_unique<Live>();
  next->version = version;
  next->params = param_tensors(version->signature, params_);
  if (runtime_->options().on_error == OnError::last_good) {
    next->last_good = find_last_good(*version);
    if (!next->last_good && previous && previous->last_good && previous->last_good->number < version->number)
      next->last_good = previous->last_good;
    if (next->last_good) next->last_good_params = param_tensors(next->last_good->signature, params_);
  }
  if (version->trial.on() && previous) {
    const bool stays = previous->version == version || previous->version->trial.on();
    next->before = stays ? previous->before : previous->version;
    if (next->before) next->before_params = param_tensors(next->before->signature, params_);
  }
  if (!previous || previous->version != version) version->since = Clock::now();
  auto retired = std::make_shared<Retired>();
  retired->live.reset(live_.exchange(next.release(), std::memory_order_seq_cst));
  if (retired->live) runtime_->janitor().retire(epochs_, std::move(retired));
}

std::shared_ptr<PolicyVersion> PolicyCore::find_last_good(const PolicyVersion& before) const {
  for (auto version = versions_.rbegin(); version != versions_.rend(); ++version)
    if ((*version)->number < before.number && (*version)->has_run.load(std::memory_order_relaxed)) return *version;
  return nullptr;
}

std::shared_ptr<PolicyVersion> PolicyCore::find_kept(int number) const {
  std::vector<int> kept;
  for (const auto& version : versions_) {
    if (version->number == number) return version;
    kept.push_back(version->number);
  }
  throw InputError(
      fmt::format("policy '{}' has no version {} to go back to; it keeps {}", name_, number, fmt::join(kept, ", ")));
}

void PolicyCore::rollback(int number, bool pin) {
  std::lock_guard changing(changing_);
  {
    std::lock_guard lock(mutex_);
    publish(find_kept(number));
    pinned_ = pin;
  }
  runtime_->logger().info("policy '{}': version {} is live again{}", name_, number, pin ? ", and pinned" : "");
}

void PolicyCore::unpin() {
  std::lock_guard changing(changing_);
  std::lock_guard lock(mutex_);
  pinned_ = false;
}

void PolicyCore::set_param(const std::string& name, c10::Scalar value) {
  std::lock_guard lock(mutex_);
  const Live& live = *live_.load(std::memory_order_relaxed);
  override_params(*live.version, live.params, {{name, value}});  // throws where it does not fit
  const auto same =
      std::find_if(params_.begin(), params_.end(), [&](const auto& param) { return param.first == name; });
  if (same == params_.end()) {
    params_.emplace_back(name, value);
  } else {
    same->second = value;
  }
  publish(live.version);
}

bool PolicyCore::pinned() const {
  std::lock_guard lock(mutex_);
  return pinned_;
}

VersionInfo PolicyCore::version() const {
  std::lock_guard lock(mutex_);
  VersionInfo info = live_.load(std::memory_order_relaxed)->version->info();
  info.live = true;
  info.pinned = pinned_;
  info.last_error = last_error_;
  return info;
}

std::vector<VersionInfo> PolicyCore::versions() const {
  std::lock_guard lock(mutex_);
  const PolicyVersion* live = live_.load(std::memory_order_relaxed)->version.get();
  std::vector<VersionInfo> infos;
  for (const auto& version : versions_) {
    infos.push_back(version->info());
    infos.back().live = version.get() == live;
    infos.back().pinned = infos.back().live && pinned_;
  }
  return infos;
}

/// True when this is news: not what was noted last.
bool PolicyCore::note_failure(const std::string& message, const Source& source) {
  std::lock_guard lock(mutex_);
  const bool news = !last_error_ || last_error_->message != message;
  if (news) last_error_ = LoadFailure{message, source, Clock::now()};
  return news;
}

/// True when there was one.
bool PolicyCore::clear_failure() {
  std::lock_guard lock(mutex_);
  return std::exchange(last_error_, std::nullopt).has_value();
}

}  // namespace triage::policy
