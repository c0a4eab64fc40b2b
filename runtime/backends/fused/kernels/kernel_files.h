#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "runtime/backends/fused/kernels/build_directory.h"

namespace triage::fused {

/// The folder of compiled kernels; see `kernel_of` for what is promised of it. A kernel is known by its text: what tells the
/// compiler and the processor, and its source. The file is named by the text's hash and holds the text (checksum_trailer.h), which is
/// compared: a file under another's name is never taken for it.
class KernelFiles {
 public:
  KernelFiles();
  /// Where kernels are to be kept, there or not; empty: nowhere.
  static std::filesystem::path wanted_folder();
  /// The shared object of that text, where there is one that is whole and ours. It counts as used now.
  std::optional<std::string> find(const std::string& text) const;
  /// To compile in. Null where there is no folder, or nothing can be made in it.
  std::unique_ptr<BuildDirectory> build_directory();
  /// Takes a shared object into the folder; in the place of whatever has the name. The build directory is in the folder.
  void keep(const std::string& text, const std::string& shared_object, const BuildDirectory& build_directory);
  /// Whether a kernel can be written there at all: the disk is not full.
  bool has_room(const BuildDirectory& build_directory);
  /// What is written there cannot be loaded (`noexec`): nothing is kept.
  void refuse_unloadable(const std::string& reason);
  /// Why nothing is kept, where a folder was asked for: "\"...\" is ..."; empty otherwise.
  const std::string& refused() const { return refused_; }

 private:
  std::filesystem::path path_of(const std::string& text) const;
  void remove_least_used() const;
  std::filesystem::path folder_;  // empty: there is none
  std::string refused_;
};

}  // namespace triage::fused
