#include "bindings/lua/tensors/calls/guarded_call.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/tensors/calls/call.h"
#include "bindings/lua/values/describe.h"
#include "bindings/lua/values/guarded.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/capture/recording/recorder.h"
#include "runtime/flags/checks.h"
#include "runtime/operators/semantics.h"

#include <triage/config.h>

#include <algorithm>

namespace triage::lua {
namespace {

using operators::ResultSizes;
using operators::Semantics;

/// The rows of the result are as many as those of `data`. A graph then holds where that is so.
bool same_rows(const at::Tensor& data, const at::Tensor& result) {
  if (result.dim() == 0 || data.size(0) != result.size(0)) return false;
  if (auto* recorder = capture::Recorder::current()) recorder->sizes().rely_on({{data, 0, result, 0}});
  return true;
}

bool names_rows(int64_t dim, int64_t rank) { return dim == 0 || dim == -rank; }

/// Not where it is a param, which may be another dimension in the next call.
bool names_rows_first(const c10::IValue& dims, int64_t rank) {
  const auto list = dims.toListRef();
  return !list.empty() && list[0].isInt() && names_rows(list[0].toInt(), rank);
}

at::Tensor merged(lua_State* L, const at::Tensor& one, const at::Tensor& other) {
  if (one.is_same(other)) return one;
  const ErrorConfig config = config_in_force(L);
  return run_for_tensor(L, "triage::merge", "",
                        {one, other, static_cast<int64_t>(config.num_slots), static_cast<int64_t>(config.policy())});
}

/// For data without flags: no errors, in records like those of `flags`.
at::Tensor fresh(lua_State* L, const at::Tensor& data, const at::Tensor& flags) {
  if (auto* recorder = capture::Recorder::current(); recorder && !recorder->tensors().is_flags(flags))
    recorder->sizes().read_size(flags, 1);
  const int64_t slots = flags.size(1) * flags::check::slots_per_word(flags.scalar_type());
  return run_for_tensor(L, "triage::new", "", {data, slots, flags.scalar_type()});
}

}  // namespace

GuardedArguments::GuardedArguments(lua_State* L, const Arguments& arguments) {
  for (const int index : arguments.positions) take(L, index);
  for (const auto& [key, index] : arguments.options) take(L, index);
  for (const int index : arguments.out) take(L, index);
}

void GuardedArguments::take(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TTABLE) return take_list(L, index);
  if (!is_guarded(L, index)) return;
  at::Tensor flags = lua::flags_of(L, index);
  replace_by_data(L, index);
  guards_.push_back({index, -1, *test_tensor(L, index), std::move(flags)});
}

/// A list with guarded tensors is replaced by one of their data.
void GuardedArguments::take_list(lua_State* L, int index) {
  const auto count = static_cast<lua_Integer>(lua_rawlen(L, index));
  bool copied = false;
  for (lua_Integer i = 1; i <= count; ++i) {
    const int type = lua_rawgeti(L, index, i);
    if (type != LUA_TUSERDATA && type != LUA_TTABLE) return lua_pop(L, 1);  // a list of numbers
    if (!is_guarded(L, -1)) {
      lua_pop(L, 1);
      continue;
    }
    if (!std::exchange(copied, true)) {
      lua_createtable(L, static_cast<int>(count), 0);
      for (lua_pushnil(L); lua_next(L, index);) {  // keys that are names, too: those are refused
        lua_pushvalue(L, -2);
        lua_insert(L, -2);
        lua_rawset(L, -4);
      }
      lua_replace(L, index);
    }
    at::Tensor flags = lua::flags_of(L, -1);
    replace_by_data(L, -1);
    guards_.push_back({index, static_cast<int>(i - 1), *test_tensor(L, -1), std::move(flags)});
    lua_rawseti(L, index, i);
  }
}

void GuardedArguments::prepare(const Overload& overload, const ArgumentBinding& binding,
                               const torch::jit::Stack& arguments, const std::string& name) {
  overload_ = &overload;
  arguments_ = arguments;
  name_ = name;
  const GuardedArgument* written = nullptr;
  for (GuardedArgument& guard : guards_) {
    const auto found = std::find(binding.slots.begin(), binding.slots.end(), guard.index);
    if (found == binding.slots.end()) refuse();
    guard.param = static_cast<int>(found - binding.slots.begin());
    if (overload.params[static_cast<size_t>(guard.param)].written) written = &guard;
    if (auto* recorder = capture::Recorder::current()) recorder->sizes().read_rank(guard.data);
  }
  if (!overload.writes) return;
  for (const GuardedArgument& guard : guards_) {
    if (!written || !guard.flags.is_same(written->flags))
      throw std::invalid_argument(
          name_ +
          ": writes the samples of a guarded tensor into a tensor that has not its flags; use the "
          "form that returns its result, such as x = x + y");
    if (!keeps(guard, written->data)) refuse();
  }
}

