#include "bindings/lua/tensors/calls/convert.h"

#include "bindings/lua/state/stack.h"
#include "bindings/lua/state/table_fields.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/number.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/replay/trace_replayer.h"
#include "runtime/capture/sizes/numbers.h"

#include <ATen/ScalarOps.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace triage::lua {
namespace {

constexpr int cost_of_whole_float = 4;  // 2.0 where an int is wanted
constexpr int cost_of_wrapping = 6;     // a number where a tensor is wanted
constexpr int cost_of_reading = 8;      // a 0-dim tensor where a number is wanted

/// Parameters where PyTorch's operators take a number for a tensor.
bool takes_number_for_tensor(const OverloadParam& param) {
  static const auto& names =
      *new std::unordered_set<std::string_view>{"self", "other", "min", "max", "exponent", "end", "value", "weight"};
  return !param.written && names.count(param.name) != 0;
}

bool is_number(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TNUMBER) return true;
  const at::Tensor* symbolic = test_symbolic(L, index);
  return symbolic && symbolic->scalar_type() != at::kBool;
}

/// A boolean, or a comparison of numbers of the capture.
bool is_truth_value(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TBOOLEAN) return true;
  const at::Tensor* symbolic = test_symbolic(L, index);
  return symbolic && symbolic->scalar_type() == at::kBool;
}

bool truth_value(lua_State* L, int index) {
  lua_pushvalue(L, index);
  specialize_number(L, -1);
  const bool value = lua_toboolean(L, -1) != 0;
  lua_pop(L, 1);
  return value;
}

bool is_integer(lua_State* L, int index) {
  const at::Tensor* symbolic = test_symbolic(L, index);
  return symbolic ? is_whole_number(*symbolic) : static_cast<bool>(lua_isinteger(L, index));
}

/// Of a number that fits.
int64_t integer_value(lua_State* L, int index) {
  const at::Tensor* symbolic = test_symbolic(L, index);
  return symbolic ? symbolic->item().toLong() : static_cast<int64_t>(lua_tointeger(L, index));
}

double real_value(lua_State* L, int index) {
  const at::Tensor* symbolic = test_symbolic(L, index);
  return symbolic ? symbolic->item().toDouble() : static_cast<double>(lua_tonumber(L, index));
}

bool is_reduction(const OverloadParam& param, lua_State* L, int index) {
  if (param.name != "reduction" || lua_type(L, index) != LUA_TSTRING) return false;
  std::string_view text = lua_tostring(L, index);
  return text == "none" || text == "mean" || text == "sum";
}

bool zero_dim(const at::Tensor* tensor) { return tensor && tensor->dim() == 0; }

int fit_number(lua_State* L, int index, const OverloadParam& param) {
  if (is_number(L, index)) {
    if (param.kind == ParamKind::scalar) return 0;
    if (param.kind == ParamKind::real) return is_integer(L, index) ? 1 : 0;
    if (is_integer(L, index)) return 0;
    return is_whole(L, index) ? cost_of_whole_float : no_fit;
  }
  if (is_truth_value(L, index)) return param.kind == ParamKind::scalar ? 2 : no_fit;
  if (is_reduction(param, L, index)) return 0;
  const at::Tensor* tensor = test_tensor(L, index);
  if (!zero_dim(tensor)) return no_fit;
  if (param.kind == ParamKind::integer && !at::isIntegralType(tensor->scalar_type(), false)) return no_fit;
  return cost_of_reading;
}

bool element_fits(lua_State* L, int index, ParamKind kind) {
  switch (kind) {
    case ParamKind::tensors:
      return test_tensor(L, index) != nullptr;
    case ParamKind::optional_tensors:
      return test_tensor(L, index) || is_none(L, index);
    case ParamKind::integers:
      return fit_integer(L, index) != no_fit;
    case ParamKind::reals:
      return is_number(L, index);
    case ParamKind::scalars:
      return is_number(L, index) || is_truth_value(L, index);
    case ParamKind::booleans:
      return is_truth_value(L, index);
    default:
      return false;
  }
}

/// Position (1-based) of the first element that does not fit; 0 when all do.
lua_Integer first_misfit(lua_State* L, int index, const OverloadParam& param) {
  auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    bool fits = element_fits(L, -1, param.kind);
    lua_pop(L, 1);
    if (!fits) return i;
  }
  return 0;
}

