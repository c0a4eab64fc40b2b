#include "runtime/files/formats.h"
#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"
#include "tests/fuzz/inputs/zip.h"
#include "tests/safetensors_bytes.h"

#include <ATen/ATen.h>

#include <filesystem>

namespace triage::fuzz {
namespace {

/// Reads every element, so that a sanitizer sees memory that is not there.
void touch(const c10::IValue& value, int depth = 0) {
  if (depth > 1000) throw Broken("values are nested without bound");
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.numel() <= 1'000'000) tensor.detach().clone();  // a larger one is expanded: few values, shown many times
  } else if (value.isGenericDict()) {
    for (const auto& pair : value.toGenericDict()) touch(pair.value(), depth + 1);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) touch(item, depth + 1);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) touch(item, depth + 1);
  }
}

/// Small ones of the tests' files with that ending.
std::vector<std::string> data_files(const std::string& ending) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(data_file(""))) {
    if (entry.path().extension() == ending && entry.file_size() <= 8192)
      all.push_back(read_bytes(entry.path().string()));
  }
  return all;
}

}  // namespace

void read_npy_file(std::string_view bytes) { touch(files::load_bytes("input.npy", bytes)); }
std::vector<std::string> npy_seeds() { return data_files(".npy"); }

void read_safetensors_file(std::string_view bytes) {
  touch(files::load_bytes("input.safetensors", bytes));
  touch(files::load_bytes("input.safetensors:weight", bytes));
}

std::vector<std::string> safetensors_seeds() {
  std::vector<std::string> all;
  for (
      const std::string header :
      {R"({"weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"bias":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}})",
       R"({"__metadata__":{"format":"pt"},"weight":{"dtype":"BF16","shape":[4,4],"data_offsets":[0,32]}})",
       R"({"weight":{"dtype":"BOOL","shape":[32],"data_offsets":[0,32]},"empty":{"dtype":"F64","shape":[0],"data_offsets":[32,32]}})"}) {
    all.push_back(triage::test::safetensors(header, 32));
  }
  return all;
}

void read_pt_file(std::string_view bytes) {
  touch(files::load_bytes("input.pt", bytes));
  try {
    touch(files::load_bytes("input.pt:weight", bytes));
  } catch (const FileError&) {  // most have no such entry
  }
}
std::vector<std::string> pt_seeds() { return data_files(".pt"); }

void read_pickle(std::string_view bytes) { touch(files::load_bytes("input.pt", zip_of(bytes))); }
std::vector<std::string> pickle_seeds() {
  std::vector<std::string> all;
  for (const std::string& file : data_files(".pt"))
    if (const auto pickle = pickle_in(file)) all.push_back(*pickle);
  return all;
}

}  // namespace triage::fuzz