const c10::IValue* GuardedArguments::argument(const char* name) const {
  for (size_t i = 0; i < overload_->params.size(); ++i)
    if (overload_->params[i].name == name) return &arguments_[i];
  return nullptr;
}

/// Whether the argument names dimension 0 and no other.
bool GuardedArguments::along_rows(const GuardedArgument& guard, const char* name, int64_t more_dims) const {
  const c10::IValue* const dims = argument(name);
  const int64_t rank = guard.data.dim() + more_dims;
  if (!dims) return false;
  if (dims->isInt()) return names_rows(dims->toInt(), rank);
  return dims->isIntList() && dims->toIntList().size() == 1 && names_rows(dims->toIntList().get(0), rank);
}

/// Whether the argument names dimensions, and 0 is none of them.
bool GuardedArguments::beside_rows(const GuardedArgument& guard, const char* name, int64_t more_dims) const {
  const c10::IValue* const dims = argument(name);
  const int64_t rank = guard.data.dim() + more_dims;
  if (!dims) return false;
  if (dims->isInt()) return !names_rows(dims->toInt(), rank);
  if (!dims->isIntList() || dims->toIntList().empty()) return false;
  const std::vector<int64_t> list = dims->toIntVector();
  return std::none_of(list.begin(), list.end(), [&](int64_t dim) { return names_rows(dim, rank); });
}

/// Results of the first argument's rows: operators that go along dimensions say so, the others leave each element where
/// it is or give it a value of its own.
bool GuardedArguments::keeps_in_form(const GuardedArgument& guard) const {
  const Semantics& does = operators::semantics_of(overload_->handle);
  if (guard.param != 0) return false;
  const c10::IValue* const training = argument("training");
  if (does.has(Semantics::keeps_rows) && training && training->toBool())
    return false;  // by what the samples have in common
  for (const char* const name : {"dim", "dims"})
    if (argument(name)) return beside_rows(guard, name);
  if (const c10::IValue* const shape = argument("normalized_shape"))
    return static_cast<int64_t>(shape->toListRef().size()) < guard.data.dim();
  if (const c10::IValue* const pad = argument("pad"))  // from the last dimension on
    return static_cast<int64_t>(pad->toListRef().size()) < 2 * guard.data.dim();
  return does.has(Semantics::moves | Semantics::random | Semantics::keeps_rows);
}

bool GuardedArguments::keeps_by_product(const GuardedArgument& guard, const at::Tensor& result) const {
  const int64_t rank = guard.data.dim();
  const at::Tensor other = arguments_[guard.param == 0 ? 1 : 0].toTensor();
  if (rank >= 3)
    return result.dim() == rank && other.dim() <= rank && same_rows(guard.data, result);  // a batch of matrices
  return guard.param == 0 && rank == 2 && other.dim() <= 2;
}

bool GuardedArguments::keeps(const GuardedArgument& guard, const at::Tensor& result) const {
  const Semantics& does = operators::semantics_of(overload_->handle);
  const int64_t rank = guard.data.dim();
  const bool first = guard.param == 0;
  if (does.has(Semantics::keeps_rows)) return result.dim() > 0 && keeps_in_form(guard);
  switch (does.sizes) {
    case ResultSizes::broadcast:
    case ResultSizes::either:
      return result.dim() == rank && same_rows(guard.data, result);
    case ResultSizes::like_first:
      return keeps_in_form(guard);
    case ResultSizes::like_z:
      return overload_->params[static_cast<size_t>(guard.param)].name == "z";
    case ResultSizes::reduced:
    case ResultSizes::parts:
    case ResultSizes::select:
    case ResultSizes::slice:
      return first && beside_rows(guard, "dim");
    case ResultSizes::concatenate:
      return beside_rows(guard, "dim") && result.dim() == rank && same_rows(guard.data, result);
    case ResultSizes::stack:
    case ResultSizes::unsqueeze:
      return beside_rows(guard, "dim", 1);
    case ResultSizes::linear:
      return first && rank >= 2;
    case ResultSizes::matmul:
      return keeps_by_product(guard, result);
    case ResultSizes::addmm:
      return overload_->params[static_cast<size_t>(guard.param)].name == "mat1";
    case ResultSizes::embedding:
      return overload_->params[static_cast<size_t>(guard.param)].name == "indices";
    case ResultSizes::convolution:
      return first && rank == arguments_[1].toTensor().dim();
    case ResultSizes::flatten:
      return beside_rows(guard, "start_dim");
    case ResultSizes::view:
      return same_rows(guard.data, result);
    case ResultSizes::swap_two:
      return rank == 1;
    case ResultSizes::swap_last_two:
      return rank >= 3;
    case ResultSizes::transpose:
      return beside_rows(guard, "dim0") && beside_rows(guard, "dim1");
    case ResultSizes::permute:
      return names_rows_first(*argument("dims"), rank);
    default:
      return first && does.has(Semantics::moves) && beside_rows(guard, "dim") && same_rows(guard.data, result);
  }
}

