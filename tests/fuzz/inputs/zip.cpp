#include "tests/fuzz/inputs/zip.h"

#include <caffe2/serialize/inline_container.h>

#include "runtime/files/zip.h"

namespace triage::fuzz {

std::string zip_of(std::string_view pickle, size_t storage_bytes) {
  std::string bytes;
  caffe2::serialize::PyTorchStreamWriter writer([&](const void* data, size_t size) {
    bytes.append(static_cast<const char*>(data), size);
    return size;
  });
  writer.writeRecord("data.pkl", pickle.data(), pickle.size());
  const std::string storage(storage_bytes, '\1');
  for (const char* name : {"data/0", "data/1", "data/2", "data/3"})
    writer.writeRecord(name, storage.data(), storage.size());
  writer.writeEndOfFile();
  return bytes;
}

std::optional<std::string> pickle_in(const std::string& file) {
  try {
    const files::InputFile input{std::string_view(file)};
    const files::ZipArchive archive(input);
    const files::ZipArchive::Member* const member = archive.find("data.pkl");
    return member ? std::optional(archive.read(*member)) : std::nullopt;
  } catch (const files::Malformed&) {
    return std::nullopt;
  }
}

}  // namespace triage::fuzz
