// `triage bundle check` and `pack`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/bundle.h>
#include <triage/version.h>

#include <nlohmann/json.hpp>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/calls/given.h"
#include "bindings/cli/commands/bundle/actions.h"
#include "bindings/cli/terminal.h"
#include "bindings/lua/testing/policy_tests.h"
#include "runtime/files/disk.h"
#include "runtime/messages/printable.h"
#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/files/sha256.h"

namespace triage::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using policy::Manifest;
using policy::Snapshot;

std::string counted(size_t count, const char* one, const char* several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

std::string title(const Manifest& manifest) { return fmt::format("{} {}", manifest.name, manifest.version); }

std::string contents_text(const Manifest& manifest) {
  return fmt::format("{}, {}, {}", counted(manifest.policies.size(), "policy", "policies"),
                     counted(manifest.modules.size(), "module", "modules"),
                     counted(manifest.tables.size(), "table", "tables"));
}

/// A policy of the bundle, tested on the bytes that were verified.
struct Tested {
  std::string file, error;  // empty: it could be loaded
  lua::PolicyTests result;
  size_t failed() const {
    size_t count = 0;
    for (const auto& test : result.tests) count += !test.failure.empty();
    return count;
  }
  bool ok() const { return error.empty() && failed() == 0; }
};

Tested test_policy(const BundleCommand& check, const Snapshot& snapshot, const std::string& file) {
  Tested tested{file, {}, {}};
  lua::TestOptions options;
  options.script = script_options_of(check.folder, snapshot, file);
  give(options.script, check.given, c10::kCPU);
  options.script.print = prints_to(check.json ? stderr : stdout);
  try {
    tested.result = lua::run_policy_tests(*snapshot.contents.files.at(file).bytes, options);
  } catch (const std::exception& error) {
    tested.error = error.what();
  }
  return tested;
}

void print(const Tested& tested) {
  say("{}\n", paint(Paint::heading, messages::one_line(tested.file)));
  if (!tested.error.empty()) say("  {}    {}\n", paint(Paint::error, "FAIL"), tested.error);
  for (const auto& test : tested.result.tests)
    if (test.failure.empty())
      say("  {}      {}\n", paint(Paint::good, "ok"), messages::one_line(test.name));
    else
      say("  {}    {}\n        {}\n", paint(Paint::error, "FAIL"), messages::one_line(test.name), test.failure);
  if (tested.error.empty() && tested.result.tests.empty())
    say("  {}\n", paint(Paint::warning, "the policy has no tests (the field `tests` of its policy {...} table)"));
}

Json to_json(const Tested& tested) {
  Json tests = Json::array();
  for (const auto& test : tested.result.tests) {
    tests.push_back({{"name", test.name}, {"ok", test.failure.empty()}});
    if (!test.failure.empty()) tests.back()["message"] = test.failure;
  }
  Json json = {{"file", tested.file}, {"ok", tested.ok()}, {"tests", tests}};
  if (!tested.error.empty()) json["error"] = tested.error;
  return json;
}

/// The bundle as a whole: of a folder that is there, what is wrong with it is what was asked for.
int report_refusal(const BundleCommand& options, const std::string& message) {
  if (options.json)
    print_json({{"ok", false}, {"bundle", options.folder}, {"error", message}, {"policies", Json::array()}});
  else
    say("{}  {}\n", paint(Paint::error, "refused"), message);
  return 1;
}

}  // namespace

ScriptOptions script_options_of(const std::string& folder, const Snapshot& snapshot, const std::string& file) {
  ScriptOptions script;
  script.path = (fs::path(folder) / file).string();
  script.read_file = policy::reader_of({{}, *snapshot.files_beside(file), /*in_folder=*/true});
  return script;
}

void check_bundle_folder(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw FileError(fmt::format("cannot read the bundle \"{}\": there is no such folder", messages::one_line(folder)));
}

