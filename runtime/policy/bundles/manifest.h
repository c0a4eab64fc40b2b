#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "runtime/policy/files/contents.h"
#include "runtime/policy/files/policy_files.h"

/// bundle.json, and the files that it lists.
namespace triage::policy {

inline constexpr const char* manifest_name = "bundle.json";

/// What bundle.json says. Paths are relative to the folder, with `/` between folders; each has the SHA-256 of its file.
struct Manifest {
  using Listed = std::map<std::string, std::string>;
  std::string name, version;
  std::string triage;  // the versions of triage that it needs, ">=0.1, <2"; empty: any
  Listed policies, modules, tables;

  /// All three.
  Listed files() const;
  std::string text() const;  // throws FileError for names that are not UTF-8
};

/// Throws FileError, for a manifest at `path`, where a field is missing, unknown, or not what it has to be.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);
/// Whether triage of `version` is one that `range` names; throws InputError where that is no range.
bool fits_range(const std::string& range, const std::string& version);
/// The name of a policy in its bundle: "fraud/detect" for fraud/detect.lua.
std::string policy_key(const std::string& file);

/// A bundle with all its bytes, which are those that it lists.
struct Snapshot {
  Manifest manifest;
  Contents contents;  // the text of bundle.json, and each file that it lists
  /// Of the folder of one of its policies, by names relative to it.
  std::shared_ptr<const Files> files_beside(const std::string& policy) const;
};

/// Reads a folder that may be a link, which is followed once: all files are of the folder that it names then. Each is
/// shown to `verify` before anything in it is used, bundle.json first. Throws FileError that names the file: it is
/// missing, is not the one that is listed, is a script that is not listed, or is refused; or the bundle is for another
/// triage.
Snapshot read_bundle(const std::filesystem::path& dir, const Verify& verify);
/// The same of contents that were kept.
Snapshot kept_bundle(const std::filesystem::path& dir, Contents contents, const Verify& verify);
/// Of bundle.json as it is now.
FileContent read_manifest(const std::filesystem::path& dir);
/// Names, sizes, times and identities of all that lies in the folder: another one after most changes, at no cost of
/// reading files.
std::string listing_of(const std::filesystem::path& dir);

/// What a folder holds: scripts that are no modules (not below a folder `lib`), modules, and tables (.pt, .npy,
/// .safetensors); nothing hidden. Name, version and range are left empty. Throws FileError.
Manifest list_folder(const std::filesystem::path& dir);

}  // namespace triage::policy
