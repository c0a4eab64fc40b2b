#include "runtime/backends/fused/kernel_cache/cached_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernels/kernel.h"

namespace triage::fused {
namespace {

constexpr std::string_view calls_mark = "triage cached calls ";

std::string header(const std::string& policy, CallsFrom from) {
  return fmt::format("{}policy {}\n", from == CallsFrom::here ? "captured here\n" : identity_of_bundles(),
                     on_one_line(policy));
}

std::string name_of(const std::string& policy, CallsFrom from) {
  return hash_of(header(policy, from)) + std::string(kept::calls);
}

/// Empty for a file that is not whole.
std::string_view text_of(std::string_view bytes) {
  const Checked checked = check_trailer(bytes, calls_mark);
  return checked.state == Checked::State::whole ? checked.text : std::string_view();
}

std::vector<KnownCall> kept_calls(const std::string& policy, CallsFrom from) {
  const std::string bytes = kept::use(name_of(policy, from));
  const std::string_view text = text_of(bytes);
  return text.starts_with(header(policy, from)) ? parse_manifest(text).calls : std::vector<KnownCall>();
}

bool is_among(const std::vector<KnownCall>& calls, const KnownCall& call) {
  return std::any_of(calls.begin(), calls.end(), [&](const KnownCall& other) { return other.inputs == call.inputs; });
}

}  // namespace

KernelFiles::NewFile calls_file(const std::vector<KnownCall>& calls, CallsFrom from) {
  const std::string& policy = calls.at(0).policy;
  return {name_of(policy, from), with_trailer("", header(policy, from) + calls_text(calls), calls_mark)};
}

void note_call(const KnownCall& call, CompilerMode compiler) {
  if (add_seen_call(call) && compiler != CompilerMode::off) keep_calls_later(call);
}

void keep_calls(const std::vector<KnownCall>& calls) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(KernelFiles::wanted_folder(), ignored)) return;
  std::map<std::string, std::vector<KnownCall>> of_policies;
  for (const KnownCall& call : calls) of_policies[call.policy].push_back(call);
  std::vector<KernelFiles::NewFile> files;
  for (const auto& [policy, fresh] : of_policies) {
    const std::vector<KnownCall> before = kept_calls(policy, CallsFrom::here);
    if (std::all_of(fresh.begin(), fresh.end(), [&](const KnownCall& call) { return is_among(before, call); }))
      continue;
    std::vector<KnownCall> all;  // the newest first: where there are too many, the oldest go
    merge_calls(all, fresh);
    merge_calls(all, before);
    files.push_back(calls_file(all, CallsFrom::here));
  }
  if (!files.empty()) KernelFiles().put(files);
}

std::vector<KnownCall> calls_from_bundles(const std::string& policy) { return kept_calls(policy, CallsFrom::a_bundle); }

std::vector<KnownCall> all_kept_calls() {
  std::vector<KnownCall> all;
  for (const auto& file : kept::files(kept::calls)) {
    const std::string bytes = kept::content(file);
    merge_calls(all, parse_manifest(text_of(bytes)).calls);
  }
  return all;
}

}  // namespace triage::fused
