// Each operator that policies may call, with arguments that the fuzzer of operators makes and numbers that are special:
// captured, in place or not, by every backend, it gives what the script gives. TRIAGE_OPERATOR_CALLS=N makes N calls of
// each operator, beginning with call TRIAGE_OPERATOR_FIRST of seed TRIAGE_OPERATOR_SEED; TRIAGE_OPERATOR=NAME calls
// those whose name has it.
#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "runtime/graph/passes/uses.h"
#include "runtime/operators/semantics.h"
#include "tests/capture/script.h"
#include "tests/fuzz/operators/arguments.h"
#include "tests/fuzz/operators/targets.h"

namespace triage::parity {
namespace {

using fuzz::CallId;
using fuzz::Target;
using operators::Semantics;
using Tensors = std::vector<at::Tensor>;

int64_t setting(const char* name, int64_t otherwise) {
  const char* const asked = std::getenv(name);
  return asked ? std::strtoll(asked, nullptr, 10) : otherwise;
}

template <class Change>
void each_tensor(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list = value.toTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) list.set(i, change(list.get(i)));
    value = list;
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    c10::impl::GenericList list = value.toList().copy();
    for (size_t i = 0; i < list.size(); ++i)
      if (const c10::IValue item = list.get(i); item.isTensor() && item.toTensor().defined())
        list.set(i, change(item.toTensor()));
    value = list;
  }
}

at::Tensor called(const char* name, const char* overload, torch::jit::Stack arguments) {
  capture::call(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload), arguments);
  return arguments.back().toTensor();
}

/// The call as a script makes it: what it writes to is made first, and something is computed of each result.
Tensors call(const c10::OperatorHandle& op, torch::jit::Stack arguments, at::ArrayRef<at::Tensor> tensors) {
  size_t next = 0;
  Tensors written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = op.schema().arguments()[i].alias_info();
    each_tensor(arguments[i], [&](const at::Tensor&) {
      const at::Tensor& given = tensors[next++];
      if (!alias || !alias->isWrite()) return given;
      written.push_back(called("aten::clone", "", {given, c10::IValue()}));
      return written.back();
    });
  }
  capture::call(op, arguments);
  Tensors results;
  for (c10::IValue& value : arguments)
    each_tensor(value, [&](const at::Tensor& result) {
      results.push_back(result);
      return result;
    });
  results.insert(results.end(), written.begin(), written.end());
  const size_t count = results.size();
  for (size_t i = 0; i < count; ++i)
    if (results[i].device().is_cpu() && results[i].layout() == at::kStrided)
      results.push_back(results[i].scalar_type() == at::kBool ? called("aten::logical_not", "", {results[i]})
                                                              : called("aten::neg", "", {results[i]}));
  return results;
}

struct Outcome {
  Tensors results;
  std::string error;  // empty: none
};

template <class Run>
Outcome outcome_of(const Run& run) {
  try {
    return {run(), ""};
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return {{}, "error: " + text.substr(0, text.find('\n'))};
  }
}

/// How a loop of `fused` may differ from ATen, as docs/how-it-works.md says.
enum class Allowed : uint8_t {
  nothing,
  rounding,    // of functions that are polynomials: the argument's size counts, too
  order,       // of additions, and what leaves the range on the way
  zero_sign,   // of two equal zeros, either
  last_place,  // of a double: ATen may take the square root of a library that does not round to nearest
  division     // exact where vectors of ATen give NaN
};

