#pragma once
#include <c10/util/StringUtil.h>
#include <triage/error.h>

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings/python/values.h"

/// Options of Python, by name.
namespace triage::python {

[[noreturn]] inline void wrong_type(const std::string& name, const char* expected, const c10::IValue& value) {
  throw InputError(c10::str("`", name, "` is ", expected, "; got ", value.tagKind(), "."));
}

/// Takes named options out of a dictionary, and then knows which are left.
class Options {
 public:
  explicit Options(const Dict& values) : values_(values) {}

  /// A view refers to the text in the dictionary.
  template <class Text, std::enable_if_t<std::is_convertible_v<const std::string&, Text>, int> = 0>
  void take(const char* name, Text& into) {
    if (const auto value = found(name)) {
      if (!value->isString()) wrong_type(name, "a text", *value);
      into = Text(value->toStringRef());
    }
  }
  void take(const char* name, bool& into) {
    if (const auto value = found(name)) {
      if (!value->isBool()) wrong_type(name, "True or False", *value);
      into = value->toBool();
    }
  }
  template <class Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
  void take(const char* name, Integer& into) {
    if (const auto value = found(name)) {
      if (!value->isInt() || value->toInt() < 0) wrong_type(name, "a whole number of 0 or more", *value);
      into = static_cast<Integer>(value->toInt());
    }
  }
  void take(const char* name, double& into) {
    if (const auto value = found(name)) {
      if (!value->isDouble() && !value->isInt()) wrong_type(name, "a number", *value);
      into = value->isInt() ? static_cast<double>(value->toInt()) : value->toDouble();
    }
  }
  void take(const char* name, std::vector<std::string>& into) {
    if (const auto value = found(name)) {
      if (!value->isList()) wrong_type(name, "a list of texts", *value);
      for (const c10::IValue& one : value->toListRef()) {
        if (!one.isString()) wrong_type(name, "a list of texts", one);
        into.push_back(one.toStringRef());
      }
    }
  }
  void take(const char* name, OnError& into) {
    choose(name, {OnError::raise, OnError::pass_through, OnError::last_good}, into);
  }
  void take(const char* name, ReloadGate& into) {
    choose(name, {ReloadGate::warn, ReloadGate::refuse, ReloadGate::shadow}, into);
  }

  void nothing_else(const char* known) const {
    for (const auto& entry : values_) {
      bool taken = false;
      for (const std::string& name : taken_) taken = taken || entry.key() == name;
      if (taken) continue;
      if (const std::string gone = text_if_gone(entry.key()); !gone.empty()) throw InputError(gone);
      throw InputError(c10::str("There is no option `", entry.key(), "`. There are: ", known, "."));
    }
  }

 private:
  template <class Choice>
  void choose(const char* name, const std::array<Choice, 3>& choices, Choice& into) {
    std::string text = to_string(into);
    take(name, text);
    for (const Choice each : choices) {
      if (text == to_string(each)) {
        into = each;
        return;
      }
    }
    throw InputError(c10::str("`", name, "` is \"", to_string(choices[0]), "\", \"", to_string(choices[1]), "\" or \"",
                              to_string(choices[2]), "\"; got \"", text, "\"."));
  }
  std::optional<c10::IValue> found(const char* name) {
    taken_.emplace_back(name);
    const auto entry = values_.find(name);
    if (entry == values_.end()) return {};
    return entry->value();
  }

  const Dict& values_;
  std::vector<std::string> taken_;
};

}  // namespace triage::python
