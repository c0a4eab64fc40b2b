#include "runtime/backends/fused/parts/call_layout.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>

#include "runtime/backends/fused/loop_numbers.h"
#include "runtime/backends/thread_memory.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/flags/checks.h"
#include "runtime/operators/untrusted.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

/// Where the rows of a tensor begin, when each row's own elements lie without gaps.
bool has_dense_rows(const at::Tensor& tensor) {
  int64_t expected = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 1; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return true;
}

at::Scalar number_at(const void* memory, at::ScalarType dtype) {
  at::Scalar number;
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "number_at",
                             [&] { number = *static_cast<const scalar_t*>(memory); });
  return number;
}

void write_number(const c10::Scalar& number, at::ScalarType dtype, void* memory) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "write_number",
                             [&] { *static_cast<scalar_t*>(memory) = number.to<scalar_t>(); });
}

}  // namespace

/// Whether a call of what is not trusted may take what the loops take, with values that loops keep to a row counted as
/// tensors. Operators that broadcast make more of their inputs than what these hold. Where it may not, the interpreter
/// refuses the operator that is too much.
bool CallLayout::within_terms(const std::optional<std::chrono::steady_clock::time_point>& deadline) const {
  const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
  if (!terms) return true;
  constexpr int64_t few = 1 << 16;
  int64_t positions = 1, longest = 1;
  for (const int64_t extent : extents) {
    positions += extent;
    longest = std::max(longest, extent);
  }
  if (batch <= few && positions <= few && batch * positions <= few) return true;
  double bytes = 0, largest = static_cast<double>(batch) * static_cast<double>(longest) * 4;
  for (const LoopOutput& output : loops_.outputs) {
    const TensorForm& form = output.form;
    const int64_t row = form.kind == Kind::element  ? extents[static_cast<size_t>(form.extent)]
                        : form.kind == Kind::record ? form.words
                                                    : 1;
    bytes += static_cast<double>(batch) * static_cast<double>(row * c10::elementSize(form.dtype));
  }
  if (terms->bytes > 0 && std::max(bytes, largest) > static_cast<double>(terms->bytes)) return false;
  if (!deadline) return true;
  const double nanoseconds =
      static_cast<double>(batch) * static_cast<double>(positions) * static_cast<double>(loops_.values.size());
  constexpr double few_nanoseconds = 1e7;
  const std::chrono::duration<double, std::nano> left = *deadline - std::chrono::steady_clock::now();
  return nanoseconds <= few_nanoseconds || nanoseconds <= left.count();
}

bool CallLayout::numbers_fit() const {
  return std::all_of(loops_.bounds.begin(), loops_.bounds.end(), [&](const NumberBound& bound) {
    return flags::check::holds(bound.dtype, thread_memory.numbers[static_cast<size_t>(bound.value)]);
  });
}

/// Finds the numbers that the host computes or compares with others; false where one is not the host's, ATen would
/// raise for it, or it is another one than the size that it stands for.
bool CallLayout::find_numbers() {
  if (loops_.last_asked < 0) return true;
  bool there = true;
  computed_.resize(loops_.inputs.size());
  const auto input = [&](size_t slot, at::ArrayRef<c10::Scalar> operands) -> c10::Scalar {
    const LoopInput& one = loops_.inputs[slot];
    if (!one.computed) {
      there &= on_host[slot];
      return there ? number_at(in[slot], one.form.dtype) : c10::Scalar(0);
    }
    std::optional<c10::Scalar> made;
    if (there) made = one.computed->function ? one.computed->function(operands) : size_of(*one.computed);
    there = made.has_value();
    if (!there) return 0;
    write_number(*made, one.form.dtype, &computed_[slot]);
    in[slot] = &computed_[slot];
    return *made;
  };
  std::vector<c10::Scalar>& numbers = thread_memory.numbers;
  fused::find_numbers(
      loops_, input, [&](size_t extent) { return extents[extent]; }, numbers);
  return there && std::all_of(loops_.size_checks.begin(), loops_.size_checks.end(), [&](const SizeCheck& check) {
           const int64_t size = check.extent < 0 ? batch : sizes[static_cast<size_t>(check.extent)][check.dim];
           return numbers[static_cast<size_t>(check.number)].toLong() == size;
         });
}

/// Nothing as long as no input has told it.
std::optional<int64_t> CallLayout::size_of(const HostNumber& number) const {
  if (number.extent < 0) return batch < 0 ? std::nullopt : std::optional(batch);
  const Sizes& told = sizes[static_cast<size_t>(number.extent)];
  return told.empty() ? std::nullopt : std::optional(told[static_cast<size_t>(number.dim)]);
}

