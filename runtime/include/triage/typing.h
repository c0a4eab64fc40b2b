#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <triage/api.h>
#include <triage/error.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Declared types of tensors, and the errors for a tensor that does not fit: one implementation for the `signature` of
/// policies, `tensorcheck` in Lua, and C++ hosts. It reads only sizes and properties of tensors, never their values.
///
///     triage::TensorMatcher call("encode");
///     call.check(x, {.dtype = at::kFloat, .dims = {"N", 512}}, "x");
///     call.check(mask, {.dtype = at::kBool, .dims = {"N"}}, "mask");   // the N of x
namespace triage {

/// One declared dimension.
struct TRIAGE_API Dim {
  enum class Kind : uint8_t {
    size,       ///< exactly `size`
    name,       ///< any size, the same for every use of `name` in one call
    attribute,  ///< the size in attribute `name` of the caller's object (`Dim.hidden` in Lua)
    broadcast,  ///< any size: a dimension that broadcasts
    rest,       ///< any number of dimensions, also none; at most once in a TensorSpec
  };
  Kind kind = Kind::size;
  int64_t value = 0;  ///< of Kind::size
  std::string name;   ///< of Kind::name and Kind::attribute

  Dim(int64_t size) : value(size) {}                 // NOLINT(google-explicit-constructor)
  Dim(int size) : value(size) {}                     // NOLINT(google-explicit-constructor)
  Dim(std::string text);                             // NOLINT(google-explicit-constructor) "..." is Kind::rest
  Dim(const char* text) : Dim(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  static Dim attribute(std::string name);
  static Dim broadcast();
  friend bool operator==(const Dim&, const Dim&) = default;
  std::string text() const;  ///< in Lua syntax: `512`, `"N"`, `Dim.hidden`, `Broadcast`, `"..."`
};

/// Which dtypes fit a declaration.
enum class DTypeKind : uint8_t {
  exact,     ///< only the named dtype
  floating,  ///< float16, bfloat16, float32, float64 and LibTorch's smaller ones (`floating_t`)
  integer,   ///< int8 .. int64 and uint8 (`integer_t`)
  any,       ///< every dtype (`any_t`)
};

/// A declared tensor.
struct TRIAGE_API TensorSpec {
  c10::ScalarType dtype = c10::ScalarType::Float;  ///< of data, if `kind` is exact; otherwise ignored
  DTypeKind kind = DTypeKind::exact;
  /// A flags tensor (`error_t`): any carrier, (N, num_words) for the words of the configuration. Then `dtype` is
  /// ignored.
  bool flags = false;
  std::vector<Dim> dims = {"..."};
  std::optional<c10::Device> device = {};  ///< a device without an index matches all of its kind
  std::optional<bool> requires_grad = {};
  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;

  /// Throws InputError: a negative size, an empty name, two "...".
  void validate() const;
  std::string text() const;  ///< in Lua syntax: `Tensor(float32_t, {"N", 512})`
};

/// The seven kinds of TorchGuard. `validation` is the base; by itself it means a malformed flags tensor.
enum class ValidationKind : uint8_t {
  validation,
  dimension,
  dtype,
  device,
  invalid_parameter,  ///< an argument is not a tensor or has the wrong requires_grad; or a declaration is unusable
  type,               ///< a result is not a tensor or has the wrong requires_grad
  invalid_return,     ///< the results as a whole: not the declared number, no Result
};
/// `DimensionMismatchError`, ...
TRIAGE_API const char* to_string(ValidationKind kind) noexcept;

struct ValidationFailure {
  using Detail = std::variant<std::monostate, int64_t, std::string>;  ///< sizes are integers
  ValidationKind kind = ValidationKind::validation;
  std::string function;
  std::string parameter;  ///< `x`, or `result 2`; empty if it concerns neither
  std::string dim_name;   ///< of a named or attribute dimension
  Detail expected;
  Detail actual;
  std::string message;  ///< complete: kind, function, parameter, dimension, what was expected, what came
};

/// The base of the exceptions for tensors that do not fit their declaration.
class TRIAGE_API ValidationError : public InputError {
 public:
  explicit ValidationError(ValidationFailure failure) : InputError(failure.message), failure_(std::move(failure)) {}
  const ValidationFailure& failure() const noexcept { return failure_; }

