#pragma once
#include <filesystem>
#include <string>

namespace triage::fused {

/// A folder that no other process has, for files on the way to being kernels; gone with this, and all that is in it.
class Workshop {
 public:
  /// In the system's temporary folder. Throws std::runtime_error where none can be made.
  Workshop();
  explicit Workshop(const std::filesystem::path& in);
  ~Workshop();
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;
  std::string operator/(const std::string& name) const { return (folder_ / name).string(); }

  /// Whether a name is that of such a folder: its process may have been killed.
  static bool is_name(const std::string& name) { return name.rfind(prefix, 0) == 0; }

 private:
  static constexpr const char* prefix = "triage-making-";
  std::filesystem::path folder_;
};

}  // namespace triage::fused
