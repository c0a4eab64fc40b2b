#include "runtime/capture/replay/predict.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "runtime/capture/graph_break.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/sizes/size_origins.h"
#include "runtime/graph/argument_type.h"

namespace triage::capture {
namespace {

/// `argument` with other tensors: `replace` is asked for each one, those of a list included.
template <typename Replace>
c10::IValue with_tensors(const c10::IValue& argument, const c10::Argument& declared, const Replace& replace) {
  if (argument.isTensor()) return argument.toTensor().defined() ? c10::IValue(replace(argument.toTensor())) : argument;
  if (!argument.isList()) return argument;
  const auto type = graph::type_of(declared);
  if (type.kind != graph::Kind::tensor) return argument;
  c10::impl::GenericList items(type.element);
  for (const c10::IValue& item : argument.toListRef())
    items.push_back(item.isTensor() && item.toTensor().defined() ? c10::IValue(replace(item.toTensor())) : item);
  return items;
}

/// The arguments without their memory, and which of them stands for which.
struct MetaArguments {
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;  // without memory, and the argument itself

  at::Tensor add(const at::Tensor& tensor) {
    for (const auto& [meta, known] : tensors)
      if (known.is_same(tensor)) return meta;
    at::Tensor meta =
        at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()).device(c10::kMeta));
    if (is_wrapped_number(tensor)) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
    tensors.emplace_back(meta, tensor);
    return meta;
  }

  c10::IValue add(const c10::IValue& argument, const c10::Argument& declared) {
    if (argument.isDevice()) return c10::Device(c10::kMeta);
    return with_tensors(argument, declared, [&](const at::Tensor& tensor) { return add(tensor); });
  }
};

/// `like`: a result of the step that ATen gave, of which all holds but sizes, strides and memory.
std::optional<ResultLayout> layout_of(const at::Tensor& result, const ResultLayout& like, const MetaArguments& given,
                                      const std::vector<c10::IValue>& arguments, bool aliases) {
  ResultLayout layout = like;
  layout.argument.reset();
  if (result.defined() != like.defined || !like.defined) return like.defined ? std::nullopt : std::optional(layout);
  if (result.dtype() != like.dtype || !result.device().is_meta() || result.is_conj() || result.is_neg())
    return std::nullopt;
  layout.sizes = result.sizes().vec();
  layout.strides = result.strides().vec();
  layout.storage_offset = result.storage_offset();
  layout.storage_bytes = result.storage().nbytes();
  for (const auto& [meta, argument] : given.tensors) {
    if (!result.is_alias_of(meta)) continue;
    if (!aliases) return std::nullopt;  // it was seen to compute something, and here it does not
    layout.storage_offset += argument.storage_offset();
    layout.storage_bytes = 0;
    if (result.is_same(meta)) layout.argument = index_among(arguments, argument);
    return layout;
  }
  return aliases ? std::nullopt : std::optional(layout);  // a copy may not require grad where a view does
}

bool same_layout(const ResultLayout& a, const ResultLayout& b) {
  if (a.defined != b.defined || !a.defined) return a.defined == b.defined;
  return a.requires_grad == b.requires_grad && a.argument == b.argument && a.sizes == b.sizes &&
         a.strides == b.strides && a.storage_offset == b.storage_offset &&
         (a.storage_bytes == 0) == (b.storage_bytes == 0);
}