 private:
  ValidationFailure failure_;
};
class TRIAGE_API DimensionMismatchError : public ValidationError {
  using ValidationError::ValidationError;
};
class TRIAGE_API DTypeMismatchError : public ValidationError {
  using ValidationError::ValidationError;
};
class TRIAGE_API DeviceMismatchError : public ValidationError {
  using ValidationError::ValidationError;
};
class TRIAGE_API InvalidParameterError : public ValidationError {
  using ValidationError::ValidationError;
};
class TRIAGE_API TypeMismatchError : public ValidationError {
  using ValidationError::ValidationError;
};
class TRIAGE_API InvalidReturnTypeError : public ValidationError {
  using ValidationError::ValidationError;
};
/// Throws the class of `failure.kind`.
[[noreturn]] TRIAGE_API void throw_validation(ValidationFailure failure);

/// The tensor of a call to match: argument 'x', input 'z', result 2.
struct TRIAGE_API Subject {
  enum class Role : uint8_t { argument, input, result };
  Role role = Role::argument;
  std::string name;  ///< of a result: its number, from 1
  std::string text() const;
  std::string parameter() const { return role == Role::result ? text() : name; }
};

/// A fact that a match relied on. A match of other tensors has the same result if all facts are the same.
struct SizeFact {
  at::Tensor tensor;
  int64_t dim = -1;       ///< -1: the number of dimensions
  at::Tensor other = {};  ///< defined: size(dim) equals size(other_dim) of `other`; undefined: the value of size(dim)
  int64_t other_dim = -1;
};

/// Matches the tensors of one call; the first tensor with a dimension name binds it. Not thread-safe; create one for
/// each call.
class TRIAGE_API TensorMatcher {
 public:
  /// The size in attribute `name`, or a description of the value found instead ("nil").
  using Attribute = std::function<std::variant<int64_t, std::string>(const std::string& name)>;

  /// Flags tensors are matched against the global configuration, except for `num_slots` if given.
  explicit TensorMatcher(std::string function, Attribute attribute = {}, std::optional<int64_t> num_slots = {});

  /// Returns nullopt if `tensor` fits. A failure of kind `validation` is a malformed flags tensor: an error or a
  /// warning, by the configuration's strict_validation.
  std::optional<ValidationFailure> match(const at::Tensor& tensor, const TensorSpec& spec, const Subject& subject);
  /// The same for an argument; throws the failure, also for malformed flags.
  void check(const at::Tensor& tensor, const TensorSpec& spec, const std::string& name);

  const std::vector<SizeFact>& facts() const noexcept { return facts_; }

 private:
  struct Binding {
    std::string name;
    at::Tensor tensor;
    int64_t dim;
    std::string where;  // "dimension 0 of argument 'x'"
  };
  struct Site;  // the subject of one match
  std::optional<ValidationFailure> match_dtype(const Site& site) const;
  std::optional<ValidationFailure> match_words(const Site& site);
  std::optional<ValidationFailure> match_shape(const Site& site);
  std::optional<ValidationFailure> match_dim(const Site& site, const Dim& dim, int64_t index);
  std::optional<ValidationFailure> match_name(const Site& site, const Dim& dim, int64_t index);
  std::optional<ValidationFailure> match_place(const Site& site) const;
  ValidationFailure failure(const Site& site, ValidationKind kind, ValidationFailure::Detail expected,
                            ValidationFailure::Detail actual, const std::string& what) const;

  std::string function_;
  Attribute attribute_;
  std::optional<int64_t> num_slots_;
  std::vector<Binding> bindings_;
  std::vector<SizeFact> facts_;
};

}  // namespace triage
