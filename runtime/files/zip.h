#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>

#include "runtime/files/disk.h"

namespace triage::files {

/// What to say of an archive that holds a program, and not only data.
inline constexpr const char* is_torch_script =
    "it is a TorchScript module, not tensors; load it with nn.load in a script";

/// A zip archive of members that are stored as they are, as torch.save writes them. LibTorch's own reader is not used:
/// it gives each member the memory that the directory asks for. Here a directory whose members together are larger than
/// the file is refused, so that no read asks for more than that.
class ZipArchive {
 public:
  struct Member {
    uint64_t header = 0;  // where its header begins
    uint64_t size = 0;
    uint32_t checksum = 0;  // 0: whoever wrote it computed none, as torch.save may
    std::string name;       // with the folder
  };

  /// Reads the directory. Throws Malformed for what is none, for compressed members, and for two of one name.
  explicit ZipArchive(const InputFile& file);
  /// By the name within the one folder that such archives have; null where there is none.
  const Member* find(const std::string& name) const;
  /// `to` has room for `member.size` bytes. Throws Malformed where they are not those that the directory tells of.
  void read(const Member& member, void* to) const;
  std::string read(const Member& member) const;

 private:
  const InputFile& file_;
  std::unordered_map<std::string, Member> members_;
};

}  // namespace triage::files
