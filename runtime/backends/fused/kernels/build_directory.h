#pragma once
#include <filesystem>
#include <string>

namespace triage::fused {

/// A folder that no other process has, for files on the way to being kernels, and for those that the compiler makes on its way;
/// gone with this, and all that is in it.
class BuildDirectory {
 public:
  /// In the system's temporary folder. Throws std::runtime_error where none can be made.
  BuildDirectory();
  explicit BuildDirectory(const std::filesystem::path& in);
  ~BuildDirectory();
  BuildDirectory(const BuildDirectory&) = delete;
  BuildDirectory& operator=(const BuildDirectory&) = delete;
  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }

  /// Removes such folders in `in` that nobody has written to for an hour: their processes were killed.
  static void remove_leftovers(const std::filesystem::path& in);

 private:
  std::filesystem::path folder_;
};

}  // namespace triage::fused
