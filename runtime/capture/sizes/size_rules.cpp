// The shapes that operators give. A rule holds for every size for which the call does not raise, or answers "unknown":
// what is not certain costs a graph for each size, a wrong rule would cost a wrong answer.
#include "runtime/capture/rules/rules.h"
#include "runtime/capture/sizes/size_origins.h"
#include "runtime/given/host_call.h"

#include <algorithm>
#include <limits>

namespace triage::capture {

using operators::ResultSizes;

namespace {

const Extent one = Extent::constant(1);

}  // namespace

SizeRules::SizeRules(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments,
                     const SizeOrigins& origins)
    : op_(op), arguments_(arguments), origins_(origins), sizes_(operators::semantics_of(op).sizes) {
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    c10::TypePtr type = declared[i].real_type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    number_is_param_ |= type->kind() != c10::TypeKind::TensorType;
  }
}

Shape SizeRules::result(size_t index) const {
  if (sizes_ == ResultSizes::repaired) return shape(index == 0 ? "z" : "flags");
  if (sizes_ == ResultSizes::host) return of_host(index);
  if (sizes_ == ResultSizes::parts) return parted_dim(op_, arguments_) ? part(index) : std::nullopt;
  if (op_.schema().returns().size() != 1) return std::nullopt;
  const bool by_tensors = sizes_ == ResultSizes::broadcast || sizes_ == ResultSizes::scalar;
  return number_is_param_ && !by_tensors ? std::nullopt : of_one();
}

Shape SizeRules::of_one() const {
  switch (sizes_) {
    case ResultSizes::broadcast:
      return pointwise();
    case ResultSizes::either:
      return broadcast(shape("a"), shape("b"));
    case ResultSizes::like_first:
      return first();
    case ResultSizes::like_other:
      return shape("other");
    case ResultSizes::like_z:
      return shape("z");
    case ResultSizes::scalar:
      return std::vector<Extent>{};
    case ResultSizes::row_each:
      return rows_of_first();
    case ResultSizes::record:
      return record();
    case ResultSizes::reduced:
      return reduction();
    case ResultSizes::linear:
      return linear();
    case ResultSizes::matmul:
      return matmul();
    case ResultSizes::addmm:
      return addmm();
    case ResultSizes::embedding:
      return embedding();
    case ResultSizes::convolution:
      return convolution();
    case ResultSizes::flatten:
      return flatten();
    case ResultSizes::view:
      return view();
    case ResultSizes::unsqueeze:
      return unsqueeze();
    case ResultSizes::swap_two:
      return swap_two();
    case ResultSizes::swap_last_two:
      return first() && first()->size() >= 2 ? swapped(-2, -1) : std::nullopt;
    case ResultSizes::transpose:
      return transpose();
    case ResultSizes::permute:
      return permute();
    case ResultSizes::select:
      return select();
    case ResultSizes::slice:
      return slice();
    case ResultSizes::concatenate:
      return concatenate();
    case ResultSizes::stack:
      return stack();
    case ResultSizes::rows_by_mask:
      return rows_by_mask();
    case ResultSizes::positions:
      return list_of_positions();
    case ResultSizes::unknown_length:
      return std::vector<Extent>{Extent{}};
    case ResultSizes::repaired:
    case ResultSizes::parts:
    case ResultSizes::host:
    case ResultSizes::unknown:
      break;
  }
  return std::nullopt;
}

// --- what the call was given

bool SizeRules::repeats_itself() const {
  const auto all = tensors();
  return !number_is_param_ && !gives_dynamic_shape(op_, arguments_) &&
         std::none_of(all.begin(), all.end(), [&](const at::Tensor& tensor) { return origins_.knows(tensor); });
}

const c10::IValue* SizeRules::argument(const char* name) const {
  const auto& declared = op_.schema().arguments();
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].name() == name) return &arguments_[i];
  return nullptr;
}

Shape SizeRules::shape(const char* name) const {
  const c10::IValue* value = argument(name);
  if (!value || !value->isTensor() || !value->toTensor().defined()) return std::nullopt;
  return shape(value->toTensor());
}

Shape SizeRules::first() const {
  const bool given = !arguments_.empty() && arguments_[0].isTensor() && arguments_[0].toTensor().defined();
  return given ? shape(arguments_[0].toTensor()) : std::nullopt;
}

std::optional<int64_t> SizeRules::integer(const char* name) const {
  const c10::IValue* value = argument(name);
  return value && value->isInt() ? std::optional(value->toInt()) : std::nullopt;
}

