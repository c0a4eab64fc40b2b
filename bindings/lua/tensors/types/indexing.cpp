#include "bindings/lua/tensors/types/indexing.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"

#include <ATen/ATen.h>

#include <string_view>

namespace triage::lua {
bool is_text(lua_State* L, int index, std::string_view text) {
  return lua_type(L, index) == LUA_TSTRING && text == lua_tostring(L, index);
}

namespace {

/// One step from a tensor to a view of it.
struct ViewStep {
  enum Kind { select, slice, unsqueeze } kind;
  int64_t dim = 0;
  c10::IValue start, end;  // `start` is the index of a select; None is open
  int64_t stride = 1;
};

/// An index taken apart: views first, then at most one gather with tensors, as PyTorch does it.
struct Index {
  std::vector<ViewStep> steps;
  std::vector<at::Tensor> gather;  // by dimension of the view; undefined: all of it
  bool by_mask = false;
  bool gathers() const {
    for (const auto& tensor : gather)
      if (tensor.defined()) return true;
    return false;
  }
};

bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
}

bool is_new_axis(lua_State* L, int index) {
  return is_text(L, index, "new") || (!lua_isnil(L, index) && is_none(L, index));
}

/// Reads the items of an index one after the other; `dim_` is the dimension of the view that the next one is for.
class IndexReader {
 public:
  IndexReader(lua_State* L, const at::Tensor& tensor) : L_(L), tensor_(tensor) {}

  Index read(int position) {
    if (lua_type(L_, position) != LUA_TTABLE) {
      lua_pushvalue(L_, position);
      item(is_text(L_, -1, "...") ? 0 : taken_by(-1));
      lua_pop(L_, 1);
      return std::move(index_);
    }
    auto count = static_cast<lua_Integer>(lua_rawlen(L_, position));
    reserve(L_, 0, "index");
    refuse_names(position, "an index");
    int64_t taken = 0;
    bool ellipsis = false;
    for (lua_Integer i = 1; i <= count; ++i) {
      lua_rawgeti(L_, position, i);
      if (is_text(L_, -1, "...") && std::exchange(ellipsis, true))
        throw std::invalid_argument("an index can only have a single ellipsis (\"...\")");
      taken += taken_by(-1);
      lua_pop(L_, 1);
    }
    if (taken > tensor_.dim())
      throw std::out_of_range("too many indices for tensor of dimension " + std::to_string(tensor_.dim()));
    for (lua_Integer i = 1; i <= count; ++i) {
      lua_rawgeti(L_, position, i);
      item(taken);
      lua_pop(L_, 1);
    }
    return std::move(index_);
  }

 private:
  /// {from, to, step = 2} would be read without its step.
  void refuse_names(int table, const char* what) {
    for (lua_pushnil(L_); lua_next(L_, table); lua_pop(L_, 1))
      if (lua_type(L_, -2) != LUA_TNUMBER)
        throw std::invalid_argument(std::string(what) + " is a list, as in x[{0, {from, to, step}}]; it has no field " +
                                    describe(L_, -2));
  }

  /// How many dimensions of the tensor the item on the stack stands for.
  int64_t taken_by(int position) {
    if (is_new_axis(L_, position) || is_text(L_, position, "...")) return 0;
    const at::Tensor* tensor = test_tensor(L_, position);
    return tensor && is_mask(*tensor) ? tensor->dim() : 1;
  }

  /// Takes the item on top of the stack; `taken` of all items, for the ellipsis.
  void item(int64_t taken) {
    if (is_new_axis(L_, -1)) {
      index_.steps.push_back({ViewStep::unsqueeze, dim_++, {}, {}});
    } else if (is_text(L_, -1, "...")) {
      if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(tensor_);
      dim_ += tensor_.dim() - taken;
      source_dim_ += tensor_.dim() - taken;
    } else if (is_text(L_, -1, ":")) {
      next_dim();
      ++dim_;
    } else if (const at::Tensor* number = test_number(L_, -1); number && is_whole_number(*number)) {
      next_dim();
      index_.steps.push_back({ViewStep::select, dim_, *number, {}});
    } else if (specialize_number(L_, -1); lua_isinteger(L_, -1)) {
      select(lua_tointeger(L_, -1));
    } else if (lua_type(L_, -1) == LUA_TTABLE) {
      slice();
    } else if (const at::Tensor* tensor = test_tensor(L_, -1)) {
      gather(*tensor);
    } else {
      throw std::invalid_argument(
          "a tensor is indexed by an int, {from, to, step}, \":\", \"...\", \"new\", a mask or a tensor of "
          "indices, got " +
          describe(L_, -1) + (lua_type(L_, -1) == LUA_TNUMBER ? "; // divides to an int, / to a float" : ""));
    }
  }

  int64_t next_dim() {
    if (source_dim_ >= tensor_.dim())
      throw std::out_of_range(tensor_.dim() == 0
                                  ? "a 0-dim tensor cannot be indexed by position; read it with x:item()"
                                  : "too many indices for tensor of dimension " + std::to_string(tensor_.dim()));
    return source_dim_++;
  }

