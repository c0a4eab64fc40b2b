#pragma once
#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <triage/bundle.h>
#include <triage/candidate.h>
#include <triage/flags.h>
#include <triage/params.h>
#include <triage/runtime.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

/// What crosses to Python: dictionaries of numbers, texts, lists and tensors, which TorchBind turns into Python's own.
namespace triage::python {

using Dict = c10::Dict<std::string, c10::IValue>;

Dict empty_dict();
Dict to_dict(const Signature& signature);
Dict to_dict(const VersionInfo& version);
Dict to_dict(const BundleVersion& version);
Dict to_dict(const CandidateReport& report);
Dict to_dict(const PolicyStatistics& statistics);
Dict to_dict(const WatchEvent& event);
Dict to_dict(const RunInfo& info);
Dict to_dict(const flags::TableRow& row);

template <class Values>
c10::IValue to_list(const Values& values) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& value : values) list.push_back(to_dict(value));
  return list;
}

/// Throw InputError for a value of the wrong type, and for a name that is no option.
Params params_from(const Dict& values);
RuntimeOptions runtime_options_from(const Dict& values);
ShadowOptions shadow_options_from(const Dict& values);
CanaryOptions canary_options_from(const Dict& values);
/// Texts in the result refer to those in `values` and `sample_ids`, which is filled.
RunOptions run_options_from(const Dict& values, std::vector<std::string>& sample_ids);

/// Throws std::runtime_error with `error` as text that triage/_errors.py takes apart: the class, the place, the
/// script's traceback, the message.
[[noreturn]] void throw_to_python(const std::exception& error);

/// Calls `function`; errors of triage leave it as `throw_to_python` writes them.
template <class Function>
auto for_python(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Error& error) {
    throw_to_python(error);
  }
}

}  // namespace triage::python