/// Calls `visit` with the place of each element of a table, which is the top of the stack; of any other value, with its
/// own place.
template <typename Visit>
void for_each_element(lua_State* L, int index, const Visit& visit) {
  if (lua_type(L, index) != LUA_TTABLE) return visit(index);
  index = lua_absindex(L, index);
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  for (lua_Integer i = 1; i <= count; ++i) {
    lua_rawgeti(L, index, i);
    visit(-1);
    lua_pop(L, 1);
  }
}

/// Of a table whose elements fit.
int cost_of_elements(lua_State* L, int index, ParamKind kind) {
  int most = 0;
  if (kind != ParamKind::integers) return most;
  for_each_element(L, index, [&](int element) { most = std::max(most, fit_integer(L, element)); });
  return most;
}

int fit_list(lua_State* L, int index, const OverloadParam& param) {
  if (lua_type(L, index) == LUA_TTABLE) {
    if (first_misfit(L, index, param) != 0 || !beside_list(L, index).empty()) return no_fit;
    auto count = static_cast<int>(lua_rawlen(L, index));
    const bool is_wrong_length = param.length > 1 && count != param.length && count != 1;  // LibTorch says more of it
    return cost_of_elements(L, index, param.kind) + is_wrong_length;
  }
  if (param.length == 0) return no_fit;
  if (const int cost = fit_integer(L, index); param.kind == ParamKind::integers && cost != no_fit)
    return 1 + (is_whole(L, index) && !is_integer(L, index) ? cost_of_whole_float : cost);
  if (param.kind == ParamKind::reals && is_number(L, index)) return 1;
  return no_fit;
}

std::string expected(const OverloadParam& param) {
  OverloadParam plain;  // without "or nil": whoever gave a value means one
  plain.kind = param.kind;
  std::string text = type_name(plain);
  if (param.kind == ParamKind::integers && param.length > 0) text = "int or " + text;
  if (param.kind == ParamKind::device) text += " such as \"cpu\" or \"cuda:0\"";
  if (param.kind == ParamKind::dtype) text += " such as torch.float32";
  if (param.name == "reduction") text += ", \"none\", \"mean\" or \"sum\"";
  return text;
}

/// Read from a 0-dim tensor: no graph can hold it, since the next call's value will differ. A param is read between two
/// graphs, too, as it is no value of the data.
at::Scalar number_in(const at::Tensor& tensor, const std::string& what) {
  const auto* replayer = capture::TraceReplayer::current();
  if (!capture::Recorder::current() && replayer && replayer->is_param(tensor)) return tensor.item();
  capture::graph_break(
      capture::Break::reads_value, what + " takes a number, and reads it from a tensor",
      "Use an operation that takes a tensor there, or pass it as a plain number (in a policy: as a param).");
  return tensor.item();
}

/// Adds what `read` makes of each element to `list`. One number stands for all of `int[2]`, and so does a table of one.
template <typename List, typename Read>
List read_list(lua_State* L, int index, const OverloadParam& param, List list, const Read& read) {
  for_each_element(L, index, [&](int element) { list.push_back(read(L, element)); });
  if (list.size() == 1)
    for (int i = 1; i < param.length; ++i) list.push_back(list.get(0));
  return list;
}

c10::optional<at::Tensor> optional_tensor(lua_State* L, int index) {
  const at::Tensor* tensor = test_tensor(L, index);
  return tensor ? c10::optional<at::Tensor>(*tensor) : c10::optional<at::Tensor>();
}

/// Of a real number, which may be one of the graph.
double read_real(lua_State* L, int index) {
  if (!test_number(L, index)) return real_value(L, index);
  lua_pushvalue(L, index);
  specialize_number(L, -1);
  const double value = lua_tonumber(L, -1);
  lua_pop(L, 1);
  return value;
}

c10::IValue specialized_scalar(lua_State* L, int index) {
  specialize_number(L, index);
  return *test_scalar(L, index);
}

/// A number of the graph, or a param: the recorder reads it, and the graph keeps it. Null where it is neither.
const at::Tensor* test_kept_number(lua_State* L, int index) {
  if (const at::Tensor* number = test_number(L, index)) return number;
  const at::Tensor* tensor = test_tensor(L, index);
  const auto* recorder = capture::Recorder::current();
  return tensor && recorder && recorder->tensors().is_param(*tensor) ? tensor : nullptr;
}

bool holds_kept_numbers(lua_State* L, int index) {
  bool any = false;
  for_each_element(L, index, [&](int element) { any |= test_kept_number(L, element) != nullptr; });
  return any;
}

/// Of a number or a 0-dim tensor that fits.
int64_t read_integer(lua_State* L, int index, const std::string& what) {
  const at::Tensor* tensor = test_tensor(L, index);
  return tensor ? number_in(*tensor, what).toLong() : integer_value(L, index);
}

