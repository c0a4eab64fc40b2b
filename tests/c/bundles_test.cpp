// Policies that change together, through the C interface.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "host.h"
#include "runtime/policy/files/sha256.h"

namespace triage::test {
namespace {

namespace fs = std::filesystem;

/// A folder with the bundle `pair` of two policies, which add a number.
struct Folder {
  const fs::path path = fs::temp_directory_path() / ("triage-c-bundle-" + std::to_string(::getpid()));

  Folder() {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }

  void write(const std::string& version, const std::string& a, const std::string& b) const {
    std::ostringstream listed;
    const auto add = [&](const char* name, const std::string& number) {
      const std::string source = "return function(z) return z + " + number + " end";
      std::ofstream(path / name) << source;
      listed << (listed.str().empty() ? "" : ", ") << '"' << name << "\": \"" << policy::sha256_text(source) << '"';
    };
    add("a.lua", a);
    add("b.lua", b);
    std::ofstream(path / "bundle.json") << R"({"name": "pair", "version": ")" << version << R"(", "policies": {)"
                                        << listed.str() << "}}";
  }
};

/// A bundle and its two policies.
struct Bundled {
  Folder folder;
  TriageRuntime* runtime = nullptr;
  TriageBundle* bundle = nullptr;
  TriagePolicy *a = nullptr, *b = nullptr;

  Bundled() {
    folder.write("one", "1", "10");
    TriageRuntimeOptions options = {};
    options.size = sizeof options;
    options.log = [](const TriageLogRecord*, void*) {};
    check_ok(api().create_runtime(&options, &runtime));
    check_ok(api().load_bundle(runtime, folder.path.c_str(), &bundle));
    check_ok(api().bundle_policy(bundle, "a", &a));
    check_ok(api().bundle_policy(bundle, "b", &b));
  }
  Bundled(const Bundled&) = delete;
  Bundled& operator=(const Bundled&) = delete;
  ~Bundled() {
    check_ok(api().free_policy(a));
    check_ok(api().free_policy(b));
    check_ok(api().free_bundle(bundle));
    check_ok(api().free_runtime(runtime));
  }

  static float of_zero(TriagePolicy* policy) {
    HostTensor z({0}, {1, 1});
    DLManagedTensor *inputs[] = {&z.managed}, *outputs[1] = {};
    size_t count = 1;
    check_ok(api().run(policy, inputs, 1, nullptr, outputs, &count));
    return Output(outputs[0]).values()[0];
  }
  std::pair<float, float> both() const { return {of_zero(a), of_zero(b)}; }
  TriageBundleVersion version() const {
    TriageBundleVersion version = {};
    version.size = sizeof version;
    check_ok(api().bundle_version(bundle, &version));
    return version;
  }
};

using Both = std::pair<float, float>;

}  // namespace

TEST_CASE("a bundle changes as a whole, and back") {
  const Bundled it;
  CHECK(it.both() == Both{1, 10});
  const TriageBundleVersion first = it.version();
  CHECK(first.number == 1);
  CHECK(first.live == 1);
  CHECK(std::string(first.version) == "one");
  CHECK(std::string(first.sha256).size() == 64);
  REQUIRE(first.policy_count == 2);
  CHECK(std::string(first.policy_names[1]) == "b");
  CHECK(first.policy_versions[1] == 1);
  CHECK(std::string(first.last_error).empty());

  it.folder.write("two", "2", "20");
  int32_t result = -1;
  check_ok(api().reload_bundle(it.bundle, &result));
  CHECK(result == TRIAGE_RELOAD_SWAPPED);
  CHECK(it.both() == Both{2, 20});
  check_ok(api().rollback_bundle(it.bundle, 1));
  CHECK(it.both() == Both{1, 10});

  TriageBundleVersion versions[2] = {};
  versions[0].size = sizeof versions[0];
  size_t count = 2;
  check_ok(api().bundle_versions(it.bundle, versions, &count));
  REQUIRE(count == 2);
  CHECK(std::string(versions[0].version) == "one");
  CHECK(std::string(versions[1].version) == "two");
  CHECK(versions[0].live == 1);
  CHECK(versions[1].live == 0);

  check_ok(api().pin_bundle(it.bundle, 2));
  CHECK(it.version().pinned == 1);
  CHECK(it.both() == Both{2, 20});
  it.folder.write("three", "3", "30");
  check_ok(api().reload_bundle(it.bundle, &result));
  CHECK(it.both() == Both{2, 20});
  check_ok(api().unpin_bundle(it.bundle, &result));
  CHECK(result == TRIAGE_RELOAD_SWAPPED);
  CHECK(it.both() == Both{3, 30});
}

TEST_CASE("a bundle with a broken member is refused whole") {
  const Bundled it;
  it.folder.write("two", "2", "(");
  int32_t result = -1;
  check_ok(api().reload_bundle(it.bundle, &result));
  CHECK(result == TRIAGE_RELOAD_REFUSED);
  CHECK(it.both() == Both{1, 10});
  const TriageBundleVersion live = it.version();
  CHECK(live.number == 1);
  CHECK(std::string(live.last_error).find("b.lua") != std::string::npos);
  CHECK(std::string(live.last_error_file).find("b.lua") != std::string::npos);
  CHECK(live.last_error_line == 1);
}

TEST_CASE("what a bundle and its policies refuse") {
  const Bundled it;
  TriageBundle* none = it.bundle;
  check_failed(api().load_bundle(it.runtime, "/no/such/folder", &none), TRIAGE_ERROR_FILE, {"/no/such/folder"});
  CHECK(none == nullptr);
  TriagePolicy* policy = it.a;
  check_failed(api().bundle_policy(it.bundle, "c", &policy), TRIAGE_ERROR_INPUT, {"c", "a", "b"});
  CHECK(policy == nullptr);
  check_failed(api().rollback(it.a, 1), TRIAGE_ERROR_INPUT, {"bundle"});
  check_failed(api().rollback_bundle(it.bundle, 9), TRIAGE_ERROR_INPUT, {"9"});
  check_failed(api().bundle_policy(reinterpret_cast<TriageBundle*>(it.runtime), "a", &policy), TRIAGE_ERROR_ARGUMENT,
               {"`bundle` is the handle of a runtime"});
  check_failed(api().bundle_version(it.bundle, nullptr), TRIAGE_ERROR_ARGUMENT, {"`version` is null"});
}

TEST_CASE("policies of a bundle outlive its handle") {
  TriagePolicy* kept = nullptr;
  {
    const Bundled it;
    check_ok(api().bundle_policy(it.bundle, "b", &kept));
  }
  CHECK(Bundled::of_zero(kept) == 10);
  check_ok(api().free_policy(kept));
}

}  // namespace triage::test
