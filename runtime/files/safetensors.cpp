// The .safetensors format: 8 bytes length of a JSON header, the header, the data. The rules that the reader holds
// files to are those of https://github.com/huggingface/safetensors: the tensors cover the data exactly, without
// overlap or gap.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include <triage/files.h>
#include "runtime/files/dtype.h"
#include "runtime/files/formats.h"
#include "runtime/files/json.h"

namespace triage::files {
namespace {

using Json = nlohmann::json;

constexpr uint64_t longest_header = 100'000'000;  // the limit of the format

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;
  std::optional<at::ScalarType> dtype;  // none: this LibTorch does not have it
  std::vector<int64_t> shape;
  uint64_t begin, end;  // within the data
};

uint64_t unsigned_integer(const Json& value, const std::string& name, const char* field) {
  if (!value.is_number_unsigned())
    throw Malformed(fmt::format("{} of \"{}\" holds something other than sizes", field, name));
  return value.get<uint64_t>();
}

const Json& field(const Json& entry, const std::string& name, const char* key, Json::value_t type) {
  if (!entry.is_object() || !entry.contains(key) || entry[key].type() != type) {
    throw Malformed(fmt::format("\"{}\" has no valid \"{}\" in the header", name, key));
  }
  return entry[key];
}

SafetensorsEntry parse_entry(const std::string& name, const Json& json) {
  std::string dtype_name = field(json, name, "dtype", Json::value_t::string);
  const auto dtype = find_dtype(&DtypeNames::safetensors, dtype_name);
  SafetensorsEntry entry{name, dtype_name, dtype, {}, 0, 0};
  const Json& shape = field(json, name, "shape", Json::value_t::array);
  if (shape.size() > 64) throw Malformed(fmt::format("\"{}\" has {} dimensions; the limit is 64", name, shape.size()));
  for (const Json& size : shape) {
    uint64_t value = unsigned_integer(size, name, "shape");
    if (value > INT64_MAX) throw Malformed(fmt::format("\"{}\" is too large for any memory", name));
    entry.shape.push_back(static_cast<int64_t>(value));
  }
  const Json& offsets = field(json, name, "data_offsets", Json::value_t::array);
  if (offsets.size() != 2) throw Malformed(fmt::format("\"{}\" has {} data_offsets; expected 2", name, offsets.size()));
  entry.begin = unsigned_integer(offsets[0], name, "data_offsets");
  entry.end = unsigned_integer(offsets[1], name, "data_offsets");
  const uint64_t bytes = checked_bytes(entry.shape, dtype ? c10::elementSize(*dtype) : 1);
  if (entry.end < entry.begin || (dtype && entry.end - entry.begin != bytes)) {
    throw Malformed(fmt::format("\"{}\", {} ({}), needs {} bytes, but its data_offsets are {} to {}", name, dtype_name,
                                fmt::join(entry.shape, ", "), bytes, entry.begin, entry.end));
  }
  return entry;
}

void check_cover(std::vector<SafetensorsEntry> entries, uint64_t data_size) {
  std::sort(entries.begin(), entries.end(), [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != at) {
      throw Malformed(fmt::format(
          "\"{}\" starts at byte {} of the data; expected {}: tensors must follow each other without overlap or gap",
          entry.name, entry.begin, at));
    }
    at = entry.end;
  }
  if (at != data_size) {
    throw Malformed(fmt::format("its tensors need {} bytes of data, but there are {}; it is {}", at, data_size,
                                at > data_size ? "truncated" : "damaged"));
  }
}

std::vector<SafetensorsEntry> read_entries(const InputFile& file, uint64_t& data_offset) {
  uint64_t length = 0;
  if (file.size() < 8)
    throw Malformed(fmt::format("expected a .safetensors file, but this is {}", describe_content(file)));
  file.read(0, &length, 8);
  if (length > longest_header || length > file.size() - 8) {
    throw Malformed(fmt::format("expected a .safetensors file, but this is {} (a header of {} bytes in a file of {})",
                                describe_content(file), length, file.size()));
  }
  std::string text(length, '\0');
  file.read(8, text.data(), length);
  if (text.empty() || text[0] != '{')
    throw Malformed(fmt::format("expected a .safetensors file, but this is {}", describe_content(file)));
  const Json header = parse_json(text, "its header");
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") entries.push_back(parse_entry(name, json));
  }
  data_offset = 8 + length;
  check_cover(entries, file.size() - data_offset);
  return entries;
}

c10::IValue read_tensor(const InputFile& file, uint64_t data_offset, const SafetensorsEntry& entry) {
  if (!entry.dtype)
    return not_read(
        fmt::format("it has dtype {}, which this LibTorch does not have; convert it before saving", entry.dtype_name));
  at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(*entry.dtype));
  file.read(data_offset + entry.begin, tensor.data_ptr(), entry.end - entry.begin);
  if (entry.dtype == at::kBool) normalize_bools(tensor.data_ptr(), entry.end - entry.begin);
  return tensor;
}

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors named_tensors(const c10::IValue& value) {
  if (value.isTensor()) return {{"tensor", plain_values(value.toTensor())}};
  if (!value.isGenericDict())
    throw Malformed(".safetensors files hold tensors by name: give a tensor or a dict of tensors; .pt files hold more");
  NamedTensors tensors;
  for (const auto& pair : value.toGenericDict()) {
    if (!pair.key().isString() || !pair.value().isTensor()) {
      throw Malformed(
          ".safetensors files hold tensors by name, and this dict holds something else; .pt files hold more");
    }
    tensors.emplace_back(pair.key().toStringRef(), plain_values(pair.value().toTensor()));
  }
  return tensors;
}

}  // namespace

c10::IValue read_safetensors(const InputFile& file, const std::string& key) {
  uint64_t data_offset = 0;
  std::vector<SafetensorsEntry> entries = read_entries(file, data_offset);
  bool has_key =
      std::any_of(entries.begin(), entries.end(), [&](const SafetensorsEntry& entry) { return entry.name == key; });
  c10::impl::GenericDict tensors(c10::StringType::get(), c10::AnyType::get());
  for (const SafetensorsEntry& entry : entries) {
    if (!has_key || entry.name == key) tensors.insert(entry.name, read_tensor(file, data_offset, entry));
  }
  return tensors;
}

void write_safetensors(OutputFile& file, const c10::IValue& value) {
  NamedTensors tensors = named_tensors(value);
  // Wide elements first, so that every tensor is aligned for its dtype; then by name: equal content is equal bytes.
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(-static_cast<int64_t>(a.second.element_size()), a.first) <
           std::pair(-static_cast<int64_t>(b.second.element_size()), b.first);
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const DtypeNames* names = names_of(tensor.scalar_type());
    if (!names || *names->safetensors == '\0') {
      throw Malformed(fmt::format("\"{}\" has dtype {}, which .safetensors does not have; write .pt, or convert first",
                                  name, dtype_name(tensor.scalar_type())));
    }
    if (name == "__metadata__")
      throw Malformed("the name \"__metadata__\" is reserved in .safetensors files; choose another one");
    uint64_t end = at + static_cast<uint64_t>(tensor.numel()) * tensor.element_size();
    header[name] = {{"dtype", names->safetensors}, {"shape", tensor.sizes().vec()}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  uint64_t length = text.size();
  file.write(&length, 8);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) file.write(tensor.data_ptr(), tensor.numel() * tensor.element_size());
}

}  // namespace triage::files
