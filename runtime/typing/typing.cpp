// Declared types: what they may be, how they read, and one tensor against one declaration. Contract of the matcher: it
// reads no values; every size that a result depends on is in `facts`.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/config.h>
#include <triage/type_cast.h>
#include <triage/typing.h>

#include <algorithm>
#include <utility>

#include "runtime/flags/checks.h"
#include "runtime/flags/forms.h"
#include "runtime/graph/text/describe.h"

namespace triage {

Dim::Dim(std::string text) : kind(text == "..." ? Kind::rest : Kind::name), name(std::move(text)) {
  if (kind == Kind::rest) name.clear();
}

Dim Dim::attribute(std::string name) {
  Dim dim(std::move(name));
  dim.kind = Kind::attribute;
  return dim;
}

Dim Dim::broadcast() {
  Dim dim(0);
  dim.kind = Kind::broadcast;
  return dim;
}

std::string Dim::text() const {
  switch (kind) {
    case Kind::size:
      return std::to_string(value);
    case Kind::name:
      return '"' + name + '"';
    case Kind::attribute:
      return "Dim." + name;
    case Kind::broadcast:
      return "Broadcast";
    case Kind::rest:
      break;
  }
  return "\"...\"";
}

void TensorSpec::validate() const {
  for (const Dim& dim : dims) {
    if (dim.kind == Dim::Kind::size && dim.value < 0)
      throw InputError(
          fmt::format("{}: a dimension cannot have {} elements; for any size give it a name", text(), dim.value));
    if ((dim.kind == Dim::Kind::name || dim.kind == Dim::Kind::attribute) && dim.name.empty())
      throw InputError(text() + ": the name of a dimension is empty; for any size give it a name, or Broadcast");
  }
  const auto rests =
      std::count_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.kind == Dim::Kind::rest; });
  if (rests > 1) throw InputError(text() + ": `\"...\"` may stand once; it is not clear which dimensions each takes");
}

namespace {

std::string dtype_text(const TensorSpec& spec) {
  if (spec.flags) return "error_t";
  switch (spec.kind) {
    case DTypeKind::floating:
      return "floating_t";
    case DTypeKind::integer:
      return "integer_t";
    case DTypeKind::any:
      return "any_t";
    case DTypeKind::exact:
      break;
  }
  return graph::dtype_name(spec.dtype) + "_t";
}

}  // namespace

std::string TensorSpec::text() const {
  std::vector<std::string> shown;
  for (const Dim& dim : dims) shown.push_back(dim.text());
  std::string text = fmt::format("Tensor({}, {{{}}}", dtype_text(*this), fmt::join(shown, ", "));
  if (device || requires_grad) text += device ? ", \"" + device->str() + '"' : ", nil";
  if (requires_grad) text += *requires_grad ? ", true" : ", false";
  return text + ")";
}

const char* to_string(ValidationKind kind) noexcept {
  switch (kind) {
    case ValidationKind::validation:
      break;
    case ValidationKind::dimension:
      return "DimensionMismatchError";
    case ValidationKind::dtype:
      return "DTypeMismatchError";
    case ValidationKind::device:
      return "DeviceMismatchError";
    case ValidationKind::invalid_parameter:
      return "InvalidParameterError";
    case ValidationKind::type:
      return "TypeMismatchError";
    case ValidationKind::invalid_return:
      return "InvalidReturnTypeError";
  }
  return "ValidationError";
}

void throw_validation(ValidationFailure failure) {
  switch (failure.kind) {
    case ValidationKind::validation:
      break;
    case ValidationKind::dimension:
      throw DimensionMismatchError(std::move(failure));
    case ValidationKind::dtype:
      throw DTypeMismatchError(std::move(failure));
    case ValidationKind::device:
      throw DeviceMismatchError(std::move(failure));
    case ValidationKind::invalid_parameter:
      throw InvalidParameterError(std::move(failure));
    case ValidationKind::type:
      throw TypeMismatchError(std::move(failure));
    case ValidationKind::invalid_return:
      throw InvalidReturnTypeError(std::move(failure));
  }
  throw ValidationError(std::move(failure));
}

std::string Subject::text() const {
  switch (role) {
    case Role::argument:
      return "argument '" + name + "'";
    case Role::input:
      return "input '" + name + "'";
    case Role::result:
      break;
  }
  return "result " + name;
}

