#include "runtime/operators/rules.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/compat/autocast.h"
#include "runtime/memory/overlap.h"

namespace triage::operators {
namespace {

using Kind = ArgumentRule::Kind;

constexpr int64_t kMostElements = int64_t{1} << 40;  // of a tensor, expanded or not
constexpr int64_t kMostRank = 16;
constexpr int64_t kMostTensors = 100'000;  // in one list
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr uint32_t bit(at::ScalarType dtype) { return uint32_t{1} << static_cast<int>(dtype); }
constexpr uint32_t kBool = bit(at::kBool);
constexpr uint32_t kIntegers = bit(at::kByte) | bit(at::kChar) | bit(at::kShort) | bit(at::kInt) | bit(at::kLong);
constexpr uint32_t kSingle = bit(at::kFloat) | bit(at::kDouble);
constexpr uint32_t kFloats = kSingle | bit(at::kHalf) | bit(at::kBFloat16);
constexpr uint32_t kNumbers = kIntegers | kFloats;
constexpr uint32_t kReal = kNumbers | kBool;
constexpr uint32_t kAny = kReal | bit(at::kComplexFloat) | bit(at::kComplexDouble);

struct DtypeWord {
  std::string_view word;
  uint32_t dtypes;
};
constexpr DtypeWord kDtypeWords[] = {{"any", kAny},
                                     {"real", kReal},
                                     {"number", kNumbers},
                                     {"float", kFloats},
                                     {"single", kSingle},
                                     {"integer", kIntegers},
                                     {"bool", kBool},
                                     {"mask", kBool | bit(at::kByte)},
                                     {"whole", kBool | kIntegers},
                                     {"index", bit(at::kInt) | bit(at::kLong)},
                                     {"int64", bit(at::kLong)},
                                     {"complex", bit(at::kComplexFloat) | bit(at::kComplexDouble)}};

bool holds(uint32_t dtypes, at::ScalarType dtype) {
  const int number = static_cast<int>(dtype);
  return number >= 0 && number < 32 && (dtypes >> number & 1U) != 0;
}

/// "bool, int64 or float32"
std::string dtype_names(uint32_t dtypes) {
  std::vector<std::string> names;
  for (int i = 0; i < 32; ++i)
    if (dtypes >> i & 1U) names.emplace_back(c10::toString(static_cast<at::ScalarType>(i)));
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// "1..3", both included
template <typename Number>
bool read_range(std::string_view text, Number& low, Number& high) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return false;
  const auto first = read_number<Number>(text.substr(0, dots)), last = read_number<Number>(text.substr(dots + 2));
  if (!first || !last) return false;
  low = *first;
  high = *last;
  return true;
}

/// Integers whose names say what they are, in every operator.
bool names_dimension(std::string_view name) {
  for (const std::string_view known :
       {"dim", "dim0", "dim1", "dim2", "axis0", "axis1", "start_dim", "end_dim", "dims", "source", "destination"})
    if (name == known) return true;
  return false;
}

/// The argument whose dimensions are meant: `self`, else the first tensor or list of tensors.
int reference_of(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  int first = -1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::TypePtr type = arguments[i].type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (auto list = type->cast<c10::ListType>()) type = list->getElementType();
    if (type->kind() != c10::TypeKind::TensorType) continue;
    if (arguments[i].name() == "self") return static_cast<int>(i);
    if (first < 0) first = static_cast<int>(i);
  }
  return first;
}

bool writes(const c10::AliasInfo& alias) {
  if (alias.isWrite()) return true;
  for (const auto& inner : alias.containedTypes())
    if (writes(inner)) return true;
  return false;
}

/// Reads the rules of one schema.
class RuleReader {
 public:
  RuleReader(const c10::FunctionSchema& schema, std::vector<std::string>& faults)
      : schema_(schema), faults_(faults), reference_(reference_of(schema)) {}

