#pragma once
#include <triage/compiler_mode.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/backends/fused/kernel_cache/kernel_files.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"

/// Kinds of calls in the cache folder, beside the kernels: a sealed file for each policy whose calls were captured here, and for each
/// of which a bundle had some. Only the latter are captured when a policy is loaded: what a process did must not change what the next
/// one does unless somebody asks for it.
namespace triage::fused {

enum class CallsFrom { here, a_bundle };

/// A policy was captured for this kind of call. Kept in memory, and (unless the compiler is off, when the folder is not used) in the
/// folder, by the thread that compiles.
void note_call(const KnownCall& call, CompilerMode compiler);
/// Adds them to what the folder has of their policies, the newest `most_known_calls` of each. Where there is no folder yet, for no
/// kernel was looked for, or it cannot be written, they are not kept.
void keep_calls(const std::vector<KnownCall>& calls);

/// In the folder: of one policy, from bundles for this version and processor.
std::vector<KnownCall> calls_from_bundles(const std::string& policy);
/// Of every policy and origin.
std::vector<KnownCall> all_kept_calls();

/// The file for the folder. All calls are of one policy.
KernelFiles::NewFile calls_file(const std::vector<KnownCall>& calls, CallsFrom from);

}  // namespace triage::fused