std::vector<at::Tensor> SizeRules::tensors() const {
  std::vector<at::Tensor> all;
  for (const c10::IValue& argument : arguments_) {
    if (argument.isTensor() && argument.toTensor().defined()) all.push_back(argument.toTensor());
    if (!argument.isList()) continue;
    for (const c10::IValue& item : argument.toListRef())
      if (item.isTensor() && item.toTensor().defined()) all.push_back(item.toTensor());
  }
  return all;
}

/// The dims named by an int or a list of ints, counted from the front; nothing where the argument is neither.
std::optional<std::vector<int64_t>> SizeRules::wrapped_dims(const char* name, size_t rank) const {
  const c10::IValue* value = argument(name);
  std::vector<int64_t> dims;
  if (value && value->isInt())
    dims = {value->toInt()};
  else if (value && value->isIntList())
    dims = value->toIntVector();
  else
    return std::nullopt;
  for (int64_t& dim : dims) {
    if (dim < 0) dim += static_cast<int64_t>(rank);
    if (dim < 0 || dim >= static_cast<int64_t>(rank)) return std::nullopt;
  }
  return dims;
}

Extent SizeRules::broadcast(const Extent& a, const Extent& b) const {
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  if (a.from == Extent::From::constant) return a;  // the other is the same, or 1
  if (b.from == Extent::From::constant) return b;
  const bool same = a.from == Extent::From::input && a == b;
  return same ? a : Extent{};
}

Shape SizeRules::broadcast(const Shape& a, const Shape& b) const {
  if (!a || !b) return std::nullopt;
  const auto &longer = a->size() >= b->size() ? *a : *b, &shorter = a->size() >= b->size() ? *b : *a;
  std::vector<Extent> extents = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) extents[lead + i] = broadcast(longer[lead + i], shorter[i]);
  return extents;
}

// --- the rules

Shape SizeRules::pointwise() const {
  Shape result = std::vector<Extent>{};
  for (const at::Tensor& tensor : tensors()) result = broadcast(result, shape(tensor));
  return result;
}

Shape SizeRules::rows_of_first() const {
  const Shape flags = first();
  if (!flags || flags->empty()) return std::nullopt;
  return std::vector<Extent>{flags->front()};
}

/// Flags: of the tensor that is given, else new ones for the samples of the first argument.
Shape SizeRules::record() const {
  if (Shape flags = shape("flags")) return flags;
  const Shape like = first();
  const auto slots = integer("num_slots");
  if (!like || like->empty() || !slots) return std::nullopt;
  const c10::IValue* dtype = argument("dtype");
  if (!dtype || !dtype->isInt()) return std::nullopt;
  const auto carrier = static_cast<at::ScalarType>(dtype->toInt());
  const int64_t per = carrier == at::kInt || carrier == at::kFloat ? 2 : 4;
  return std::vector<Extent>{like->front(), Extent::constant((*slots + per - 1) / per)};
}

Shape SizeRules::reduction() const {
  const Shape input = first();
  if (!input || tensors().size() != 1) return std::nullopt;
  const c10::IValue* dim = argument("dim");
  const c10::IValue* keep = argument("keepdim");
  const bool keeps = keep && keep->isBool() && keep->toBool();
  if (!dim || dim->isNone()) {
    if (keeps) return std::vector<Extent>(input->size(), one);
    return std::vector<Extent>{};
  }
  const auto dims = wrapped_dims("dim", input->size());
  if (!dims || dims->empty()) return std::nullopt;
  std::vector<Extent> result;
  for (size_t i = 0; i < input->size(); ++i) {
    const bool reduced = std::find(dims->begin(), dims->end(), static_cast<int64_t>(i)) != dims->end();
    if (!reduced) result.push_back((*input)[i]);
    if (reduced && keeps) result.push_back(one);
  }
  return result;
}

Shape SizeRules::linear() const {
  Shape input = shape("input");
  const Shape weight = shape("weight");
  if (!input || input->empty() || !weight || weight->size() != 2) return std::nullopt;
  input->back() = weight->front();
  return input;
}

