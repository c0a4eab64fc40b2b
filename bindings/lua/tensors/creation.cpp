#include "bindings/lua/tensors/creation.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/tensors/autograd.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"

#include <ATen/ATen.h>

#include <string_view>

namespace triage::lua {
namespace {

constexpr int max_rank = 64;  // LibTorch's own limit

/// Numbers out of nested tables, in row-major order, kept exactly: integers as int64, floats as double.
class NestedReader {
 public:
  explicit NestedReader(lua_State* L) : L_(L) {}

  void read(int position) {
    lua_pushvalue(L_, position);
    measure();
    element(0);
    lua_pop(L_, 1);
  }

  at::Tensor tensor(const std::optional<at::ScalarType>& dtype) const {
    at::ScalarType natural = any_float_ || integers_.empty() ? at::kDouble : any_integer_ ? at::kLong : at::kBool;
    at::Tensor exact = any_float_ ? at::tensor(at::ArrayRef<double>(floats_), at::kDouble)
                                  : at::tensor(at::ArrayRef<int64_t>(integers_), at::kLong);
    if (natural == at::kDouble) natural = c10::typeMetaToScalarType(at::get_default_dtype());
    return exact.view(sizes_).to(dtype ? *dtype : natural);
  }

 private:
  /// The sizes, as the first element of each level has them.
  void measure() {
    int levels = 0;
    lua_pushvalue(L_, -1);
    while (lua_type(L_, -1) == LUA_TTABLE) {
      if (++levels > max_rank) throw std::invalid_argument("torch.tensor: the table is nested more than 64 deep");
      reserve(L_, 0, "nested table");
      sizes_.push_back(static_cast<int64_t>(lua_rawlen(L_, -1)));
      lua_rawgeti(L_, -1, 1);
    }
    lua_pop(L_, levels + 1);
  }

  std::string where() const {
    std::string text;
    for (int64_t i : path_) text += "[" + std::to_string(i) + "]";
    return text.empty() ? "the value" : "element " + text;
  }

  void element(size_t level) {
    constexpr size_t interval = 1000, bytes_each = 32;
    if (++visited_ % interval == 0) charge(L_, bytes_each * floats_.size(), 0, interval);
    bool is_table = lua_type(L_, -1) == LUA_TTABLE;
    if (is_table != (level < sizes_.size()))
      throw std::invalid_argument("torch.tensor: the table is ragged: " + where() + " is " + describe(L_, -1) +
                                  ", expected " +
                                  (is_table ? "a number" : "a table of " + std::to_string(sizes_[level])));
    if (!is_table) return leaf();
    auto count = static_cast<int64_t>(lua_rawlen(L_, -1));
    if (count != sizes_[level])
      throw std::invalid_argument("torch.tensor: the table is ragged: " + where() + " has " + std::to_string(count) +
                                  " elements, expected " + std::to_string(sizes_[level]) + " as in its neighbours");
    if (const std::string beside = beside_list(L_, -1); !beside.empty())
      throw std::invalid_argument("torch.tensor: " + where() + " is a list with " + beside);
    reserve(L_, 0, "nested table");
    for (int64_t i = 1; i <= count; ++i) {
      path_.push_back(i);
      lua_rawgeti(L_, -1, i);
      element(level + 1);
      lua_pop(L_, 1);
      path_.pop_back();
    }
  }

  void leaf() {
    if (const at::Tensor* tensor = test_tensor(L_, -1)) return tensor_leaf(*tensor);
    auto scalar = test_scalar(L_, -1);
    if (!scalar)
      throw std::invalid_argument("torch.tensor: " + where() + " is " + describe(L_, -1) +
                                  ", expected a number or a boolean");
    append(*scalar);
  }

  void tensor_leaf(const at::Tensor& tensor) {
    if (tensor.numel() != 1)
      throw std::invalid_argument("torch.tensor: " + where() + " is " + describe(L_, -1) +
                                  "; join tensors with torch.stack or torch.cat");
    capture::graph_break(capture::Break::reads_value, "`torch.tensor` reads a value of a tensor",
                         "Join tensors with torch.stack.");
    append(tensor.item());
  }

  void append(const at::Scalar& scalar) {
    any_float_ |= scalar.isFloatingPoint();
    any_integer_ |= scalar.isIntegral(false);
    if (!scalar.isFloatingPoint()) integers_.push_back(scalar.toLong());
    floats_.push_back(scalar.toDouble());
  }

  lua_State* L_;
  std::vector<int64_t> sizes_, path_;
  std::vector<int64_t> integers_;
  std::vector<double> floats_;
  uint64_t visited_ = 0;  // of tables, too: one may stand in many places
  bool any_float_ = false, any_integer_ = false;
};

struct CreationOptions {
  std::optional<at::ScalarType> dtype = std::nullopt;
  c10::Device device = c10::kCPU;
  bool requires_grad = false;
};

CreationOptions read_options(lua_State* L, int position) {
  CreationOptions options;
  if (is_none(L, position)) return options;
  if (lua_type(L, position) != LUA_TTABLE)
    throw std::invalid_argument("torch.tensor: expected a table of options ({dtype, device, requires_grad}), got " +
                                describe(L, position));
  lua_pushnil(L);
  while (lua_next(L, position)) {
    std::string key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
    specialize_number(L, -1);
    if (key == "dtype" && test_dtype(L, -1))
      options.dtype = test_dtype(L, -1);
    else if (key == "device" && lua_type(L, -1) == LUA_TSTRING)
      options.device = parse_device(lua_tostring(L, -1));
    else if (key == "requires_grad" && lua_isboolean(L, -1))
      options.requires_grad = lua_toboolean(L, -1);
    else
      throw std::invalid_argument(
          "torch.tensor: unknown option '" + key + "' or wrong value (" + describe(L, -1) +
          "); options are dtype (torch.float32, ...), device (\"cpu\", ...) and requires_grad (boolean)");
    lua_pop(L, 1);
  }
  return options;
}

}  // namespace

int create_tensor(lua_State* L) {
  lua_settop(L, 2);
  CreationOptions options = read_options(L, 2);
  at::Tensor tensor;
  if (const at::Tensor* source = test_tensor(L, 1)) {
    tensor = run_for_tensor(L, "aten::clone", "", {run_for_tensor(L, "aten::detach", "", {*source}), c10::IValue()});
    if (options.dtype)
      tensor = run_for_tensor(L, "aten::to", "dtype", {tensor, *options.dtype, false, false, c10::IValue()});
    if (options.device != tensor.device())
      tensor = run_for_tensor(L, "aten::to", "device",
                              {tensor, options.device, tensor.scalar_type(), false, false, c10::IValue()});
  } else {
    NestedReader reader(L);
    reader.read(1);
    tensor = reader.tensor(options.dtype);
    if (!options.device.is_cpu()) tensor = tensor.to(options.device);
    if (auto* recorder = capture::Recorder::current()) recorder->tensors().add_literal(tensor);
  }
  if (options.requires_grad) {
    break_for_autograd("`requires_grad` of a new tensor");
    tensor.requires_grad_(true);
  }
  push_tensor(L, tensor);
  return 1;
}

}  // namespace triage::lua
