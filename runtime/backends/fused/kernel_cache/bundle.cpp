#include "runtime/backends/fused/kernel_cache/bundle.h"

#include <fmt/format.h>
#include <torch/version.h>
#include <triage/error.h>
#include <triage/version.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"

namespace triage::fused {
namespace {

constexpr std::string_view bundle_mark = "triage cache bundle ";

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw FileError(fmt::format("cannot use the bundle \"{}\": {}", file, why));
}

/// What the manifest of a bundle has besides that of a kernel file: "libtorch VERSION", and "size SOURCE OBJECT" of each kernel.
struct OfBundle {
  std::string libtorch;
  std::vector<std::pair<size_t, size_t>> sizes;
  bool understood = true;
};

std::optional<std::pair<size_t, size_t>> parse_sizes(std::string_view text) {
  std::pair<size_t, size_t> sizes;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, sizes.first);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ' ') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, sizes.second);
  return second.ec == std::errc() && second.ptr == end ? std::optional(sizes) : std::nullopt;
}

OfBundle parse_own_lines(std::string_view text) {
  constexpr std::string_view libtorch = "libtorch ", size = "size ";
  OfBundle parsed;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.starts_with(libtorch)) parsed.libtorch = line.substr(libtorch.size());
    if (!line.starts_with(size)) continue;
    const auto sizes = parse_sizes(line.substr(size.size()));
    parsed.understood = parsed.understood && sizes;
    if (sizes) parsed.sizes.push_back(*sizes);
  }
  return parsed;
}

/// The kernels that lie in `all`, one behind the other; nothing where the sizes are not those of what is there.
std::optional<std::vector<Bundle::Kernel>> cut(std::string_view all,
                                               const std::vector<std::pair<size_t, size_t>>& sizes) {
  std::vector<Bundle::Kernel> kernels;
  for (const auto& [source, object] : sizes) {
    if (source > all.size() || object > all.size() - source) return std::nullopt;
    kernels.push_back({all.substr(0, source), all.substr(source, object)});
    all.remove_prefix(source + object);
  }
  return all.empty() ? std::optional(std::move(kernels)) : std::nullopt;
}

}  // namespace

bool is_bundle(std::string_view bytes) { return has_trailer(bytes, bundle_mark); }

std::string bundle_bytes(const std::vector<Bundle::Kernel>& kernels, const std::vector<KnownCall>& calls,
                         const std::string& compiler) {
  KernelManifest manifest{"the cache", TRIAGE_VERSION, kernel_abi, compiler, architecture(), {}, {}, calls};
  if (!kernels.empty()) manifest.features = native_features();
  std::string all, own = fmt::format("libtorch {}\n", TORCH_VERSION);
  for (const Bundle::Kernel& kernel : kernels) {
    manifest.kernels.push_back(hash_of(kernel.source));
    own += fmt::format("size {} {}\n", kernel.source.size(), kernel.shared_object.size());
    all.append(kernel.source).append(kernel.shared_object);
  }
  return with_trailer(all, manifest_text(manifest) + own, bundle_mark);
}

Bundle parse_bundle(std::string_view bytes, const std::string& file) {
  const Checked checked = check_trailer(bytes, bundle_mark);
  if (checked.state == Checked::State::none)
    refuse(file, "it is no file that `triage cache save` has made, or its end is missing; save or copy it again");
  if (checked.state == Checked::State::changed)
    refuse(file, "it was changed or damaged after it had been saved; save or copy it again");
  Bundle bundle;
  bundle.manifest = parse_manifest(checked.text);
  OfBundle own = parse_own_lines(checked.text);
  bundle.libtorch = std::move(own.libtorch);
  const auto kernels = cut(bytes.substr(0, static_cast<size_t>(checked.text.data() - bytes.data())), own.sizes);
  if (!own.understood || !kernels || kernels->size() != bundle.manifest.kernels.size())
    refuse(file, "the sizes that it states are not those of its kernels, so it is damaged or forged; save it again");
  bundle.kernels = *kernels;
  for (size_t i = 0; i < bundle.kernels.size(); ++i)
    if (hash_of(bundle.kernels[i].source) != bundle.manifest.kernels[i])
      refuse(file, fmt::format("the source of kernel {} has another hash than it states, so it is damaged or forged; "
                               "save it again",
                               i + 1));
  const size_t policies = count_policies(bundle.manifest.calls);
  if (bundle.kernels.size() > kept::most_files || policies > kept::most_files)
    refuse(file, fmt::format("it has {} kernels and calls of {} policies; at most {} of each are taken",
                             bundle.kernels.size(), policies, kept::most_files));
  return bundle;
}

void check_bundle_usable(const Bundle& bundle, const std::string& file) {
  check_usable(bundle.manifest, file, Made::by_cache_save);
  if (bundle.libtorch != TORCH_VERSION)
    refuse(file, fmt::format("it was saved with LibTorch {}, and this is LibTorch {}; save a bundle with this one",
                             on_one_line(bundle.libtorch), TORCH_VERSION));
}

size_t count_policies(const std::vector<KnownCall>& calls) {
  std::set<std::string_view> policies;
  for (const KnownCall& call : calls) policies.insert(call.policy);
  return policies.size();
}

}  // namespace triage::fused
