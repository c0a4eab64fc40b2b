#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace triage::fuzz {

/// The bytes that the arguments of a call lie in, as they were before it.
class MemoryOfArguments {
 public:
  MemoryOfArguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments);

  /// What changed that the schema does not declare written: bytes that no written argument has as an element, or sizes
  /// of arguments that are only read. Empty where nothing did.
  std::string undeclared_change() const;

 private:
  struct Storage {
    c10::StorageImpl* impl;
    const unsigned char* data;
    std::vector<unsigned char> bytes;
    std::vector<bool> written;  // by byte
  };
  struct Shape {
    at::Tensor tensor;
    std::string name;
    std::vector<int64_t> sizes, strides;
    int64_t offset;
  };

  void add(const std::string& name, const at::Tensor& tensor, bool written);
  void mark_written(Storage& storage, const at::Tensor& tensor);

  std::vector<Storage> storages_;
  std::vector<Shape> read_only_;
};

}  // namespace triage::fuzz
