// The bytes of a bundle: read, compared with what bundle.json lists, and shown to the host.
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <triage/version.h>

#include <cerrno>
#include <functional>

#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/files/folder.h"
#include "runtime/policy/bundles/manifest.h"
#include "runtime/policy/files/not_now.h"
#include "runtime/policy/files/sha256.h"
#include "runtime/policy/front_end.h"

namespace triage::policy {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t largest_manifest = 1u << 20, largest_file = 64u << 20, most_bytes = 512u << 20;

[[noreturn]] void refuse(const Manifest& manifest, const fs::path& file, const std::string& why) {
  throw FileError(fmt::format("the bundle '{}' (version {}) is refused: '{}' {}", manifest.name, manifest.version,
                              file.string(), why),
                  {file.string(), 0});
}

/// The folder itself, whatever links lead to it now.
fs::path target_of(const fs::path& dir) {
  std::error_code error;
  fs::path target = fs::canonical(dir, error);
  if (!error && !fs::is_directory(target, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error)
    throw FileError(fmt::format("cannot read the bundle '{}': {}; expected a folder with a file {}", dir.string(),
                                error.message(), manifest_name),
                    {dir.string(), 0});
  return target;
}

/// `below`: the folder in `folder` that is listed, with a `/` behind it.
void add_files(const fs::path& folder, const std::string& below, std::vector<std::string>& found) {
  std::error_code error;
  const std::vector<files::FolderEntry> entries = files::entries_of(folder / below, error);
  const auto message = [&] {
    return fmt::format("cannot list the files of the bundle '{}': {}", folder.string(), error.message());
  };
  if (error && is_passing(error.value())) throw NotNow(message(), {folder.string(), 0});
  if (error && error != std::errc::permission_denied) throw FileError(message(), {folder.string(), 0});
  for (const files::FolderEntry& entry : entries) {
    if (entry.is_file) found.push_back(below + entry.name);
    if (entry.is_folder) add_files(folder, below + entry.name + "/", found);
  }
}

/// Paths in a folder of all regular files that are not hidden. Links to folders are not followed.
std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> files;
  add_files(folder, "", files);
  return files;
}

bool is_script(const std::string& file) { return fs::path(file).has_extension() && has_front_end(file); }

bool is_module(const std::string& file) { return file.starts_with("lib/") || file.find("/lib/") != std::string::npos; }

bool is_table(const std::string& file) {
  return file.ends_with(".pt") || file.ends_with(".npy") || file.ends_with(".safetensors");
}

void check_all_listed(const fs::path& folder, const Manifest& manifest) {
  const Manifest::Listed listed = manifest.files();
  for (const std::string& file : files_in(folder))
    if (is_script(file) && !listed.count(file))
      refuse(manifest, folder / file,
             fmt::format("is a script of the folder that {} does not list; remove it, or pack the bundle again "
                         "(triage bundle pack)",
                         manifest_name));
}

void check_version(const Manifest& manifest, const fs::path& path) {
  bool fits = false;
  try {
    fits = fits_range(manifest.triage, TRIAGE_VERSION);
  } catch (const InputError& error) {
    refuse(manifest, path, fmt::format("has a \"triage\" that cannot be read: {}", error.what()));
  }
  if (!fits)
    refuse(manifest, path,
           fmt::format("needs triage {}, and this is triage {}; load a bundle that is made for it", manifest.triage,
                       TRIAGE_VERSION));
}

using Read = std::function<FileContent(const std::string& name, uint64_t largest)>;

Snapshot snapshot_of(const fs::path& dir, const std::string& text, const Verify& verify, const Read& read,
                     const std::function<void(const Manifest&)>& check) {
  const fs::path path = dir / manifest_name;
  verify_file(verify, path, text);
  Snapshot snapshot{parse_manifest(text, path), {text, {}, /*in_folder=*/true}};
  check_version(snapshot.manifest, path);
  check(snapshot.manifest);
  uint64_t left = most_bytes;
  for (const auto& [name, hash] : snapshot.manifest.files()) {
    FileContent content = read(name, std::min(left, is_script(name) ? files::largest_text : largest_file));
    const auto refuse_file = [&, &name = name](const std::string& why) { refuse(snapshot.manifest, dir / name, why); };
    if (content.passing) throw NotNow(unread_message(name, content.error), {(dir / name).string(), 0});
    if (!content.bytes) refuse_file(fmt::format("cannot be read: {}", content.error));
    left -= content.bytes->size();
    if (const std::string found = sha256_text(*content.bytes); found != hash)
      refuse_file(
          fmt::format("has the SHA-256 {}, and {} lists {}; it was changed, or not copied whole. Copy it "
                      "again, or pack the bundle again (triage bundle pack)",
                      found, manifest_name, hash));
    verify_file(verify, dir / name, *content.bytes);
    content.checksum = files::checksum(*content.bytes);
    snapshot.contents.files[name] = std::move(content);
  }
  return snapshot;
}

}  // namespace

