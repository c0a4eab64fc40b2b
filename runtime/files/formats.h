#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/files/disk.h"

namespace caffe2::serialize {
class PyTorchStreamWriter;
}

/// One reader and one writer a format. They throw Malformed (or what LibTorch throws) with a clause that names no path.
namespace triage::files {

/// A value in a file that is sound, but of a kind that triage does not read: `what` is a clause as of Malformed.
struct NotRead : Malformed {
  using Malformed::Malformed;
};
/// What stands in a dict, list or tuple in the place of such a value: the other entries stay readable.
c10::IValue not_read(std::string why);
/// Why `value` could not be read; null for all other values.
const std::string* why_not_read(const c10::IValue& value);

/// With a key of the dict in the file, or `key:inner`, only that entry is read.
c10::IValue read_pt(const InputFile& file, const std::string& key);
/// `note`: text that stands beside the value, for `read_note`; torch.load passes over it. Empty: none.
void write_pt(OutputFile& file, const c10::IValue& value, const std::string& note = {});
std::string read_pt_note(const InputFile& file);
/// Of the file at `path`, in which a key may stand; empty where there is none, as in all files of another format.
/// Throws FileError.
std::string read_note(const std::string& path);

struct SavedFile {
  std::string path;
  c10::IValue value;
  std::string note = {};  // .pt files have it, others not
};
/// As triage::save_files.
void save(const std::vector<SavedFile>& files);
/// A zip archive of the records that `fill` writes, as a `.pt` file is one. Throws what `file` throws.
void write_zip(OutputFile& file, const std::function<void(caffe2::serialize::PyTorchStreamWriter&)>& fill);

at::Tensor read_npy(const InputFile& file);
void write_npy(OutputFile& file, const at::Tensor& tensor);

/// With a key, only that tensor is read.
c10::IValue read_safetensors(const InputFile& file, const std::string& key);
void write_safetensors(OutputFile& file, const c10::IValue& value);

/// `load_file` of bytes that were read before. `path`, in which a key may stand, selects the format and names the file
/// in messages. Throws FileError.
c10::IValue load_bytes(const std::string& path, std::string_view bytes);
/// Whether a file of this name is one of tensors.
bool has_known_ending(const std::string& file);
/// `FILE:KEY` taken apart by the name alone.
std::pair<std::string, std::string> split_key_of_name(const std::string& path);

/// The values of `tensor` as dense, C-ordered memory on the CPU, without gradient history. Throws Malformed for sparse,
/// quantized and other tensors that have no such memory.
at::Tensor plain_values(const at::Tensor& tensor);

/// numel of `sizes` times `element_size`. Throws Malformed for negative sizes, and where the product is too large for
/// any memory.
uint64_t checked_bytes(const std::vector<int64_t>& sizes, size_t element_size);

/// A bool must be 0 or 1: any other byte is undefined behaviour in compiled code. Files may hold any byte.
void normalize_bools(void* bytes, size_t count);

/// "32x512", "0-dim" for display.
std::string describe_shape(at::IntArrayRef sizes);

}  // namespace triage::files