Shape SizeRules::matmul() const {
  const Shape a = first();
  const bool two = arguments_.size() > 1 && arguments_[1].isTensor() && arguments_[1].toTensor().defined();
  const Shape b = two ? shape(arguments_[1].toTensor()) : std::nullopt;
  if (!a || !b || a->empty() || b->empty()) return std::nullopt;
  const auto batch = [](const Shape& of) {
    return Shape(of->size() < 2 ? std::vector<Extent>{} : std::vector<Extent>(of->begin(), of->end() - 2));
  };
  Shape result = broadcast(batch(a), batch(b));
  if (a->size() > 1) result->push_back((*a)[a->size() - 2]);
  if (b->size() > 1) result->push_back(b->back());
  return result;
}

Shape SizeRules::addmm() const {
  const Shape a = shape("mat1"), b = shape("mat2");
  if (!a || !b || a->size() != 2 || b->size() != 2) return std::nullopt;
  return std::vector<Extent>{a->front(), b->back()};
}

Shape SizeRules::embedding() const {
  const Shape weight = shape("weight");
  Shape indices = shape("indices");
  if (!weight || weight->size() != 2 || !indices) return std::nullopt;
  indices->push_back(weight->back());
  return indices;
}

/// Batch and channels; how far the kernel reaches is left open.
Shape SizeRules::convolution() const {
  const Shape input = shape("input"), weight = shape("weight");
  if (!input || !weight || input->size() != weight->size()) return std::nullopt;
  std::vector<Extent> result(input->size());
  result[0] = input->front();
  result[1] = weight->front();
  return result;
}

Shape SizeRules::flatten() const {
  const Shape input = first();
  if (!input || input->empty()) return std::nullopt;
  const auto start = wrapped_dims("start_dim", input->size()), end = wrapped_dims("end_dim", input->size());
  if (!start || !end || start->front() > end->front()) return std::nullopt;
  const auto from = input->begin() + start->front(), to = input->begin() + end->front() + 1;
  Extent merged = *from;
  for (auto extent = from + 1; extent != to; ++extent) {
    const bool constant = merged.from == Extent::From::constant && extent->from == Extent::From::constant;
    merged = constant ? Extent::constant(merged.size * extent->size) : Extent{};
    if (!constant) break;
  }
  std::vector<Extent> result(input->begin(), from);
  result.push_back(merged);
  result.insert(result.end(), to, input->end());
  return result;
}

/// Sizes in the list are the same in every replay. What -1 stands for is one input's dimension where the constants on
/// both sides cancel out.
Shape SizeRules::view() const {
  const Shape input = first();
  const c10::IValue* list = argument("size") ? argument("size") : argument("shape");
  if (!input || !list || !list->isIntList()) return std::nullopt;
  int64_t given = 1, had = 1;
  std::vector<Extent> result;
  for (const int64_t size : list->toIntVector()) {
    result.push_back(size < 0 ? Extent{} : Extent::constant(size));
    if (size >= 0) given *= size;
  }
  const Extent* varying = nullptr;
  for (const Extent& extent : *input) {
    if (extent.from == Extent::From::constant)
      had *= extent.size;
    else if (varying)
      return result;
    else
      varying = &extent;
  }
  for (Extent& extent : result) {
    if (extent.from != Extent::From::unknown || given == 0) continue;
    if (!varying)
      extent = Extent::constant(had / given);
    else if (had == given)
      extent = *varying;
  }
  return result;
}

Shape SizeRules::unsqueeze() const {
  Shape input = first();
  const auto dim = integer("dim");
  if (!input || !dim) return std::nullopt;
  const auto rank = static_cast<int64_t>(input->size());
  const int64_t at = *dim < 0 ? *dim + rank + 1 : *dim;
  if (at < 0 || at > rank) return std::nullopt;
  input->insert(input->begin() + at, one);
  return input;
}

Shape SizeRules::swap_two() const {
  Shape input = first();
  if (input && input->size() == 2) std::swap(input->front(), input->back());
  if (input && input->size() > 2) return std::nullopt;
  return input;
}

Shape SizeRules::swapped(int64_t a, int64_t b) const {
  Shape input = first();
  const auto rank = static_cast<int64_t>(input->size());
  std::swap((*input)[static_cast<size_t>(a < 0 ? a + rank : a)], (*input)[static_cast<size_t>(b < 0 ? b + rank : b)]);
  return input;
}

Shape SizeRules::transpose() const {
  const Shape input = first();
  if (!input || input->size() < 2) return std::nullopt;
  const auto a = wrapped_dims("dim0", input->size()), b = wrapped_dims("dim1", input->size());
  return a && b ? swapped(a->front(), b->front()) : std::nullopt;
}