FileContent read_manifest(const fs::path& dir) { return read_beneath(dir, manifest_name, largest_manifest); }

std::string listing_of(const fs::path& dir) {
  try {
    const fs::path folder = target_of(dir);
    std::string listing = folder.string();
    for (const std::string& name : files_in(folder)) {
      struct stat info {};
      const int code = ::stat((folder / name).c_str(), &info) == 0 ? 0 : errno;
      listing += fmt::format("\n{} {} {} {} {} {}.{} {}.{} {}", name, code, info.st_dev, info.st_ino, info.st_size,
                             info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec,
                             info.st_mode);
    }
    return listing;
  } catch (const FileError& error) {
    return error.what();
  }
}

Snapshot read_bundle(const fs::path& dir, const Verify& verify) {
  const fs::path folder = target_of(dir);
  const FileContent text = read_manifest(folder);
  if (text.passing) throw NotNow(unread_message(manifest_name, text.error), {(dir / manifest_name).string(), 0});
  if (!text.bytes)
    throw FileError(fmt::format("cannot read the bundle '{}': {}: {}; write it with triage bundle pack", dir.string(),
                                manifest_name, text.error),
                    {(dir / manifest_name).string(), 0});
  return snapshot_of(
      dir, *text.bytes, verify,
      [&](const std::string& name, uint64_t largest) { return read_beneath(folder, name, largest); },
      [&](const Manifest& manifest) { check_all_listed(folder, manifest); });
}

Snapshot kept_bundle(const fs::path& dir, Contents contents, const Verify& verify) {
  const auto read = [&](const std::string& name, uint64_t largest) {
    const auto found = contents.files.find(name);
    return found != contents.files.end() ? found->second : FileContent::unread("it was not kept", largest);
  };
  return snapshot_of(dir, contents.source, verify, read, [](const Manifest&) {});
}

std::shared_ptr<const Files> Snapshot::files_beside(const std::string& policy) const {
  const size_t slash = policy.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : policy.substr(0, slash + 1);
  auto beside = std::make_shared<Files>();
  for (const auto& [name, content] : contents.files)
    if (name.starts_with(folder)) (*beside)[name.substr(folder.size())] = content;
  return beside;
}

Manifest list_folder(const fs::path& dir) {
  const fs::path folder = target_of(dir);
  Manifest manifest;
  for (const std::string& file : files_in(folder)) {
    if (!is_script(file) && !is_table(file)) continue;
    const FileContent content = read_beneath(folder, file, largest_file);
    if (!content.bytes)
      throw FileError(fmt::format("cannot read '{}': {}", (dir / file).string(), content.error),
                      {(dir / file).string(), 0});
    auto& listed = is_table(file) ? manifest.tables : is_module(file) ? manifest.modules : manifest.policies;
    listed[file] = sha256_text(*content.bytes);
  }
  return manifest;
}

}  // namespace triage::policy
