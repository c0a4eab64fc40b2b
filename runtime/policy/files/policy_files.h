#pragma once
#include <triage/runtime.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/policy/files/contents.h"

/// The file of a policy, and the files that it may read while it is loaded: those in the same folder.
namespace triage::policy {

using Verify = decltype(RuntimeOptions::verify);

/// The path of a folder, absolute and without a `/` at its end: "policies/" is "policies".
std::filesystem::path plain_absolute(const std::filesystem::path& folder);

/// Shows `bytes` to the host, where it wants to see them. Throws FileError where it refuses them.
void verify_file(const Verify& verify, const std::filesystem::path& path, std::string_view bytes);

/// Throws FileError unless `name` is a path inside a folder, as it stands: relative, without "..", of printable
/// characters.
void check_name(const std::string& name);

/// All bytes of the file of a policy, read once; nothing where there is no such file. Throws FileError for one that
/// cannot be read, is not a regular file, or is larger than any script should be; NotNow where that passes.
std::optional<std::string> read_source(const std::filesystem::path& path);

/// Reads a regular file of `folder`. Symbolic links are followed as long as each step stays inside the folder; no file
/// is opened that is no regular file. Throws nothing but std::bad_alloc.
FileContent read_beneath(const std::filesystem::path& folder, const std::string& name, uint64_t largest);

/// Reads for one load, each file once: however often it is asked for, a name has the same bytes.
class PolicyFiles {
 public:
  /// `file`: of the policy, absolute. Bytes that `before` has are shared with it.
  PolicyFiles(const std::filesystem::path& file, Verify verify, const Files& before = {});
  /// Of a policy of a bundle: `given` is read in the place of the disk, and was shown to the host.
  PolicyFiles(const std::filesystem::path& file, std::shared_ptr<const Files> given);

  /// As ScriptOptions::read_file.
  std::shared_ptr<const std::string> read(const std::string& name);
  /// What was read so far.
  const Files& all() const noexcept { return read_; }
  /// Why one of the reads failed for a passing reason, whatever the script made of that; empty: none did.
  const std::string& put_off() const noexcept { return put_off_; }

 private:
  void verify(const std::string& name, FileContent& content);

  std::filesystem::path folder_;
  Verify verify_;
  Files before_, read_;
  std::string put_off_;
  std::shared_ptr<const Files> given_;
  uint64_t bytes_left_;
};

/// Whether a read of each of `files` gives now what it gave then. Throws NotNow where that cannot be said now.
bool is_unchanged(const std::filesystem::path& file, const Files& files);
/// What a read of each of `files` gives now, in a few bytes.
std::string fingerprint_of(const std::filesystem::path& file, const Files& files);

/// The folders on the way from that of `file` to each of `names`, those that links lead through included, and the files
/// at the end. A change of what a read gives is a change in one of them, or another thing lies there.
std::set<std::filesystem::path> places_of(const std::filesystem::path& file, const std::vector<std::string>& names);

/// For a program that loads a policy without a Runtime: reads for all its interpreters, so that they see the same
/// bytes.
decltype(ScriptOptions::read_file) files_beside(const std::filesystem::path& file);

}  // namespace triage::policy
