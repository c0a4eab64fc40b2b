// dynamic_shapes = "batch", or {x = {[0] = true, [1] = "width", [2] = {name = "depth", min = 1, max = 64}}}
#include "bindings/lua/export/dynamic_shapes.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"

#include <algorithm>
#include <map>
#include <utility>

namespace triage::lua {
namespace {

class DynamicShapesReader {
 public:
  DynamicShapesReader(lua_State* L, const std::vector<std::string>& names, const std::vector<at::Tensor>& inputs)
      : L_(L), names_(names), inputs_(inputs) {}

  ExportOptions run(int index) {
    index = lua_absindex(L_, index);
    if (lua_type(L_, index) == LUA_TSTRING && std::string(lua_tostring(L_, index)) == "batch") {
      add_batch();
    } else if (lua_istable(L_, index)) {
      for (lua_pushnil(L_); lua_next(L_, index); lua_pop(L_, 1)) read_input(input_index());
    } else {
      throw InputError("triage.export: dynamic_shapes: expected \"batch\" or a table from inputs to dimensions, got " +
                       describe(L_, index));
    }
    const auto place = [](const DynamicDim& d) { return std::pair(d.input, d.dim); };
    std::sort(options_.dynamic_dims.begin(), options_.dynamic_dims.end(),
              [&](const DynamicDim& a, const DynamicDim& b) { return place(a) < place(b); });
    name_the_nameless();
    return std::move(options_);
  }

 private:
  /// Dimension 0 of every input that has the size of the first one's.
  void add_batch() {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].dim() > 0 && inputs_[0].dim() > 0 && inputs_[i].size(0) == inputs_[0].size(0))
        options_.dynamic_dims.push_back({i, 0, "s0"});
  }

  /// Key at -2: a name or a position from 1.
  size_t input_index() const {
    if (lua_type(L_, -2) == LUA_TSTRING) {
      const auto found = std::find(names_.begin(), names_.end(), lua_tostring(L_, -2));
      if (found != names_.end()) return static_cast<size_t>(found - names_.begin());
      std::string known;
      for (const std::string& name : names_) known += (known.empty() ? "" : ", ") + name;
      throw InputError("triage.export: dynamic_shapes names '" + std::string(lua_tostring(L_, -2)) +
                       "'; the inputs are " + (known.empty() ? "none" : known));
    }
    const lua_Integer position = lua_isinteger(L_, -2) ? lua_tointeger(L_, -2) : 0;
    if (position < 1 || position > static_cast<lua_Integer>(inputs_.size()))
      throw InputError("triage.export: dynamic_shapes has an entry for " + describe(L_, -2) +
                       "; expected the name of an input, or its position from 1");
    return static_cast<size_t>(position - 1);
  }

  void read_input(size_t input) {
    if (!lua_istable(L_, -1))
      throw InputError("triage.export: dynamic_shapes." + names_[input] +
                       ": expected a table from dimensions to names, such as {[0] = \"batch\"}, got " +
                       describe(L_, -1));
    const int dims = lua_gettop(L_);
    for (lua_pushnil(L_); lua_next(L_, dims); lua_pop(L_, 1)) read_dim(input);
  }

  void read_dim(size_t input) {
    if (!lua_isinteger(L_, -2))
      throw InputError("triage.export: dynamic_shapes." + names_[input] +
                       ": expected a dimension, an integer from 0, got " + describe(L_, -2));
    int64_t dim = lua_tointeger(L_, -2);
    if (dim < 0) dim += inputs_[input].dim();
    for (const DynamicDim& known : options_.dynamic_dims)
      if (known.input == input && known.dim == dim)
        throw InputError("triage.export: dynamic_shapes." + names_[input] + " has two entries for dimension " +
                         std::to_string(dim));
    std::string symbol;
    if (lua_type(L_, -1) == LUA_TSTRING)
      symbol = lua_tostring(L_, -1);
    else if (lua_istable(L_, -1))
      symbol = read_bounds(input, dim);
    else if (!lua_isboolean(L_, -1) || !lua_toboolean(L_, -1))
      throw InputError("triage.export: dynamic_shapes." + names_[input] +
                       ": expected true, a name, or {name = ..., min = ..., max = ...}, got " + describe(L_, -1));
    options_.dynamic_dims.push_back({input, dim, symbol});
  }

  /// {name, min, max}, each of which may be left out.
  std::string read_bounds(size_t input, int64_t dim) {
    SizeBounds bounds;
    std::string symbol;
    const auto fail = [&](const std::string& key) {
      throw InputError("triage.export: dynamic_shapes." + names_[input] + ": '" + key +
                       "' is unknown or has the wrong type (" + describe(L_, -1) +
                       "); options are name (a string), min and max (integers)");
    };
    for (lua_pushnil(L_); lua_next(L_, -2); lua_pop(L_, 1)) {
      const std::string key = lua_type(L_, -2) == LUA_TSTRING ? lua_tostring(L_, -2) : describe(L_, -2);
      if (key == "name" && lua_type(L_, -1) == LUA_TSTRING)
        symbol = lua_tostring(L_, -1);
      else if ((key == "min" || key == "max") && lua_isinteger(L_, -1))
        (key == "min" ? bounds.min : bounds.max) = lua_tointeger(L_, -1);
      else
        fail(key);
    }
    if (symbol.empty()) {
      nameless_bounds_[{input, dim}] = bounds;
      return symbol;
    }
    const auto [known, fresh] = options_.bounds.emplace(symbol, bounds);
    if (!fresh && (known->second.min != bounds.min || known->second.max != bounds.max))
      throw InputError("triage.export: dynamic_shapes gives '" + symbol + "' two different ranges; give it once");
    return symbol;
  }

  void name_the_nameless() {
    int next = 0;
    const auto taken = [&](const std::string& name) {
      return std::any_of(options_.dynamic_dims.begin(), options_.dynamic_dims.end(),
                         [&](const DynamicDim& dim) { return dim.symbol == name; });
    };
    for (DynamicDim& dim : options_.dynamic_dims) {
      if (!dim.symbol.empty()) continue;
      std::string name;
      do name = "s" + std::to_string(next++);
      while (taken(name));
      dim.symbol = name;
      if (const auto found = nameless_bounds_.find({dim.input, dim.dim}); found != nameless_bounds_.end())
        options_.bounds[name] = found->second;
    }
  }

  lua_State* L_;
  const std::vector<std::string>& names_;
  const std::vector<at::Tensor>& inputs_;
  ExportOptions options_;
  std::map<std::pair<size_t, int64_t>, SizeBounds> nameless_bounds_;  // by input and dimension
};

}  // namespace

ExportOptions read_export_options(lua_State* L, int index, const std::vector<std::string>& input_names,
                                  const std::vector<at::Tensor>& inputs, std::string& name) {
  ExportOptions options;
  if (lua_isnoneornil(L, index)) return options;
  table_argument(L, {index, "triage.export", "options"});
  for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
    const std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    if (key == "name" && lua_type(L, -1) == LUA_TSTRING)
      name = lua_tostring(L, -1);
    else if (key == "dynamic_shapes")
      options = DynamicShapesReader(L, input_names, inputs).run(-1);
    else
      throw InputError(
          "triage.export: option '" + key +
          "' is unknown or has the wrong type; options are dynamic_shapes (\"batch\" or a table) and name (a "
          "string)");
  }
  return options;
}

}  // namespace triage::lua
