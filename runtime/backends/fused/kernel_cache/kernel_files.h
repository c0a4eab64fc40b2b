#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/backends/fused/kernels/build_directory.h"

namespace triage::fused {

/// What a kernel in the folder is known by: `identity` tells the compiler and the processor (SystemCompiler::identity), or that it
/// came with a bundle (`identity_of_bundles`).
std::string kernel_text(std::string_view identity, std::string_view source);
/// Of what came with a bundle: holds for this version of triage and this processor.
const std::string& identity_of_bundles();

/// A kernel of the folder that was compiled for this processor.
struct KeptKernel {
  std::string identity, source, shared_object;
};

/// The folder of compiled kernels; see `kernel_of` for what is promised of it. A kernel is known by its text; see `kernel_text`. The
/// file is named by the text's hash and holds the text (checksum_trailer.h), which is compared: a file under another's name is never
/// taken for it. Kinds of calls lie beside the kernels (cached_calls.h).
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

  /// A file of the folder in the making.
  struct NewFile {
    std::string name, bytes;
  };
  static NewFile kernel_file(std::string_view identity, std::string_view source, std::string_view shared_object);
  /// All of them, in the place of what has their names; none where they cannot all be written: false, and `refused` says why.
  bool put(const std::vector<NewFile>& files);

 private:
  std::filesystem::path path_of(const std::string& text) const;
  bool put(const std::vector<NewFile>& files, const BuildDirectory& build_directory);
  bool replace(const std::string& from, const std::string& name);
  std::filesystem::path folder_;  // empty: there is none
  std::string refused_;
};

/// What is read of the folder without making it. Nothing where it is not ours, or there is none.
namespace kept {

constexpr std::string_view kernels = ".so", calls = ".calls";  // how names end
constexpr size_t most_files = 512;                             // of each

/// The files that the runtime has put there, by how their names end; those used last come first.
std::vector<std::filesystem::path> files(std::string_view ending);
/// Whole files of ours only; empty for others.
std::string content(const std::filesystem::path& file);
/// Of one name, which counts as used now.
std::string use(const std::string& name);
/// Compiled for this processor, one of each source: the one that was used last.
std::vector<KeptKernel> kernels_for_here();

}  // namespace kept

}  // namespace triage::fused
