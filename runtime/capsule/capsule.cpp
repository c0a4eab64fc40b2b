#include "runtime/capsule/capsule.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <torch/version.h>
#include <triage/error.h>
#include <triage/files.h>
#include <triage/version.h>

#include <chrono>
#include <string_view>

#include "runtime/backends/fused/tape/instructions.h"
#include "runtime/files/checksum.h"
#include "runtime/files/disk.h"
#include "runtime/files/json.h"
#include "runtime/messages/printable.h"

namespace triage::capsule {
namespace {

using files::Malformed;

std::string now() {
  const auto second = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(second)));
}

Json machine() {
  return {{"architecture", fused::architecture()},
          {"features", fused::processor_features()},
          {"instructions", fused::instruction_sets().front()->name},
          {"threads", at::get_num_threads()}};
}

std::string string_in(const c10::impl::GenericDict& dict, const char* key) {
  const auto found = dict.find(key);
  if (found == dict.end() || !found->value().isString()) throw Malformed("it is no capsule");
  return found->value().toStringRef();
}

std::string checksum_of(const at::Tensor& memory) {
  return files::checksum_text(
      files::checksum(std::string_view(static_cast<const char*>(memory.data_ptr()), memory.nbytes())));
}

std::vector<at::Tensor> memories_of(const c10::IValue& list, const Json& checksums) {
  if (!list.isList()) throw Malformed("it has no tensors");
  std::vector<at::Tensor> memories;
  for (const c10::IValue& memory : list.toListRef()) {
    if (!memory.isTensor()) throw Malformed("one of its tensors is none");
    memories.push_back(memory.toTensor().detach().contiguous());
    if (memories.size() > checksums.size() || checksums[memories.size() - 1] != checksum_of(memories.back()))
      throw Malformed("it is damaged: a tensor does not have the checksum that it states");
  }
  return memories;
}

Capsule parse(const c10::IValue& value) {
  if (!value.isGenericDict()) throw Malformed("it is no capsule");
  const c10::impl::GenericDict dict = value.toGenericDict();
  if (!dict.keyType()->isSubtypeOf(*c10::StringType::get())) throw Malformed("it is no capsule");
  const std::string json = string_in(dict, "capsule");
  if (string_in(dict, "checksum") != files::checksum_text(files::checksum(json)))
    throw Malformed("it is damaged: its text does not have the checksum that it states");
  Capsule capsule;
  files::check_json(json, "its text");
  capsule.facts = Json::parse(json);  // in the order of the file
  const int64_t format = integer(member(capsule.facts, "format"), "format");
  if (format != capsule_format)
    throw Malformed(fmt::format("it has format {}, and this version of triage ({}) reads format {}", format, version(),
                                capsule_format));
  const auto memories = dict.find("memories");
  if (memories == dict.end()) throw Malformed("it has no tensors");
  capsule.memories = memories_of(memories->value(), member(capsule.facts, "memories"));
  return capsule;
}

}  // namespace

void save(const std::string& path, Json facts, const SavedTensors& tensors) {
  facts["tensors"] = tensors.layouts();
  facts["memories"] = Json::array();
  for (const at::Tensor& memory : tensors.memories()) facts["memories"].push_back(checksum_of(memory));
  const std::string json = facts.dump(1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  c10::impl::GenericList memories(c10::AnyType::get());
  for (const at::Tensor& memory : tensors.memories()) memories.push_back(memory);
  dict.insert("capsule", json);
  dict.insert("checksum", files::checksum_text(files::checksum(json)));
  dict.insert("memories", memories);
  save_file(path, dict);
}

Capsule load(const std::string& path) {
  const c10::IValue value = load_file(path);
  try {
    return parse(value);
  } catch (const Malformed& error) {
    throw FileError(fmt::format("cannot replay \"{}\": {}", path, messages::one_line(error.what())));
  }
}

Json common_facts() {
  Json facts = {{"format", capsule_format}, {"kind", ""}, {"name", ""}, {"why", ""}, {"when", now()}};
  facts["versions"] = {{"triage", version()}, {"libtorch", TORCH_VERSION}};
  facts["machine"] = machine();
  facts.update(surroundings());
  return facts;
}

std::vector<std::string> differences_of_machine(const Json& facts) {
  std::vector<std::string> notes;
  const auto compare = [&](const char* part, const char* name, const std::string& here, const char* what) {
    const Json& value = member(member(facts, part), name);
    const std::string there = value.is_string() ? value.get<std::string>() : value.dump();
    if (there != here)
      notes.push_back(
          fmt::format("it was recorded with {} {}, and here {} is {}", what, messages::one_line(there), what, here));
  };
  compare("versions", "triage", version(), "triage");
  compare("versions", "libtorch", TORCH_VERSION, "LibTorch");
  compare("machine", "architecture", fused::architecture(), "the processor");
  compare("machine", "instructions", fused::instruction_sets().front()->name, "the instruction set of fused loops");
  compare("machine", "threads", std::to_string(at::get_num_threads()), "the number of threads");
  return notes;
}

}  // namespace triage::capsule