/// Those that are known only at run time stand in the list as tensors, which the recorder reads.
c10::IValue read_integers(lua_State* L, int index, const OverloadParam& param, const std::string& what) {
  const auto read = [&](lua_State* S, int i) { return read_integer(S, i, what); };
  if (!holds_kept_numbers(L, index)) return read_list(L, index, param, c10::List<int64_t>(), read);
  return read_list(L, index, param, c10::impl::GenericList(c10::AnyType::get()),
                   [&](lua_State* S, int i) -> c10::IValue {
                     const at::Tensor* number = test_kept_number(S, i);
                     return number ? c10::IValue(*number) : c10::IValue(read(S, i));
                   });
}

c10::IValue read_list(lua_State* L, int index, const OverloadParam& param, const std::string& what) {
  switch (param.kind) {
    case ParamKind::tensors:
      return read_list(L, index, param, c10::List<at::Tensor>(), check_tensor);
    case ParamKind::optional_tensors:
      return read_list(L, index, param, c10::List<c10::optional<at::Tensor>>(), optional_tensor);
    case ParamKind::scalars:
      return read_list(L, index, param, c10::impl::GenericList(c10::NumberType::get()), specialized_scalar);
    case ParamKind::integers:
      return read_integers(L, index, param, what);
    case ParamKind::reals:
      return read_list(L, index, param, c10::List<double>(), read_real);
    default:
      return read_list(L, index, param, c10::List<bool>(), truth_value);
  }
}

c10::IValue read_scalar(lua_State* L, int index, const OverloadParam& param, const std::string& what) {
  if (const at::Tensor* number = test_kept_number(L, index)) return *number;
  if (const at::Tensor* tensor = test_tensor(L, index)) {
    const at::Scalar number = number_in(*tensor, what);
    if (param.kind == ParamKind::integer) return number.toLong();
    return param.kind == ParamKind::real ? c10::IValue(number.toDouble()) : c10::IValue(number);
  }
  if (is_reduction(param, L, index)) {
    std::string_view text = lua_tostring(L, index);
    return static_cast<int64_t>(text == "none" ? 0 : text == "mean" ? 1 : 2);
  }
  if (param.kind == ParamKind::integer) return integer_value(L, index);
  if (param.kind == ParamKind::real) return real_value(L, index);
  return *test_scalar(L, index);
}

/// A number in the place of a tensor.
at::Tensor read_wrapped(lua_State* L, int index) {
  lua_pushvalue(L, index);
  specialize_number(L, -1);
  at::Tensor number = wrapped_number(*test_scalar(L, -1));
  lua_pop(L, 1);
  return number;
}

template <typename T>
void push_table(lua_State* L, const std::vector<T>& items, void (*push)(lua_State*, T)) {
  lua_createtable(L, static_cast<int>(items.size()), 0);
  for (size_t i = 0; i < items.size(); ++i) {
    push(L, items[i]);
    lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
  }
}

}  // namespace

int fit_integer(lua_State* L, int index) {
  if (is_whole(L, index)) return 0;
  const at::Tensor* tensor = test_tensor(L, index);
  const bool fits = zero_dim(tensor) && at::isIntegralType(tensor->scalar_type(), /*includeBool=*/false);
  return fits ? cost_of_reading : no_fit;
}

int fit(lua_State* L, int index, const OverloadParam& param) {
  if (is_none(L, index)) {
    if (param.optional) return 0;
    return lua_isnil(L, index) && param.has_default ? 1 : no_fit;
  }
  switch (param.kind) {
    case ParamKind::tensor:
      if (test_tensor(L, index)) return 0;
      if (!takes_number_for_tensor(param)) return no_fit;
      return is_number(L, index) ? cost_of_wrapping : is_truth_value(L, index) ? cost_of_wrapping + 1 : no_fit;
    case ParamKind::scalar:
    case ParamKind::integer:
    case ParamKind::real:
      return fit_number(L, index, param);
    case ParamKind::boolean:
      return is_truth_value(L, index) ? 0 : no_fit;
    case ParamKind::text:
    case ParamKind::device:
      return lua_type(L, index) == LUA_TSTRING ? 0 : no_fit;
    case ParamKind::dtype:
      return test_dtype(L, index) ? 0 : no_fit;
    case ParamKind::generator:
      return test_generator(L, index) ? 0 : no_fit;
    case ParamKind::layout:
    case ParamKind::memory_format: {
      const TorchConstant* constant = test_constant(L, index);
      ConstantKind wanted = param.kind == ParamKind::layout ? ConstantKind::layout : ConstantKind::memory_format;
      return constant && constant->kind == wanted ? 0 : no_fit;
    }
    case ParamKind::foreign:
      return no_fit;
    default:
      return fit_list(L, index, param);
  }
}

