#include "bindings/lua/flags/positions.h"

#include <ATen/core/Tensor.h>
#include <triage/location.h>
#include <triage/positions.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "bindings/lua/flags/flags_library.h"
#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/tensor.h"

// Everything is a call that a recorder sees, and asks for no size: the graph holds for other batches.

namespace triage::lua {
namespace {

constexpr size_t num_kinds = 3;  // NaN, Inf, index out of bounds

class PositionSearch {
 public:
  explicit PositionSearch(lua_State* L) : L_(L) {}

  /// int64, (N, 3, D): of each kind for which `bad` has a mask (N, ...).
  at::Tensor first_of(const std::array<at::Tensor, num_kinds>& bad) const {
    std::array<at::Tensor, num_kinds> found;
    at::Tensor any;
    for (size_t kind = 0; kind < num_kinds; ++kind)
      if (bad[kind].defined()) any = found[kind] = first_true(bad[kind]);
    for (at::Tensor& indices : found)
      if (!indices.defined()) indices = call("aten::full_like", "", {any, -1, none, none, none, none, none});
    return call("aten::stack", "", {std::vector<at::Tensor>(found.begin(), found.end()), int64_t{1}});
  }

  at::Tensor either(const at::Tensor& first, const at::Tensor& second) const {
    return call("aten::where", "self", {call("aten::ge", "Scalar", {first, 0}), first, second});
  }

  at::Tensor call(const char* name, const char* overload, std::initializer_list<c10::IValue> arguments) const {
    return run_for_tensor(L_, name, overload, arguments);
  }

  const c10::IValue none = {};

 private:
  /// int64, (N, D). Dimension by dimension: the first index under which there is any, and then what is under it.
  at::Tensor first_true(at::Tensor bad) const {
    const at::Tensor any = call("aten::any", "dim", {behind(bad, 1), int64_t{1}, true});
    std::vector<at::Tensor> indices;
    while (bad.dim() > 1) {
      at::Tensor rows = bad;
      if (bad.dim() > 2) rows = call("aten::any", "dim", {behind(bad, 2), int64_t{2}, false});
      const at::Tensor numbers =
          call("aten::to", "dtype", {rows, static_cast<int64_t>(at::kFloat), false, false, none});
      indices.push_back(call("aten::argmax", "", {numbers, int64_t{1}, true}));
      if (bad.dim() == 2) break;
      at::Tensor under = indices.back();
      for (int64_t dim = 2; dim < bad.dim(); ++dim) under = call("aten::unsqueeze", "", {under, int64_t{-1}});
      bad = call("aten::squeeze", "dim", {call("aten::take_along_dim", "", {bad, under, int64_t{1}}), int64_t{1}});
    }
    const at::Tensor all = indices.size() == 1 ? indices[0] : call("aten::cat", "", {indices, int64_t{1}});
    return call("aten::where", "ScalarOther", {any, all, -1});
  }

  at::Tensor behind(const at::Tensor& tensor, int64_t dim) const {
    if (tensor.dim() <= dim + 1) return tensor;
    return call("aten::flatten", "using_ints", {tensor, dim, int64_t{-1}});
  }

  lua_State* const L_;
};

bool has_positions(const at::Tensor& z) {
  return z.defined() && z.layout() == c10::kStrided && z.dim() > 1 &&
         std::all_of(z.sizes().begin() + 1, z.sizes().end(), [](int64_t size) { return size > 0; });
}

FirstPositions* find(lua_State* L, int64_t location) {
  std::vector<FirstPositions>& kept = context(L).positions;
  if (kept.empty()) return nullptr;
  const std::string name = ErrorLocation::name(location);
  const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& first) { return first.location == name; });
  return found == kept.end() ? nullptr : &*found;
}

/// core.note_positions(z, id, nan, inf): what was just searched there.
/// core.note_positions(ids, id, num_embeddings)
int note_positions(lua_State* L) {
  if (context(L).positions.empty()) return 0;
  FirstPositions* const first = find(L, lua_tointeger(L, 2));
  const at::Tensor* const z = test_tensor(L, 1);
  if (!first || !z || !has_positions(*z)) return 0;
  const PositionSearch search(L);
  std::array<at::Tensor, num_kinds> bad;
  if (lua_isboolean(L, 3)) {
    if (lua_toboolean(L, 3)) bad[0] = search.call("aten::isnan", "", {*z});
    if (lua_toboolean(L, 4)) bad[1] = search.call("aten::isinf", "", {*z});
  } else {
    const c10::Scalar end(static_cast<int64_t>(lua_tointeger(L, 3)));
    bad[2] = search.call("aten::logical_or", "",
                         {search.call("aten::lt", "Scalar", {*z, 0}), search.call("aten::ge", "Scalar", {*z, end})});
  }
  const at::Tensor found = search.first_of(bad);
  if (!first->at.defined())
    first->at = found;
  else if (first->at.size(2) == found.size(2) && first->at.device() == found.device())
    first->at = search.either(first->at, found);
  return 0;
}

}  // namespace

void keep_positions(lua_State* L, const std::vector<std::string>& locations) {
  context(L).positions.clear();
  for (const std::string& location : locations) context(L).positions.push_back({location, {}});
}

void begin_positions(lua_State* L) {
  for (FirstPositions& first : context(L).positions) first.at.reset();
}

void append_positions(lua_State* L, std::vector<at::Tensor>& results) {
  const PositionSearch search(L);
  for (FirstPositions& first : context(L).positions) {
    if (!first.at.defined())
      first.at = search.call("aten::full", "",
                             {std::vector<int64_t>{0, static_cast<int64_t>(num_kinds), 0}, -1,
                              static_cast<int64_t>(at::kLong), search.none, search.none, search.none});
    results.push_back(std::move(first.at));
    first.at.reset();
  }
}

void add_positions(lua_State* L) {
  lua_pushcfunction(L, guarded<note_positions>);
  lua_setfield(L, -2, "note_positions");
}

}  // namespace triage::lua
