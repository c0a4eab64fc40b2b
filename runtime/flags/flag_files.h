#pragma once
#include <ATen/core/Tensor.h>
#include <triage/flags.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

/// Flags in files. Ids of locations are numbers of one process, and names of codes those of one policy: a `.pt` file
/// says both, as a note (files/formats.h) beside its tensors.
namespace triage::flags {

/// What a file says of its flags.
struct FileNames {
  std::vector<std::string> tensors;  // which of its entries are flags, by their keys; "" where it holds one tensor
  std::map<int64_t, std::string> locations;  // of the ids that the flags have
  CodeNames codes;

  bool is_flags(const std::string& key) const;
};

/// Of flags that this process made, by the keys that they get. As text for the note of the file.
std::string note_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors, const InspectOptions& options);
/// Of the file at `path`, in which a key may stand; nothing where it says none. Throws FileError.
FileNames names_in(const std::string& path);

/// Whether flags may have this carrier and width: those of the configuration, or of another one that is known.
bool has_known_form(const at::Tensor& tensor);

/// Flags of a file as those of this process: each id becomes that of its name (adopt_location), `Location_<id>` where
/// it has none. The same tensor where all ids stay, else a copy on the CPU. Throws InputError for what has not the form
/// of flags.
at::Tensor with_own_ids(const char* op, const at::Tensor& f, const std::map<int64_t, std::string>& locations,
                        const ConfigOptions& options = {});

/// Of a tensor that may be flags whose locations nobody can name: their ids get no other name from here on
/// (reserve_location). Tells which of them have one already; none where the words cannot be those of flags.
std::vector<int64_t> reserve_ids(const at::Tensor& maybe_flags);

}  // namespace triage::flags