  void select(int64_t at) {
    int64_t source = next_dim(), size = tensor_.size(source);
    if (at < -size || at >= size)
      throw std::out_of_range("index " + std::to_string(at) + " is out of bounds for dimension " +
                              std::to_string(source) + " with size " + std::to_string(size));
    index_.steps.push_back({ViewStep::select, dim_, at, {}});
  }

  c10::IValue bound(int table, int i) {
    lua_rawgeti(L_, table, i);
    c10::IValue value;
    const at::Tensor* number = i < 3 ? test_number(L_, -1) : nullptr;  // a stride is settled
    if (number && is_whole_number(*number)) {
      value = *number;
    } else if (specialize_number(L_, -1); !is_none(L_, -1)) {
      if (!lua_isinteger(L_, -1))
        throw std::invalid_argument("a slice is {from, to, step} of ints (torch.None for an open end), but element " +
                                    std::to_string(i) + " is " + describe(L_, -1));
      value = static_cast<int64_t>(lua_tointeger(L_, -1));
    }
    lua_pop(L_, 1);
    return value;
  }

  void slice() {
    int table = lua_gettop(L_);
    auto length = lua_rawlen(L_, table);
    refuse_names(table, "a slice");
    if (length > 3)
      throw std::invalid_argument("a slice is {from, to} or {from, to, step}, got a table of " +
                                  std::to_string(length) + "; to gather by a list of indices write torch.tensor{...}");
    ViewStep step{ViewStep::slice, dim_, bound(table, 1), bound(table, 2)};
    c10::IValue stride = bound(table, 3);
    step.stride = stride.isNone() ? 1 : stride.toInt();
    if (step.stride <= 0)
      throw std::invalid_argument("slice step must be greater than zero, got " + std::to_string(step.stride));
    next_dim();
    ++dim_;
    index_.steps.push_back(std::move(step));
  }

  void gather(const at::Tensor& tensor) {
    at::ScalarType type = tensor.scalar_type();
    if (!is_mask(tensor) && !at::isIntegralType(type, false))
      throw std::invalid_argument("tensors used as indices must be integer or bool, got " + describe(L_, -1));
    index_.gather.resize(static_cast<size_t>(dim_));
    bool narrow = type != at::kLong && !is_mask(tensor);
    index_.gather.push_back(
        narrow ? run_for_tensor(L_, "aten::to", "dtype", {tensor, at::kLong, false, false, c10::IValue()}) : tensor);
    int64_t dims = is_mask(tensor) ? tensor.dim() : 1;
    for (int64_t i = 0; i < dims; ++i) {
      next_dim();
      ++dim_;
      if (i > 0) index_.gather.emplace_back();
    }
    if (is_mask(tensor)) {
      index_.by_mask = true;
      index_.gather.resize(static_cast<size_t>(dim_ - dims + 1));  // a mask stands for all of its dimensions
    }
  }

