// Operators that keep the rows and count the elements of each in other sizes: the same values, in the same order.
#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {

using Kind = TensorForm::Kind;
using From = Reshape::ReshapeSize::From;

namespace {

bool is_data(const Lowered& x) { return x.form.kind == Kind::row || x.form.kind == Kind::element; }

/// All sizes, the batch's in front, as those of x.
std::vector<Reshape::ReshapeSize> sizes_of(const Lowered& x) {
  std::vector<Reshape::ReshapeSize> sizes{{From::batch, 0}};
  int64_t next = 0;
  for (int64_t dim = 1; dim < x.form.rank; ++dim) {
    const bool one = x.form.kind == Kind::row || x.form.trailing[static_cast<size_t>(dim - 1)] == 1;
    sizes.push_back(one ? Reshape::ReshapeSize{From::constant, 1} : Reshape::ReshapeSize{From::dim, next++});
  }
  return sizes;
}

std::optional<int64_t> dim_of(Lowering& l, size_t argument, int64_t rank) {
  const auto dim = l.integer(argument);
  if (!dim) return std::nullopt;
  const int64_t at = *dim < 0 ? *dim + rank : *dim;
  return at >= 0 && at < rank ? std::optional(at) : std::nullopt;
}

/// view and its kind.
bool to_sizes(Lowering& l, bool is_view) {
  const auto x = l.lowered(0);
  const auto sizes = l.asked_sizes(1);
  return x && is_data(*x) && sizes && l.reshaped(*x, *sizes, is_view);
}
bool view(Lowering& l) { return to_sizes(l, true); }
bool reshape(Lowering& l) { return to_sizes(l, false); }

/// view_as and reshape_as
bool to_sizes_of(Lowering& l, bool is_view) {
  const auto x = l.lowered(0), other = l.lowered(1);
  if (!x || !other || !is_data(*x) || !is_data(*other)) return false;
  std::vector<Reshape::ReshapeSize> sizes = sizes_of(*other);
  for (Reshape::ReshapeSize& size : sizes)
    if (size.from == From::dim)
      size = {From::size, l.value(l.size_number(other->form.extent, static_cast<int32_t>(size.value))).slot};
  return l.reshaped(*x, sizes, is_view);
}
bool view_as(Lowering& l) { return to_sizes_of(l, true); }
bool reshape_as(Lowering& l) { return to_sizes_of(l, false); }

/// flatten(start_dim, end_dim)
bool flatten(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || !is_data(*x)) return false;
  const auto first = dim_of(l, 1, x->form.rank), last = dim_of(l, 2, x->form.rank);
  if (!first || !last || *first < 1 || *last < *first) return false;
  std::vector<Reshape::ReshapeSize> sizes = sizes_of(*x);
  sizes[static_cast<size_t>(*first)] = {From::rest, 0};
  sizes.erase(sizes.begin() + *first + 1, sizes.begin() + *last + 1);
  return l.reshaped(*x, sizes, false);
}

/// unflatten(dim, sizes)
bool unflatten(Lowering& l) {
  const auto x = l.lowered(0);
  const auto asked = l.asked_sizes(2);
  if (!x || !is_data(*x) || !asked) return false;
  const auto dim = dim_of(l, 1, x->form.rank);
  if (!dim || *dim < 1) return false;
  std::vector<Reshape::ReshapeSize> sizes = sizes_of(*x);
  sizes.erase(sizes.begin() + *dim);
  sizes.insert(sizes.begin() + *dim, asked->begin(), asked->end());
  return l.reshaped(*x, sizes, false);
}

bool unsqueeze(Lowering& l) {
  const auto x = l.lowered(0);
  if (!x || !is_data(*x)) return false;
  const auto dim = dim_of(l, 1, x->form.rank + 1);
  if (!dim || *dim < 1) return false;
  std::vector<Reshape::ReshapeSize> sizes = sizes_of(*x);
  sizes.insert(sizes.begin() + *dim, {From::constant, 1});
  return l.reshaped(*x, sizes, false);
}

/// squeeze(dim) of a size that is 1 in every call. The graph holds for other sizes of inputs, too: where one of those
/// may be 1, also that of the batch, squeeze is no part of a loop.
bool squeeze_dim(Lowering& l) {
  const auto x = l.lowered(0);
  const auto dim = x ? dim_of(l, 1, x->form.rank) : std::nullopt;
  if (!dim || *dim == 0 || !is_data(*x)) return false;
  std::vector<Reshape::ReshapeSize> sizes = sizes_of(*x);
  if (sizes[static_cast<size_t>(*dim)].from != From::constant) return false;
  sizes.erase(sizes.begin() + *dim);
  return l.reshaped(*x, sizes, false);
}

}  // namespace

