#include "tests/fuzz/operators/arguments.h"

#include "tests/fuzz/operators/hints.h"
#include "tests/fuzz/operators/tensors.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>

#include <algorithm>
#include <limits>

namespace triage::fuzz {
namespace {

using c10::IValue;
using c10::TypeKind;

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* other) { return name == other; });
}

bool names_dims(const std::string& name) {
  return name.rfind("dim", 0) == 0 || is_one_of(name, {"axis", "axes", "axis0", "axis1", "start_dim", "end_dim",
                                                       "source", "destination", "dimension", "dims"});
}

bool is_int(const c10::Type& type) { return type.kind() == TypeKind::IntType || type.kind() == TypeKind::SymIntType; }

// --- wild values

int64_t wild_integer(Random& random) {
  using Limits = std::numeric_limits<int64_t>;
  return random.pick<int64_t>({-1,
                               -2,
                               0,
                               6,
                               33,
                               77,
                               99,
                               100,
                               -100,
                               1 << 16,
                               INT32_MAX,
                               INT32_MIN,
                               1LL << 31,
                               1LL << 32,
                               1LL << 33,
                               1LL << 40,
                               1LL << 53,
                               1LL << 61,
                               1LL << 62,
                               Limits::max(),
                               Limits::min(),
                               Limits::max() - 1,
                               Limits::min() + 1,
                               -(1LL << 62)});
}

double wild_real(Random& random) {
  using Limits = std::numeric_limits<double>;
  return random.pick<double>({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 0.0, -0.0, -1.0, 1e300,
                              -1e300, 1e-300, 5e-324, 1e18, 9.3e18, 1e38, 1e6, -0.5, 77.0, 4503599627370495.5});
}

class Maker {
 public:
  Maker(const c10::FunctionSchema& schema, Random& random, Reach reach)
      : schema_(schema),
        random_(random),
        reach_(reach),
        symbols_(random, reach),
        base_sizes_(any_sizes(random, reach)),
        base_dtype_(reach == Reach::large_plain
                        ? random.pick({at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kLong})
                        : any_dtype(random)) {
    const std::string_view name = schema.name();
    const std::vector<Hint>& hints = hints_for(name.substr(name.rfind(':') + 1));
    if (!hints.empty() && random.percent(85)) hint_ = &random.pick(hints);
  }

  torch::jit::Stack make() {
    torch::jit::Stack stack;
    for (const c10::Argument& argument : schema_.arguments()) {
      stack.push_back(value_for(argument));
      remember(stack.back());
    }
    if (is_large(reach_)) return stack;
    if (random_.percent(25)) make_wild(stack);
    if (random_.percent(3)) make_wild(stack);
    return stack;
  }

 private:
  // --- values that belong together

  IValue value_for(const c10::Argument& argument) {
    c10::TypePtr type = argument.real_type();
    bool optional = false;
    if (type->kind() == TypeKind::OptionalType) {
      optional = true;
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    if (hint_) {
      auto setting = hint_->settings.find(argument.name());
      if (setting != hint_->settings.end()) {
        IValue value;
        if (hinted(random_.pick(setting->second), argument, *type, value)) return value;
      }
    }
    if (argument.default_value() && random_.percent(60)) return *argument.default_value();
    if (optional && random_.percent(hint_ ? 80 : 50)) return IValue();
    return plausible(argument, *type);
  }

  IValue plausible(const c10::Argument& argument, const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::TensorType:
        return plausible_tensor(argument);
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return plausible_integer(argument.name());
      case TypeKind::FloatType:
        return random_.pick<double>({0.0, 0.5, 1.0, 2.0, 1e-5, -1.0});
      case TypeKind::NumberType:
        return plausible_scalar();
      case TypeKind::BoolType:
        return random_.percent(50);
      case TypeKind::StringType:
        return std::string(random_.pick<const char*>({"mean", "sum", "constant", "none", "floor", "trunc", "linear",
                                                      "reflect", "left", "right", "ij", "tanh", "L", "fro"}));
      case TypeKind::ListType:
        return plausible_list(argument, *type.expectRef<c10::ListType>().getElementType());
      default:
        return setting_of_tensors(type);
    }
  }