Shape SizeRules::permute() const {
  const Shape input = first();
  if (!input) return std::nullopt;
  const auto dims = wrapped_dims("dims", input->size());
  if (!dims || dims->size() != input->size()) return std::nullopt;
  std::vector<Extent> result;
  for (const int64_t dim : *dims) result.push_back((*input)[static_cast<size_t>(dim)]);
  return result;
}

Shape SizeRules::select() const {
  Shape input = first();
  if (!input) return std::nullopt;
  const auto dims = wrapped_dims("dim", input->size());
  if (!dims || dims->size() != 1) return std::nullopt;
  input->erase(input->begin() + dims->front());
  return input;
}

Shape SizeRules::slice() const {
  Shape input = first();
  if (!input) return std::nullopt;
  const auto dims = wrapped_dims("dim", input->size());
  if (!dims || dims->size() != 1) return std::nullopt;
  Extent& extent = (*input)[static_cast<size_t>(dims->front())];
  const c10::IValue *start = argument("start"), *end = argument("end");
  const bool from_start = start && (start->isNone() || (start->isInt() && start->toInt() == 0));
  const bool to_end = end && (end->isNone() || (end->isInt() && end->toInt() == std::numeric_limits<int64_t>::max()));
  if (!(from_start && to_end && integer("step") == 1)) extent = {};
  return input;
}

Shape SizeRules::concatenate() const {
  const auto all = tensors();
  if (all.empty()) return std::nullopt;
  Shape result = shape(all[0]);
  if (!result) return std::nullopt;
  const auto dims = wrapped_dims("dim", result->size());
  if (!dims || dims->size() != 1) return std::nullopt;
  const auto joined = static_cast<size_t>(dims->front());
  for (size_t i = 1; i < all.size(); ++i) {
    const Shape other = shape(all[i]);
    if (!other || other->size() != result->size()) return std::nullopt;
    const Extent &a = (*result)[joined], &b = (*other)[joined];
    const bool constant = a.from == Extent::From::constant && b.from == Extent::From::constant;
    (*result)[joined] = constant ? Extent::constant(a.size + b.size) : Extent{};
  }
  // An empty vector joins tensors of any shape; of vectors only the joined dimension is there, and it is accounted for.
  return result;
}

Shape SizeRules::stack() const {
  const auto all = tensors();
  if (all.empty()) return std::nullopt;
  Shape result = shape(all[0]);
  const auto dim = integer("dim");
  if (!result || !dim) return std::nullopt;
  const auto rank = static_cast<int64_t>(result->size());
  const int64_t at = *dim < 0 ? *dim + rank + 1 : *dim;
  if (at < 0 || at > rank) return std::nullopt;
  result->insert(result->begin() + at, Extent::constant(static_cast<int64_t>(all.size())));
  return result;
}

/// One mask over the rows: some of them, each as it was.
Shape SizeRules::rows_by_mask() const {
  Shape input = first();
  const auto all = tensors();
  const c10::IValue* indices = argument("indices");
  const bool one_mask = input && !input->empty() && indices && indices->isList() && indices->toListRef().size() == 1 &&
                        all.size() == 2 && all[1].dim() == 1 && all[1].scalar_type() == at::kBool;
  if (!one_mask) return std::nullopt;
  input->front() = {};
  return input;
}

Shape SizeRules::list_of_positions() const {
  const Shape input = first();
  if (!input) return std::nullopt;
  return std::vector<Extent>{Extent{}, Extent::constant(static_cast<int64_t>(input->size()))};
}

std::optional<int64_t> parted_dim(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (operators::semantics_of(op).sizes != ResultSizes::parts || arguments.empty() || !arguments[0].isTensor())
    return std::nullopt;
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i].name() == "dim" && arguments[i].isInt()) {
      const int64_t rank = arguments[0].toTensor().dim(), dim = arguments[i].toInt();
      return dim < 0 ? dim + rank : dim;
    } else if (arguments[i].isTensor() && i > 0) {
      return std::nullopt;  // places that are values
    }
  return std::nullopt;
}