const LowerTable& reshapes() {
  static const auto& table = *new LowerTable{
      {"aten::view", view},
      {"aten::reshape", reshape},
      {"aten::view_as", view_as},
      {"aten::reshape_as", reshape_as},
      {"aten::_unsafe_view", reshape},
      {"aten::flatten.using_ints", flatten},
      {"aten::unflatten.int", unflatten},
      {"aten::unsqueeze", unsqueeze},
      {"aten::squeeze.dim", squeeze_dim},
  };
  return table;
}

bool is_reshape(const std::string& op) {
  return std::any_of(reshapes().begin(), reshapes().end(), [&](const auto& row) { return op == row.first; });
}

// --- for all of them -------------------------------------------------------------------------------------------------

/// How one size that the call asks for is found in every run.
std::optional<Reshape::ReshapeSize> Lowering::asked_size(const graph::Operand& item) {
  if (const auto* fixed = item.constant()) {
    if (!fixed->isInt()) return std::nullopt;
    return fixed->toInt() < 0 ? Reshape::ReshapeSize{From::rest, 0}
                              : Reshape::ReshapeSize{From::constant, fixed->toInt()};
  }
  const graph::Value* value = item.value();
  if (!value || !value->meta || value->meta->dtype != at::kLong || !value->meta->sizes.empty()) return std::nullopt;
  if (batch_sizes_.count(value)) return Reshape::ReshapeSize{From::batch, 0};
  if (const auto made = tensors_.find(value); made != tensors_.end()) {
    const int32_t slot = this->value(made->second.value).slot;
    const HostNumber* number = slot < 0 ? nullptr : loops_.inputs[static_cast<size_t>(slot)].computed.get();
    return number && !number->function ? std::optional(Reshape::ReshapeSize{From::size, slot}) : std::nullopt;
  }
  const auto form = form_of(*value);
  if (!form || form->kind != Kind::number) return std::nullopt;
  if (!read_.count(value)) remember(read_, value, {*form, read(*value, *form)});
  return Reshape::ReshapeSize{From::input, this->value(read_.at(value).value).slot};
}

std::optional<std::vector<Reshape::ReshapeSize>> Lowering::asked_sizes(size_t argument) {
  std::vector<Reshape::ReshapeSize> sizes;
  if (const auto* fixed = constant(argument)) {
    if (!fixed->isIntList()) return std::nullopt;
    for (const int64_t size : fixed->toIntVector())
      sizes.push_back(size < 0 ? Reshape::ReshapeSize{From::rest, 0} : Reshape::ReshapeSize{From::constant, size});
    return sizes;
  }
  const auto* items = node_->operands.at(argument).list();
  if (!items) return std::nullopt;
  for (const graph::Operand& item : *items) {
    const auto size = asked_size(item);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

bool Lowering::reshaped(const Lowered& x, const std::vector<Reshape::ReshapeSize>& sizes, bool is_view) {
  const auto& seen = node_->results[0]->meta;
  if (!seen || seen->sizes.size() != sizes.size() || !fits_batch(sizes)) return false;
  const auto form = batch_form(seen->sizes, x.form.dtype);
  if (!form || form->kind != x.form.kind) return false;
  if (const LoopValue& from = value(x.value); is_view && from.kind == LoopValue::Kind::input)
    loops_.inputs[static_cast<size_t>(from.slot)].viewed = true;
  if (form->kind == Kind::element) {
    Reshape made{x.form.extent, form->extent, {}};
    for (size_t i = 1; i < sizes.size(); ++i) {
      if (seen->sizes[i] != 1)
        made.sizes.push_back(sizes[i]);
      else if (sizes[i].from != From::constant && sizes[i].from != From::rest)
        return false;  // it need not stay 1
    }
    if (!extents_.link(form->extent, x.form.extent)) return false;
    loops_.reshapes.push_back(std::move(made));
  }
  loops_.infers_size |=
      std::any_of(sizes.begin(), sizes.end(), [](const auto& size) { return size.from == From::rest; });
  return result(0, *form, x.value);
}

/// Whether the first size is that of the batch, in this call and, as far as loops find out, in every one.
bool Lowering::fits_batch(const std::vector<Reshape::ReshapeSize>& sizes) {
  if (sizes.empty()) return false;
  const Reshape::ReshapeSize& first = sizes[0];
  if (first.from == From::constant) loops_.fixed_batch = batch_;
  if (first.from == From::input) loops_.batch_inputs.push_back(static_cast<size_t>(first.value));
  return first.from != From::size && first.from != From::dim &&
         std::none_of(sizes.begin() + 1, sizes.end(), [](const auto& size) { return size.from == From::batch; });
}

/// A size of the batch is no value of loops, but reshapes may ask for it.
bool Lowering::note_batch_size() {
  batch_sizes_.insert(node_->results.at(0));
  return true;
}

}  // namespace triage::fused