  /// dtype, layout, memory format, device: as policies name them.
  IValue setting_of_tensors(const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::ScalarTypeType:
        return any_dtype(random_);
      case TypeKind::LayoutType:
        return random_.pick({at::Layout::Strided, at::Layout::Strided, at::Layout::Sparse, at::Layout::SparseCsr});
      case TypeKind::MemoryFormatType:
        return random_.pick({at::MemoryFormat::Contiguous, at::MemoryFormat::Preserve, at::MemoryFormat::ChannelsLast,
                             at::MemoryFormat::ChannelsLast3d});
      case TypeKind::DeviceObjType:
        return c10::Device(random_.pick({c10::kCPU, c10::kCPU, c10::kMeta}));
      default:
        return IValue();
    }
  }

  TensorPlan plan_of_reach() const {
    TensorPlan plan;
    plan.large = is_large(reach_);
    plan.plain = reach_ == Reach::large_plain;
    return plan;
  }

  IValue plausible_tensor(const c10::Argument& argument) {
    const std::string& name = argument.name();
    const bool large = is_large(reach_);
    if (!large && first_.defined() && random_.percent(5)) return make_alias(random_.pick(tensors_), random_);
    if (!large && first_.defined() && random_.percent(4)) return number_as_tensor();
    TensorPlan plan = plan_of_reach();
    plan.sizes = first_.defined() ? sizes_beside_first() : base_sizes_;
    plan.dtype = !plan.plain && first_.defined() && random_.percent(12) ? any_dtype(random_) : base_dtype_;
    plan.values = random_.pick({Values::ordinary, Values::ordinary, Values::positive, Values::special, Values::small});
    if (is_one_of(name, {"index", "indices", "target", "offsets", "repeats", "tensor_indices_or_sections"})) {
      plan.dtype = at::kLong;
      plan.values = Values::index;
      plan.limit = first_.defined() && first_.dim() > 0 ? first_.size(random_.below(first_.dim())) : 4;
    } else if (is_one_of(name, {"mask", "condition"})) {
      plan.dtype = at::kBool;
    }
    return make_tensor(plan, random_);
  }

  /// A number of the script in the place of a tensor.
  at::Tensor number_as_tensor() {
    at::Tensor tensor = c10::scalar_to_tensor(plausible_scalar());
    tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    return tensor;
  }

  Sizes sizes_beside_first() {
    Sizes sizes = first_.sizes().vec();
    const int64_t kind = random_.below(100);
    if (kind < 70) return sizes;
    if (kind < 90) {  // that broadcast
      for (int64_t& size : sizes)
        if (random_.percent(40)) size = 1;
      if (!sizes.empty() && random_.percent(40)) sizes.erase(sizes.begin());
      return sizes;
    }
    return any_sizes(random_, reach_);
  }

  int64_t rank() const { return first_.defined() ? std::max<int64_t>(1, first_.dim()) : 2; }

  IValue plausible_integer(const std::string& name) {
    if (names_dims(name)) return random_.between(-rank(), rank() - 1);
    if (name == "reduction") return random_.between(0, 2);
    return random_.pick<int64_t>({0, 1, 1, 2, 2, 3, 4, 5, -1, 8});
  }

  at::Scalar plausible_scalar() {
    switch (random_.below(5)) {
      case 0:
        return random_.pick<double>({0.5, -1.5, 0.0, 2.25, 1e-3});
      case 1:
        return random_.percent(50);
      default:
        return random_.pick<int64_t>({0, 1, 1, 2, 2, 3, -1, 5});
    }
  }

  IValue plausible_list(const c10::Argument& argument, const c10::Type& element) {
    const bool dims = names_dims(argument.name());
    int64_t length = dims ? random_.between(0, rank()) : random_.between(1, std::max<int64_t>(3, rank()));
    if (argument.N() && random_.percent(80)) length = *argument.N();
    switch (element.kind()) {
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return dims ? some_dims(length) : some_integers(length);
      case TypeKind::FloatType: {
        std::vector<double> reals(static_cast<size_t>(length));
        for (double& real : reals) real = random_.pick<double>({1.0, 2.0, 0.5, 1.5});
        return reals;
      }
      case TypeKind::BoolType: {
        c10::List<bool> flags;
        for (int64_t i = 0; i < length; ++i) flags.push_back(random_.percent(50));
        return flags;
      }
      case TypeKind::NumberType: {
        c10::impl::GenericList scalars(c10::NumberType::get());
        for (int64_t i = 0; i < length; ++i) scalars.push_back(IValue(plausible_scalar()));
        return scalars;
      }
      default:
        return some_tensors(argument, element.kind() == TypeKind::OptionalType);
    }
  }

  IValue some_dims(int64_t length) {
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < rank(); ++i) dims.push_back(i);
    for (size_t i = dims.size(); i > 1; --i)
      std::swap(dims[i - 1], dims[static_cast<size_t>(random_.below(static_cast<int64_t>(i)))]);
    dims.resize(static_cast<size_t>(length));
    for (int64_t& dim : dims)
      if (random_.percent(30)) dim -= rank();
    return dims;
  }

  IValue some_integers(int64_t length) {
    std::vector<int64_t> integers(static_cast<size_t>(length));
    for (int64_t& integer : integers) integer = random_.pick<int64_t>({0, 1, 1, 1, 2, 2, 3, 4, 5});
    return integers;
  }

  IValue some_tensors(const c10::Argument& argument, bool optional) {
    std::vector<at::Tensor> tensors;
    for (int64_t count = random_.between(1, 3); count > 0; --count) {
      at::Tensor tensor = plausible_tensor(argument).toTensor();
      if (!first_.defined()) remember(tensor);
      tensors.push_back(std::move(tensor));
    }
    return list_of(tensors, optional);
  }

  static IValue list_of(const std::vector<at::Tensor>& tensors, bool optional) {
    if (!optional) return IValue(tensors);
    c10::List<c10::optional<at::Tensor>> list;
    for (const at::Tensor& tensor : tensors) list.push_back(tensor);
    return list;
  }

  // --- hints

  bool hinted(const std::string& text, const c10::Argument& argument, const c10::Type& type, IValue& value) {
    if (text == "nil") return true;
    if (text == "~" || text == "^") return sizes_of_first(text == "~", value);
    const bool list_of_tensors = text[0] == 'r' && text.size() > 2 && text[2] == '[';
    if (text[0] == '[' || list_of_tensors) {
      if (type.kind() == TypeKind::TensorType && !list_of_tensors) return value = hinted_tensor(text), true;
      if (type.kind() != TypeKind::ListType || !list_of_tensors) return false;
      const bool optional = type.expectRef<c10::ListType>().getElementType()->kind() == TypeKind::OptionalType;
      std::vector<at::Tensor> tensors;
      for (int count = 0; count < text[1] - '0'; ++count) {
        tensors.push_back(hinted_tensor(text.substr(2)));
        if (!first_.defined()) remember(tensors.back());
      }
      return value = list_of(tensors, optional), true;
    }
    if (text[0] == '{') {
      if (type.kind() != TypeKind::ListType) return false;
      return hinted_list(text.substr(1, text.size() - 2), *type.expectRef<c10::ListType>().getElementType(), value);
    }
    return hinted_value(text, argument, type, value);
  }

  bool hinted_list(const std::string& text, const c10::Type& element, IValue& value) {
    if (is_int(element)) return value = symbols_.list(text), true;
    if (element.kind() != TypeKind::FloatType) return false;
    std::vector<double> reals;
    for (const std::string& part : split(text, ',')) reals.push_back(std::strtod(part.c_str(), nullptr));
    return value = reals, true;
  }

  bool hinted_value(const std::string& text, const c10::Argument& argument, const c10::Type& type, IValue& value) {
    const TypeKind kind = type.kind();
    if (text[0] == '"') return kind == TypeKind::StringType && (value = text.substr(1, text.size() - 2), true);
    if (text == "true" || text == "false") {
      if (kind == TypeKind::BoolType) return value = text == "true", true;
      return kind == TypeKind::NumberType && (value = at::Scalar(text == "true"), true);
    }
    if (kind == TypeKind::ScalarTypeType) return hinted_dtype(text, value);
    const bool real = text.find('.') != std::string::npos;
    const double number = real ? std::strtod(text.c_str(), nullptr) : static_cast<double>(symbols_.value(text));
    if (kind == TypeKind::NumberType) return value = real ? IValue(number) : IValue(symbols_.value(text)), true;
    if (kind == TypeKind::FloatType) return value = number, true;
    if (is_int(type)) return !real && (value = symbols_.value(text), true);
    if (kind == TypeKind::ListType && argument.N()) {
      const c10::Type& element = *type.expectRef<c10::ListType>().getElementType();
      if (is_int(element))
        return value = std::vector<int64_t>(static_cast<size_t>(*argument.N()), symbols_.value(text)), true;
    }
    return false;
  }

  static bool hinted_dtype(const std::string& text, IValue& value) {
    static const std::map<std::string, at::ScalarType> dtypes = {
        {"float32", at::kFloat}, {"float64", at::kDouble}, {"int64", at::kLong},        {"int32", at::kInt},
        {"bool", at::kBool},     {"float16", at::kHalf},   {"bfloat16", at::kBFloat16}, {"uint8", at::kByte}};
    auto found = dtypes.find(text);
    return found != dtypes.end() && (value = found->second, true);
  }

  at::Tensor hinted_tensor(const std::string& text) {
    const size_t end = text.find(']');
    TensorPlan plan = plan_of_reach();
    plan.sizes = symbols_.list(std::string_view(text).substr(1, end - 1));
    plan.dtype = base_dtype_;
    if (!plan.plain && random_.percent(5)) plan.dtype = any_dtype(random_);
    plan.values = random_.pick({Values::ordinary, Values::ordinary, Values::ordinary, Values::special});
    const bool real = at::isFloatingType(plan.dtype);
    switch (end + 1 < text.size() ? text[end + 1] : ' ') {
      case 'd':
        plan.values = Values::definite;
        [[fallthrough]];
      case 'f':
        if (!at::isFloatingType(base_dtype_) && random_.percent(90)) plan.dtype = base_dtype_ = at::kFloat;
        break;
      case 'i':
        plan.dtype = random_.percent(95) ? at::kLong : any_dtype(random_);
        plan.values = random_.percent(92) ? Values::index : Values::stray_index;
        plan.limit = symbols_.value(std::string_view(text).substr(end + 2));
        break;
      case 'b':
        if (random_.percent(90)) plan.dtype = at::kBool;
        break;
      case 'l':
        if (random_.percent(90)) plan.dtype = at::kLong;
        plan.values = random_.percent(80) ? Values::small : Values::special;
        break;
      case 'p':
        if (!real && random_.percent(90)) plan.dtype = base_dtype_ = at::kFloat;
        plan.values = random_.percent(85) ? Values::positive : Values::special;
        break;
      case 'u':
        if (!real && random_.percent(90)) plan.dtype = base_dtype_ = at::kFloat;
        plan.values = random_.percent(85) ? Values::unit : Values::special;
        break;
      case 's':
        plan.values = random_.percent(90) ? Values::sorted : Values::special;
        break;
      case 'c':
        if (random_.percent(80)) plan.dtype = at::kComplexFloat;
        break;
      default:
        break;
    }
    return make_tensor(plan, random_);
  }

  /// Sizes for `view` (as many elements) or `expand` (any number where there is a 1, and more in front).
  bool sizes_of_first(bool same_count, IValue& value) {
    if (!first_.defined()) return false;
    Sizes sizes = first_.sizes().vec();
    if (!same_count) {
      for (int64_t& size : sizes)
        if (size == 1) size = random_.between(1, 5);
      for (int64_t extra = random_.below(3); extra > 0; --extra) sizes.insert(sizes.begin(), random_.between(1, 4));
      if (random_.percent(20) && !sizes.empty()) sizes.back() = -1;
      return value = sizes, true;
    }
    const int64_t cut = random_.between(0, static_cast<int64_t>(sizes.size()));
    int64_t left = 1, right = 1;
    for (int64_t i = 0; i < static_cast<int64_t>(sizes.size()); ++i)
      (i < cut ? left : right) *= sizes[static_cast<size_t>(i)];
    sizes = random_.percent(30) ? Sizes{left * right} : Sizes{left, right};
    if (random_.percent(30)) sizes[static_cast<size_t>(random_.below(static_cast<int64_t>(sizes.size())))] = -1;
    return value = sizes, true;
  }

  // --- wild values

  void make_wild(torch::jit::Stack& stack) {
    if (stack.empty()) return;
    const auto position = static_cast<size_t>(random_.below(static_cast<int64_t>(stack.size())));
    const c10::Argument& argument = schema_.arguments()[position];
    c10::TypePtr type = argument.real_type();
    if (type->kind() == TypeKind::OptionalType) {
      if (random_.percent(20)) {
        stack[position] = IValue();
        return;
      }
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    stack[position] = wild(argument, *type);
  }

  IValue wild(const c10::Argument& argument, const c10::Type& type) {
    switch (type.kind()) {
      case TypeKind::TensorType:
        return wild_tensor();
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return wild_integer(random_);
      case TypeKind::FloatType:
        return wild_real(random_);
      case TypeKind::NumberType:
        return random_.percent(50) ? IValue(wild_integer(random_)) : IValue(wild_real(random_));
      case TypeKind::BoolType:
        return random_.percent(50);
      case TypeKind::StringType:
        return std::string(
            random_.pick<const char*>({"", "x", "mean", "sum", "bicubic", "circular", "i,j->ijk", "...ij->...", "->",
                                       "a,b,c", "reflect", "%s%n", "\xff", "U", "nuc", "midpoint", "amax"}));
      case TypeKind::ListType:
        return wild_list(argument, *type.expectRef<c10::ListType>().getElementType());
      default:
        return setting_of_tensors(type);
    }
  }

  at::Tensor wild_tensor() {
    if (!tensors_.empty() && random_.percent(30)) return make_alias(random_.pick(tensors_), random_);
    TensorPlan plan;
    plan.sizes = first_.defined() && random_.percent(40) ? first_.sizes().vec() : any_sizes(random_, reach_);
    if (random_.percent(10))
      plan.sizes = random_.pick({Sizes{0}, Sizes{0, 3}, Sizes{2, 0}, Sizes{1, 0, 2}, Sizes{}, Sizes{1, 1, 1, 1, 1}});
    plan.dtype = any_dtype(random_);
    plan.values = random_.pick({Values::special, Values::ordinary, Values::stray_index, Values::positive});
    plan.limit = 4;
    return make_tensor(plan, random_);
  }

  IValue wild_list(const c10::Argument& argument, const c10::Type& element) {
    const int64_t length = random_.pick<int64_t>({0, 0, 1, 2, 3, 4, 5, 6, 7, 9, 70});
    switch (element.kind()) {
      case TypeKind::IntType:
      case TypeKind::SymIntType: {
        std::vector<int64_t> integers(static_cast<size_t>(length));
        const bool all = random_.percent(30);
        for (int64_t& integer : integers)
          integer = all || random_.percent(30) ? wild_integer(random_) : random_.between(0, 3);
        return integers;
      }
      case TypeKind::FloatType: {
        std::vector<double> reals(static_cast<size_t>(length));
        for (double& real : reals) real = random_.percent(50) ? wild_real(random_) : 1.0;
        return reals;
      }
      case TypeKind::TensorType:
      case TypeKind::OptionalType: {
        std::vector<at::Tensor> tensors;
        for (int64_t i = 0; i < length; ++i)
          tensors.push_back(random_.percent(50) ? wild_tensor() : plausible_tensor(argument).toTensor());
        return list_of(tensors, element.kind() == TypeKind::OptionalType);
      }
      default:
        return plausible_list(argument, element);
    }
  }

  void remember(const IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined()) return;
    if (!first_.defined()) first_ = value.toTensor();
    tensors_.push_back(value.toTensor());
  }

  const c10::FunctionSchema& schema_;
  Random& random_;
  Reach reach_;
  Symbols symbols_;
  Sizes base_sizes_;
  at::ScalarType base_dtype_;
  const Hint* hint_ = nullptr;
  at::Tensor first_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

void make_numbers_special(const c10::FunctionSchema& schema, torch::jit::Stack& arguments, Random& random) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::TypePtr type = schema.arguments()[i].real_type();
    if (type->kind() == TypeKind::OptionalType) type = type->expectRef<c10::OptionalType>().getElementType();
    const bool number = type->kind() == TypeKind::NumberType || type->kind() == TypeKind::FloatType;
    if (!number || random.percent(40)) continue;
    const bool whole = type->kind() == TypeKind::NumberType && random.percent(35);
    if (whole)
      arguments[i] = random.percent(20) ? IValue(random.percent(50)) : IValue(wild_integer(random));
    else
      arguments[i] = random.percent(20) ? random.pick<double>({1e-40, -1e-45, 65504.0, 65520.0, 3.4e38, 1e39, 0.1})
                                        : wild_real(random);
  }
}

torch::jit::Stack make_arguments(const c10::FunctionSchema& schema, Random& random, Reach reach) {
  return Maker(schema, random, reach).make();
}

}  // namespace triage::fuzz