namespace {

std::string shape_text(const at::Tensor& tensor) { return fmt::format("({})", fmt::join(tensor.sizes(), ", ")); }

std::string detail_text(const ValidationFailure::Detail& detail) {
  if (const auto* number = std::get_if<int64_t>(&detail)) return std::to_string(*number);
  const auto* text = std::get_if<std::string>(&detail);
  return text ? *text : "";
}

/// Two sizes that should have been equal and are not: what is known is each of them.
void specialize(std::vector<SizeFact>& facts, size_t from) {
  for (size_t i = from, end = facts.size(); i < end; ++i) {
    if (!facts[i].other.defined()) continue;
    facts.push_back({std::exchange(facts[i].other, at::Tensor()), facts[i].other_dim});
  }
}

bool is_carrier(at::ScalarType dtype) {
  return dtype == at::kLong || dtype == at::kInt || dtype == at::kDouble || dtype == at::kFloat;
}

bool fits_dtype(const TensorSpec& spec, at::ScalarType dtype) {
  if (spec.flags) return is_carrier(dtype);
  switch (spec.kind) {
    case DTypeKind::floating:
      return at::isFloatingType(dtype);
    case DTypeKind::integer:
      return at::isIntegralType(dtype, /*includeBool=*/false);
    case DTypeKind::any:
      return true;
    case DTypeKind::exact:
      break;
  }
  return dtype == spec.dtype;
}

std::string expected_dtype(const TensorSpec& spec) {
  if (spec.flags) return "int64, int32, float64 or float32";
  if (spec.kind == DTypeKind::floating) return "a floating dtype";
  if (spec.kind == DTypeKind::integer) return "an integer dtype";
  return graph::dtype_name(spec.dtype);
}

}  // namespace

struct TensorMatcher::Site {
  const at::Tensor& tensor;
  const TensorSpec& spec;
  const Subject& subject;
};

TensorMatcher::TensorMatcher(std::string function, Attribute attribute, std::optional<int64_t> num_slots)
    : function_(std::move(function)), attribute_(std::move(attribute)), num_slots_(num_slots) {}

/// `what` says between the parameter and `expected` where the two differ: "dimension 1 ('N')", "dtype".
ValidationFailure TensorMatcher::failure(const Site& site, ValidationKind kind, ValidationFailure::Detail expected,
                                         ValidationFailure::Detail actual, const std::string& what) const {
  if (site.spec.flags && (kind == ValidationKind::dtype || kind == ValidationKind::dimension))
    kind = ValidationKind::validation;
  const char* malformed = kind == ValidationKind::validation ? "a malformed flags tensor, " : "";
  ValidationFailure failure{kind, function_, site.subject.parameter(), "", std::move(expected), std::move(actual), ""};
  failure.message =
      fmt::format("{}: {}: {}: {}{}: expected {}, got {}; it is {} and declared {}", to_string(kind), function_,
                  site.subject.text(), malformed, what, detail_text(failure.expected), detail_text(failure.actual),
                  graph::dtype_name(site.tensor.scalar_type()) + " " + shape_text(site.tensor), site.spec.text());
  return failure;
}

std::optional<ValidationFailure> TensorMatcher::match(const at::Tensor& tensor, const TensorSpec& spec,
                                                      const Subject& subject) {
  const Site site{tensor, spec, subject};
  const size_t facts = facts_.size(), bindings = bindings_.size();
  auto failed = match_dtype(site);
  if (!failed) failed = match_shape(site);
  if (!failed) failed = match_words(site);
  if (!failed) failed = match_place(site);
  if (!failed) return std::nullopt;
  specialize(facts_, facts);
  bindings_.erase(bindings_.begin() + static_cast<std::ptrdiff_t>(bindings),
                  bindings_.end());  // names are bound by tensors that fit
  return failed;
}

void TensorMatcher::check(const at::Tensor& tensor, const TensorSpec& spec, const std::string& name) {
  const Subject subject{Subject::Role::argument, name};
  if (!tensor.defined())
    throw_validation({ValidationKind::invalid_parameter, function_, name, "", spec.text(), "an undefined tensor",
                      fmt::format("InvalidParameterError: {}: {}: expected {}, got an undefined tensor", function_,
                                  subject.text(), spec.text())});
  if (auto failed = match(tensor, spec, subject)) throw_validation(std::move(*failed));
}

std::optional<ValidationFailure> TensorMatcher::match_dtype(const Site& site) const {
  const at::ScalarType dtype = site.tensor.scalar_type();
  if (fits_dtype(site.spec, dtype)) return std::nullopt;
  return failure(site, ValidationKind::dtype, expected_dtype(site.spec), graph::dtype_name(dtype), "dtype");
}

/// Flags are (N, num_words), whatever names the declaration gives the two.
std::optional<ValidationFailure> TensorMatcher::match_words(const Site& site) {
  if (!site.spec.flags) return std::nullopt;
  facts_.push_back({site.tensor});
  if (site.tensor.dim() != 2)
    return failure(site, ValidationKind::validation, int64_t{2}, site.tensor.dim(), "number of dimensions");
  const int64_t slots = num_slots_.value_or(get_config().num_slots);
  const int64_t words = flags::check::words_for(slots, site.tensor.scalar_type());
  facts_.push_back({site.tensor, 1});
  if (site.tensor.size(1) == words) {
    flags::KnownForms::add(site.tensor.scalar_type(), words);
    return std::nullopt;
  }
  return failure(site, ValidationKind::validation, words, site.tensor.size(1),
                 fmt::format("words a sample (of {} slots by the configuration)", slots));
}