std::string misfit(lua_State* L, int index, at::ArrayRef<const OverloadParam*> params) {
  std::vector<std::string> kinds;
  for (const OverloadParam* param : params) {
    std::string kind = expected(*param);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(kind);
  }
  std::string text = "expected ";
  for (size_t i = 0; i < kinds.size(); ++i) text += (i == 0 ? "" : i + 1 == kinds.size() ? " or " : ", ") + kinds[i];
  ParamKind kind = params[0]->kind;
  bool is_list = kind >= ParamKind::tensors && kind <= ParamKind::scalars;
  if (is_list && lua_type(L, index) == LUA_TTABLE) {
    if (lua_Integer bad = first_misfit(L, index, *params[0])) {
      lua_rawgeti(L, index, bad);
      text += ", but element " + std::to_string(bad) + " is " + describe(L, -1);
      lua_pop(L, 1);
      return text;
    }
    if (const std::string beside = beside_list(L, index); !beside.empty()) text += ", but the list has " + beside;
  }
  const bool lone_tensor = kind == ParamKind::tensors && test_tensor(L, index);
  return text + ", got " + describe(L, index) + (lone_tensor ? "; a list of tensors is a table: {x, y}" : "");
}

c10::IValue to_ivalue(lua_State* L, int index, const OverloadParam& param, const std::string& what) {
  if (is_none(L, index)) return lua_isnil(L, index) && !param.optional ? param.default_value : c10::IValue();
  switch (param.kind) {
    case ParamKind::tensor:
      if (const at::Tensor* tensor = test_tensor(L, index)) return check_tensor(L, index), *tensor;
      return read_wrapped(L, index);
    case ParamKind::scalar:
    case ParamKind::integer:
    case ParamKind::real:
      return read_scalar(L, index, param, what);
    case ParamKind::boolean:
      return truth_value(L, index);
    case ParamKind::text:
      return std::string(lua_tostring(L, index));
    case ParamKind::device:
      return parse_device(lua_tostring(L, index));
    case ParamKind::dtype:
      return *test_dtype(L, index);
    case ParamKind::layout:
      return static_cast<at::Layout>(test_constant(L, index)->value);
    case ParamKind::memory_format:
      return static_cast<at::MemoryFormat>(test_constant(L, index)->value);
    case ParamKind::generator:
      return *test_generator(L, index);
    default:
      return read_list(L, index, param, what);
  }
}

at::Tensor wrapped_number(const at::Scalar& scalar) {
  at::Tensor tensor = c10::scalar_to_tensor(scalar);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

void push_ivalue(lua_State* L, const c10::IValue& value) {
  if (value.isTensor()) return push_tensor(L, value.toTensor());
  if (value.isNone()) return lua_pushnil(L);
  if (value.isScalar()) return push_scalar(L, value.toScalar());
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    lua_pushlstring(L, text.data(), text.size());
    return;
  }
  if (value.isDevice()) {
    lua_pushstring(L, value.toDevice().str().c_str());
    return;
  }
  if (value.isIntList())
    return push_table<int64_t>(L, value.toIntVector(), [](lua_State* S, int64_t item) { lua_pushinteger(S, item); });
  if (value.isDoubleList())
    return push_table<double>(L, value.toDoubleVector(), [](lua_State* S, double item) { lua_pushnumber(S, item); });
  if (value.isList()) {
    reserve(L, 0, "lists nested too deep");
    auto items = value.toListRef();
    lua_createtable(L, static_cast<int>(items.size()), 0);
    for (size_t i = 0; i < items.size(); ++i) {
      push_ivalue(L, items[i]);
      lua_rawseti(L, -2, static_cast<lua_Integer>(i + 1));
    }
    return;
  }
  throw std::invalid_argument("the operator returns a " + value.tagKind() + ", which Lua cannot represent");
}

std::vector<int64_t> check_integers(lua_State* L, int index, const std::string& what) {
  OverloadParam param;
  param.kind = ParamKind::integers;
  if (lua_type(L, index) != LUA_TTABLE || fit_list(L, index, param) == no_fit)
    throw std::invalid_argument(what + ": " + misfit(L, index, {&param}));
  return read_list(L, index, param, c10::List<int64_t>(), [&](lua_State* S, int i) { return read_integer(S, i, what); })
      .vec();
}

}  // namespace triage::lua
