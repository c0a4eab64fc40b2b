#pragma once
#include <optional>
#include <string>
#include <string_view>

/// `.pt` files around a pickle. Zip archives have checksums, which random changes do not keep.
namespace triage::fuzz {

/// A `.pt` file with that pickle, and storages "0" to "3" of `storage_bytes` each.
std::string zip_of(std::string_view pickle, size_t storage_bytes = 64);
/// The pickle of a `.pt` file; nothing where it has none.
std::optional<std::string> pickle_in(const std::string& file);

}  // namespace triage::fuzz