std::optional<ValidationFailure> TensorMatcher::match_shape(const Site& site) {
  const auto& dims = site.spec.dims;
  const auto declared = static_cast<int64_t>(dims.size()), rank = site.tensor.dim();
  const auto rest = std::find_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.kind == Dim::Kind::rest; });
  const bool open = rest != dims.end();
  facts_.push_back({site.tensor});
  if (open ? rank < declared - 1 : rank != declared)
    return failure(site, ValidationKind::dimension, open ? declared - 1 : declared, rank,
                   open ? "number of dimensions (at least)" : "number of dimensions");
  const int64_t before = open ? rest - dims.begin() : declared;
  for (int64_t i = 0; i < before; ++i)
    if (auto failed = match_dim(site, dims[static_cast<size_t>(i)], i)) return failed;
  for (int64_t i = before + 1; i < declared; ++i)
    if (auto failed = match_dim(site, dims[static_cast<size_t>(i)], rank - declared + i)) return failed;
  return std::nullopt;
}

std::optional<ValidationFailure> TensorMatcher::match_dim(const Site& site, const Dim& dim, int64_t index) {
  if (dim.kind == Dim::Kind::broadcast) return std::nullopt;
  if (dim.kind == Dim::Kind::name) return match_name(site, dim, index);
  int64_t expected = dim.value;
  std::string what = fmt::format("dimension {}", index);
  if (dim.kind == Dim::Kind::attribute) {
    what += " (" + dim.text() + ")";
    std::variant<int64_t, std::string> found = attribute_ ? attribute_(dim.name) : "no object to take it from";
    if (const auto* other = std::get_if<std::string>(&found)) {
      ValidationFailure failed =
          failure(site, ValidationKind::invalid_parameter, "an integer as `self." + dim.name + "`", *other, what);
      failed.dim_name = dim.name;
      return failed;
    }
    expected = std::get<int64_t>(found);
  }
  facts_.push_back({site.tensor, index});
  if (site.tensor.size(index) == expected) return std::nullopt;
  ValidationFailure failed = failure(site, ValidationKind::dimension, expected, site.tensor.size(index), what);
  failed.dim_name = dim.name;
  return failed;
}

std::optional<ValidationFailure> TensorMatcher::match_name(const Site& site, const Dim& dim, int64_t index) {
  const auto bound = std::find_if(bindings_.begin(), bindings_.end(),
                                  [&](const Binding& binding) { return binding.name == dim.name; });
  if (bound == bindings_.end()) {
    bindings_.push_back({dim.name, site.tensor, index, fmt::format("dimension {} of {}", index, site.subject.text())});
    return std::nullopt;
  }
  facts_.push_back({site.tensor, index, bound->tensor, bound->dim});
  const int64_t expected = bound->tensor.size(bound->dim);
  if (site.tensor.size(index) == expected) return std::nullopt;
  ValidationFailure failed = failure(site, ValidationKind::dimension, expected, site.tensor.size(index),
                                     fmt::format("dimension {} ('{}', as {})", index, dim.name, bound->where));
  failed.dim_name = dim.name;
  return failed;
}

std::optional<ValidationFailure> TensorMatcher::match_place(const Site& site) const {
  const TensorSpec& spec = site.spec;
  const c10::Device device = site.tensor.device();
  if (spec.device &&
      (device.type() != spec.device->type() || (spec.device->has_index() && device.index() != spec.device->index())))
    return failure(site, ValidationKind::device, spec.device->str(), device.str(), "device");
  if (spec.requires_grad && site.tensor.requires_grad() != *spec.requires_grad) {
    const bool of_result = site.subject.role == Subject::Role::result;
    return failure(site, of_result ? ValidationKind::type : ValidationKind::invalid_parameter,
                   *spec.requires_grad ? "true" : "false", *spec.requires_grad ? "false" : "true", "requires_grad");
  }
  return std::nullopt;
}

std::optional<ValidationFailure> cast_failure(c10::ScalarType dtype, const at::Tensor& x) {
  const auto failure = [](ValidationKind kind, const std::string& expected, const std::string& got, const char* hint) {
    return ValidationFailure{
        kind,
        "type_cast",
        "x",
        "",
        expected,
        got,
        fmt::format("{}: type_cast: argument 'x': expected {}, got {}{}", to_string(kind), expected, got, hint)};
  };
  if (!x.defined()) return failure(ValidationKind::invalid_parameter, "a tensor", "an undefined tensor", "");
  if (x.is_complex() && !at::isComplexType(dtype))
    return failure(ValidationKind::dtype, "a real tensor to make " + graph::dtype_name(dtype) + " of",
                   graph::dtype_name(x.scalar_type()), "; a cast would drop the imaginary parts: take torch.real(x)");
  return std::nullopt;
}

Result<at::Tensor, ValidationFailure> type_cast(c10::ScalarType dtype, const at::Tensor& x) {
  if (auto failure = cast_failure(dtype, x)) return Err(std::move(*failure));
  return Ok(x.to(dtype));
}

}  // namespace triage
