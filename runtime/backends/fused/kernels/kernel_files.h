#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace triage::fused {

/// 32 hexadecimal digits. Not against an attacker: against accidents.
std::string hash_of(const std::string& bytes);

/// A shared object on disk. A scratch file is removed with this object; one in the cache stays.
class KernelFile {
 public:
  KernelFile(std::string path, bool scratch) : path_(std::move(path)), scratch_(scratch) {}
  KernelFile(KernelFile&& other) noexcept
      : path_(std::move(other.path_)), scratch_(std::exchange(other.scratch_, false)) {}
  KernelFile& operator=(KernelFile&&) = delete;
  ~KernelFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool scratch_;
};

/// The folder of compiled kernels; see `kernel_of` for what is promised of it.
class KernelFiles {
 public:
  KernelFiles();
  /// The kernel of that key, where there is one that is whole and ours.
  std::optional<KernelFile> find(const std::string& key) const;
  /// A name to compile to: in the folder, or in the system's temporary one where there is no folder.
  KernelFile scratch(const std::string& key) const;
  /// Takes a compiled file into the folder, where there is one.
  void keep(const std::string& key, KernelFile made) const;
  void remove(const std::string& key) const;
  /// Why there is no folder, where one was asked for: "\"...\" is ..."; empty otherwise.
  const std::string& refused() const { return refused_; }

 private:
  void remove_oldest() const;
  std::filesystem::path folder_;  // empty: there is none
  std::string refused_;
};

}  // namespace triage::fused
