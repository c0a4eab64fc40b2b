#include "bindings/lua/engine/policies/policy_fixtures.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/flags.h>

#include <algorithm>

#include "bindings/lua/state/state.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/state/userdata.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/tensors/creation.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/diagnose/bits.h"
#include "runtime/files/formats.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"

namespace triage::lua {
namespace {

/// The key of an entry below the top, in a walk over a table.
std::string entry_name(lua_State* L, const std::string& where) {
  if (lua_type(L, -2) == LUA_TSTRING) return lua_tostring(L, -2);
  throw LoadError(where + ": expected entries by name, as in { z = {{1.0, 2.0}} }, got the key " + describe(L, -2));
}

std::string field_of_test(size_t index, const char* field) {
  return fmt::format("policy: test {}: field '{}'", index, field);
}

std::string text_at_top(lua_State* L) {
  size_t size = 0;
  const char* const text = lua_tolstring(L, -1, &size);
  return {text, size};
}

// While the policy is loaded

/// The names of the entries of the table at the top must be among `known`; with `all`, each of these has one.
void check_names(lua_State* L, const std::string& where, const std::vector<std::string>& known, bool all) {
  std::vector<std::string> found;
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    found.push_back(entry_name(L, where));
    if (std::find(known.begin(), known.end(), found.back()) == known.end())
      throw LoadError(fmt::format("{}: the policy has no {} '{}'{}; there {} {}", where, all ? "input" : "output",
                                  found.back(), did_you_mean(close_words(found.back(), {known.begin(), known.end()})),
                                  known.size() == 1 ? "is" : "are",
                                  known.empty() ? "none with names" : fmt::format("{}", fmt::join(known, ", "))));
  }
  for (const std::string& name : known)
    if (all && std::find(found.begin(), found.end(), name) == found.end())
      throw LoadError(where + ": there is no entry for the input '" + name + "'");
}

/// The files that the table at the top names.
void read_files(lua_State* L, const std::string& where, const FilesOfLoad& files, FixtureFiles& found) {
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const std::string path = text_at_top(L), file = files::split_key_of_name(path).first;
    if (!files::has_known_ending(file))
      throw LoadError(where + ": expected a .pt, .pth, .npy or .safetensors file in the folder of the policy, got '" +
                      messages::one_line(path.substr(0, 255)) + "'");
    if (found.count(file) > 0) continue;
    try {
      found[file] = files.read(file);
    } catch (const FileError& error) {
      throw FileError(where + ": " + error.what());
    }
  }
}

// In a test

/// The numbers at the top, as torch.tensor makes a tensor of them.
at::Tensor tensor_made(lua_State* L, std::optional<at::ScalarType> dtype) {
  lua_pushcfunction(L, guarded<create_tensor>);
  lua_pushvalue(L, -2);
  lua_newtable(L);
  if (dtype) {
    push_dtype(L, *dtype);
    lua_setfield(L, -2, "dtype");
  }
  lua_call(L, 2, 1);
  at::Tensor tensor = check_tensor(L, -1);
  lua_pop(L, 1);
  return tensor;
}

/// The same, of numbers that the dtype can hold: what it rounds is another number only for floats.
at::Tensor tensor_of_numbers(lua_State* L, std::optional<at::ScalarType> dtype) {
  if (!dtype || c10::isComplexType(*dtype)) return tensor_made(L, dtype);
  const at::Tensor given = tensor_made(L, std::nullopt);
  if (given.scalar_type() == at::kBool || given.is_complex()) return tensor_made(L, dtype);
  const at::Tensor wide = tensor_made(L, given.is_floating_point() ? at::kDouble : at::kLong), held = wide.to(*dtype);
  const at::Tensor changed = held.is_floating_point() ? held.isinf().logical_and(wide.to(at::kDouble).isfinite())
                                                      : held.to(wide.scalar_type()).ne(wide);
  if (changed.any().item<bool>())
    throw PolicyError(
        fmt::format("{} is no {}", wide.masked_select(changed)[0].item<double>(), graph::dtype_name(*dtype)));
  return held;
}

at::Tensor tensor_of_file(lua_State* L, const std::string& path, const FixtureFiles& files) {
  const auto found = files.find(files::split_key_of_name(path).first);
  if (found == files.end()) throw PolicyError("'" + path + "' was not read when the policy was loaded");
  charge(L, 0, found->second->size());
  const c10::IValue value = files::load_bytes(path, *found->second);
  if (value.isTensor()) return value.toTensor();
  throw PolicyError("'" + path + "' holds several values; name one of them: '" + path + ":KEY'");
}

/// The entry at the top.
at::Tensor fixture(lua_State* L, std::optional<at::ScalarType> dtype, const FixtureFiles& files) {
  if (const at::Tensor* const tensor = test_tensor(L, -1)) return *tensor;
  if (lua_type(L, -1) == LUA_TSTRING) return tensor_of_file(L, text_at_top(L), files);
  return tensor_of_numbers(L, dtype);
}

std::string difference(const std::string& name, const at::Tensor& expected, const at::Tensor& got) {
  if (!diagnose::same_kind(expected, got))
    return fmt::format("'{}' is {}, expected {}", name, diagnose::kind_of(got), diagnose::kind_of(expected));
  if (diagnose::same_bits(expected, got)) return "";
  if (got.is_complex()) return difference(name, at::view_as_real(expected), at::view_as_real(got));
  const double close = got.scalar_type() == at::kHalf ? 1e-3 : got.scalar_type() == at::kBFloat16 ? 1e-2 : 1e-5;
  if (got.is_floating_point() &&
      at::allclose(got.to(at::kDouble), expected.to(at::kDouble), close, close, /*equal_nan=*/true))
    return "";
  const diagnose::BitDifference first = diagnose::first_difference(got, expected);
  return fmt::format("'{}' differs in sample {}: {}, expected {}", name, first.row, first.a, first.b);
}

