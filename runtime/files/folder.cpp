#include "runtime/files/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "runtime/files/disk.h"

namespace triage::files {

std::vector<FolderEntry> entries_of(const std::filesystem::path& folder, std::error_code& error) {
  std::vector<FolderEntry> entries;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  errno = open ? 0 : errno;
  for (const dirent* one; open && (one = ::readdir(open.get())); errno = 0) {
    if (one->d_name[0] == '.') continue;
    struct stat own {
    }, target{};
    const bool known = ::fstatat(::dirfd(open.get()), one->d_name, &own, AT_SYMLINK_NOFOLLOW) == 0;
    const bool leads = known && ::fstatat(::dirfd(open.get()), one->d_name, &target, 0) == 0;
    entries.push_back({one->d_name, leads && S_ISREG(target.st_mode), known && S_ISDIR(own.st_mode)});
  }
  error.assign(errno, std::generic_category());
  return entries;
}

std::string make_own_folder(const std::filesystem::path& folder) {
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) ::chmod(folder.c_str(), S_IRWXU);
  if (error) return folder.string() + ": " + error.message();
  if (is_ours(folder.string(), S_IFDIR)) return {};
  return folder.string() + ": it is another user's, a symbolic link, or one that others may write to";
}

}  // namespace triage::files
