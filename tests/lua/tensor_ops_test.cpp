// Calls every operator that policies may reach with synthetic arguments, through Lua and through the dispatcher, and
// compares bits.
#include "bindings/lua/tensors/calls/convert.h"
#include "bindings/lua/tensors/calls/overloads.h"
#include "bindings/lua/values/constants.h"
#include "bindings/lua/values/tensor.h"
#include "runtime/operators/contract.h"
#include "tests/lua/lua_fixture.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <set>

namespace triage::lua::testing {
namespace {

/// What the tensors of one attempt are, unless a parameter's name says otherwise.
enum class Flavour { matrix, square, vector, integers, mask, scalar, image, positive_definite, last };

at::Tensor make_tensor(Flavour flavour, const std::string& name) {
  at::manual_seed(static_cast<uint64_t>(std::hash<std::string>()(name) % 1000));
  if (name == "index" || name == "indices" || name == "target" || name == "batch1_index")
    return at::tensor({0, 1, 1}, at::kLong);
  if (name == "mask" || name == "condition") return at::rand({3, 4}).gt(0.5);
  switch (flavour) {
    case Flavour::matrix:
      return at::randn({3, 4});
    case Flavour::square:
      return at::randn({3, 3});
    case Flavour::vector:
      return at::rand({4});
    case Flavour::integers:
      return at::randint(1, 5, {3, 4}, at::kLong);
    case Flavour::mask:
      return at::rand({3, 4}).gt(0.5);
    case Flavour::scalar:
      return at::rand({});
    case Flavour::image:
      return at::randn({2, 2, 6, 6});
    case Flavour::positive_definite:
      return at::eye(3) * 2 + 0.1;
    case Flavour::last:
      break;
  }
  return at::rand({2, 2});
}

std::vector<int64_t> make_integers(const OverloadParam& param) {
  bool is_dim = param.name == "dim" || param.name == "dims" || param.name == "axis";
  if (param.name == "size" || param.name == "shape") return {3, 4};
  if (param.name == "output_size") return std::vector<int64_t>(std::max(param.length, 1), 2);
  if (param.name == "kernel_size") return std::vector<int64_t>(std::max(param.length, 1), 2);
  if (param.name == "padding") return std::vector<int64_t>(std::max(param.length, 1), 0);
  if (param.name == "pad") return {1, 1};
  return std::vector<int64_t>(static_cast<size_t>(std::max(param.length, 1)), is_dim ? 0 : 1);
}

int64_t make_integer(const std::string& name) {
  if (name == "dim" || name == "dim0" || name == "axis" || name == "axis0" || name == "start_dim" || name == "source" ||
      name == "offset" || name == "start" || name == "dim1")
    return name == "dim1" ? 1 : 0;
  return name == "num_classes" ? 6 : name == "reduction" ? 1 : 1;
}

/// A value for the parameter; nothing where none can be made up.
std::optional<c10::IValue> make_value(const OverloadParam& param, Flavour flavour) {
  bool tensor_like = param.kind == ParamKind::tensor || param.kind == ParamKind::tensors;
  if (param.has_default && !(tensor_like && param.name != "weight" && param.name != "bias")) return param.default_value;
  if (param.optional && param.kind != ParamKind::integers) return c10::IValue();
  switch (param.kind) {
    case ParamKind::tensor:
      return c10::IValue(make_tensor(flavour, param.name));
    case ParamKind::tensors:
      return c10::IValue(std::vector<at::Tensor>{make_tensor(flavour, "a"), make_tensor(flavour, "b")});
    case ParamKind::scalar:
      return c10::IValue(at::Scalar(int64_t{2}));
    case ParamKind::integer:
      return c10::IValue(make_integer(param.name));
    case ParamKind::real:
      return c10::IValue(0.5);
    case ParamKind::boolean:
      return c10::IValue(false);
    case ParamKind::integers:
      return c10::IValue(make_integers(param));
    case ParamKind::reals:
      return c10::IValue(std::vector<double>{0.5});
    case ParamKind::dtype:
      return c10::IValue(at::kFloat);
    case ParamKind::text:
      return param.name == "indexing" ? c10::IValue(std::string("ij")) : c10::IValue(std::string("sum"));
    default:
      return std::nullopt;
  }
}

std::optional<torch::jit::Stack> make_arguments(const Overload& overload, Flavour flavour) {
  torch::jit::Stack stack;
  for (const OverloadParam& param : overload.params) {
    auto value = make_value(param, flavour);
    if (!value) return std::nullopt;
    stack.push_back(std::move(*value));
  }
  return stack;
}

/// linalg_lstsq leaves some of its results unset where the system is underdetermined: no two calls agree.
bool repeats_itself(const std::string& name) { return name != "aten::linalg_lstsq"; }

bool gives_tensors(const Overload& overload) {
  if (overload.schema().returns().empty()) return false;
  for (const auto& result : overload.schema().returns())
    if (result.type()->kind() != c10::TypeKind::TensorType) return false;
  return true;
}

/// What a contract refuses may crash LibTorch: a cell of weights that have no rows.
bool calls_directly(const Overload& overload, torch::jit::Stack& stack) {
  if (overload.contract && operators::violation(*overload.contract, overload.schema(), stack, true)) return false;
  at::manual_seed(11);
  try {
    overload.handle.callBoxed(&stack);
  } catch (const std::exception&) {
    return false;
  }
  return true;
}

void push_value(lua_State* L, const c10::IValue& value, const OverloadParam& param) {
  if (value.isNone()) return push_none(L);
  if (param.kind == ParamKind::dtype) return push_dtype(L, value.toScalarType());
  push_ivalue(L, value);
}

/// Copies, so that an operator that lies about writing (batch_norm) cannot spoil the other call.
torch::jit::Stack copied(const torch::jit::Stack& stack) {
  torch::jit::Stack copy;
  for (const auto& value : stack)
    copy.push_back(value.isTensor() && value.toTensor().defined() ? c10::IValue(value.toTensor().clone()) : value);
  return copy;
}

/// `torch.name(positional..., {keywords})`; the results as tensors, or the message of the error.
std::string call_in_lua(lua_State* L, const Overload& overload, const torch::jit::Stack& arguments,
                        std::vector<at::Tensor>& results) {
  std::string message;
  try {
    in_protected_call(L, [&](lua_State*) {
      lua_getglobal(L, "torch");
      const std::string& name = overload.schema().name();
      lua_getfield(L, -1, name.substr(name.rfind(':') + 1).c_str());
      int count = 0;
      bool keywords = false;
      for (size_t i = 0; i < arguments.size(); ++i) {
        const OverloadParam& param = overload.params[i];
        if (!param.keyword_only) {
          push_value(L, arguments[i], param);
          ++count;
        } else if (!arguments[i].isNone() && !(param.has_default && !arguments[i].isTensor())) {
          keywords = true;
        }
      }
      if (keywords) {
        lua_newtable(L);
        for (size_t i = 0; i < arguments.size(); ++i) {
          const OverloadParam& param = overload.params[i];
          if (!param.keyword_only || arguments[i].isNone() || (param.has_default && !arguments[i].isTensor())) continue;
          push_value(L, arguments[i], param);
          lua_setfield(L, -2, param.name.c_str());
        }
        ++count;
      }
      int below = lua_gettop(L) - count;
      at::manual_seed(11);
      lua_call(L, count, LUA_MULTRET);
      for (int i = below; i <= lua_gettop(L); ++i)
        results.push_back(test_tensor(L, i) ? *test_tensor(L, i) : at::Tensor());
    });
  } catch (const Error& error) {
    message = error.what();
  }
  return message;
}

bool same_results(const torch::jit::Stack& direct, const std::vector<at::Tensor>& through_lua) {
  if (direct.size() != through_lua.size()) return false;
  for (size_t i = 0; i < direct.size(); ++i) {
    const at::Tensor& a = direct[i].toTensor();
    if (a.defined() != through_lua[i].defined()) return false;
    if (a.defined() && (a.layout() != at::Layout::Strided ? false : !same_bits(a, through_lua[i]))) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("operators give the same bits through Lua as through the dispatcher") {
  Fixture fixture;
  std::set<std::string> compared;
  size_t calls = 0;
  std::set<std::string> names;
  for (const auto& [name, overload] : operators::all_contracts())
    if (name.rfind("aten::", 0) == 0) names.insert(name);
  for (const std::string& name : names) {
    const Operator* op = name.back() == '_' || !repeats_itself(name) ? nullptr : find_operator(name);
    if (!op) continue;
    for (const Overload& overload : op->overloads) {
      if (overload.writes_out || !gives_tensors(overload)) continue;
      for (int flavour = 0; flavour < static_cast<int>(Flavour::last); ++flavour) {
        auto arguments = make_arguments(overload, static_cast<Flavour>(flavour));
        if (!arguments) break;
        torch::jit::Stack direct = copied(*arguments);
        if (!calls_directly(overload, direct)) continue;
        std::vector<at::Tensor> results;
        INFO(overload.signature());
        INFO("flavour " << flavour);
        std::string message = call_in_lua(fixture.lua(), overload, copied(*arguments), results);
        CHECK_EQ(message, "");
        if (message.empty()) CHECK(same_results(direct, results));
        compared.insert(name);
        ++calls;
      }
    }
  }
  MESSAGE(compared.size() << " operators, " << calls << " calls compared");
  CHECK_GE(compared.size(), 300);
}

TEST_CASE("0-dim, empty and oddly strided tensors") {
  Fixture fixture;
  at::Tensor base = at::randn({4, 6});
  std::vector<at::Tensor> tensors{at::rand({}), at::zeros({0, 3}), base.t(), base.slice(1, 0, 6, 2),
                                  base[0].expand({3, 6})};
  for (const at::Tensor& x : tensors) {
    INFO(x.sizes());
    auto results = fixture.run("local x = ... return x + 1, x:sum(), 2 ^ x, x:clamp(-1, 1), -x, x > 0", {x});
    CHECK(same_bits(results[0], x + 1));
    CHECK(same_bits(results[1], x.sum()));
    CHECK(same_bits(results[2], at::pow(2, x)));
    CHECK(same_bits(results[3], x.clamp(-1, 1)));
    CHECK(same_bits(results[4], -x));
    CHECK(same_bits(results[5], x.gt(0)));
  }
}

TEST_CASE("types are promoted as in C++") {
  Fixture fixture;
  const at::ScalarType types[] = {at::kBool, at::kByte,     at::kChar,  at::kInt,   at::kLong,
                                  at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  for (at::ScalarType left : types) {
    at::Tensor x = at::ones({3}, left);
    for (at::ScalarType right : types) {
      at::Tensor y = at::ones({3}, right), zero_dim = at::ones({}, right);
      auto results = fixture.run("local x, y, s = ... return x * y, x * s, x == y", {x, y, zero_dim});
      CHECK(same_bits(results[0], at::mul(x, y)));
      CHECK(same_bits(results[1], at::mul(x, zero_dim)));
      CHECK(same_bits(results[2], at::eq(x, y)));
    }
    auto results = fixture.run("local x = ... return x + 2, x * 0.5, 3 / x, x + true", {x});
    CHECK(same_bits(results[0], at::add(x, at::Scalar(int64_t{2}))));
    CHECK(same_bits(results[1], at::mul(x, at::Scalar(0.5))));
    CHECK(same_bits(results[2], at::mul(at::reciprocal(x), at::Scalar(int64_t{3}))));
    CHECK(same_bits(results[3], at::add(x, at::Scalar(true))));
  }
}

}  // namespace triage::lua::testing
