#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/api.h>
#include <triage/error.h>

#include <string>
#include <utility>
#include <vector>

/// Tensors in files. The extension sets the format:
///
///   .pt .pth       what `torch.save` writes (the zip form, PyTorch 1.6 and later): tensors, numbers, strings, and
///                  lists, tuples and dicts of them, a `state_dict()` included. What is written here reads back with
///                  `torch.load(path, weights_only=True)`.
///   .npy           one array, as `numpy.save` writes it: format 1.0 to 3.0, either byte order, C or Fortran order.
///   .safetensors   tensors by name (https://github.com/huggingface/safetensors).
///
/// Files are untrusted: for any bytes, a call returns tensors that own all of their memory, or throws FileError. It
/// never reads out of bounds and never runs code from the file. The message has the path, what was expected, what came,
/// and what to do. All tensors are on the CPU; `.to` moves them.
namespace triage {

/// The content of a file: a Tensor, or a GenericDict, GenericList or Tuple of such (.pt), a dict of tensors
/// (.safetensors). `path` may end in `:KEY`, as for load_tensor. The keys of a dict are integers where all are, else
/// text.
TRIAGE_API c10::IValue load_file(const std::string& path);

/// The tensor of a file. In a file with several, `FILE:KEY` selects one: a key of a dict, a 0-based index of a list
/// (negative from the end), `outer:inner` in nested ones. Without a key the error lists the keys.
TRIAGE_API at::Tensor load_tensor(const std::string& path);

/// Writes one tensor, of any device and strides: only its values, not the rest of its storage. `.safetensors` files
/// name their tensors: `FILE:KEY` sets the name (default "tensor").
TRIAGE_API void save_tensor(const std::string& path, const at::Tensor& tensor);

/// Writes a tensor, or (.pt) dicts, lists and tuples of tensors, numbers and strings, or (.safetensors) a dict of
/// tensors. Like save_tensor, it writes to a temporary file in the same folder, flushes that to the disk, and renames
/// it: at any moment, `path` is the old file or the whole new one.
TRIAGE_API void save_file(const std::string& path, const c10::IValue& value);

/// Writes several files: it replaces none before it has written all.
TRIAGE_API void save_files(const std::vector<std::pair<std::string, c10::IValue>>& files);

/// Splits `FILE:KEY`; the key is empty if there is none. A colon separates only after one of the extensions above, and
/// never if a file with the whole name exists.
TRIAGE_API std::pair<std::string, std::string> split_key(const std::string& path);

/// Throws FileError that lists the extensions, unless `path` (without key) has one of them.
TRIAGE_API void check_ending(const std::string& path);

/// PyTorch's name of a dtype: "float32".
TRIAGE_API std::string dtype_name(at::ScalarType dtype);

}  // namespace triage
