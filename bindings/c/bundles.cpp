// Bundles and their versions.
#include <triage/bundle.h>

#include <string>
#include <utility>
#include <vector>

#include "bindings/c/functions.h"
#include "bindings/c/handles.h"
#include "bindings/c/structs.h"
#include "bindings/c/thread_context.h"

namespace triage::c {
namespace {

/// For this thread, which may read them until its next call.
std::vector<BundleTexts>& keep(std::vector<BundleVersion> versions) {
  std::vector<BundleTexts>& kept = context.bundle_versions;
  kept.clear();
  for (BundleVersion& version : versions) {
    BundleTexts& texts = kept.emplace_back();
    texts.version = std::move(version);
    for (const auto& [name, number] : texts.version.policies) {
      texts.policy_names.push_back(name.c_str());
      texts.policy_versions.push_back(number);
    }
  }
  return kept;
}

TriageBundleVersion told_bundle(const BundleTexts& texts) {
  const BundleVersion& from = texts.version;
  TriageBundleVersion version{};
  tell_standing(version, from);
  version.version = from.version.c_str();
  version.sha256 = from.sha256.c_str();
  version.policy_count = texts.policy_names.size();
  version.policy_names = texts.policy_names.data();
  version.policy_versions = texts.policy_versions.data();
  return version;
}

}  // namespace

TriageStatus load_bundle(TriageRuntime* runtime, const char* folder, TriageBundle** bundle) {
  return create("load_bundle", bundle, [&] { return HandleUse(runtime)->load_bundle(text(folder, "folder")); });
}

TriageStatus free_bundle(TriageBundle* bundle) { return release("free_bundle", bundle); }

TriageStatus bundle_policy(TriageBundle* bundle, const char* name, TriagePolicy** policy) {
  return create("bundle_policy", policy, [&] { return HandleUse(bundle)->policy(text(name, "name")); });
}

TriageStatus bundle_version(TriageBundle* bundle, TriageBundleVersion* version) {
  return guarded("bundle_version", [&] {
    check_size(required(version, "version", "the address of a TriageBundleVersion"), "version");
    fill(*version, told_bundle(keep({HandleUse(bundle)->version()}).front()));
  });
}

TriageStatus bundle_versions(TriageBundle* bundle, TriageBundleVersion* versions, size_t* count) {
  return guarded("bundle_versions", [&] {
    const auto find = [&]() -> const auto& { return keep(HandleUse(bundle)->versions()); };
    fill_array(versions, count, "versions", find, told_bundle);
  });
}

TriageStatus reload_bundle(TriageBundle* bundle, int32_t* result) {
  return guarded("reload_bundle", [&] { tell(HandleUse(bundle)->reload(), result); });
}

TriageStatus rollback_bundle(TriageBundle* bundle, int32_t number) {
  return guarded("rollback_bundle", [&] { HandleUse(bundle)->rollback(number); });
}

TriageStatus pin_bundle(TriageBundle* bundle, int32_t number) {
  return guarded("pin_bundle", [&] { HandleUse(bundle)->pin(number); });
}

TriageStatus unpin_bundle(TriageBundle* bundle, int32_t* result) {
  return guarded("unpin_bundle", [&] { tell(HandleUse(bundle)->unpin(), result); });
}

}  // namespace triage::c
