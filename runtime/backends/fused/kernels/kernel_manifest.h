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

/// What kernel files that this process loaded know of calls of the policy with this hash; at most `most_known_calls`.
constexpr size_t most_known_calls = 32;
void add_known_calls(const std::vector<KnownCall>& calls);
std::vector<KnownCall> known_calls(const std::string& policy);

/// Throws FileError where this process cannot use the kernels: another version of triage, another processor.
void check_usable(const KernelManifest& manifest, const std::string& file);

/// The processor: "x86_64", and what it can do, as /proc/cpuinfo names it.
std::string architecture();
std::vector<std::string> processor_features();

/// The symbols of a kernel with that hash.
inline std::string rows_symbol(const std::string& hash) { return "triage_rows_" + hash; }
inline std::string source_symbol(const std::string& hash) { return "triage_source_" + hash; }

}  // namespace triage::fused
