// Random lives of a policy: what is live follows from what operators did with it, also over restarts.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <rapidcheck.h>
#include <triage/bundle.h>
#include <triage/runtime.h>

#include <map>
#include <memory>

#include "runtime/policy/bundles/manifest.h"

namespace fs = std::filesystem;
using triage::Policy;
using triage::Runtime;
using triage::test::first;

namespace {

/// What it adds to zeros; nothing where it must never answer.
struct Source {
  const char* text;
  std::optional<float> adds;
};

constexpr Source sources[] = {{"add 1", 1.0f},
                              {"add 2", 2.0f},
                              {"add 3", 3.0f},
                              {"raise_above 1000\nadd 4", 4.0f},
                              {"raise_above 1000\nadd 5", 5.0f},
                              {"raise always", {}},
                              {"broken on purpose", {}},
                              {"inputs a b\nadd 6", {}},
                              {"add 7\ntest sums fails", {}}};

enum class Step {
  save,
  remove,
  reload,
  large_calls,
  pin,
  rollback,
  unpin,
  shadow,
  promote,
  restart,
  restart_with_other
};
constexpr const char* step_names[] = {"save",   "remove",  "reload",  "large calls",       "pin", "rollback", "unpin",
                                      "shadow", "promote", "restart", "restart with other"};

struct Version {
  int number = 0;
  std::string source;  // the same for the same source
  bool live = false, pinned = false;
};

/// What lives: a policy, or a bundle of which it is a part.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual void save(const std::string& source) const = 0;
  virtual void remove() const = 0;
  virtual void load(Runtime& runtime) = 0;
  virtual void close() = 0;
  virtual void reload() const = 0;
  virtual void pin(int number) const = 0;
  virtual void rollback(int number) const = 0;
  virtual void unpin() const = 0;
  virtual std::vector<Version> versions() const = 0;
  virtual bool has_error() const = 0;

  const fake::Folder folder;
  Policy policy;
};

class Alone : public Subject {
 public:
  void save(const std::string& source) const override { fake::rename_save(file_, source); }
  void remove() const override { fs::remove(file_); }
  void load(Runtime& runtime) override { policy = runtime.load(file_); }
  void close() override { policy = {}; }
  void reload() const override { policy.reload(); }
  void pin(int number) const override { policy.pin(number); }
  void rollback(int number) const override { policy.rollback(number); }
  void unpin() const override { policy.unpin(); }
  bool has_error() const override { return policy.version().last_error.has_value(); }
  std::vector<Version> versions() const override {
    std::vector<Version> all;
    for (const auto& version : policy.versions())
      if (!version.candidate) all.push_back({version.number, version.hash, version.live, version.pinned});
    return all;
  }

 private:
  const fs::path file_ = folder / "p.fake";
};

class InBundle : public Subject {
 public:
  InBundle() { fake::write(folder / "other.fake", "add 100"); }
  void save(const std::string& source) const override {
    fake::rename_save(folder / "p.fake", source);
    triage::policy::Manifest manifest = triage::policy::list_folder(folder.path());
    manifest.name = "pair";
    manifest.version = std::to_string(std::hash<std::string>()(source));
    fake::rename_save(folder / "bundle.json", manifest.text());
  }
  void remove() const override { fs::remove(folder / "bundle.json"); }
  void load(Runtime& runtime) override {
    bundle_ = runtime.load_bundle(folder.path());
    policy = bundle_.policy("p");
  }
  void close() override {
    policy = {};
    bundle_ = {};
  }
  void reload() const override { bundle_.reload(); }
  void pin(int number) const override { bundle_.pin(number); }
  void rollback(int number) const override { bundle_.rollback(number); }
  void unpin() const override { bundle_.unpin(); }
  bool has_error() const override { return bundle_.version().last_error.has_value(); }
  std::vector<Version> versions() const override {
    std::vector<Version> all;
    for (const auto& version : bundle_.versions())
      all.push_back({version.number, version.sha256, version.live, version.pinned});
    return all;
  }

 private:
  triage::Bundle bundle_;
};

bool refuses(const std::function<void()>& wish) {
  try {
    wish();
  } catch (const triage::Error&) {
    return true;
  }
  return false;
}

/// What is done with it, and what a small call has to give.
class Life {
 public:
  /// `remembers`: what a call gives also has the number of calls that were answered before.
  Life(std::unique_ptr<Subject> subject, bool watched, bool remembers)
      : subject_(std::move(subject)), watched_(watched), remembers_(remembers) {
    save(sources[0]);
    start();
    live_ = sources[0].adds;
    look_at_it();
  }

  void take(Step step, size_t choice) {
    const Source& source = sources[choice % std::size(sources)];
    history_ += fmt::format("{} ({}); ", step_names[static_cast<size_t>(step)], choice % std::size(sources));
    switch (step) {
      case Step::save:
        save(source);
        look(/*asked=*/false);
        break;
      case Step::remove:
        subject_->remove();
        disk_ = nullptr;
        look(/*asked=*/false);
        break;
      case Step::reload:
        look(/*asked=*/true);
        break;
      case Step::large_calls:
        for (size_t i = 0; i <= choice % 4; ++i) large_call();
        break;
      case Step::pin:
      case Step::rollback:
        return_to(choice, step == Step::pin);
        break;
      case Step::unpin:
        pinned_ = false;
        subject_->unpin();
        expect_of_disk(/*asked=*/true);
        break;
      case Step::shadow:
        if (refuses([&] { subject_->policy.shadow_source(text_of(source)); })) return;
        candidate_ = &source;
        break;
      case Step::promote:
        if (refuses([&] { subject_->policy.promote(); })) return;
        live_ = std::exchange(candidate_, nullptr)->adds;
        seen_ = disk_;
        error_.reset();
        chosen_ = true;
        break;
      case Step::restart_with_other:
        // What a reload compares with the live version, a start cannot refuse.
        if (!source.adds && source.text != std::string_view("broken on purpose")) return;
        if (disk_ != &source) {
          save(source);
          if (!pinned_ && source.adds && &source != seen_) live_ = source.adds;
          error_.reset();
        }
        [[fallthrough]];
      case Step::restart:
        restart(/*saves_state=*/choice % 2 == 0);
        break;
    }
    look_at_it();
  }