int check_bundle(const BundleCommand& options) {
  check_bundle_folder(options.folder);
  std::vector<Tested> policies;
  Snapshot snapshot;
  bool ok = true;
  try {
    snapshot = policy::read_bundle(options.folder, nullptr);
    Runtime runtime(quiet_runtime(options.json));
    define_given(runtime, options.given, c10::kCPU);
    runtime.load_bundle(options.folder);
  } catch (const Error& error) {
    return report_refusal(options, error.what());
  }
  for (const auto& [file, hash] : snapshot.manifest.policies) {
    policies.push_back(test_policy(options, snapshot, file));
    ok = ok && policies.back().ok();
  }
  size_t tests = 0, failed = 0;
  Json list = Json::array();
  for (const Tested& tested : policies) {
    tests += tested.result.tests.size();
    failed += tested.failed();
    list.push_back(to_json(tested));
    if (!options.json) print(tested);
  }
  const Manifest& manifest = snapshot.manifest;
  if (options.json)
    print_json({{"ok", ok},
                {"bundle", manifest.name},
                {"version", manifest.version},
                {"sha256", policy::sha256_text(snapshot.contents.source)},
                {"policies", list}});
  else
    say("{}: {}; {} passed, {} failed\n", paint(ok ? Paint::good : Paint::error, title(manifest)),
        contents_text(manifest), tests - failed, failed);
  return ok ? 0 : 1;
}

namespace {

/// What the bundle.json that is replaced says, for what the command line does not.
Manifest manifest_before(const std::string& folder) {
  const policy::FileContent text = policy::read_manifest(folder);
  if (!text.bytes) return {};
  try {
    return policy::parse_manifest(*text.bytes, fs::path(folder) / policy::manifest_name);
  } catch (const FileError&) {  // it is about to be replaced
    return {};
  }
}

std::string first_of(const std::string& given, const std::string& before, const std::string& otherwise) {
  return !given.empty() ? given : !before.empty() ? before : otherwise;
}

/// Of the files alone, so that the same files have the same version.
std::string version_of(const Manifest& manifest) {
  std::string all;
  for (const auto& [file, hash] : manifest.files()) all += hash + "  " + file + "\n";
  return policy::sha256_text(all).substr(0, 12);
}

}  // namespace

int pack_bundle(const BundleCommand& options) {
  check_bundle_folder(options.folder);
  const Manifest before = manifest_before(options.folder);
  Manifest manifest = policy::list_folder(options.folder);
  if (manifest.policies.empty())
    throw InputError(
        fmt::format("cannot pack \"{}\": there is no policy in it, which is a .lua file that is not below a "
                    "folder `lib`",
                    options.folder));
  const fs::path folder = fs::absolute(options.folder).lexically_normal();
  const fs::path named = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  manifest.name = first_of(options.name, before.name, named.string());
  manifest.version = first_of(options.version, {}, version_of(manifest));
  manifest.triage = first_of(options.triage, before.triage, std::string(">=") + TRIAGE_VERSION);
  policy::fits_range(manifest.triage, TRIAGE_VERSION);  // throws InputError where it is none
  const std::string file = first_of(options.output, {}, (fs::path(options.folder) / policy::manifest_name).string());
  const std::string text = manifest.text();
  policy::parse_manifest(text, file);  // a name that nobody could read
  files::OutputFile out(file);
  out.write(text.data(), text.size());
  out.commit();
  if (options.json)
    print_json({{"file", file},
                {"bundle", manifest.name},
                {"version", manifest.version},
                {"policies", manifest.policies.size()},
                {"modules", manifest.modules.size()},
                {"tables", manifest.tables.size()}});
  else
    say("{}: {}, {}\n", file, title(manifest), contents_text(manifest));
  return 0;
}

int run(const BundleCommand& options) {
  const bool is_diff = options.action == "diff";
  if (is_diff == options.other.empty())
    throw UsageError(is_diff
                         ? "diff needs two folders: triage bundle diff OLD NEW"
                         : fmt::format("{} takes one folder, and got \"{}\" as well", options.action, options.other));
  const bool packs =
      !options.output.empty() || !options.name.empty() || !options.version.empty() || !options.triage.empty();
  if (packs && options.action != "pack")
    throw UsageError("--output, --name, --version and --triage are for triage bundle pack");
  if (options.action == "check") return check_bundle(options);
  if (options.action == "pack") return pack_bundle(options);
  if (is_diff) return diff_bundles(options);
  throw UsageError(fmt::format("there is no action \"{}\"; expected check, pack or diff{}", options.action,
                               did_you_mean(options.action, {"check", "pack", "diff"})));
}

}  // namespace triage::cli
