// `triage cache`: the folder of compiled kernels and kinds of calls, and bundles of what is in it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/cli/calls/call.h"
#include "bindings/cli/commands.h"
#include "bindings/cli/terminal.h"
#include "runtime/backends/fused/kernel_cache/cache_folder.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"

namespace triage::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double mebibyte = 1 << 20;

std::string counted(size_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string kernels_text(size_t count) { return counted(count, "kernel", "kernels"); }

std::string calls_text(size_t calls, size_t policies) {
  return fmt::format("{} of {}", counted(calls, "kind of call", "kinds of calls"),
                     counted(policies, "policy", "policies"));
}

Json calls_with_policies(const std::vector<KnownCall>& calls) {
  Json json = Json::array();
  for (const KnownCall& call : calls) json.push_back({{"policy", call.policy}, {"inputs", call.inputs}});
  return json;
}

/// A line for each policy, below each other.
void print_calls(const std::vector<KnownCall>& calls) {
  std::map<std::string, std::vector<std::string>> of_policies;
  for (const KnownCall& call : calls)
    of_policies[call.policy].push_back(fmt::format("({})", fmt::join(call.inputs, ", ")));
  for (const auto& [policy, kinds] : of_policies)
    say("  policy     {} {}\n", policy, fmt::format("{}", fmt::join(kinds, " ")));
}

int show_folder(const CacheCommand& options) {
  const fused::FolderContent content = fused::content_of_folder();
  if (content.folder.empty())
    throw UsageError(
        "there is no folder for compiled kernels: TRIAGE_KERNEL_CACHE, XDG_CACHE_HOME and HOME are not set; set one");
  if (options.json) {
    print_json({{"folder", content.folder.string()},
                {"kernels", content.kernels},
                {"bytes", content.bytes},
                {"calls", calls_with_policies(content.calls)}});
    return 0;
  }
  say("{}\n  kernels    {}, of at most {}\n  calls      {}\n  size       {:.1f} MiB\n",
      paint(Paint::heading, content.folder.string()), content.kernels, fused::kept::most_files,
      calls_text(content.calls.size(), fused::count_policies(content.calls)),
      static_cast<double>(content.bytes) / mebibyte);
  print_calls(content.calls);
  return 0;
}

int show_bundle(const CacheCommand& options) {
  const std::string bytes = fused::read_kernel_file(options.file);
  const fused::Bundle bundle = fused::parse_bundle(bytes, options.file);
  const KernelManifest& manifest = bundle.manifest;
  std::string unusable;
  try {
    fused::check_bundle_usable(bundle, options.file);
  } catch (const FileError& error) {
    unusable = error.what();
  }
  if (options.json) {
    print_json({{"file", options.file},
                {"kernels", manifest.kernels},
                {"calls", calls_with_policies(manifest.calls)},
                {"bytes", bytes.size()},
                {"triage", manifest.version},
                {"libtorch", bundle.libtorch},
                {"architecture", manifest.architecture},
                {"features", manifest.features},
                {"compiler", manifest.compiler},
                {"usable", unusable.empty()},
                {"why_not", unusable.empty() ? Json() : Json(unusable)}});
    return 0;
  }
  say("{}\n  kernels    {}\n  calls      {}\n  size       {:.1f} MiB\n", paint(Paint::heading, options.file),
      manifest.kernels.size(), calls_text(manifest.calls.size(), fused::count_policies(manifest.calls)),
      static_cast<double>(bytes.size()) / mebibyte);
  say("  for        {} with {}\n  by         triage {}, LibTorch {}{}\n", manifest.architecture,
      manifest.features.empty() ? "nothing more" : fmt::format("{}", fmt::join(manifest.features, " ")),
      manifest.version, bundle.libtorch, manifest.compiler.empty() ? "" : ", " + manifest.compiler);
  print_calls(manifest.calls);
  if (!unusable.empty()) say("  {}   {}\n", paint(Paint::warning, "not here"), unusable);
  return 0;
}

void print_done(const CacheCommand& options, const CacheInfo& info, const std::string& done) {
  if (options.json)
    return print_json({{"file", options.file},
                       {"folder", fused::KernelFiles::wanted_folder().string()},
                       {"kernels", info.kernels},
                       {"policies", info.policies},
                       {"calls", info.calls},
                       {"bytes", info.bytes}});
  say("{}: {}, {} ({:.1f} MiB)\n", done, kernels_text(info.kernels), calls_text(info.calls, info.policies),
      static_cast<double>(info.bytes) / mebibyte);
}

int save(const CacheCommand& options) {
  print_done(options, fused::save_folder(options.file), "saved to " + options.file);
  return 0;
}

int load(const CacheCommand& options) {
  const CacheInfo info = fused::load_into_folder(options.file);
  print_done(options, info, fmt::format("loaded into {}", fused::KernelFiles::wanted_folder().string()));
  return 0;
}

int clear(const CacheCommand& options) {
  const fused::FolderContent gone = fused::clear_folder();
  if (options.json) {
    print_json({{"folder", gone.folder.string()}, {"kernels", gone.kernels}, {"calls", gone.calls.size()}});
    return 0;
  }
  say("removed from {}: {}, {}\n", gone.folder.string(), kernels_text(gone.kernels),
      calls_text(gone.calls.size(), fused::count_policies(gone.calls)));
  return 0;
}

struct CacheAction {
  const char* name;
  int (*run)(const CacheCommand&);
  bool takes_file;
};
constexpr CacheAction actions[] = {
    {"save", save, true}, {"load", load, true}, {"show", show_bundle, true}, {"clear", clear, false}};

}  // namespace

int run(const CacheCommand& options) {
  if (options.action.empty()) return show_folder(options);
  std::vector<std::string> names;
  for (const CacheAction& action : actions) {
    names.emplace_back(action.name);
    if (action.name != options.action) continue;
    if (action.takes_file && options.file.empty())
      throw UsageError(fmt::format("{0} needs a FILE: triage cache {0} warm.bundle", action.name));
    if (!action.takes_file && !options.file.empty())
      throw UsageError(fmt::format("{} takes no FILE, and got \"{}\"; it is for all of the cache folder", action.name,
                                   options.file));
    return action.run(options);
  }
  throw UsageError(fmt::format("there is no action \"{}\"; expected {}, or none, which shows the cache{}",
                               options.action, fmt::join(names, ", "), did_you_mean(options.action, names)));
}

}  // namespace triage::cli
