#include "runtime/backends/fused/kernel_cache/kernel_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <triage/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <unordered_set>
#include <vector>

#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/files/disk.h"

namespace triage::fused {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t most_bytes = 128u << 20;
constexpr size_t room = 1u << 20;  // more than a kernel takes
constexpr std::string_view cached_mark = "triage cached kernel ";
constexpr std::string_view before_source = "source\n";  // a line of its own behind the identity

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// False where not all of it could be written; errno then says why.
bool write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return !file.fail();
}

std::string not_written(const fs::path& folder) {
  return fmt::format("\"{}\" cannot be written to: {}", folder.string(), std::strerror(errno));
}

/// A name that the runtime gives: what else lies in the folder is not ours to remove.
bool is_own_name(const std::string& name, std::string_view ending) {
  constexpr size_t digits = 32;
  return name.size() == digits + ending.size() && name.substr(digits) == ending &&
         name.find_first_not_of("0123456789abcdef") == digits;
}

void note_use(const fs::path& file) { ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }

struct Listed {
  fs::file_time_type used;
  uintmax_t bytes;
  fs::path path;
};

/// Those used last come first.
std::vector<Listed> list(const fs::path& folder, std::string_view ending) {
  std::vector<Listed> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!is_own_name(entry.path().filename().string(), ending)) continue;
    if (entry.symlink_status(error).type() != fs::file_type::regular) continue;
    const auto used = entry.last_write_time(error);
    const uintmax_t bytes = error ? 0 : entry.file_size(error);
    if (!error) files.push_back({used, bytes, entry.path()});
  }
  std::sort(files.begin(), files.end(), [](const Listed& a, const Listed& b) { return a.used > b.used; });
  return files;
}

void remove_least_used(const fs::path& folder, std::string_view ending) {
  uintmax_t bytes = 0;
  size_t count = 0;
  for (const Listed& file : list(folder, ending)) {
    std::error_code ignored;
    bytes += file.bytes;
    if (++count > kept::most_files || bytes > most_bytes) fs::remove(file.path, ignored);
  }
}

}  // namespace

