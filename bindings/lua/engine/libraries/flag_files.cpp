#include "bindings/lua/engine/libraries/flag_files.h"

#include "bindings/lua/engine/libraries/torch_files.h"
#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/effects.h"
#include "bindings/lua/state/stack.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/flags/flag_files.h"
#include "runtime/flags/forms.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"

#include <ATen/core/Dict.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/files.h>

namespace triage::lua {
namespace {

/// Of a tensor that its file does not say to be flags. Nothing tells flags from data, so that the words stay.
void look_at_ids(const std::string& path, const at::Tensor& tensor) {
  const std::vector<int64_t> taken = flags::reserve_ids(tensor);
  if (!taken.empty())
    messages::warn(
        fmt::format("{}: if these are flags, location ids {} in it are other places here: the file has no "
                    "names. Read them with flags.load, which shows ids without names as such",
                    messages::one_line(path), fmt::join(taken, ", ")));
}

/// flags.save(f, path, options)
int save_flags(lua_State* L) {
  const at::Tensor* const given = test_tensor(L, 1);
  if (!given) wrong_argument(L, {1, "flags.save", "f"}, "a flags tensor");
  const at::Tensor f = *given;
  const char* path = text_argument(L, {2, "flags.save", "path"});
  const InspectOptions options = inspect_options(L, 3, "flags.save");
  refuse_in_selection(L, "`flags.save`");
  break_for_file("flags.save");
  on_behalf_of("flags.save", [&] { flags::save(path, f, options); });
  return 0;
}

/// flags.load(path, options) -> f, codes
int load_flags(lua_State* L) {
  const char* path = text_argument(L, {1, "flags.load", "path"});
  const ConfigOptions options{config_option(L, 2, "flags.load")};
  break_for_file("flags.load");
  const flags::Loaded loaded = on_behalf_of("flags.load", [&] { return flags::load(path, options); });
  push_tensor(L, loaded.f);
  lua_createtable(L, 0, static_cast<int>(loaded.codes.size()));
  for (const CodeName& one : loaded.codes) {
    lua_pushinteger(L, to_int(one.code));
    lua_setfield(L, -2, one.name.c_str());
  }
  return 2;
}

}  // namespace

c10::IValue with_own_flags(const std::string& path, c10::IValue value) {
  const flags::FileNames names = flags::names_in(path);
  const auto own = [&](const std::string& key, const at::Tensor& tensor) {
    if (names.is_flags(key)) {
      if (tensor.dim() == 2)
        flags::KnownForms::add(tensor.scalar_type(), tensor.size(1));  // the file says that it is flags
      return flags::with_own_ids("torch.load", tensor, names.locations);
    }
    look_at_ids(path, tensor);
    return tensor;
  };
  if (value.isTensor()) return own(split_key(path).second, value.toTensor());
  if (!value.isGenericDict()) return value;
  for (const auto& entry : value.toGenericDict())
    if (entry.key().isString() && entry.value().isTensor())
      entry.setValue(own(entry.key().toStringRef(), entry.value().toTensor()));
  return value;
}

void add_flag_files(lua_State* L) {
  static const LimitedFunction functions[] = {{"save", guarded<save_flags>, 3}, {"load", guarded<load_flags>, 2}};
  lua_getglobal(L, "flags");
  set_limited(L, "flags.", functions);
  lua_pop(L, 1);
}

}  // namespace triage::lua
