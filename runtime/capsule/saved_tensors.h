#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// Tensors in a capsule: each is a layout (JSON) over a memory, which tensors that share storage share here as well.
namespace triage::capsule {

using Json = nlohmann::ordered_json;

/// Copies tensors as they are now. The memories are tensors on the CPU, for a `.pt` file.
class SavedTensors {
 public:
  /// The number of the tensor; the same tensor has one number. `masked`: its values are not kept. Throws
  /// files::Malformed with a clause for a tensor that has no strided memory.
  size_t add(const at::Tensor& tensor, bool masked = false);
  /// The values of tensor `number`, and of those that share its memory, are not kept after all.
  void leave_out(size_t number);
  /// Whether the values of some tensor are not kept because they are masked.
  bool leaves_out() const noexcept;
  const Json& layouts() const { return layouts_; }
  std::vector<at::Tensor> memories() const;
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  struct SavedMemory {
    at::Tensor owner;  // one of the tensors, so that its storage is not used again meanwhile
    at::ScalarType dtype;
    int64_t first, count;  // elements of the storage that are kept
    at::Tensor values;     // of shape {count}
    bool masked;
  };
  size_t memory_of(const at::Tensor& tensor, bool masked);
  void keep(SavedMemory& memory, int64_t first, int64_t count);

  Json layouts_ = Json::array();
  std::vector<at::Tensor> tensors_;
  std::vector<SavedMemory> memories_;
  uint64_t bytes_ = 0;
};

/// The tensors again: their own memory each, at the same strides, shared where it was. Throws files::Malformed where
/// layouts and memories do not fit together.
class RestoredTensors {
 public:
  RestoredTensors() = default;
  RestoredTensors(const Json& layouts, const std::vector<at::Tensor>& memories);
  size_t size() const { return tensors_.size(); }
  /// Throws files::Malformed where there is none.
  const at::Tensor& at(int64_t number) const;
  /// Sentences: masked values, devices that are not here.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  at::Tensor restore(const Json& layout, const std::vector<at::Tensor>& memories);

  std::vector<at::Tensor> tensors_;
  std::vector<std::string> notes_;
};

/// Member `name` of a JSON object; throws files::Malformed where there is none.
const Json& member(const Json& object, const char* name);
int64_t integer(const Json& value, const char* what);
std::string text(const Json& value, const char* what);

}  // namespace triage::capsule