  std::vector<ArgumentRule> read(std::string_view text) {
    for (const c10::Argument& argument : schema_.arguments()) rules_.push_back(by_type(argument));
    said_.resize(rules_.size());
    for (const std::string_view part : split(text, ';')) {
      const size_t colon = part.find(':');
      std::string_view name = part.substr(0, colon);
      while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
      bool found = false;
      for (size_t i = 0; i < rules_.size(); ++i) {
        if (name == "*" ? rules_[i].kind != Kind::tensor : schema_.arguments()[i].name() != name) continue;
        found = true;
        for (const std::string_view word : split(part.substr(colon + 1), ' ')) apply(i, word);
      }
      (void)found;  // rows are shared by schemas that have other arguments
    }
    for (size_t i = 0; i < rules_.size(); ++i)
      if (!said_[i] && !rules_[i].said && needs_words(i)) fault(i, "nothing says what it may be");
    return std::move(rules_);
  }

 private:
  void fault(size_t argument, std::string_view what) {
    faults_.push_back(fmt::format("{}.{}, argument '{}': {}", schema_.name(), schema_.overload_name(),
                                  schema_.arguments()[argument].name(), what));
  }

  bool needs_words(size_t i) const {
    const Kind kind = rules_[i].kind;
    return kind == Kind::integer || kind == Kind::text;
  }

  ArgumentRule by_type(const c10::Argument& argument) const {
    ArgumentRule rule;
    c10::TypePtr type = argument.real_type();
    if (auto optional = type->cast<c10::OptionalType>()) {
      rule.optional = true;
      type = optional->getElementType();
    }
    if (auto list = type->cast<c10::ListType>()) {
      rule.list = true;
      type = list->getElementType();
      if (type->kind() == c10::TypeKind::OptionalType) {
        rule.optional = true;
        type = type->expectRef<c10::OptionalType>().getElementType();
      }
    }
    rule.most_length = kMostTensors;
    rule.least_length = rule.list && type->kind() == c10::TypeKind::TensorType && !rule.optional ? 1 : 0;
    rule.written = argument.alias_info() && writes(*argument.alias_info());
    set_kind(rule, *type, argument.name());
    return rule;
  }

  void set_kind(ArgumentRule& rule, const c10::Type& type, const std::string& name) const {
    switch (type.kind()) {
      case c10::TypeKind::TensorType:
        rule.kind = Kind::tensor;
        rule.dtypes = kReal;
        rule.high = kMostRank;
        break;
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        rule.kind = names_dimension(name) ? Kind::dimension : Kind::integer;
        rule.reference = reference_;
        rule.sizes = rule.list && name == "size";
        rule.said = rule.sizes;
        if (rule.list) rule.most_length = kMostRank;
        rule.high = kMostElements;
        break;
      case c10::TypeKind::FloatType:
      case c10::TypeKind::NumberType:
        rule.kind = Kind::number;
        rule.low_number = -kInfinity;
        rule.high_number = kInfinity;
        break;
      case c10::TypeKind::BoolType:
        rule.kind = Kind::free;
        break;
      case c10::TypeKind::StringType:
        rule.kind = Kind::text;
        break;
      case c10::TypeKind::ScalarTypeType:
        rule.kind = Kind::dtype;
        rule.dtypes = kReal;
        break;
      case c10::TypeKind::LayoutType:
        rule.kind = Kind::layout;
        break;
      case c10::TypeKind::MemoryFormatType:
        rule.kind = Kind::memory_format;
        break;
      case c10::TypeKind::DeviceObjType:
        rule.kind = Kind::device;
        break;
      default:
        rule.kind = Kind::absent;
    }
  }

  void apply(size_t i, std::string_view word) {
    ArgumentRule& rule = rules_[i];
    said_[i] = true;
    const bool of_tensors = rule.kind == Kind::tensor || rule.kind == Kind::dtype;
    // Rows are shared by overloads of which one takes a tensor where the other takes a number.
    ArgumentRule other;
    other.kind = of_tensors ? Kind::number : Kind::tensor;
    const bool fits = of_tensors ? apply_to_tensor(rule, word) : apply_to_number(rule, word);
    const bool of_another = (of_tensors || rule.kind == Kind::number) &&
                            (of_tensors ? apply_to_number(other, word) : apply_to_tensor(other, word));
    if (!fits && !of_another) fault(i, fmt::format("no rule \"{}\"", word));
  }

