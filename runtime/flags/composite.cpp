// Boxes the composites, and finds them by name.
#include <ATen/core/ivalue.h>
#include <runtime/flags/composite.h>
#include <runtime/flags/operators.h>

#include <unordered_map>
#include <utility>

namespace triage::flags {
namespace {

template <class T>
struct FromIValue;
template <>
struct FromIValue<const Tensor&> {
  static Tensor get(const c10::IValue& v) { return v.toTensor(); }
};
template <>
struct FromIValue<const MaybeTensor&> {
  static MaybeTensor get(const c10::IValue& v) { return v.isNone() ? MaybeTensor() : MaybeTensor(v.toTensor()); }
};
template <>
struct FromIValue<const Scalar&> {
  static Scalar get(const c10::IValue& v) { return v.toScalar(); }
};
template <>
struct FromIValue<int64_t> {
  static int64_t get(const c10::IValue& v) { return v.toInt(); }
};
template <>
struct FromIValue<bool> {
  static bool get(const c10::IValue& v) { return v.toBool(); }
};
template <>
struct FromIValue<ScalarType> {
  static ScalarType get(const c10::IValue& v) { return v.toScalarType(); }
};
template <>
struct FromIValue<at::ArrayRef<double>> {
  static std::vector<double> get(const c10::IValue& v) { return v.toDoubleVector(); }
};
template <>
struct FromIValue<at::IntArrayRef> {
  static std::vector<int64_t> get(const c10::IValue& v) { return v.toIntVector(); }
};

void give(torch::jit::Stack& stack, Tensor result) { stack.emplace_back(std::move(result)); }
void give(torch::jit::Stack& stack, std::tuple<Tensor, Tensor> results) {
  stack.emplace_back(std::move(std::get<0>(results)));
  stack.emplace_back(std::move(std::get<1>(results)));
}

template <class Result, class... Args, size_t... i>
void call(Result (*function)(Args...), torch::jit::Stack& stack, std::index_sequence<i...>) {
  const size_t base = stack.size() - sizeof...(Args);
  auto result = function(FromIValue<Args>::get(stack[base + i])...);
  stack.resize(base);
  give(stack, std::move(result));
}

template <class Result, class... Args>
Composite boxed(const char* name, Result (*function)(Args...)) {
  return [name, function](torch::jit::Stack& stack) {
    TORCH_CHECK(stack.size() >= sizeof...(Args), "The composite of triage::", name, " takes ", sizeof...(Args),
                " arguments; the stack holds ", stack.size(), ".");
    call(function, stack, std::index_sequence_for<Args...>{});
  };
}

}  // namespace

const Composite* find_composite(const std::string& qualified_name_with_overload) {
  static const auto* table = new std::unordered_map<std::string, Composite>{
#define TRIAGE_BOXED(name, function, schema) {"triage::" name, boxed(name, &composite::function)},
      TRIAGE_FLAGS_OPERATORS(TRIAGE_BOXED)
#undef TRIAGE_BOXED
  };
  auto it = table->find(qualified_name_with_overload);
  return it == table->end() ? nullptr : &it->second;
}

}  // namespace triage::flags