bool CallLayout::lay_out(at::ArrayRef<at::Tensor> inputs) {
  sizes.resize(loops_.extents.size());
  kept.reserve(loops_.inputs.size());
  for (const LoopInput& input : loops_.inputs)
    if (input.computed) {
      in.push_back(nullptr);  // as yet
      on_host.push_back(true);
      stride.push_back(0);
    } else if (!lay_out(input, inputs[input.argument])) {
      return false;
    }
  return resolve_sizes() && find_numbers();
}

/// Notes the sizes of an extent; false where they are not those that are known.
bool CallLayout::tell(size_t extent, at::IntArrayRef told) {
  if (sizes[extent].empty()) sizes[extent].assign(told.begin(), told.end());
  return at::IntArrayRef(sizes[extent]) == told;
}

/// The sizes of segments and positions, from those of both.
bool CallLayout::tell_parts(const RowExtent& extent, at::IntArrayRef whole) {
  const auto segments = static_cast<size_t>(extent.segments), positions = static_cast<size_t>(extent.positions);
  const size_t count = loops_.extents[positions].sizes.size();
  size_t first = loops_.extents[segments].sizes.size();
  Sizes outside;
  if (extent.inner >= 0) {
    const auto inner = static_cast<size_t>(extent.inner);
    first -= loops_.extents[inner].sizes.size();
    if (inner != segments && !tell(inner, whole.slice(first + count))) return false;
  }
  outside.assign(whole.begin(), whole.begin() + first);
  outside.append(whole.begin() + first + count, whole.end());
  return tell(segments, outside) && tell(positions, whole.slice(first, count));
}

/// Of an extent that is looked at as segments: its sizes are those of segments and positions. False where they do not
/// agree; as yet unknown ones may.
bool CallLayout::resolve_parts(size_t index) {
  const RowExtent& extent = loops_.extents[index];
  if (extent.segments < 0) return true;
  const auto segments = static_cast<size_t>(extent.segments), positions = static_cast<size_t>(extent.positions);
  const Sizes &outside = sizes[segments], &inside = sizes[positions];
  const size_t behind = extent.inner < 0 ? 0 : loops_.extents[static_cast<size_t>(extent.inner)].sizes.size();
  if (sizes[index].empty() && outside.size() >= behind && outside.size() + inside.size() == extent.sizes.size()) {
    const auto middle = outside.end() - static_cast<int64_t>(behind);
    sizes[index].resize(extent.sizes.size());
    int64_t* next = std::copy(outside.begin(), middle, sizes[index].begin());
    next = std::copy(inside.begin(), inside.end(), next);
    std::copy(middle, outside.end(), next);
  }
  return sizes[index].empty() || (sizes[index].size() == extent.sizes.size() && tell_parts(extent, sizes[index]));
}

int64_t CallLayout::count(int32_t extent) const { return c10::multiply_integers(sizes[static_cast<size_t>(extent)]); }

bool CallLayout::reshape(const Reshape& reshape) {
  using From = Reshape::ReshapeSize::From;
  if (!resolve_parts(static_cast<size_t>(reshape.from))) return false;
  const Sizes& from = sizes[static_cast<size_t>(reshape.from)];
  Sizes made;
  int64_t known = 1, rest = -1;
  for (const Reshape::ReshapeSize& size : reshape.sizes) {
    const auto at = static_cast<size_t>(size.value);
    if (size.from == From::dim && at >= from.size()) return false;
    if (size.from == From::input && !on_host[at]) return false;
    const auto asked = size.from == From::size ? size_of(*loops_.inputs[at].computed) : std::optional<int64_t>(-1);
    if (!asked) return false;
    made.push_back(size.from == From::constant ? size.value
                   : size.from == From::dim    ? from[at]
                   : size.from == From::size   ? *asked
                   : size.from == From::input  ? *static_cast<const int64_t*>(in[at])
                                               : 1);
    if (made.back() < 0) return false;  // -1 of an input: ATen knows whether it may stand for what the others leave
    if (size.from == From::rest)
      rest = static_cast<int64_t>(made.size()) - 1;
    else if (__builtin_mul_overflow(known, made.back(), &known))
      return false;
  }
  const int64_t all = c10::multiply_integers(from);
  if (from.empty() || known == 0) return false;
  if (rest >= 0) made[static_cast<size_t>(rest)] = all / known;
  return c10::multiply_integers(made) == all && tell(static_cast<size_t>(reshape.to), made) &&
         resolve_parts(static_cast<size_t>(reshape.to));
}

