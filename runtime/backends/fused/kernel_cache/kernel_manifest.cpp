#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/version.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/messages/fork_safe_mutex.h"

namespace triage::fused {
namespace {

constexpr std::string_view kernels_mark = "triage kernels ";
constexpr std::string_view between_inputs = "; ";

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// "HASH f32[2, 3]; i64[4] grad"
KnownCall parse_call(std::string_view text) {
  const size_t space = text.find(' ');
  KnownCall call{std::string(text.substr(0, space)), {}};
  if (space == std::string_view::npos) return call;
  for (std::string_view rest = text.substr(space + 1); !rest.empty();) {
    const size_t end = rest.find(between_inputs);
    call.inputs.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + between_inputs.size());
  }
  return call;
}

}  // namespace

std::string calls_text(const std::vector<KnownCall>& calls) {
  std::string text;
  for (const KnownCall& call : calls)
    text += fmt::format("call {} {}\n", call.policy, fmt::join(call.inputs, between_inputs));
  return text;
}

std::string manifest_text(const KernelManifest& manifest) {
  std::string text =
      fmt::format("\nabi {}\ntriage {}\narchitecture {}\nfeatures {}\ncompiler {}\nname {}\n", manifest.abi,
                  manifest.version, manifest.architecture, fmt::join(manifest.features, " "),
                  on_one_line(manifest.compiler), on_one_line(manifest.name));
  for (const std::string& hash : manifest.kernels) text += "kernel " + hash + "\n";
  return text + calls_text(manifest.calls);
}

KernelManifest parse_manifest(std::string_view text) {
  KernelManifest manifest;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    const std::string key = line.substr(0, space), value = space == std::string::npos ? "" : line.substr(space + 1);
    if (key == "abi") std::from_chars(value.data(), value.data() + value.size(), manifest.abi);
    if (key == "triage") manifest.version = value;
    if (key == "architecture") manifest.architecture = value;
    if (key == "features") manifest.features = words_of(value);
    if (key == "compiler") manifest.compiler = value;
    if (key == "name") manifest.name = value;
    if (key == "kernel") manifest.kernels.push_back(value);
    if (key == "call") manifest.calls.push_back(parse_call(value));
  }
  return manifest;
}

std::string kernel_file(const std::string& shared_object, const KernelManifest& manifest) {
  return with_trailer(shared_object, manifest_text(manifest), kernels_mark);
}

std::string with_calls(std::string_view bytes, const std::string& file, std::vector<KnownCall> calls) {
  parse_kernel_file(bytes, file);  // whole, and of this kind
  const std::string_view text = check_trailer(bytes, kernels_mark).text;
  const std::string_view shared_object = bytes.substr(0, static_cast<size_t>(text.data() - bytes.data()));
  return with_trailer(shared_object, std::string(text) + calls_text(calls), kernels_mark);
}

namespace {

using CallsOfPolicies = std::map<std::string, std::vector<KnownCall>>;

struct Calls {
  messages::ForkSafeMutex mutex;
  CallsOfPolicies known, seen;
};

Calls& all_calls() {
  static Calls& all = *new Calls;
  return all;
}

/// One policy's.
bool add(std::vector<KnownCall>& calls, const KnownCall& call) {
  const bool is_new =
      std::none_of(calls.begin(), calls.end(), [&](const KnownCall& other) { return other.inputs == call.inputs; });
  if (!is_new || calls.size() >= most_known_calls) return false;
  calls.push_back(call);
  return true;
}

}  // namespace

void add_known_calls(const std::vector<KnownCall>& calls) {
  Calls& all = all_calls();
  const std::lock_guard lock(all.mutex);
  for (const KnownCall& call : calls) add(all.known[call.policy], call);
}

std::vector<KnownCall> known_calls(const std::string& policy) {
  Calls& all = all_calls();
  const std::lock_guard lock(all.mutex);
  const auto found = all.known.find(policy);
  return found == all.known.end() ? std::vector<KnownCall>() : found->second;
}

bool add_seen_call(const KnownCall& call) {
  constexpr size_t most_policies = 1024;  // a process that is reloaded for years has many sources
  Calls& all = all_calls();
  const std::lock_guard lock(all.mutex);
  if (all.seen.size() >= most_policies && !all.seen.count(call.policy)) return false;
  return add(all.seen[call.policy], call);
}

std::vector<KnownCall> seen_calls() {
  Calls& all = all_calls();
  const std::lock_guard lock(all.mutex);
  std::vector<KnownCall> calls;
  for (const auto& [policy, of_policy] : all.seen) calls.insert(calls.end(), of_policy.begin(), of_policy.end());
  return calls;
}

void merge_calls(std::vector<KnownCall>& calls, const std::vector<KnownCall>& more) {
  CallsOfPolicies of_policies;
  for (const KnownCall& call : calls) of_policies[call.policy].push_back(call);
  for (const KnownCall& call : more)
    if (add(of_policies[call.policy], call)) calls.push_back(call);
}

KernelManifest parse_kernel_file(std::string_view bytes, const std::string& file) {
  const Checked checked = check_trailer(bytes, kernels_mark);
  if (checked.state == Checked::State::none)
    throw FileError(fmt::format(
        "cannot use the kernels in \"{}\": it is no file that `triage build` has made, or its end is missing", file));
  if (checked.state == Checked::State::changed)
    throw FileError(fmt::format(
        "cannot use the kernels in \"{}\": it was changed or damaged after `triage build` had made it", file));
  return parse_manifest(checked.text);
}

void check_usable(const KernelManifest& manifest, const std::string& file, Made made) {
  const bool built = made == Made::by_build;
  if (manifest.abi != kernel_abi || manifest.version != TRIAGE_VERSION)
    throw FileError(
        fmt::format("cannot use the kernels in \"{}\": triage {} has built it (calling kernels in way {}), and this is "
                    "triage {} (way {}); {}",
                    file, manifest.version, manifest.abi, TRIAGE_VERSION, kernel_abi,
                    built ? "build it again" : "save a bundle with this version"));
  if (manifest.architecture != architecture())
    throw FileError(fmt::format("cannot use the kernels in \"{}\": they are for {}, and this processor is {}; {}", file,
                                manifest.architecture, architecture(),
                                built ? "build them there" : "save a bundle on such a machine"));
  const std::vector<std::string> here = processor_features();
  std::vector<std::string> missing;
  for (const std::string& feature : manifest.features)
    if (std::find(here.begin(), here.end(), feature) == here.end()) missing.push_back(feature);
  if (!missing.empty())
    throw FileError(fmt::format(
        "cannot use the kernels in \"{}\": this processor lacks {}; {}", file, fmt::join(missing, ", "),
        built ? "build them with --cpu for one that all hosts have, such as x86-64-v3"
              : "save a bundle on a processor like this one, or `triage build --cpu` for one that all hosts have"));
}

std::string architecture() {
#if defined(__x86_64__)
  return "x86_64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "unknown";
#endif
}

std::vector<std::string> processor_features() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();)
    if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) return words_of(line.substr(line.find(':') + 1));
  return {};
}

const std::string& processor_lines() {
  static const std::string& lines = *new std::string([] {  // as identity_of_bundles
    std::ifstream file("/proc/cpuinfo");
    std::string text;
    for (std::string line; std::getline(file, line) && !line.empty();)
      if (line.rfind("model name", 0) == 0 || line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0)
        text += line + "\n";
    return text;
  }());
  return lines;
}

}  // namespace triage::fused
