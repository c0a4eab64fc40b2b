#include "bindings/lua/tensors/calls/overloads.h"

#include "bindings/lua/state/state.h"
#include "bindings/lua/values/arguments.h"
#include "bindings/lua/values/describe.h"
#include "runtime/messages/fork_safe_mutex.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <sstream>
#include <unordered_map>

namespace triage::lua {
namespace {

ParamKind list_kind(const c10::Type& element) {
  switch (element.kind()) {
    case c10::TypeKind::TensorType:
      return ParamKind::tensors;
    case c10::TypeKind::OptionalType:
      return element.expectRef<c10::OptionalType>().getElementType()->kind() == c10::TypeKind::TensorType
                 ? ParamKind::optional_tensors
                 : ParamKind::foreign;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ParamKind::integers;
    case c10::TypeKind::FloatType:
      return ParamKind::reals;
    case c10::TypeKind::BoolType:
      return ParamKind::booleans;
    case c10::TypeKind::NumberType:
      return ParamKind::scalars;
    default:
      return ParamKind::foreign;
  }
}

ParamKind kind_of(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return ParamKind::tensor;
    case c10::TypeKind::NumberType:
      return ParamKind::scalar;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ParamKind::integer;
    case c10::TypeKind::FloatType:
      return ParamKind::real;
    case c10::TypeKind::BoolType:
      return ParamKind::boolean;
    case c10::TypeKind::StringType:
      return ParamKind::text;
    case c10::TypeKind::ScalarTypeType:
      return ParamKind::dtype;
    case c10::TypeKind::LayoutType:
      return ParamKind::layout;
    case c10::TypeKind::MemoryFormatType:
      return ParamKind::memory_format;
    case c10::TypeKind::DeviceObjType:
      return ParamKind::device;
    case c10::TypeKind::GeneratorType:
      return ParamKind::generator;
    case c10::TypeKind::ListType:
      return list_kind(*type.expectRef<c10::ListType>().getElementType());
    default:
      return ParamKind::foreign;
  }
}

bool writes_to(const c10::AliasInfo& alias) {
  if (alias.isWrite()) return true;
  for (const auto& contained : alias.containedTypes())
    if (writes_to(contained)) return true;
  return false;
}

OverloadParam param_of(const c10::Argument& argument) {
  OverloadParam param;
  param.name = argument.name();
  c10::TypePtr type = argument.real_type();
  if (type->kind() == c10::TypeKind::OptionalType) {
    param.optional = true;
    type = type->expectRef<c10::OptionalType>().getElementType();
  }
  param.kind = kind_of(*type);
  param.keyword_only = argument.kwarg_only();
  param.out = argument.is_out();
  param.written = argument.alias_info() && writes_to(*argument.alias_info());
  param.length = argument.N() ? static_cast<int>(*argument.N()) : 0;
  if (argument.default_value()) {
    param.has_default = true;
    param.default_value = *argument.default_value();
  }
  return param;
}

/// Overloads that take dimension names: the schema shows those as strings, only the overload's name tells.
bool takes_dimension_names(const c10::FunctionSchema& schema) {
  const std::string& overload = schema.overload_name();
  if (overload.find("imname") != std::string::npos || overload.find("names") != std::string::npos) return true;
  for (const auto& argument : schema.arguments())
    if (argument.name() == "names") return true;
  return false;
}

bool wants_one_device(const c10::FunctionSchema& schema) {
  static const auto& names =
      *new std::set<std::string>{"aten::clamp.Tensor",     "aten::clamp_.Tensor",     "aten::clip.Tensor",
                                 "aten::clip_.Tensor",     "aten::clamp_min.Tensor",  "aten::clamp_min_.Tensor",
                                 "aten::clamp_max.Tensor", "aten::clamp_max_.Tensor", "aten::where.self"};
  return names.count(schema.name() + "." + schema.overload_name()) != 0;
}

std::optional<Overload> prepare(const c10::OperatorHandle& handle) {
  const c10::FunctionSchema& schema = handle.schema();
  if (schema.name().rfind("aten::", 0) == 0 && takes_dimension_names(schema)) return std::nullopt;
  Overload overload{handle, {},    -1,    0,
                    false,  false, false, operators::find_contract(schema.name(), schema.overload_name())};
  bool has_dtype = false, has_pin = false;
  for (const auto& argument : schema.arguments()) {
    OverloadParam param = param_of(argument);
    if (param.kind == ParamKind::foreign && !param.optional && !param.has_default) return std::nullopt;
    if (param.name == "self") overload.self = static_cast<int>(overload.params.size());
    has_dtype |= param.name == "dtype";
    has_pin |= param.name == "pin_memory";
    overload.writes_out |= param.out;
    overload.writes |= param.written;
    if (!param.keyword_only && !param.out) ++overload.positional;
    overload.params.push_back(std::move(param));
  }
  overload.creates = has_dtype && has_pin;
  overload.one_device = wants_one_device(schema);
  return overload;
}

bool before(const Overload& a, const Overload& b) {
  if (a.writes_out != b.writes_out) return b.writes_out;
  if (a.params.size() != b.params.size()) return a.params.size() < b.params.size();
  return a.schema().overload_name() < b.schema().overload_name();
}

/// The names of the dispatcher, and what was prepared of them.
class Catalogue {
 public:
  const Operator* find(const std::string& name) {
    {
      std::shared_lock lock(mutex_);
      auto found = prepared_.find(name);
      if (found != prepared_.end()) return found->second.get();
    }
    std::unique_lock lock(mutex_);
    auto found = prepared_.find(name);
    if (found != prepared_.end()) return found->second.get();
    auto names = names_.find(name);
    if (names == names_.end()) {  // a library may have been loaded since
      collect();
      names = names_.find(name);
      if (names == names_.end()) return nullptr;
    }
    auto prepared = std::make_unique<Operator>(Operator{name, {}});
    for (const std::string& overload : names->second)
      if (auto handle = c10::Dispatcher::singleton().findSchema({name, overload}))
        if (auto ready = prepare(*handle)) prepared->overloads.push_back(std::move(*ready));
    std::stable_sort(prepared->overloads.begin(), prepared->overloads.end(), before);
    if (prepared->overloads.empty()) prepared = nullptr;
    return (prepared_[name] = std::move(prepared)).get();
  }