/// The list of texts at the top, sorted.
std::vector<std::string> sorted_texts(lua_State* L, const std::string& name) {
  std::vector<std::string> texts;
  if (!lua_istable(L, -1))
    throw PolicyError("`expect`: '" + name + "' is flags: expected a list of code names for each sample, got " +
                      describe(L, -1));
  for (lua_Integer i = 1; i <= static_cast<lua_Integer>(lua_rawlen(L, -1)); ++i, lua_pop(L, 1)) {
    if (lua_rawgeti(L, -1, i) != LUA_TSTRING)
      throw PolicyError("`expect`: '" + name + "' is flags: expected the name of a code, such as \"NAN\", got " +
                        describe(L, -1));
    texts.push_back(text_at_top(L));
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

std::string codes_text(const std::vector<std::string>& codes) {
  return codes.empty() ? "none" : fmt::format("{}", fmt::join(codes, ", "));
}

/// Of flags, and the table at the top with a list of codes for each sample.
std::string difference_of_codes(lua_State* L, const std::string& name, const at::Tensor& flags,
                                const CodeNames& codes) {
  if (!lua_istable(L, -1))
    throw PolicyError("`expect`: '" + name + "' is flags: expected a list of code names for each sample, as in " +
                      name + " = {{\"NAN\"}, {}}, got " + describe(L, -1));
  const auto samples = static_cast<int64_t>(lua_rawlen(L, -1));
  if (samples != flags.size(0)) return fmt::format("'{}' has {} samples, expected {}", name, flags.size(0), samples);
  const auto all = flags::unpack_all(flags, {.codes = codes});
  for (int64_t i = 0; i < samples; ++i) {
    lua_rawgeti(L, -1, i + 1);
    const std::vector<std::string> expected = sorted_texts(L, name);
    lua_pop(L, 1);
    std::vector<std::string> got;
    for (const flags::UnpackedError& error : all[static_cast<size_t>(i)]) got.push_back(error.code_name);
    std::sort(got.begin(), got.end());
    if (got != expected)
      return fmt::format("'{}' differs in sample {}: the codes are {}, expected {}", name, i, codes_text(got),
                         codes_text(expected));
  }
  return "";
}

}  // namespace

void check_fixtures(lua_State* L, const std::string& where) {
  lua_pushnil(L);
  if (lua_next(L, -2) == 0) throw LoadError(where + ": the table has no entries");
  lua_pop(L, 2);
  for (lua_pushnil(L); lua_next(L, -2); lua_pop(L, 1)) {
    const std::string name = entry_name(L, where);
    const int type = lua_type(L, -1);
    if (type != LUA_TTABLE && type != LUA_TSTRING && !test_tensor(L, -1))
      throw LoadError(where + ": '" + name + "': expected a table of numbers, a tensor, or the name of a file, got " +
                      describe(L, -1));
  }
}

FixtureFiles load_fixtures(lua_State* L, const PolicyDefinition& policy, const FilesOfLoad& files) {
  FixtureFiles found;
  if (policy.tests == LUA_NOREF) return found;
  lua_rawgeti(L, LUA_REGISTRYINDEX, policy.tests);
  const size_t count = lua_rawlen(L, -1);
  for (size_t i = 1; i <= count; ++i, lua_pop(L, 1)) {
    if (lua_rawgeti(L, -1, static_cast<lua_Integer>(i)) != LUA_TTABLE) continue;
    for (const char* field : {"args", "expect"}) {
      const bool is_args = std::string_view(field) == "args";
      if (push_own_field(L, -1, field) == LUA_TTABLE) {
        check_names(L, field_of_test(i, field), is_args ? policy.signature.inputs : policy.signature.outputs, is_args);
        read_files(L, field_of_test(i, field), files, found);
      }
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
  return found;
}

std::vector<at::Tensor> fixture_inputs(lua_State* L, const PolicyDefinition& policy) {
  const Signature& signature = policy.signature;
  std::vector<at::Tensor> inputs;
  for (size_t i = 0; i < signature.inputs.size(); ++i) {
    std::optional<at::ScalarType> dtype;
    if (i < signature.input_types.size() && signature.input_types[i] && !signature.input_types[i]->flags &&
        signature.input_types[i]->kind == DTypeKind::exact)
      dtype = signature.input_types[i]->dtype;
    push_own_field(L, -1, signature.inputs[i].c_str());
    inputs.push_back(fixture(L, dtype, policy.fixtures));
    lua_pop(L, 1);
  }
  return inputs;
}

std::string unexpected(lua_State* L, const PolicyDefinition& policy, at::ArrayRef<at::Tensor> outputs,
                       const std::vector<bool>& is_flags) {
  const std::vector<std::string>& names = policy.signature.outputs;
  for (size_t i = 0; i < names.size() && i < outputs.size(); ++i) {
    std::string found;
    if (push_own_field(L, -1, names[i].c_str()) != LUA_TNIL)
      found = i < is_flags.size() && is_flags[i]
                  ? difference_of_codes(L, names[i], outputs[i], policy.signature.codes)
                  : difference(names[i], fixture(L, outputs[i].scalar_type(), policy.fixtures).to(outputs[i].device()),
                               outputs[i].detach());
    lua_pop(L, 1);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace triage::lua