/// Without memory the operator says what it gives. Nothing where it has no such form, or something is wrong: ATen says
/// what, when it computes.
std::optional<std::vector<ResultLayout>> by_running(const TraceStep& step, const std::vector<c10::IValue>& arguments) {
  const std::vector<ResultLayout>& like = step.results.front().second;
  try {
    const NotCaptured scope(false);
    MetaArguments given;
    torch::jit::Stack stack;
    for (size_t i = 0; i < arguments.size(); ++i)
      stack.push_back(given.add(arguments[i], step.op.schema().arguments()[i]));
    step.op.callBoxed(&stack);
    std::vector<ResultLayout> layouts;
    for (size_t i = 0; i < like.size(); ++i) {
      auto layout = layout_of(stack[i].toTensor(), like[i], given, arguments, step.aliases);
      if (!layout) return std::nullopt;
      layouts.push_back(std::move(*layout));
    }
    return layouts;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Contiguous results of contiguous arguments, by the rules that capture knows: for operators without such a form.
std::optional<std::vector<ResultLayout>> by_rules(const TraceStep& step, const std::vector<c10::IValue>& arguments) {
  const std::vector<ResultLayout>& like = step.results.front().second;
  bool contiguous = true;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) { contiguous = contiguous && tensor.is_contiguous(); });
  if (!contiguous || step.aliases || like.size() != 1 || !like[0].defined) return std::nullopt;
  const SizeOrigins none;  // so that all sizes are the ones that the arguments have
  const Shape shape = SizeRules(step.op, arguments, none).result(0);
  if (!shape) return std::nullopt;
  ResultLayout layout = like[0];
  layout.sizes.clear();
  for (const Extent& extent : *shape) {
    if (extent.from != Extent::From::constant) return std::nullopt;
    layout.sizes.push_back(extent.size);
  }
  layout.strides.assign(layout.sizes.size(), 1);
  int64_t count = 1;
  for (size_t i = layout.sizes.size(); i-- > 0;) {
    layout.strides[i] =
        i + 1 == layout.sizes.size() ? 1 : layout.strides[i + 1] * std::max<int64_t>(layout.sizes[i + 1], 1);
    count *= layout.sizes[i];
  }
  layout.storage_offset = 0;
  layout.storage_bytes = static_cast<size_t>(count) * layout.dtype.itemsize();
  return std::vector<ResultLayout>{std::move(layout)};
}

}  // namespace

namespace {

std::optional<std::vector<ResultLayout>> predict_by(const TraceStep& step, const std::vector<c10::IValue>& arguments) {
  using Means = TraceStep::Prediction;
  if (step.results.empty()) return std::nullopt;
  if (step.prediction == Means::by_running) return by_running(step, arguments);
  return step.prediction == Means::by_rules ? by_rules(step, arguments) : std::nullopt;
}

/// `arguments` with tensors in place of theirs that have the sizes of the first call, and no memory.
std::vector<c10::IValue> as_at_first(const TraceStep& step, const std::vector<c10::IValue>& arguments) {
  std::vector<std::pair<at::Tensor, at::Tensor>> known;  // of this call, and of the first
  size_t next = 0;
  const auto first = [&](const at::Tensor& tensor) {
    const ResultLayout& layout = step.first_arguments.at(next++);
    if (tensor.dim() == 0) return tensor;
    for (const auto& [now, then] : known)
      if (now.is_same(tensor)) return then;
    const at::Tensor then =
        at::empty_strided(layout.sizes, layout.strides, at::TensorOptions(tensor.scalar_type()).device(c10::kMeta));
    then.unsafeGetTensorImpl()->set_storage_offset(layout.storage_offset);
    known.emplace_back(tensor, then);
    return then;
  };
  std::vector<c10::IValue> then;
  for (size_t i = 0; i < arguments.size(); ++i)
    then.push_back(with_tensors(arguments[i], step.op.schema().arguments()[i], first));
  return then;
}

}  // namespace

std::optional<std::vector<ResultLayout>> predict(TraceStep& step, const std::vector<c10::IValue>& arguments) {
  if (step.prediction == TraceStep::Prediction::untried && !step.results.empty())
    check_prediction(step, as_at_first(step, arguments), step.results.front().second);
  return predict_by(step, arguments);
}

void check_prediction(TraceStep& step, const std::vector<c10::IValue>& arguments,
                      const std::vector<ResultLayout>& given) {
  using Means = TraceStep::Prediction;
  const auto right = [&] {
    const auto layouts = predict_by(step, arguments);
    return layouts && layouts->size() == given.size() &&
           std::equal(layouts->begin(), layouts->end(), given.begin(), same_layout);
  };
  if (step.prediction == Means::untried) {
    step.prediction = Means::by_running;
    if (right()) return;
    step.prediction = Means::by_rules;
  }
  if (step.prediction != Means::none && !right()) step.prediction = Means::none;
}

}  // namespace triage::capture
