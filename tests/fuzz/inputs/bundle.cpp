#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/files/sha256.h"
#include "tests/fuzz/inputs/targets.h"

#include <algorithm>
#include <filesystem>

namespace triage::fuzz {
namespace {

using policy::Manifest;

/// The bundle with files that are what it lists.
policy::Snapshot with_files(Manifest manifest) {
  policy::Contents contents;
  for (Manifest::Listed* const part : {&manifest.policies, &manifest.modules, &manifest.tables})
    for (auto& [name, hash] : *part) {
      const std::string bytes = "-- " + name;
      hash = policy::sha256_text(bytes);
      contents.files[name].set_bytes(bytes);
    }
  contents.source = manifest.text();
  contents.in_folder = true;
  return policy::kept_bundle("/bundle", std::move(contents), {});
}

bool leads_out(const std::filesystem::path& name) {
  return name.empty() || name.is_absolute() || std::find(name.begin(), name.end(), "..") != name.end();
}

}  // namespace

void read_bundle(std::string_view text) {
  const Manifest manifest = policy::parse_manifest(text, "bundle.json");
  const std::string written = manifest.text();
  const Manifest again = policy::parse_manifest(written, "bundle.json");
  if (again.files() != manifest.files() || again.name != manifest.name || again.text() != written)
    throw Broken("a bundle.json is written as a text that reads back as another:\n" + written);
  const policy::Snapshot snapshot = with_files(manifest);
  for (const auto& [file, hash] : snapshot.manifest.policies) {
    policy::policy_key(file);
    if (const auto beside = snapshot.files_beside(file))
      for (const auto& [name, content] : *beside)
        if (leads_out(name)) throw Broken("a bundle gives policy '" + file + "' the file '" + name + "'");
  }
}

std::vector<std::string> bundle_seeds() {
  Manifest manifest{"fraud",
                    "7",
                    ">=0.1, <2",
                    {{"detect.lua", ""}, {"card/repair.lua", ""}},
                    {{"lib/shared.lua", ""}},
                    {{"card/limits.pt", ""}, {"means.npy", ""}}};
  for (Manifest::Listed* const part : {&manifest.policies, &manifest.modules, &manifest.tables})
    for (auto& [name, hash] : *part) hash = policy::sha256_text(name);
  Manifest plain = manifest;
  plain.triage.clear();
  plain.modules.clear();
  plain.tables.clear();
  return {manifest.text(), plain.text()};
}

}  // namespace triage::fuzz