/// The operator takes or moves whole rows: the flags go the same way. Undefined where it does not.
at::Tensor GuardedArguments::moved(lua_State* L, const GuardedArgument& guard) const {
  const Semantics& does = operators::semantics_of(overload_->handle);
  const bool takes_rows = along_rows(guard, "dim") || along_rows(guard, "dims");
  if (guard.param != 0 || guards_.size() != 1 || !takes_rows || !does.has(Semantics::moves_records) ||
      does.sizes == ResultSizes::select || does.sizes == ResultSizes::parts)
    return {};
  for (const OverloadParam& param : overload_->params)  // what is put into rows has flags of its own
    if (param.name == "src" || param.name == "source" || param.name == "values") return {};
  torch::jit::Stack arguments = arguments_;
  arguments[0] = guard.flags;
  // The batch by its number from the front: flags have another rank than the data.
  for (size_t i = 0; i < overload_->params.size(); ++i) {
    if (overload_->params[i].name == "dim" && arguments[i].isInt()) arguments[i] = int64_t{0};
    if (overload_->params[i].name == "dims" && arguments[i].isIntList()) arguments[i] = std::vector<int64_t>{0};
  }
  return run(L, *overload_, std::move(arguments), name_).at(0).toTensor();
}

/// Of a `cat` along the samples; what has no flags has no errors.
at::Tensor GuardedArguments::joined(lua_State* L) const {
  std::vector<at::Tensor> parts;
  const std::vector<at::Tensor> tensors = arguments_[0].toTensorVector();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto own = std::find_if(guards_.begin(), guards_.end(),
                                  [&](const GuardedArgument& guard) { return guard.element == int(i); });
    parts.push_back(own != guards_.end() ? own->flags : fresh(L, tensors[i], guards_.front().flags));
    if (parts.back().scalar_type() != parts.front().scalar_type())  // which `cat` would convert
      throw std::invalid_argument(name_ + ": joins flags of different dtypes, " + describe(parts.front()) + " and " +
                                  describe(parts.back()) + "; make both with the same config");
  }
  return run_for_tensor(L, "aten::cat", "", {c10::IValue(parts), int64_t{0}});
}

/// Each sample takes the flags of the one that it comes of.
at::Tensor GuardedArguments::selected(lua_State* L) const {
  const auto side = [&](int param) {
    for (const GuardedArgument& guard : guards_)
      if (guard.param == param) return guard.flags;
    return fresh(L, arguments_[static_cast<size_t>(param)].toTensor(), guards_.front().flags);
  };
  const at::Tensor one = side(1), other = side(2);
  if (one.is_same(other)) return one;
  return run_for_tensor(L, "triage::select", "", {arguments_[0], one, other});
}

/// Is the result what was asked about the data, and not made of it? What moves masks, or joins them, gives masks with
/// flags.
bool GuardedArguments::answers(const at::Tensor& result) const {
  const Semantics& does = operators::semantics_of(overload_->handle);
  if (does.has(Semantics::queries)) return true;
  if (result.scalar_type() != at::kBool || does.has(Semantics::moves | Semantics::moves_records)) return false;
  const auto is_mask = [](const GuardedArgument& guard) { return guard.data.scalar_type() == at::kBool; };
  return result.dim() == 0 || std::none_of(guards_.begin(), guards_.end(), is_mask);
}

at::Tensor GuardedArguments::flags_of(lua_State* L, const at::Tensor& result) const {
  const Semantics& does = operators::semantics_of(overload_->handle);
  if (!result.defined() || answers(result)) return {};
  if (does.has(Semantics::gives_flags)) refuse();
  if (overload_->writes) return guards_.front().flags;
  if (overload_->schema().name() == "triage::select" && guards_.front().param > 0) return selected(L);
  if (does.sizes == ResultSizes::concatenate && along_rows(guards_.front(), "dim")) return joined(L);
  at::Tensor flags;
  for (const GuardedArgument& guard : guards_) {
    at::Tensor own = keeps(guard, result) ? guard.flags : moved(L, guard);
    if (!own.defined()) refuse();
    flags = flags.defined() ? merged(L, flags, own) : own;
  }
  return flags;
}

void GuardedArguments::refuse() const {
  std::string given;
  for (const GuardedArgument& guard : guards_) given += (given.empty() ? "" : ", ") + describe(guard.data);
  throw std::invalid_argument(
      name_ + ": the rows of its result are not known to be the samples of the guarded tensor (" + given +
      ", one sample a row), so its flags cannot follow; go on without: local z, f = unguard(x)");
}

void guard_result(lua_State* L, const at::Tensor& flags) {
  if (!flags.defined()) return;
  const c10::Device device = check_tensor(L, -1).device();
  push_tensor(L, flags.device() == device ? flags
                                          : run_for_tensor(L, "aten::to", "dtype_layout",
                                                           {flags, c10::IValue(), c10::IValue(), device, c10::IValue(),
                                                            false, false, c10::IValue()}));
  push_guarded(L);
}

}  // namespace triage::lua
