#pragma once
// What IF and the combinators refuse, of C++ hosts (control_flow.cpp, api.cpp) and of scripts
// (bindings/lua/flags/branches.cpp) alike. Each check gives the complaint, empty where there is none. None reads the
// data of a tensor, or asks for its sizes where a capture would notice: the operators that follow check again at run
// time.
#include <ATen/core/Tensor.h>

#include <string>

namespace triage::flags::check {

/// How messages name things in the language of the caller.
struct Language {
  std::string (*describe)(const at::Tensor&);
  const char* reduce;     // how a mask over elements becomes one of samples
  const char* convert;    // the end of a call that gives the dtype of `z`
  const char* keep_dim;   // an expression that broadcasts to `x`
  const char* unsqueeze;  // the end of a call that puts a dimension in front
  const char* where;      // behind "torch", and a bracket closed
  const char* results;    // what branches return
  const char* end;        // of a message
};
extern const Language cpp;

/// The beginning of the complaint about a condition; what came follows.
constexpr const char* condition_expected =
    "expected a bool tensor of shape (N,), which selects per sample, (), which selects the batch, or of more "
    "dimensions, which "
    "selects per element; got ";
std::string condition(const at::Tensor& condition, const Language& language);
/// Of one that is a condition: whether it is one of the batch.
std::string batch_condition(const at::Tensor& condition, const Language& language);

/// What two branches returned in the same place, for `condition` to select between.
std::string selectable(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b, const Language& language);
/// The same where the condition is over elements: the three broadcast as in `where`. Undefined: a number in the place
/// of a tensor.
std::string selectable_elements(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b,
                                const Language& language);
/// The complaint about flags there.
std::string flags_by_element(const at::Tensor& condition, const at::Tensor& flags, const Language& language);
/// The error for that, or for another difference (`what`) of two branches in the place `leaf`.
constexpr const char* same_results = "Every branch must return the same structure, shapes and dtypes.";
std::string branches_differ(const std::string& construct, const std::string& branch, const std::string& other,
                            const std::string& leaf, const std::string& what, const std::string& rule);
/// The error of branches that return different numbers of results.
std::string numbers_differ(const std::string& construct, const std::string& branch, size_t number,
                           const std::string& other, size_t other_number, const Language& language);

/// What a function made of `z`: its dtype, and its shape or one that broadcasts to it.
std::string fitting(const at::Tensor& z, const at::Tensor& made, const Language& language);

/// Throws InputError with the complaint of `who`, where there is one.
void hold(const std::string& who, const std::string& complaint, const Language& language);

}  // namespace triage::flags::check