namespace {

/// Dimensions of the arguments that have one size in every replay, and may have another one in the next.
struct Varying {
  Extent extent;  // unknown: only itself
  std::vector<std::pair<size_t, size_t>> places;
};

/// The sizes of one output where these dimensions have `size`; nothing where the function does not say.
std::optional<std::vector<int64_t>> sizes_at(const given::Callee& callee, given::Forms inputs, const Varying& varying,
                                             int64_t size, size_t output) {
  for (const auto& [input, dim] : varying.places) inputs[input].sizes[dim] = size;
  try {
    const given::Forms outputs = callee.shapes(inputs);
    if (output < outputs.size()) return outputs[output].sizes;
  } catch (const std::exception&) {  // a function that takes no such sizes
  }
  return std::nullopt;
}

std::vector<Varying> varying_dims(const std::vector<at::Tensor>& inputs, const std::vector<Shape>& shapes) {
  std::vector<Varying> all;
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t dim = 0; dim < static_cast<size_t>(inputs[i].dim()); ++dim) {
      const Extent extent = shapes[i] ? (*shapes[i])[dim] : Extent{};
      if (extent.from == Extent::From::constant) continue;
      const auto same = std::find_if(all.begin(), all.end(), [&](const Varying& known) {
        return extent.from == Extent::From::input && known.extent == extent;
      });
      if (same == all.end())
        all.push_back({extent, {{i, dim}}});
      else
        same->places.emplace_back(i, dim);
    }
  return all;
}

}  // namespace

/// A function of the host is asked what it gives for other sizes: what then is the size of an input is so in every
/// replay.
Shape SizeRules::of_host(size_t index) const {
  const c10::IValue* number = argument("function");
  const auto callee = number && number->isInt() ? given::find(number->toInt()) : nullptr;
  const std::vector<at::Tensor> inputs = tensors();
  if (!callee || inputs.empty()) return std::nullopt;
  if (!callee->shapes) return shape(inputs[0]);
  std::vector<Shape> shapes;
  for (const at::Tensor& input : inputs) shapes.push_back(shape(input));
  const given::Forms forms = given::forms_of(inputs);
  const auto now = sizes_at(*callee, forms, {}, 0, index);
  if (!now) return std::nullopt;
  std::vector<Extent> result;
  for (const int64_t size : *now) result.push_back(Extent::constant(size));
  for (const Varying& varying : varying_dims(inputs, shapes)) {
    const auto [input, dim] = varying.places.front();
    const int64_t size = forms[input].sizes[dim];
    std::vector<bool> follows(now->size(), true), stays(now->size(), true);
    for (const int64_t other : {int64_t{1}, int64_t{2}, size + 1, 3 * size + 7, size + 1'000'003}) {
      const auto then = sizes_at(*callee, forms, varying, other, index);
      if (!then || then->size() != now->size()) return std::nullopt;
      for (size_t i = 0; i < then->size(); ++i) {
        follows[i] = follows[i] && (*now)[i] == size && (*then)[i] == other;
        stays[i] = stays[i] && (*then)[i] == (*now)[i];
      }
    }
    for (size_t i = 0; i < result.size(); ++i)
      if (!stays[i])
        result[i] = follows[i] && result[i].from == Extent::From::constant && varying.extent.from == Extent::From::input
                        ? varying.extent
                        : Extent{};
  }
  return result;
}

/// Of equal parts but for the last one; of parts whose sizes are given; or one for each index, without the dimension.
Shape SizeRules::part(size_t index) const {
  Shape result = first();
  const auto dim = static_cast<size_t>(*parted_dim(op_, arguments_));
  if (!result || dim >= result->size()) return std::nullopt;
  Extent& extent = (*result)[dim];
  if (op_.operator_name().name == "aten::unbind") {
    result->erase(result->begin() + static_cast<std::ptrdiff_t>(dim));
    return result;
  }
  const bool known = extent.from == Extent::From::constant;
  const int64_t whole = extent.size, before = static_cast<int64_t>(index);
  const c10::IValue* sizes = argument("split_sizes");
  if (!sizes) sizes = argument("split_size");
  const auto chunks = integer("chunks"), sections = integer("sections");
  const auto equal = [&](int64_t size) {
    return size > 0 ? Extent::constant(std::min(size, whole - before * size)) : Extent{};
  };
  if (sizes && sizes->isIntList() && index < sizes->toIntList().size())
    extent = Extent::constant(sizes->toIntVector()[index]);
  else if (known && sizes && sizes->isInt())
    extent = equal(sizes->toInt());
  else if (known && chunks && *chunks > 0)
    extent = equal((whole + *chunks - 1) / *chunks);
  else if (known && sections && *sections > 0)
    extent = Extent::constant(whole / *sections + (before < whole % *sections ? 1 : 0));
  else
    extent = {};
  return result;
}

}  // namespace triage::capture
