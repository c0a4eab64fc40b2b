#pragma once
#include <ATen/core/Tensor.h>
#include <triage/export.h>

#include <lua.hpp>

#include <string>
#include <vector>

namespace triage::lua {

/// The options of triage.export in the table at `index` (nil: none). `name` is set where they give one. Throws
/// InputError.
ExportOptions read_export_options(lua_State* L, int index, const std::vector<std::string>& input_names,
                                  const std::vector<at::Tensor>& inputs, std::string& name);

}  // namespace triage::lua