fs::path KernelFiles::wanted_folder() {
  const auto from = [](const char* variable) {
    const char* value = std::getenv(variable);
    return fs::path(value ? value : "");
  };
  if (const fs::path own = from("TRIAGE_KERNEL_CACHE"); !own.empty()) return own;
  if (const fs::path cache = from("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "triage" / "kernels";
  if (const fs::path home = from("HOME"); home.is_absolute()) return home / ".cache" / "triage" / "kernels";
  return {};
}

KernelFiles::KernelFiles() {
  const fs::path wanted = wanted_folder();
  if (wanted.empty()) return;
  std::error_code error;
  if (fs::create_directories(wanted, error)) ::chmod(wanted.c_str(), S_IRWXU);
  if (error || ::access(wanted.c_str(), W_OK | X_OK) != 0)
    refused_ = fmt::format("\"{}\" cannot be written to", wanted.string());
  else if (!files::is_ours(wanted, S_IFDIR))
    refused_ = fmt::format(
        "\"{}\" is another user's, a symbolic link, or one that others may write to, who could then run code here",
        wanted.string());
  else
    folder_ = wanted;
  if (!folder_.empty()) BuildDirectory::remove_leftovers(folder_);
}

namespace {

std::string name_of(std::string_view text) { return hash_of(text) + std::string(kept::kernels); }

}  // namespace

std::string kernel_text(std::string_view identity, std::string_view source) {
  return fmt::format("{}{}{}", identity, before_source, source);
}

const std::string& identity_of_bundles() {
  static const std::string& identity =  // the thread that compiles may ask while statics are destroyed
      *new std::string(fmt::format("a bundle\ntriage {} {}\n{}", TRIAGE_VERSION, kernel_abi, processor_lines()));
  return identity;
}

fs::path KernelFiles::path_of(const std::string& text) const { return folder_ / name_of(text); }

std::optional<std::string> KernelFiles::find(const std::string& text) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path file = path_of(text);
  const std::string bytes = kept::content(file);
  const Checked checked = check_trailer(bytes, cached_mark);
  if (checked.state != Checked::State::whole || checked.text != text) return std::nullopt;
  note_use(file);
  return file.string();
}

std::unique_ptr<BuildDirectory> KernelFiles::build_directory() {
  if (folder_.empty()) return nullptr;
  try {
    return std::make_unique<BuildDirectory>(folder_);
  } catch (const std::runtime_error& error) {
    refused_ = error.what();
    return nullptr;
  }
}

bool KernelFiles::has_room(const BuildDirectory& build_directory) {
  const std::string probe = build_directory / "room";
  const bool has = write(probe, std::string(room, ' '));
  if (!has) refused_ = not_written(folder_);
  ::unlink(probe.c_str());
  return has;
}

KernelFiles::NewFile KernelFiles::kernel_file(std::string_view identity, std::string_view source,
                                              std::string_view shared_object) {
  const std::string text = kernel_text(identity, source);
  return {name_of(text), with_trailer(shared_object, text, cached_mark)};
}

void KernelFiles::keep(const std::string& text, const std::string& shared_object,
                       const BuildDirectory& build_directory) {
  put({{name_of(text), with_trailer(read_all(shared_object), text, cached_mark)}}, build_directory);
}

bool KernelFiles::put(const std::vector<NewFile>& files) {
  const std::unique_ptr<BuildDirectory> in = build_directory();
  return in && put(files, *in);
}

bool KernelFiles::put(const std::vector<NewFile>& files, const BuildDirectory& build_directory) {
  const auto made = [&](const NewFile& file) { return build_directory / ("sealed-" + file.name); };
  for (const NewFile& file : files) {
    if (!write(made(file), file.bytes)) {
      refused_ = not_written(folder_);
      return false;
    }
    ::chmod(made(file).c_str(), S_IRUSR | S_IWUSR);
  }
  for (const NewFile& file : files)
    if (!replace(made(file), file.name)) return false;
  for (const std::string_view ending : {kept::kernels, kept::calls}) remove_least_used(folder_, ending);
  return true;
}

bool KernelFiles::replace(const std::string& from, const std::string& name) {
  const fs::path to = folder_ / name;
  const auto put = [&] { return ::rename(from.c_str(), to.c_str()) == 0; };
  if (put()) return true;
  std::error_code ignored;
  fs::remove_all(to, ignored);  // a folder, say, which nothing is renamed to
  if (put()) return true;
  refused_ = fmt::format("\"{}\" cannot be replaced: {}", to.string(), std::strerror(errno));
  return false;
}

void KernelFiles::refuse_unloadable(const std::string& reason) {
  refused_ = fmt::format("what is compiled in \"{}\" cannot be loaded ({}); does it allow programs to be run?",
                         folder_.string(), reason);
}

namespace kept {
namespace {

/// Empty where there is no folder, or it is not this user's alone.
fs::path folder() {
  const fs::path wanted = KernelFiles::wanted_folder();
  return !wanted.empty() && files::is_ours(wanted, S_IFDIR) ? wanted : fs::path();
}

}  // namespace

std::vector<fs::path> files(std::string_view ending) {
  std::vector<fs::path> paths;
  const fs::path in = folder();
  if (in.empty()) return paths;
  for (const Listed& file : list(in, ending)) paths.push_back(file.path);
  return paths;
}

std::string content(const fs::path& file) {
  std::error_code error;
  if (!files::is_ours(file, S_IFREG) || fs::file_size(file, error) > most_bytes) return "";
  return read_all(file);
}

std::string use(const std::string& name) {
  const fs::path in = folder();
  if (in.empty()) return "";
  std::string bytes = content(in / name);
  if (!bytes.empty()) note_use(in / name);
  return bytes;
}

std::vector<KeptKernel> kernels_for_here() {
  std::vector<KeptKernel> found;
  std::unordered_set<std::string> sources;
  for (const fs::path& file : files(kernels)) {
    const std::string bytes = content(file);
    const Checked checked = check_trailer(bytes, cached_mark);
    if (checked.state != Checked::State::whole) continue;
    const size_t line = checked.text.find(fmt::format("\n{}", before_source));
    if (line == std::string_view::npos) continue;
    const std::string_view identity = checked.text.substr(0, line + 1);
    std::string source(checked.text.substr(line + 1 + before_source.size()));
    if (identity.find(processor_lines()) == std::string_view::npos || !sources.insert(source).second) continue;
    const auto object_size = static_cast<size_t>(checked.text.data() - bytes.data());
    found.push_back({std::string(identity), std::move(source), bytes.substr(0, object_size)});
  }
  return found;
}

}  // namespace kept

}  // namespace triage::fused