  lua_State* L_;
  const at::Tensor& tensor_;
  Index index_;
  int64_t dim_ = 0;         // of the view
  int64_t source_dim_ = 0;  // of the tensor
};

at::Tensor apply(lua_State* L, const at::Tensor& tensor, const ViewStep& step, bool copy) {
  switch (step.kind) {
    case ViewStep::select:
      return run_for_tensor(L, copy ? "aten::select_copy" : "aten::select", "int", {tensor, step.dim, step.start});
    case ViewStep::slice:
      return run_for_tensor(L, copy ? "aten::slice_copy" : "aten::slice", "Tensor",
                            {tensor, step.dim, step.start, step.end, step.stride});
    default:
      return run_for_tensor(L, copy ? "aten::unsqueeze_copy" : "aten::unsqueeze", "", {tensor, step.dim});
  }
}

c10::IValue gather_list(const Index& index) {
  c10::List<c10::optional<at::Tensor>> list;
  for (const auto& tensor : index.gather)
    list.push_back(tensor.defined() ? c10::optional<at::Tensor>(tensor) : c10::nullopt);
  return list;
}

/// The value to assign as a tensor: numbers become 0-dim tensors of the target's dtype.
at::Tensor value_tensor(lua_State* L, int position, const at::Tensor& target) {
  if (const at::Tensor* tensor = test_tensor(L, position)) return *tensor;
  auto scalar = test_scalar(L, position);
  if (!scalar)
    throw std::invalid_argument("a tensor's elements can be assigned a number or a tensor, got " +
                                describe(L, position));
  return at::scalar_tensor(*scalar, target.options().requires_grad(false));
}

/// As PyTorch does: leading dimensions of size 1 that the target lacks are dropped.
at::Tensor without_leading_ones(lua_State* L, at::Tensor value, int64_t rank) {
  while (value.dim() > rank && value.size(0) == 1)
    value = run_for_tensor(L, "aten::squeeze", "dim", {value, int64_t{0}});
  return value;
}

/// A mask with as many dimensions as `target`, so that it broadcasts over the target's last ones.
at::Tensor widened_mask(lua_State* L, at::Tensor mask, size_t first_dim, int64_t rank) {
  for (size_t i = 0; i < first_dim; ++i) mask = run_for_tensor(L, "aten::unsqueeze", "", {mask, int64_t{0}});
  while (mask.dim() < rank) mask = run_for_tensor(L, "aten::unsqueeze", "", {mask, int64_t{-1}});
  return mask;
}

/// The only index is one mask, and the value one number: a fill, whatever the mask holds.
bool is_fill(const Index& index, const at::Tensor& value) {
  size_t given = 0;
  for (const auto& tensor : index.gather) given += tensor.defined();
  return index.by_mask && given == 1 && value.dim() == 0;
}

/// `view` with the assignment done, as a new tensor.
at::Tensor assigned_copy(lua_State* L, const at::Tensor& view, const Index& index, at::Tensor value) {
  value = run_for_tensor(L, "aten::to", "dtype", {value, view.scalar_type(), false, false, c10::IValue()});
  if (!index.gathers())
    return run_for_tensor(L, "aten::expand_as", "", {without_leading_ones(L, value, view.dim()), view});
  if (is_fill(index, value)) {
    at::Tensor mask =
        run_for_tensor(L, "aten::to", "dtype", {index.gather.back(), at::kBool, false, false, c10::IValue()});
    return run_for_tensor(L, "aten::masked_fill", "Tensor",
                          {view, widened_mask(L, mask, index.gather.size() - 1, view.dim()), value});
  }
  return run_for_tensor(L, "aten::index_put", "", {view, gather_list(index), value, false});
}

/// While capturing: the whole new tensor is computed without a view of the old one, then copied over it in one write,
/// which the recorder turns into a new value of the graph.
void assign_captured(lua_State* L, const at::Tensor& tensor, const Index& index, const at::Tensor& value) {
  std::vector<at::Tensor> chain{tensor};
  for (const ViewStep& step : index.steps) chain.push_back(apply(L, chain.back(), step, true));
  at::Tensor fresh = assigned_copy(L, chain.back(), index, value);
  for (size_t i = index.steps.size(); i-- > 0;) {
    const ViewStep& step = index.steps[i];
    if (step.kind == ViewStep::unsqueeze)
      fresh = run_for_tensor(L, "aten::squeeze", "dim", {fresh, step.dim});
    else if (step.kind == ViewStep::select)
      fresh = run_for_tensor(L, "aten::select_scatter", "", {chain[i], fresh, step.dim, step.start});
    else
      fresh =
          run_for_tensor(L, "aten::slice_scatter", "", {chain[i], fresh, step.dim, step.start, step.end, step.stride});
  }
  run(L, "aten::copy_", "", {tensor, fresh, false});
}

void assign_eager(lua_State* L, const at::Tensor& tensor, const Index& index, const at::Tensor& value) {
  capture::materialize(value);  // what follows reads it without an operator that a replayer sees
  capture::end_segment();
  at::Tensor view = tensor;
  for (const ViewStep& step : index.steps) view = apply(L, view, step, false);
  if (index.gathers())
    run(L, "aten::index_put_", "", {view, gather_list(index), value.to(view.scalar_type()), false});
  else
    run(L, "aten::copy_", "", {view, without_leading_ones(L, value, view.dim()), false});
}

}  // namespace

at::Tensor index(lua_State* L, const at::Tensor& tensor, int position) {
  Index index = IndexReader(L, tensor).read(position);
  const auto* recorder = capture::Recorder::current();
  if (index.by_mask && (!recorder || !recorder->takes_dynamic_shapes()))
    capture::graph_break(capture::Break::dynamic_shape,
                         "indexing by a mask gives a tensor whose size depends on values",
                         "Keep all rows and select with torch.where or err.take_ok_p; or set "
                         "triage.config.capture_dynamic_output_shape_ops.");
  at::Tensor view = tensor;
  for (const ViewStep& step : index.steps) view = apply(L, view, step, false);
  if (index.gathers()) return run_for_tensor(L, "aten::index", "Tensor", {view, gather_list(index)});
  return index.steps.empty() ? run_for_tensor(L, "aten::alias", "", {tensor}) : view;
}

void assign(lua_State* L, const at::Tensor& tensor, int position, int value_position) {
  Index index = IndexReader(L, tensor).read(position);
  at::Tensor value = value_tensor(L, value_position, tensor);
  auto* recorder = capture::Recorder::current();
  if (index.by_mask && !is_fill(index, value) && (!recorder || !recorder->takes_dynamic_shapes()))
    capture::graph_break(capture::Break::dynamic_shape,
                         "assigning a tensor through a mask needs as many values as the mask has true elements",
                         "Use torch.where(mask, values, x) with values of x's shape.");
  recorder = capture::Recorder::current();
  if (recorder && recorder->tensors().knows(tensor) && !recorder->tensors().shares_memory(tensor))
    return assign_captured(L, tensor, index, value);
  assign_eager(L, tensor, index, value);
}

}  // namespace triage::lua