Allowed allowed_of(const Target& target) {
  const Semantics& does = operators::semantics_of(target.op);
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return target.name == name; });
  };
  if (does.has(Semantics::rounds_by_position))
    return does.sizes == operators::ResultSizes::broadcast ? Allowed::rounding : Allowed::order;
  if (does.has(Semantics::modulus) || does.has(Semantics::quotient)) return Allowed::division;
  if (is_one_of({"aten::maximum", "aten::minimum", "aten::max.other", "aten::min.other", "aten::amax", "aten::amin",
                 "aten::max.dim", "aten::min.dim", "aten::clamp.Tensor", "aten::clip.Tensor", "aten::clamp_min.Tensor",
                 "aten::clamp_max.Tensor", "aten::clamp_.Tensor", "aten::clip_.Tensor", "aten::clamp_min_.Tensor",
                 "aten::clamp_max_.Tensor"}))
    return Allowed::zero_sign;
  if (is_one_of({"aten::sqrt", "aten::sqrt_"})) return Allowed::last_place;
  return Allowed::nothing;
}

double tolerance(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
      return 0x1p-9;
    case at::kBFloat16:
      return 0x1p-6;
    case at::kDouble:
    case at::kComplexDouble:
      return 1e-13;
    default:
      return 1e-5;
  }
}

at::Tensor plain(const at::Tensor& tensor) {
  const at::Tensor resolved = tensor.detach().resolve_conj().resolve_neg().contiguous();
  return resolved.is_complex() ? at::view_as_real(resolved) : resolved;
}

/// The places where two results are the same, as far as they have to be. `scale`: the largest finite argument.
at::Tensor same_places(const at::Tensor& a, const at::Tensor& b, Allowed allowed, double scale) {
  const at::Tensor same = (a.isnan() & b.isnan()) | (a.eq(b) & at::signbit(a).eq(at::signbit(b)));
  const at::Tensor wide = a.to(at::kDouble), other = b.to(at::kDouble);
  const double relative = tolerance(a.scalar_type());
  switch (allowed) {
    case Allowed::nothing:
      return same;
    case Allowed::zero_sign:
      return same | a.eq(b);
    case Allowed::division:
      return same | a.isnan();
    case Allowed::last_place:
      return a.scalar_type() == at::kDouble ? same | ((a - b).abs() <= a.abs() * 0x1p-52) : same;
    case Allowed::order:
      if (scale > 1e3) return at::ones_like(same);  // sums of such numbers are what is left of them
      scale *= 1e2;
      break;
    case Allowed::rounding:
      scale = std::min(scale, 1e2);
      break;
  }
  return same | a.eq(b) |
         ((wide - other).abs() <= (at::maximum(wide.abs(), other.abs()) + std::max(scale, 1.0)) * relative);
}

/// Empty where they agree.
std::string difference(const at::Tensor& expected, const at::Tensor& got, Allowed allowed, double scale) {
  if (expected.defined() != got.defined()) return "one of them is undefined";
  if (!expected.defined()) return "";
  if (expected.scalar_type() != got.scalar_type())
    return std::string("dtype ") + c10::toString(got.scalar_type()) + ", not " + c10::toString(expected.scalar_type());
  if (expected.sizes() != got.sizes()) return "other sizes";
  if (!expected.device().is_cpu() || expected.layout() != at::kStrided) return "";
  const at::Tensor a = plain(expected), b = plain(got);
  if (!a.is_floating_point()) return a.equal(b) || allowed == Allowed::order ? "" : "other numbers";
  const at::Tensor off = same_places(a, b, allowed, scale).logical_not();
  if (!off.any().item<bool>()) return "";
  std::ostringstream text;
  text.precision(9);
  text << a.masked_select(off)[0].item<double>() << " became " << b.masked_select(off)[0].item<double>() << " ("
       << off.count_nonzero().item<int64_t>() << " of " << off.numel() << ")";
  return text.str();
}

std::string difference(const Outcome& expected, const Outcome& got, Allowed allowed, double scale) {
  if (expected.error.empty() != got.error.empty())
    return expected.error.empty() ? got.error : "no error, where the script has one: " + expected.error;
  if (expected.results.size() != got.results.size()) return "another number of results";
  for (size_t i = 0; i < expected.results.size(); ++i)
    if (const std::string text = difference(expected.results[i], got.results[i], allowed, scale); !text.empty())
      return "result " + std::to_string(i) + ": " + text;
  return "";
}