 private:
  void save(const Source& source) {
    subject_->save(text_of(source));
    disk_ = &source;
  }

  std::string text_of(const Source& source) const {
    return (remembers_ ? "remember\n" : "") + std::string(source.text);
  }

  void restart(bool saves_state) {
    const fs::path state = cache_ / "state.pt";
    if (saves_state && remembers_) subject_->policy.save_state(state);
    start();
    if (saves_state && remembers_)
      subject_->policy.load_state(state);
    else
      calls_ = 0;
  }

  /// What a call that is answered adds.
  float answer(float value) {
    const float answer = first(subject_->policy, value);
    return answer - value - static_cast<float>(remembers_ ? calls_++ : 0);
  }

  void start() {
    watch_.reset();
    subject_->close();
    runtime_.reset();
    triage::RuntimeOptions options{.cache_dir = cache_.path()};
    options.trial_calls = 3;
    runtime_.emplace(options);
    subject_->load(*runtime_);
    seen_ = disk_;
    candidate_ = nullptr;
    if (watched_) watch_.emplace(runtime_->watch(subject_->folder.path(), {.debounce = std::chrono::milliseconds(1)}));
  }

  /// `asked`: by the host, which wants to have the file whatever was live in its place.
  void look(bool asked) {
    asked = asked || !watched_;
    if (asked)
      subject_->reload();
    else
      watch_->rescan();
    if (asked || disk_ != seen_)
      expect_of_disk(asked);
    else if (chosen_)  // whether the file was ever tried depends on what was before
      error_.reset();
    else if (disk_ && error_)  // it was removed, or saved again
      error_ = disk_->adds != live_;
  }

  void expect_of_disk(bool asked) {
    if (disk_ || asked || pinned_) seen_ = disk_;
    if (pinned_) return;
    if (disk_ || asked) chosen_ = false;
    if (disk_ && disk_->adds) live_ = disk_->adds;
    error_ = !disk_ || !disk_->adds;
  }

  /// That fails in a version with `raise_above`: another may answer, and is live from then on, if none is pinned.
  void large_call() {
    try {
      const float adds = answer(2000.0f);
      if (!pinned_ && adds != *live_) {
        live_ = adds;
        error_.reset();
        if (!disk_ || disk_->adds != live_) error_ = true;  // else it is of a candidate that was promoted
        chosen_ = false;
      }
    } catch (const triage::PolicyError&) {
      RC_ASSERT(*live_ > 3.0f);
    }
  }

  void return_to(size_t choice, bool pin) {
    const std::vector<Version> kept = subject_->versions();
    const Version& version = kept[choice % kept.size()];
    if (!adds_.count(version.source)) return;  // it never answered
    if (pin)
      subject_->pin(version.number);
    else
      subject_->rollback(version.number);
    pinned_ = pin;
    live_ = adds_.at(version.source);
    seen_ = disk_;
    error_.reset();
    chosen_ = true;
  }

  void look_at_it() {
    const float adds = answer(0.0f);
    Version live;
    int count = 0;
    for (const Version& version : subject_->versions()) {
      if (!version.live) continue;
      live = version;
      ++count;
    }
    RC_ASSERT(count == 1);
    if (adds != *live_ || live.pinned != pinned_)
      RC_FAIL(fmt::format("after {}: live is what adds {}{}, expected {}{}", history_, adds,
                          live.pinned ? ", pinned" : "", *live_, pinned_ ? ", pinned" : ""));
    if (error_ && !pinned_ && subject_->has_error() != *error_)
      RC_FAIL(fmt::format("after {}: there is {}error", history_, *error_ ? "no " : "an "));
    adds_[live.source] = adds;
  }

  const std::unique_ptr<Subject> subject_;
  const bool watched_, remembers_;
  const fake::Folder cache_;
  std::string history_;
  const Source *disk_ = nullptr, *seen_ = nullptr, *candidate_ = nullptr;
  std::optional<float> live_;
  std::optional<bool> error_;             // whether the subject has one; nothing: it is not told here
  bool pinned_ = false, chosen_ = false;  // by pin, rollback or promote
  int calls_ = 0;                         // answered since the state began
  std::map<std::string, float> adds_;
  std::optional<Runtime> runtime_;
  std::optional<triage::Watch> watch_;
};

using Steps = std::vector<std::pair<uint8_t, uint8_t>>;

void live(Life life, const Steps& steps) {
  for (const auto& [step, choice] : steps) life.take(static_cast<Step>(step % std::size(step_names)), choice);
}

}  // namespace

TEST_CASE(
    "random lives of a policy: what is live follows from what was saved, asked for and chosen, over restarts too") {
  CHECK(rc::check([](bool watched, bool remembers, const Steps& steps) {
    live({std::make_unique<Alone>(), watched, remembers}, steps);
  }));
}

TEST_CASE("random lives of a bundle, likewise") {
  CHECK(rc::check([](bool watched, bool remembers, const Steps& steps) {
    live({std::make_unique<InBundle>(), watched, remembers}, steps);
  }));
}
