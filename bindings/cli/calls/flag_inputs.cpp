#include "bindings/cli/calls/flag_inputs.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>
#include <triage/flags.h>

#include <algorithm>

#include "bindings/cli/calls/inputs.h"
#include "bindings/cli/terminal.h"
#include "runtime/flags/flag_files.h"
#include "runtime/flags/forms.h"
#include "runtime/messages/printable.h"

namespace triage::cli {
namespace {

/// What says that it is flags may be of a configuration that this process does not know.
bool has_form_of_flags(const at::Tensor& tensor) {
  if (tensor.dim() == 2) flags::KnownForms::add(tensor.scalar_type(), tensor.size(1));
  return flags::has_known_form(tensor);
}

/// Only of codes that the flags have.
void add_codes(CodeNames& codes, const flags::FileNames& names, const at::Tensor& f, const GivenInput& input) {
  for (const CodeName& one : names.codes) {
    if (!err::has_code(f, one.code).any().item<bool>()) continue;
    const auto known =
        std::find_if(codes.begin(), codes.end(), [&](const CodeName& other) { return other.code == one.code; });
    if (known != codes.end() && known->name != one.name)
      throw UsageError(fmt::format(
          "--input {}={}: the file calls code {} {}, and the policy, or an input before, calls it {}; the record would "
          "tell of both by one name. Give one of them another of the free codes 4, 8 and 12",
          input.name, input.source, to_int(one.code), one.name, known->name));
    if (known == codes.end()) codes.push_back(one);
  }
  std::sort(codes.begin(), codes.end(), [](const CodeName& a, const CodeName& b) { return a.code < b.code; });
}

/// Nothing tells flags from data where neither the policy nor the file says which they are: then the words stay.
void look_at_ids(const GivenInput& input, const at::Tensor& tensor) {
  const std::vector<int64_t> taken = flags::reserve_ids(tensor);
  if (taken.empty()) return;
  const std::string text = fmt::format(
      "--input {0}={1}: if these are flags, location ids {2} in it are other places of this policy, for the file has "
      "no "
      "names. Declare them as flags: signature = {{ {0} = Tensor(error_t) }}",
      input.name, input.source, fmt::join(taken, ", "));
  say(stderr, "triage: {}\n", messages::one_line(text));
}

}  // namespace

const TensorSpec* type_of(const Signature& signature, const std::string& input) {
  const auto place = std::find(signature.inputs.begin(), signature.inputs.end(), input);
  const auto index = static_cast<size_t>(place - signature.inputs.begin());
  return index < signature.input_types.size() && signature.input_types[index] ? &*signature.input_types[index]
                                                                              : nullptr;
}

at::Tensor read_input(const GivenInput& input, c10::Device device, CodeNames& codes) {
  if (const std::optional<at::Tensor> generated = generate(input.source)) return generated->to(device);
  at::Tensor tensor = load_tensor(input.source);
  const bool declared = input.type && input.type->flags;
  const std::string key = split_key(input.source).second;
  const flags::FileNames names = flags::names_in(input.source);
  const bool named = names.is_flags(key) || (key.empty() && names.tensors.size() == 1);
  if ((named || declared) && has_form_of_flags(tensor)) {
    if (named) add_codes(codes, names, tensor, input);
    tensor = flags::with_own_ids("--input", tensor, named ? names.locations : std::map<int64_t, std::string>());
  } else {
    look_at_ids(input, tensor);
  }
  return tensor.to(device);
}

}  // namespace triage::cli
