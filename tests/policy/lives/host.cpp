#include "tests/policy/lives/host.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <chrono>
#include <functional>

#include "runtime/policy/bundles/manifest.h"
#include "tests/policy/answers.h"

namespace lives {

namespace fs = std::filesystem;

namespace {

bool is_done(const std::function<void()>& wish) {
  try {
    wish();
  } catch (const triage::Error&) {
    return false;
  }
  return true;
}

triage::RunOptions options_of(const Call& call, triage::RunInfo& info) {
  triage::RunOptions options;
  options.info = &info;
  options.state_key = call.key;
  options.on_error = call.on_error;
  if (call.donates) options.donate = {0};
  if (call.param) options.params = {{"limit", *call.param}};
  const auto now = std::chrono::steady_clock::now();
  if (call.bounded) options.deadline = now + std::chrono::hours(1);
  if (call.late) options.deadline = now - std::chrono::seconds(1);
  return options;
}

}  // namespace

Host::Host(const fake::Folder& folder, const fake::Folder& cache, const Options& options, bool is_bundle, size_t count)
    : folder_(folder), cache_(cache), options_(options), is_bundle_(is_bundle), count_(count) {}

/// Of a bundle the list of its files comes last.
void Host::save(const Disk& disk) const {
  if (!disk.contents) {
    fs::remove(is_bundle_ ? folder_ / "bundle.json" : file(0));
    return;
  }
  triage::policy::Manifest manifest;
  for (size_t i = 0; i < count_; ++i) {
    fake::rename_save(file(i), (*disk.contents)[i].text());
    manifest.version += fmt::format("{}.", (*disk.contents)[i].adds);
  }
  if (!is_bundle_) return;
  manifest.policies = triage::policy::list_folder(folder_.path()).policies;
  manifest.name = "lives";
  fake::rename_save(folder_ / "bundle.json", manifest.text());
  if (!disk.complete) fs::remove(file(0));
}

void Host::close() {
  idle_ = {};
  policies_.clear();
  bundle_ = {};
  runtime_.reset();
  drained_ = 0;
}

bool Host::start() {
  close();
  triage::RuntimeOptions options;
  options.log = [this](const triage::LogRecord& record) {
    for (const char* const clause : {"is not known", "cannot be used", "cannot keep"})
      if (record.text.find(clause) != std::string_view::npos) trouble_ += std::string(record.text) + "\n";
  };
  options.cache_dir = cache_.path();
  options.trial_calls = options_.trial_calls;
  options.trial_seconds = options_.trials_last ? 1e6 : 0;
  options.reload_latency_ratio = 0;  // the model knows no times
  options.failures_to_revert = options_.failures_to_revert;
  options.keep_versions = options_.keep_versions;
  options.on_error = options_.on_error;
  runtime_.emplace(options);
  return is_done([&] {
    if (is_bundle_) bundle_ = runtime_->load_bundle(folder_.path());
    for (size_t i = 0; i < count_; ++i)
      policies_.push_back(is_bundle_ ? bundle_.policy(name(i)) : runtime_->load(file(i)));
  });
}

/// It does not look by itself while it is there.
void Host::look() {
  triage::Watch watch = runtime_->watch(folder_.path(), {.debounce = std::chrono::hours(1)});
  watch.rescan();
}

void Host::reload() const { is_bundle_ ? bundle_.reload() : policies_[0].reload(); }

bool Host::return_to(int number, bool pin) const {
  return is_done([&] {
    if (is_bundle_)
      pin ? bundle_.pin(number) : bundle_.rollback(number);
    else
      pin ? policies_[0].pin(number) : policies_[0].rollback(number);
  });
}

void Host::unpin() const { is_bundle_ ? bundle_.unpin() : policies_[0].unpin(); }

bool Host::replace(const Source& source) const {
  bool refused = false;
  return is_done([&] { refused = policies_[0].replace(source.text()) == triage::Reload::refused; }) && !refused;
}

bool Host::start_candidate(size_t policy, const Source& source, const Candidate& as) const {
  return is_done([&] {
    if (as.kind == triage::CandidateKind::shadow) {
      policies_[policy].shadow_source(source.text(), {.share = as.share});
      return;
    }
    triage::CanaryOptions options;
    options.share = as.share;
    options.promote_after = as.promote_after;
    options.revert_if.failures = as.most_failures;
    policies_[policy].canary_source(source.text(), options);
  });
}

bool Host::promote(size_t policy) const {
  return is_done([&] { policies_[policy].promote(); });
}

bool Host::end_candidate(size_t policy) const {
  return is_done([&] { policies_[policy].end_candidate(); });
}

bool Host::set_param(size_t policy, double value) const {
  return is_done([&] { policies_[policy].set_param("limit", value); });
}

Answer Host::call(size_t policy, const Call& call) const {
  triage::RunInfo info;
  const double value = call.large ? 2000.0 : 0.0;
  Answer answer;
  try {
    const auto outputs = policies_[policy].run({at::full({4, 2}, value)}, options_of(call, info));
    answer.adds = triage::test::first(outputs) - value;
  } catch (const triage::InputError&) {
    answer.mistake = true;
  } catch (const triage::Error&) {
  }
  answer.by = info.answered;
  answer.version = info.version;
  return answer;
}

void Host::drain() {
  if (!idle_) {
    idle_ = runtime_->load_source("add 1", "idle.fake");
    idle_.shadow_source("add 2", {.share = 1});
  }
  idle_.run({at::zeros({1})});
  ++drained_;
  if (!fake::eventually([&] { return idle_.candidate()->shadow.compared == drained_; }))
    throw std::runtime_error("the thread for candidates does not come to an end");
}

}  // namespace lives