/// The sizes that no input told are those that stand in the graph, or follow from others; false where two do not agree.
bool CallLayout::resolve_sizes() {
  if (loops_.fixed_batch && batch >= 0 && batch != *loops_.fixed_batch) return false;
  if (loops_.fixed_batch) batch = *loops_.fixed_batch;
  if (loops_.infers_size && batch == 0) return false;
  for (const size_t input : loops_.batch_inputs)
    if (!on_host[input] || *static_cast<const int64_t*>(in[input]) != batch) return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (loops_.extents[i].fixed && !tell(i, loops_.extents[i].sizes)) return false;
  if (!loops_.reshapes.empty())
    for (size_t i = 0; i < loops_.extents.size(); ++i)
      if (!resolve_parts(i)) return false;
  for (const Reshape& one : loops_.reshapes)
    if (!reshape(one)) return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (!resolve_parts(i)) return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const int64_t positions = count(static_cast<int32_t>(i));
    if (sizes[i].empty() || positions == 0) return false;  // of nothing, the interpreter knows what ATen makes
    extents.push_back(positions);
  }
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (const int32_t same = loops_.extents[i].same; same >= 0 && extents[i] != extents[static_cast<size_t>(same)])
      return false;
  return batch >= 0;
}

/// Notes where an input lies; false where it is not what the loops were written for.
bool CallLayout::lay_out(const LoopInput& input, const at::Tensor& given) {
  const TensorForm& form = input.form;
  const at::Tensor* tensor = &given;
  const bool is_number = form.kind == Kind::number && given.dim() == 0 && given.device().is_cpu();
  if (tensor->dim() != form.rank || tensor->scalar_type() != form.dtype ||
      (!is_on(tensor->device(), device_) && !is_number) || !compat::is_readable(*tensor))
    return false;
  const auto dense = [&](const at::Tensor& gaps) {
    if (!shared_ || gaps.requires_grad()) return gaps.contiguous();
    return shared_->get(gaps.sizes(), gaps.scalar_type()).copy_(gaps);
  };
  const auto make_dense = [&] {  // of a view, which may be far larger than its memory
    const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
    too_large = terms && terms->bytes > 0 && static_cast<int64_t>(tensor->nbytes()) > terms->bytes;
    if (too_large) return false;
    kept.emplace_back(in.size(), dense(*tensor));
    tensor = &kept.back().second;
    return true;
  };
  const bool of_batch = form.kind != Kind::number && form.kind != Kind::column;
  if (of_batch) {
    if (batch >= 0 && tensor->size(0) != batch) return false;
    batch = tensor->size(0);
    if (!has_dense_rows(*tensor) && (input.viewed || !make_dense())) return false;
  } else if (!tensor->is_contiguous() && !make_dense()) {
    return false;
  }
  if (form.kind == Kind::record) {
    if (tensor->size(1) != form.words) return false;
  } else {
    Sizes told;
    for (size_t dim = of_batch ? 1 : 0; dim < given.sizes().size(); ++dim) {
      const bool one = form.trailing.empty() || form.trailing[dim - (of_batch ? 1 : 0)] == 1;
      if (!one)
        told.push_back(given.sizes()[dim]);
      else if (given.sizes()[dim] != 1)
        return false;
    }
    if (form.extent >= 0 && !tell(static_cast<size_t>(form.extent), told)) return false;
  }
  const int64_t row_bytes = of_batch ? tensor->stride(0) * static_cast<int64_t>(c10::elementSize(form.dtype)) : 0;
  in.push_back(tensor->data_ptr());
  on_host.push_back(tensor->device().is_cpu());
  stride.push_back(row_bytes);
  return true;
}

Sizes CallLayout::sizes_of(const LoopOutput& output) const {
  const TensorForm& form = output.form;
  Sizes made{batch};
  if (form.kind == Kind::element) {
    const int64_t* next = sizes[static_cast<size_t>(form.extent)].begin();
    for (const int64_t captured : form.trailing) made.push_back(captured == 1 ? 1 : *next++);
  } else if (form.kind == Kind::record) {
    made.push_back(form.words);
  } else {
    made.resize(static_cast<size_t>(form.rank), 1);
  }
  return made;
}

}  // namespace triage::fused
