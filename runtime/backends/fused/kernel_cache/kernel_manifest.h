#pragma once
#include <triage/kernels.h>

#include <string>
#include <string_view>

/// A file of kernels: a shared object with its manifest, as text, in a checksum trailer (checksum_trailer.h).
namespace triage::fused {

/// Changes with `Call` and `RowsFunction` (emit.h).
constexpr int kernel_abi = 1;

std::string kernel_file(const std::string& shared_object, const KernelManifest& manifest);
/// Of the bytes of a file; throws FileError that names it where it is not whole, or no such file.
KernelManifest parse_kernel_file(std::string_view bytes, const std::string& file);
/// The same file with these calls in its manifest.
std::string with_calls(std::string_view bytes, const std::string& file, std::vector<KnownCall> calls);

/// The manifest as text, a line for each fact; lines that it does not know are passed over.
std::string manifest_text(const KernelManifest& manifest);
KernelManifest parse_manifest(std::string_view text);
/// Of calls alone.
std::string calls_text(const std::vector<KnownCall>& calls);

/// Kinds of calls, at most `most_known_calls` of each policy. `known`: of files that this process loaded; `seen`: for which its own
/// policies were captured. Thread-safe.
constexpr size_t most_known_calls = 32;
void add_known_calls(const std::vector<KnownCall>& calls);
std::vector<KnownCall> known_calls(const std::string& policy);
/// False for one that is there already, or too many.
bool add_seen_call(const KnownCall& call);
std::vector<KnownCall> seen_calls();
/// Appends what is new, as long as there are not too many.
void merge_calls(std::vector<KnownCall>& calls, const std::vector<KnownCall>& more);

/// Throws FileError where this process cannot use the kernels: another version of triage, another processor. `Made`: what made the
/// file, for what the message advises.
enum class Made { by_build, by_cache_save };
void check_usable(const KernelManifest& manifest, const std::string& file, Made made = Made::by_build);

/// The processor: "x86_64", and what it can do, as /proc/cpuinfo names it.
std::string architecture();
std::vector<std::string> processor_features();
/// Of these what code for -march=native may use.
std::vector<std::string> native_features();
/// What -march=native looks at, as lines.
const std::string& processor_lines();

/// The symbols of a kernel with that hash of its source.
inline std::string rows_symbol(const std::string& hash) { return "triage_rows_" + hash; }
inline std::string source_symbol(const std::string& hash) { return "triage_source_" + hash; }

}  // namespace triage::fused
