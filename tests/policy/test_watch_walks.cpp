// Random walks over a file system that a Watch follows: whatever happened to files, folders, links, permissions,
// descriptors and the kernel's watches, when it is over, what is live is what a fresh load gives.
//
// TRIAGE_WALKS=1000 walks so many times, TRIAGE_WALK_SEED=7 begins with that seed: one that failed is told with its
// steps.
#include "tests/policy/answers.h"
#include "tests/policy/fake_script.h"
#include "tests/policy/kernel_watches.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <triage/bundle.h>
#include <triage/runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/files/sha256.h"

namespace fs = std::filesystem;
using triage::Policy;
using triage::Runtime;
using triage::Watch;
using triage::test::first;

namespace watch_walks {  // names differ from those of its neighbours, which are compiled together
namespace {

constexpr std::chrono::milliseconds kernel{0}, polling{5};

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Root may do what permissions forbid: all threads are somebody else meanwhile.
class Unprivileged {
 public:
  explicit Unprivileged(const fs::path& folder) {
    constexpr uid_t nobody = 65534;
    if (::geteuid() != 0) return;
    is_root_ = ::chown(folder.c_str(), nobody, nobody) == 0 && ::seteuid(nobody) == 0;
  }
  ~Unprivileged() {
    if (is_root_ && ::seteuid(0) != 0) std::abort();
  }

 private:
  bool is_root_ = false;
};

/// No descriptor is left.
class NoDescriptors {
 public:
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

/// A folder `policies` with the policy p.fake, which adds up its own number and those of lib/n and, if it is there,
/// tables/deep/k. Each file that is written gets another number.
class Walk {
 public:
  Walk(uint64_t seed, bool is_bundle) : random_(seed), is_bundle_(is_bundle), unprivileged_(folder_.path()) {
    for (const char* const name : {"store", "links", "a"}) fs::create_directories(folder_ / name);
    fs::create_directory_symlink("a", folder_ / "way");
    build_folder(watched());
  }
  ~Walk() { make_readable(); }

  fs::path watched() const { return folder_ / "way/policies"; }
  fs::path policy() const { return watched() / "p.fake"; }
  const std::vector<std::string>& steps() const { return steps_; }

  void step() {
    const fs::path place = any_place();
    try {
      take_step(place);
    } catch (const fs::filesystem_error&) {  // the places are not always there
    }
    if (up_to(2) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(up_to(30)));
  }

  /// Everything that is only for a moment ends.
  void end_moments() {
    fake::refuse_watches(false);
    note("moments end", {});
    make_readable();
  }

  /// A folder that loads.
  void heal() {
    note("heal", {});
    std::error_code ignored;
    const fs::path place = fs::is_directory(folder_ / "way", ignored) ? watched() : folder_ / "way";
    swap_in(made(place), place);
  }

 private:
  size_t up_to(size_t most) { return std::uniform_int_distribution<size_t>(0, most)(random_); }
  template <class T>
  const T& any(const std::vector<T>& all) {
    return all[up_to(all.size() - 1)];
  }
  void note(const std::string& what, const fs::path& place) {
    steps_.push_back(fmt::format("{} {}", what, place.lexically_relative(folder_.path()).string()));
  }

  fs::path any_place() {
    const fs::path top = watched();
    std::vector<fs::path> places = {top, top / "lib", top / "p.fake", top / "lib/n"};
    if (is_bundle_)
      places.push_back(top / "bundle.json");
    else
      places.insert(places.end(), {top / "tables", top / "tables/deep", top / "tables/deep/k", folder_ / "way"});
    for (const auto& entry : fs::directory_iterator(folder_ / "links")) places.push_back(entry.path());
    return any(places);
  }

  /// What belongs there by the name: links are named after what they stand for.
  static std::string kind_of(const fs::path& place) {
    const std::string name = place.filename();
    return name.substr(0, name.find('@'));
  }
  static bool is_folder(const fs::path& place) {
    const std::string kind = kind_of(place);
    return kind == "policies" || kind == "lib" || kind == "tables" || kind == "deep" || kind == "way";
  }