  bool apply_to_tensor(ArgumentRule& rule, std::string_view word) const {
    for (const DtypeWord& known : kDtypeWords)
      if (word == known.word) {
        rule.dtypes = known.dtypes;
        return true;
      }
    if (word.substr(0, 5) == "rank:") return read_range(word.substr(5), rule.low, rule.high);
    if (word.substr(0, 4) == "len:") return read_range(word.substr(4), rule.least_length, rule.most_length);
    if (word == "absent") {
      rule.kind = Kind::absent;
      return true;
    }
    if (word == "filled") return rule.filled = true;
    if (word == "contiguous") return rule.contiguous = true;
    if (word == "apart") return rule.apart = true;
    if (word == "unexpanded") return rule.unexpanded = true;
    const bool mixed = word.substr(0, 6) == "mixed:";
    if (mixed || word.substr(0, 5) == "like:") {
      const auto position = schema_.argumentIndexWithName(std::string(word.substr(mixed ? 6 : 5)));
      rule.or_float = mixed;
      rule.like = position.has_value();
      if (rule.like) rule.reference = *position;
      return rule.like;
    }
    return false;
  }

  bool apply_to_number(ArgumentRule& rule, std::string_view word) const {
    if (word.substr(0, 4) == "len:") return read_range(word.substr(4), rule.least_length, rule.most_length);
    if (word == "absent") {
      rule.kind = Kind::absent;
      return true;
    }
    switch (rule.kind) {
      case Kind::free:
        return word == "false" && (rule.only_false = true);
      case Kind::integer:
      case Kind::dimension:
        if (word == "dim" || word == "dims" || word == "newdim") {
          rule.kind = Kind::dimension;
          rule.beyond = word == "newdim" ? 1 : 0;
          return true;
        }
        rule.kind = Kind::integer;
        if (word == "sizes" || word == "inferred") {
          rule.low = word == "sizes" ? 0 : -1;
          return rule.sizes = true;
        }
        if (word == "any") {
          rule.low = std::numeric_limits<int64_t>::min();
          rule.high = std::numeric_limits<int64_t>::max();
          return true;
        }
        if (word == "offset") {  // of positions: no sum of two overflows
          rule.low = -kMostElements;
          rule.high = kMostElements;
          return true;
        }
        return read_range(word, rule.low, rule.high);
      case Kind::number:
        if (word != "finite" && !read_range(word, rule.low_number, rule.high_number)) return false;
        return rule.finite = true;
      case Kind::text:
        if (word == "any") return true;
        if (word.substr(0, 4) != "one:") return false;
        for (const std::string_view one : split(word.substr(4), '|')) rule.words.emplace_back(one);
        return true;
      default:
        return false;
    }
  }