  std::vector<std::string> names_in(const std::string& space) {
    std::shared_lock lock(mutex_);
    std::vector<std::string> found;
    for (const auto& [name, overloads] : names_)
      if (name.rfind(space, 0) == 0) found.push_back(name.substr(space.size()));
    return found;
  }

 private:
  /// All or nothing: names without some of their overloads would be taken for the whole.
  void collect() {
    Names names;
    for (const auto& name : c10::Dispatcher::singleton().getAllOpNames())
      names[name.name].push_back(name.overload_name);
    names_.swap(names);
  }

  using Names = std::unordered_map<std::string, std::vector<std::string>>;
  messages::ForkSafeSharedMutex mutex_;
  Names names_;
  std::unordered_map<std::string, std::unique_ptr<Operator>> prepared_;
};

Catalogue& catalogue() {
  static Catalogue* instance = new Catalogue;  // lives as long as the dispatcher's own singleton
  return *instance;
}

std::string default_text(const c10::IValue& value) {
  if (value.isNone()) return "nil";
  if (value.isBool()) return value.toBool() ? "true" : "false";
  if (value.isString()) return '"' + value.toStringRef() + '"';
  if (value.isIntList()) {
    std::string text;
    for (int64_t item : value.toIntVector()) text += (text.empty() ? "" : ", ") + std::to_string(item);
    return "{" + text + "}";
  }
  std::ostringstream text;
  text << value;
  return text.str();
}

std::string param_text(const OverloadParam& param) {
  OverloadParam shown = param;
  if (param.has_default && param.default_value.isNone()) shown.optional = false;  // " = nil" says it
  std::string text = param.name + ": " + type_name(shown);
  if (param.has_default) text += " = " + default_text(param.default_value);
  return text;
}

std::string return_text(const c10::FunctionSchema& schema) {
  std::string text;
  for (const auto& result : schema.returns()) {
    OverloadParam param;
    param.kind = kind_of(*result.type());
    text += (text.empty() ? "" : ", ") + type_name(param);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

std::string type_name(const OverloadParam& param) {
  static const char* const names[] = {
      "Tensor",          "number", "int",           "float",     "boolean",   "string",
      "dtype",           "layout", "memory_format", "device",    "Generator", "{Tensor}",
      "{Tensor or nil}", "{int}",  "{float}",       "{boolean}", "{number}",  "foreign value"};
  std::string name = names[static_cast<size_t>(param.kind)];
  return param.optional ? name + " or nil" : name;
}

std::string Overload::signature() const {
  std::string positions, keywords;
  for (const OverloadParam& param : params) {
    std::string& part = param.keyword_only || param.out ? keywords : positions;
    if (!part.empty()) part += ", ";
    part += param_text(param);
  }
  if (!keywords.empty()) positions += (positions.empty() ? "{" : ", {") + keywords + "}";
  const std::string& name = schema().name();
  return name.substr(name.rfind(':') + 1) + "(" + positions + ") -> " + return_text(schema());
}

const Operator* find_operator(const std::string& name) { return catalogue().find(name); }

const Overload* find_overload(const std::string& name, const std::string& overload) {
  const Operator* op = find_operator(name);
  if (!op) return nullptr;
  for (const Overload& candidate : op->overloads)
    if (candidate.schema().overload_name() == overload) return &candidate;
  return nullptr;
}

std::vector<std::string> close_operators(const std::string& name) {
  std::string space = name.substr(0, name.rfind(':') + 1);
  std::vector<std::string> names;
  for (std::string& candidate : catalogue().names_in(space))
    if (candidate[0] != '_' || name[space.size()] == '_') names.push_back(std::move(candidate));
  return close_words(name.substr(space.size()), names);
}

bool by_contract(lua_State* L) { return !context(L).calls_everything; }

bool may_call(lua_State* L, const Overload& overload) { return overload.contract || !by_contract(L); }

bool may_call(lua_State* L, const Operator& op) {
  return std::any_of(op.overloads.begin(), op.overloads.end(),
                     [L](const Overload& overload) { return may_call(L, overload); });
}

}  // namespace triage::lua
