#pragma once
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace triage::files {

/// Something in a folder. A link is a file where it leads to one, and never a folder.
struct Entry {
  std::string name;
  bool is_file = false, is_folder = false;
};

/// What `folder` holds, hidden entries aside, in any order. The iterators of std::filesystem end the process where memory is short.
std::vector<Entry> entries_of(const std::filesystem::path& folder, std::error_code& error);

}  // namespace triage::files