  const c10::FunctionSchema& schema_;
  std::vector<std::string>& faults_;
  int reference_;
  std::vector<ArgumentRule> rules_;
  std::vector<bool> said_;
};

/// Whether two elements of it may lie at one address. Strided memory is free of that where every dimension steps over
/// all that those with smaller strides reach.
bool may_overlap_itself(const at::Tensor& tensor) {
  if (tensor.is_contiguous() || tensor.numel() < 2) return false;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (int64_t i = 0; i < tensor.dim(); ++i)
    if (tensor.size(i) > 1) dims.emplace_back(tensor.stride(i), tensor.size(i));
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

/// Checks the arguments of one call. Texts are made only where something is wrong.
class RuleCheck {
 public:
  RuleCheck(const std::vector<ArgumentRule>& rules, const OperatorCall& call, const std::vector<bool>* known)
      : rules_(rules), call_(call), known_(known) {}

  std::optional<std::string> run() const {
    for (size_t i = 0; i < rules_.size(); ++i) {
      if (known_ && !(*known_)[i]) continue;
      if (auto wrong = check(i, rules_[i], call_.arguments[i])) return wrong;
    }
    return std::nullopt;
  }

 private:
  using Wrong = std::optional<std::string>;

  bool is_known(int argument) const { return argument >= 0 && (!known_ || (*known_)[static_cast<size_t>(argument)]); }

  std::string start(size_t i) const { return fmt::format("argument '{}'", call_.schema.arguments()[i].name()); }

  Wrong check(size_t i, const ArgumentRule& rule, const c10::IValue& value) const {
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
      if (rule.optional || rule.kind == Kind::absent) return std::nullopt;
      return start(i) + " is missing";
    }
    if (rule.kind == Kind::tensor && value.isTensor()) return check_tensor(i, rule, value.toTensor());
    if (!rule.list) return check_one(i, rule, value);
    if (!value.isList()) return start(i) + " is not a list";
    return check_list(i, rule, value);
  }

  Wrong check_list(size_t i, const ArgumentRule& rule, const c10::IValue& value) const {
    const auto length = static_cast<int64_t>(value.isIntList() ? value.toIntList().size() : value.toListRef().size());
    if (length < rule.least_length || length > rule.most_length)
      return fmt::format("{} has {} elements; expected {} to {}", start(i), length, rule.least_length,
                         rule.most_length);
    if (rule.kind == Kind::integer || rule.kind == Kind::dimension)
      return value.isIntList() ? check_integers(i, rule, value.toDimVector())
                               : check_integers(i, rule, integers_of(value));
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isNone() || (item.isTensor() && !item.toTensor().defined())) {
        if (rule.optional) continue;
        return start(i) + " has a missing element";
      }
      if (Wrong wrong = rule.kind == Kind::tensor && item.isTensor() ? check_tensor(i, rule, item.toTensor())
                                                                     : check_one(i, rule, item))
        return wrong;
    }
    return std::nullopt;
  }

  Wrong check_integers(size_t i, const ArgumentRule& rule, c10::ArrayRef<int64_t> list) const {
    double product = 1;
    uint64_t seen = 0;
    int64_t rank = -1;
    if (rule.kind == Kind::dimension) {
      rank = rank_of(rule);
      if (rank >= 0 && static_cast<int64_t>(list.size()) > std::max<int64_t>(rank, 1))
        return fmt::format("{} has {} elements; expected at most {}, the tensor's dimensions", start(i), list.size(),
                           std::max<int64_t>(rank, 1));
    }
    for (const int64_t item : list) {
      if (Wrong wrong = check_integer(i, rule, item)) return wrong;
      if (rule.sizes && item >= 0) product *= static_cast<double>(item);
      if (rank > 0) {
        const uint64_t dim = uint64_t{1} << static_cast<uint64_t>(item < 0 ? item + rank : item);
        if (seen & dim) return fmt::format("{} names dimension {} twice", start(i), item);
        seen |= dim;
      }
    }
    if (rule.sizes && product > static_cast<double>(kMostElements))
      return fmt::format("{} is [{}], which is more than {} elements", start(i), fmt::join(list, ", "), kMostElements);
    return std::nullopt;
  }

  /// Of the tensor whose dimensions are meant; -1 where it is not known yet.
  int64_t rank_of(const ArgumentRule& rule) const {
    if (!is_known(rule.reference)) return -1;
    const c10::IValue& value = call_.arguments[static_cast<size_t>(rule.reference)];
    if (value.isTensor()) return value.toTensor().dim() + rule.beyond;
    if (value.isList())
      for (const c10::IValue& item : value.toListRef())
        if (item.isTensor() && item.toTensor().defined()) return item.toTensor().dim() + rule.beyond;
    return -1;
  }

  Wrong check_integer(size_t i, const ArgumentRule& rule, int64_t value) const {
    int64_t low = rule.low, high = rule.high;
    if (rule.kind == Kind::dimension) {
      const int64_t rank = rank_of(rule);
      high = rank < 0 ? kMostRank : std::max<int64_t>(rank, 1) - 1;
      low = -high - 1;
    }
    if (value >= low && value <= high) return std::nullopt;
    return fmt::format("{} is {}; expected {} to {}", start(i), value, low, high);
  }

  Wrong check_one(size_t i, const ArgumentRule& rule, const c10::IValue& value) const {
    switch (rule.kind) {
      case Kind::integer:
      case Kind::dimension:
        if (!value.isInt() && !value.isBool() && !value.isTensor()) return start(i) + " is not an integer";
        return check_integer(i, rule, integer_of(value));
      case Kind::tensor:  // a number stands for it
      case Kind::number:
        return check_number(i, rule, value);
      case Kind::text:
        if (value.isString() && rule.words.empty()) return std::nullopt;
        if (value.isString())
          for (const std::string& word : rule.words)
            if (word == value.toStringRef()) return std::nullopt;
        return fmt::format("{} is \"{}\"; expected \"{}\"", start(i), value.isString() ? value.toStringRef() : "?",
                           fmt::join(rule.words, "\", \""));
      case Kind::dtype:
        if (value.isInt() && holds(rule.dtypes, static_cast<at::ScalarType>(value.toInt()))) return std::nullopt;
        return fmt::format("{} is not a dtype that policies may use; expected {}", start(i), dtype_names(rule.dtypes));
      case Kind::layout:
        if (value.isInt() && value.toLayout() == at::kStrided) return std::nullopt;
        return start(i) + " is not torch.strided";
      case Kind::memory_format:
        if (value.isInt() && value.toInt() >= 0 && value.toInt() <= static_cast<int64_t>(at::MemoryFormat::Preserve))
          return std::nullopt;
        return start(i) + " is neither torch.contiguous_format nor torch.preserve_format";
      case Kind::device:
        return check_device(i, value);
      case Kind::absent:
        return start(i) + " is given; policies cannot pass it";
      case Kind::free:
        if (!value.isBool() && !value.isTensor() && !value.isInt()) return start(i) + " is not a boolean";
        if (rule.only_false && number_of(value) != 0) return start(i) + " is true; expected false";
        return std::nullopt;
    }
    return std::nullopt;
  }

  Wrong check_device(size_t i, const c10::IValue& value) const {
    if (value.isDevice() && fits_device(value.toDevice())) return std::nullopt;
    return start(i) + " is not a device that holds data";
  }

  static bool fits_device(c10::Device device) {
    return device.is_cpu() || device.is_cuda() || device.type() == c10::DeviceType::HIP ||
           device.type() == c10::DeviceType::XPU || device.type() == c10::DeviceType::MPS;
  }

  Wrong check_number(size_t i, const ArgumentRule& rule, const c10::IValue& value) const {
    if (value.isComplexDouble() || (value.isTensor() && value.toTensor().is_complex()))
      return start(i) + " is a complex number; expected a real one";
    if (!value.isInt() && !value.isDouble() && !value.isBool() && !value.isTensor())
      return start(i) + " is not a number";
    if (rule.kind == Kind::tensor || !rule.finite) return std::nullopt;
    const double number = number_of(value);
    if (std::isfinite(number) && number >= rule.low_number && number <= rule.high_number) return std::nullopt;
    if (std::isinf(rule.low_number)) return fmt::format("{} is {}; expected a finite number", start(i), number);
    return fmt::format("{} is {}; expected {} to {}", start(i), number, rule.low_number, rule.high_number);
  }

  Wrong check_tensor(size_t i, const ArgumentRule& rule, const at::Tensor& tensor) const {
    const bool plain = tensor.layout() == at::kStrided && fits_device(tensor.device());
    if (!plain)
      return fmt::format("{} is on {}, of layout {}; expected a dense tensor with data", start(i),
                         tensor.device().str(), c10::str(tensor.layout()));
    if (!holds(rule.dtypes, tensor.scalar_type()) && !(holds(rule.dtypes, at::kFloat) && is_cast(tensor)))
      return fmt::format("{} is a tensor of {}; expected {}", start(i), c10::toString(tensor.scalar_type()),
                         dtype_names(rule.dtypes));
    if (tensor.dim() < rule.low || tensor.dim() > rule.high)
      return fmt::format("{} has {} dimensions; expected {} to {}", start(i), tensor.dim(), rule.low, rule.high);
    if (tensor.numel() > kMostElements)
      return fmt::format("{} has {} elements; expected at most {}", start(i), tensor.numel(), kMostElements);
    if (rule.filled && tensor.numel() == 0) return start(i) + " has no elements";
    if (rule.contiguous && !tensor.is_contiguous()) return start(i) + " is not contiguous; call x:contiguous()";
    if (rule.like)
      if (Wrong wrong = check_like(i, rule, tensor)) return wrong;
    if (rule.unexpanded && may_overlap_itself(tensor))
      return start(i) + " holds elements that share their memory (it is expanded, or a window); call x:contiguous()";
    return rule.written ? check_written(i, rule, tensor) : std::nullopt;
  }

  Wrong check_like(size_t i, const ArgumentRule& rule, const at::Tensor& tensor) const {
    const c10::IValue& value = call_.arguments[static_cast<size_t>(rule.reference)];
    if (!is_known(rule.reference) || !value.isTensor() || !value.toTensor().defined()) return std::nullopt;
    const at::Tensor& other = value.toTensor();
    if (other.scalar_type() == tensor.scalar_type() || (is_cast(other) && is_cast(tensor))) return std::nullopt;
    if (rule.or_float && is_narrow(other) && tensor.scalar_type() == at::kFloat) return std::nullopt;
    return fmt::format("{} is a tensor of {}; expected {}{}, as argument '{}' is", start(i),
                       c10::toString(tensor.scalar_type()), c10::toString(other.scalar_type()),
                       rule.or_float && is_narrow(other) ? " or Float" : "",
                       call_.schema.arguments()[static_cast<size_t>(rule.reference)].name());
  }

  static bool is_narrow(const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  }

  /// Autocast gives the kernel the same dtypes whether these are float32 or narrower. So what holds for float32 holds
  /// for all.
  bool is_cast(const at::Tensor& tensor) const {
    if (!is_narrow(tensor) && tensor.scalar_type() != at::kFloat) return false;
    const c10::DeviceType device = tensor.device().type();
    if (!compat::autocast(device).enabled) return false;
    const auto op = c10::Dispatcher::singleton().findSchema(call_.schema.operator_name());
    return op && compat::autocast_casts(*op, device);
  }

  Wrong check_written(size_t i, const ArgumentRule& rule, const at::Tensor& tensor) const {
    if (may_overlap_itself(tensor))
      return start(i) + " holds elements that share their memory (it is expanded, or a window); call x:clone()";
    if (!rule.apart) return std::nullopt;
    bool shared = false;
    for_each_tensor(call_.arguments, [&](const at::Tensor& other) {
      shared |= &other != &tensor && !other.is_same(tensor) && share_memory(other, tensor);
    });
    size_t times = 0;
    for_each_tensor(call_.arguments, [&](const at::Tensor& other) { times += other.is_same(tensor); });
    if (!shared && times < 2) return std::nullopt;
    return start(i) + " shares its memory with another argument; pass a copy (x:clone())";
  }

  const std::vector<ArgumentRule>& rules_;
  const OperatorCall& call_;
  const std::vector<bool>* known_;
};

}  // namespace

std::vector<ArgumentRule> read_rules(const c10::FunctionSchema& schema, std::string_view text,
                                     std::vector<std::string>& faults) {
  return RuleReader(schema, faults).read(text);
}

std::optional<std::string> broken_rule(const std::vector<ArgumentRule>& rules, const OperatorCall& call,
                                       const std::vector<bool>* known) {
  return RuleCheck(rules, call, known).run();
}

}  // namespace triage::operators