double largest_of(const Tensors& tensors) {
  double largest = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::Tensor all = plain(tensor).to(at::kDouble).abs();
    largest = std::max(largest, all.masked_fill(all.isfinite().logical_not(), 0).max().item<double>());
  }
  return largest;
}

/// Gives the same for the same arguments, and all of it.
bool is_comparable(const c10::OperatorHandle& op) {
  return !graph::is_random(op) && !graph::is_uninitialized(op) && op.operator_name().name.rfind("aten::", 0) == 0;
}

/// False where there was nothing to compare: the arguments are not what policies may pass.
bool check(const Target& target, CallId id) {
  std::optional<std::string> violation;
  torch::jit::Stack arguments = fuzz::arguments_of(target, id, violation);
  fuzz::Random random(id.seed * 1000003 + static_cast<uint64_t>(id.index));
  fuzz::make_numbers_special(target.op.schema(), arguments, random);
  if (target.violation(arguments) || target.allocation_bound(arguments) > (8 << 20) ||
      target.time_bound(arguments) > 100'000'000)
    return false;
  Tensors tensors;
  bool strange = false;
  for (c10::IValue& argument : arguments)
    each_tensor(argument, [&](const at::Tensor& tensor) {
      strange |= tensor.unsafeGetTensorImpl()->is_wrapped_number() || !tensor.device().is_cpu() ||
                 tensor.layout() != at::kStrided;
      tensors.push_back(tensor);
      return tensor;
    });
  if (strange || tensors.empty()) return false;
  const double scale = largest_of(tensors);
  const Outcome expected = outcome_of([&] { return call(target.op, arguments, tensors); });
  std::vector<std::string> names;
  for (size_t i = 0; i < tensors.size(); ++i) names.push_back("z" + std::to_string(i));
  for (const char* const backend : {"eager", "aot_eager", "fused"}) {
    capture::Compiled::Options options;
    options.backend = backend;
    std::string warnings;
    options.warn = [&](const std::string& text) { warnings += text; };
    const auto function = test::script(
        [&](at::ArrayRef<at::Tensor> given, at::ArrayRef<at::Tensor>) { return call(target.op, arguments, given); },
        Signature{names, {}, {}});
    capture::Compiled compiled(function, options);
    const Allowed allowed = backend == std::string("fused") ? allowed_of(target) : Allowed::nothing;
    for (const char* const when : {"captured", "again"}) {
      const Outcome got = outcome_of([&] { return test::run(compiled, tensors); });
      const std::string text = difference(expected, got, allowed, scale);
      if (text.empty()) continue;
      FAIL_CHECK(target.name << ", call " << id.index << " of seed " << id.seed << ", " << std::string(backend) << ", "
                             << std::string(when) << ": " << text << "\n  "
                             << fuzz::describe_arguments(target.op.schema(), arguments).substr(0, 1500)
                             << (warnings.empty() ? "" : "\n  ") << warnings.substr(0, 300));
      break;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("operators of policies give the script's bits, captured by each backend, with numbers that are special") {
  const char* const only = std::getenv("TRIAGE_OPERATOR");
  const int64_t calls = setting("TRIAGE_OPERATOR_CALLS", 2), first = setting("TRIAGE_OPERATOR_FIRST", 0);
  const auto seed = static_cast<uint64_t>(setting("TRIAGE_OPERATOR_SEED", 7));
  int64_t compared = 0;
  for (const Target& target : fuzz::contract_targets()) {
    if (!is_comparable(target.op) || (only && target.name.find(only) == std::string::npos)) continue;
    for (int64_t index = first; index < first + calls; ++index) compared += check(target, {seed, index});
  }
  CHECK_MESSAGE(compared > (only ? 0 : 100 * calls), compared << " calls were compared");
}

}  // namespace triage::parity
