#pragma once
#include <triage/front_end.h>

#include <string>

#include "bindings/cli/commands.h"
#include "runtime/policy/bundles/manifest.h"

namespace triage::cli {

/// 1: the bundle is refused, or a test fails.
int check_bundle(const BundleCommand& options);
int pack_bundle(const BundleCommand& options);
int diff_bundles(const BundleCommand& options);
/// `triage watch` of a folder with a bundle.json.
int watch_bundle(const WatchCommand& options);

/// How a policy of a bundle is loaded: it reads what was verified, not the disk.
ScriptOptions script_options_of(const std::string& folder, const policy::Snapshot& snapshot, const std::string& file);
/// Throws FileError.
void check_bundle_folder(const std::string& folder);

}  // namespace triage::cli
