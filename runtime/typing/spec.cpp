// Declarations: what they may be, and how they read.
#include "runtime/graph/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <triage/typing.h>

#include <algorithm>

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

}  // namespace triage