  std::string text_of(const fs::path& file) {
    if (kind_of(file) == "bundle.json") return manifest_of(file.parent_path());
    const size_t number = ++numbers_;
    if (kind_of(file) != "p.fake") return std::to_string(number);
    if (up_to(9) == 0) return "broken here";
    return fmt::format("name p\nadd_file lib/n\nadd_file tables/deep/k 0.5\nadd {}", number);
  }
  static std::string manifest_of(const fs::path& dir) {
    try {
      triage::policy::Manifest manifest = triage::policy::list_folder(dir);
      manifest.name = "walked";
      manifest.version = "1";
      if (fs::exists(dir / "lib/n")) manifest.tables["lib/n"] = triage::policy::sha256_text(fake::read(dir / "lib/n"));
      return manifest.text();
    } catch (const std::exception&) {  // a folder in the place of a file
      return "{}";
    }
  }

  void build_folder(const fs::path& place) {
    const std::string kind = kind_of(place);
    fs::create_directories(place);
    if (kind == "way") build_folder(place / "policies");
    if (kind == "policies") {
      fake::write(place / "p.fake",
                  fmt::format("name p\nadd_file lib/n\nadd_file tables/deep/k 0.5\nadd {}", ++numbers_));
      build_folder(place / "lib");
      if (!is_bundle_) build_folder(place / "tables");
      if (is_bundle_) fake::write(place / "bundle.json", manifest_of(place));
    }
    if (kind == "tables") build_folder(place / "deep");
    if (kind == "lib") fake::write(place / "n", std::to_string(++numbers_));
    if (kind == "deep") fake::write(place / "k", std::to_string(++numbers_));
  }
  /// Something new that may stand at `place`, made elsewhere: `inside`, below the watched folder, where links of a
  /// policy may lead.
  fs::path made(const fs::path& place, bool inside = false) {
    const fs::path home = (inside ? watched() / "..data" : folder_ / "store") / fmt::format("{}", ++made_);
    fs::create_directories(home);
    const fs::path fresh = home / kind_of(place);
    if (is_folder(place))
      build_folder(fresh);
    else if (kind_of(place) == "bundle.json")
      fake::write(fresh, manifest_of(watched()));
    else
      fake::write(fresh, text_of(fresh));
    return fresh;
  }
  void swap_in(const fs::path& fresh, const fs::path& place) {
    std::error_code ignored;
    fs::rename(place, folder_ / fmt::format("store/old{}", ++made_), ignored);
    fs::rename(fresh, place);
  }
  void exchange(const fs::path& fresh, const fs::path& place) {
    ::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, place.c_str(), RENAME_EXCHANGE);
  }
  /// A link to something new, directly or through another link that is switched later, takes the place.
  void link(const fs::path& place) {
    const bool inside = up_to(1) && place.parent_path() != folder_.path();
    fs::path target = made(place, inside);
    if (!inside && up_to(1)) {
      const fs::path inner = folder_ / fmt::format("links/{}@{}", kind_of(place), ++made_);
      fs::create_symlink(up_to(1) ? target : target.lexically_relative(inner.parent_path()), inner);
      target = inner;
    }
    const bool is_relative = inside || up_to(1);
    const fs::path from = inside ? place.parent_path() : fs::weakly_canonical(place.parent_path());
    const fs::path draft = folder_ / fmt::format("store/link{}", ++made_);
    fs::create_symlink(is_relative ? target.lexically_relative(from) : target, draft);
    if (fs::is_directory(fs::symlink_status(place)))
      swap_in(draft, place);
    else
      fs::rename(draft, place);
  }
  void edit_through_hard_link(const fs::path& file) {
    const fs::path other = folder_ / fmt::format("store/hard{}", ++made_);
    fs::create_hard_link(fs::canonical(file), other);
    std::this_thread::sleep_for(std::chrono::milliseconds(up_to(20)));
    fake::write(other, text_of(file));
  }

  void take_step(const fs::path& place) {
    static const std::vector<std::string> all = {"write",  "write",  "save",    "save",    "replace",   "exchange",
                                                 "link",   "link",   "remove",  "wrong",   "forbid",    "permit",
                                                 "no fds", "no fds", "refused", "watched", "hard link", "pack"};
    const std::string what = any(all);
    note(what, place);
    const fs::path file = is_folder(place) ? policy() : place;
    if (what == "write") fake::write(file, text_of(file));
    if (what == "save") fake::rename_save(file, text_of(file));
    if (what == "replace") swap_in(made(place), place);
    if (what == "exchange") exchange(made(place), place);
    if (what == "link") link(place);
    if (what == "remove") fs::remove_all(place);
    if (what == "wrong") swap_in(made(is_folder(place) ? policy() : watched() / "lib"), place);
    if (what == "forbid") fs::permissions(place, fs::perms::none);
    if (what == "permit") make_readable();
    if (what == "no fds") change_without_descriptors(place);
    if (what == "refused") fake::refuse_watches(true);
    if (what == "watched") fake::refuse_watches(false);
    if (what == "hard link") edit_through_hard_link(file);
    if (what == "pack" && is_bundle_) fake::rename_save(watched() / "bundle.json", manifest_of(watched()));
  }
  void change_without_descriptors(const fs::path& place) {
    const fs::path fresh = made(place);
    const NoDescriptors none;
    exchange(fresh, place);
    std::this_thread::sleep_for(std::chrono::milliseconds(up_to(40)));
  }

