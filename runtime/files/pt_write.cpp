// Writes the zip form of torch.save so that Python reads it with weights_only=True: a plain pickle (no TorchScript type
// tags, which that mode refuses) and one record a tensor.
#include <ATen/ATen.h>
#include <caffe2/serialize/inline_container.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickler.h>

#include <exception>

#include <triage/files.h>
#include "runtime/files/dtype.h"
#include "runtime/files/formats.h"

namespace triage::files {
namespace {

/// The value with every tensor in plain memory, in generic containers. Throws Malformed where .pt cannot hold it.
c10::IValue plain(const c10::IValue& value, int depth = 0) {
  if (depth > 64) throw Malformed("the value is nested more than 64 deep");
  if (value.isTensor()) {
    at::Tensor tensor = plain_values(value.toTensor());
    const DtypeNames* names = names_of(tensor.scalar_type());
    if (!names || *names->storage == '\0') {
      throw Malformed(
          fmt::format("the tensor has dtype {}, which .pt files cannot hold; convert it first, or write .safetensors",
                      dtype_name(tensor.scalar_type())));
    }
    // Rows of a large tensor are contiguous too; only the values go to the file, not the storage around them.
    bool whole = tensor.storage().nbytes() == tensor.nbytes();
    return (whole ? tensor : tensor.clone()).set_requires_grad(false);
  }
  if (value.isNone() || value.isBool() || value.isInt() || value.isDouble() || value.isString()) return value;
  if (value.isTuple()) {
    std::vector<c10::IValue> items;
    for (const c10::IValue& item : value.toTupleRef().elements()) items.push_back(plain(item, depth + 1));
    return c10::ivalue::Tuple::create(std::move(items));
  }
  if (value.isList()) {
    c10::impl::GenericList items(c10::AnyType::get());
    for (const c10::IValue& item : value.toListRef()) items.push_back(plain(item, depth + 1));
    return items;
  }
  if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    c10::impl::GenericDict pairs(dict.keyType(), c10::AnyType::get());
    for (const auto& pair : dict) pairs.insert(pair.key(), plain(pair.value(), depth + 1));
    return pairs;
  }
  throw Malformed(fmt::format(
      "a value of type {} cannot be written; tensors, numbers, strings, and lists, tuples and dicts of them can",
      value.tagKind()));
}

}  // namespace

void write_pt(OutputFile& file, const c10::IValue& value) {
  c10::IValue content = plain(value);
  // The writer finishes its archive in its destructor, where an exception would end the process: disk errors wait.
  std::exception_ptr failure;
  caffe2::serialize::PyTorchStreamWriter archive([&](const void* data, size_t count) {
    try {
      if (!failure) file.write(data, count);
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
    return count;
  });
  std::string pickle;
  std::vector<at::Tensor> tensors;
  torch::jit::Pickler pickler([&](const char* bytes, size_t count) { pickle.append(bytes, count); }, nullptr, nullptr,
                              nullptr,
                              [&](const at::Tensor& tensor) {
                                tensors.push_back(tensor);
                                return std::to_string(tensors.size() - 1);
                              },
                              /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(content);
  pickler.stop();
  archive.writeRecord("data.pkl", pickle.data(), pickle.size());
  archive.writeRecord("byteorder", "little", 6);
  for (size_t i = 0; i < tensors.size(); ++i) {
    archive.writeRecord(fmt::format("data/{}", i), tensors[i].data_ptr(), tensors[i].nbytes());
  }
  archive.writeEndOfFile();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace triage::files
