#include "runtime/policy/state/state_file.h"

#include <ATen/core/Dict.h>
#include <ATen/core/jit_type.h>
#include <fmt/format.h>
#include <triage/error.h>
#include <triage/files.h>

#include "runtime/messages/printable.h"

namespace triage::policy {
namespace {

using Dict = c10::impl::GenericDict;

constexpr const char* format_name = "triage state 1";

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& policy, const std::string& why) {
  throw FileError(
      fmt::format("cannot load the state of policy '{}' from \"{}\": {}; expected a file that "
                  "Policy::save_state wrote for this policy",
                  policy, file.string(), why));
}

std::optional<std::string> text_of(const Dict& dict, const char* name) {
  const auto found = dict.find(name);
  if (found == dict.end() || !found->value().isString()) return std::nullopt;
  return found->value().toStringRef();
}

/// A tensor that says more elements than its memory has would take that memory when it is copied.
bool is_whole(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().layout() == c10::kStrided &&
         value.toTensor().is_non_overlapping_and_dense();
}

KeptState tensors_of(const c10::IValue& value) {
  if (!value.isGenericDict()) return nullptr;
  auto tensors = std::make_shared<StateTensors>();
  for (const auto& item : value.toGenericDict()) {
    if (!item.key().isString() || !is_whole(item.value())) return nullptr;
    tensors->emplace_back(item.key().toStringRef(), as_kept(item.value().toTensor()));
  }
  return tensors;
}

}  // namespace

void write_state(const std::filesystem::path& file, const std::string& policy, const StateOfKeys& keys) {
  Dict all = new_dict();
  for (const auto& [key, state] : keys) {
    Dict tensors = new_dict();
    for (const auto& [name, tensor] : *state) tensors.insert(name, tensor);
    all.insert(key, tensors);
  }
  Dict whole = new_dict();
  whole.insert("format", std::string(format_name));
  whole.insert("policy", policy);
  whole.insert("keys", all);
  save_file(file.string(), whole);
}

StateOfKeys read_state(const std::filesystem::path& file, const std::string& policy) {
  const c10::IValue value = load_file(file.string());
  if (!value.isGenericDict()) refuse(file, policy, "it holds no state");
  const Dict whole = value.toGenericDict();
  const auto format = text_of(whole, "format");
  if (format != format_name)
    refuse(file, policy, format ? "its format is '" + messages::one_line(*format) + "'" : "it holds no state");
  const auto of = text_of(whole, "policy");
  if (of != policy)
    refuse(file, policy, of ? "it holds the state of policy '" + messages::one_line(*of) + "'" : "it names no policy");
  const auto keys = whole.find("keys");
  if (keys == whole.end() || !keys->value().isGenericDict()) refuse(file, policy, "it has no keys");
  StateOfKeys all;
  for (const auto& item : keys->value().toGenericDict()) {
    KeptState state = item.key().isString() ? tensors_of(item.value()) : nullptr;
    if (!state) refuse(file, policy, "a key in it has no tensors by name");
    all.emplace_back(item.key().toStringRef(), std::move(state));
  }
  return all;
}

}  // namespace triage::policy
