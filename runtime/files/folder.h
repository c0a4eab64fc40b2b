#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace triage::files {

/// Something in a folder. A link is a file where it leads to one, and never a folder.
struct FolderEntry {
  std::string name;
  bool is_file = false, is_folder = false;
};

/// What `folder` holds, hidden entries aside, in any order. The iterators of std::filesystem end the process where
/// memory is short.
std::vector<FolderEntry> entries_of(const std::filesystem::path& folder, std::error_code& error);

/// Makes a folder that the runtime keeps things in, for this user alone, where there is none. Why what is there cannot
/// be trusted; empty: it can.
std::string make_own_folder(const std::filesystem::path& folder);

}  // namespace triage::files