  void make_readable() {
    note("permit", {});
    permit(folder_.path());
  }
  static void permit(const fs::path& place) {
    std::error_code ignored;
    const bool is_directory = fs::is_directory(fs::symlink_status(place, ignored));
    if (fs::is_symlink(fs::symlink_status(place, ignored))) return;
    fs::permissions(place, is_directory ? fs::perms::owner_all : fs::perms::owner_read | fs::perms::owner_write,
                    ignored);
    if (!is_directory) return;
    for (const auto& entry : fs::directory_iterator(place, ignored)) permit(entry.path());
  }

  std::mt19937_64 random_;
  const bool is_bundle_;
  fake::Folder folder_;
  Unprivileged unprivileged_;
  std::vector<std::string> steps_;
  size_t numbers_ = 0, made_ = 0;
};

bool soon(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// What a program that starts now would answer with; nothing where it could not load.
std::optional<float> fresh_answer(const Walk& walk, bool is_bundle) {
  Runtime runtime;
  try {
    if (is_bundle) return first(runtime.load_bundle(walk.watched()).policy("p"));
    return first(runtime.load(walk.policy()));
  } catch (const triage::Error&) {
    return std::nullopt;
  }
}

/// A bundle ignores files that change without bundle.json, which a fresh load refuses.
void check_settled(const Walk& walk, const Policy& policy, bool is_bundle) {
  const std::optional<float> fresh = fresh_answer(walk, is_bundle);
  INFO(fmt::format("{}", fmt::join(walk.steps(), "\n")));
  if (!fresh) {
    CHECK((is_bundle || soon([&] { return policy.version().last_error.has_value(); })));
    return;
  }
  const bool settled = soon([&] { return first(policy) == *fresh; });
  INFO("last error: ", policy.version().last_error ? policy.version().last_error->message : "none");
  INFO("a fresh load answers ", *fresh, ", live is ", first(policy));
  CHECK(settled);
  CHECK(soon([&] { return is_bundle || !policy.version().last_error; }));
}

void walk_once(uint64_t seed, std::chrono::milliseconds poll, bool is_bundle) {
  CAPTURE(seed);
  CAPTURE(poll.count());
  CAPTURE(is_bundle);
  Walk walk(seed, is_bundle);
  Runtime runtime;
  triage::Bundle bundle;
  if (is_bundle) bundle = runtime.load_bundle(walk.watched());
  const Policy policy = is_bundle ? bundle.policy("p") : runtime.load(walk.policy());
  const Watch watch = runtime.watch(walk.watched(), {.debounce = std::chrono::milliseconds(5), .poll_interval = poll});
  for (int round = 0; round < 4; ++round) {
    for (size_t steps = 1 + seed % 6; steps > 0; --steps) walk.step();
    walk.end_moments();
    check_settled(walk, policy, is_bundle);
    if (round % 2) {
      walk.heal();
      check_settled(walk, policy, is_bundle);
    }
  }
}

void walk_all(std::chrono::milliseconds poll, bool is_bundle, uint64_t in_gate) {
  const uint64_t walks = from_environment("TRIAGE_WALKS", in_gate), begin = from_environment("TRIAGE_WALK_SEED", 1);
  for (uint64_t seed = begin; seed < begin + walks; ++seed) walk_once(seed, poll, is_bundle);
}

}  // namespace

TEST_CASE("whatever happened to the files of a policy, in the end what a fresh load gives is live: inotify (threads)") {
  walk_all(kernel, /*is_bundle=*/false, 6);
}

TEST_CASE("whatever happened to the files of a policy, in the end what a fresh load gives is live: polling (threads)") {
  walk_all(polling, /*is_bundle=*/false, 6);
}

TEST_CASE("whatever happened to the files of a bundle, in the end what a fresh load gives is live (threads)") {
  walk_all(kernel, /*is_bundle=*/true, 4);
  walk_all(polling, /*is_bundle=*/true, 4);
}

}  // namespace watch_walks
