#include "runtime/diagnose/bad_rows.h"

#include <ATen/ATen.h>
#include <triage/config.h>

namespace triage::diagnose {
namespace {

at::Tensor either(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? a.logical_or(b) : a;
}

bool has_any(const at::Tensor& mask) { return mask.defined() && mask.any().item<bool>(); }

std::vector<int64_t> indices(const at::Tensor& mask) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < mask.size(0); ++i)
    if (mask[i].item<bool>()) rows.push_back(i);
  return rows;
}

bool has_floats(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized() &&
         (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()));
}

}  // namespace

void BadRows::add(const BadRows& other) {
  if (!other.is_bad()) return;
  nan = either(nan, other.nan);
  any = either(any, other.any);
  per_sample &= other.per_sample;
}

BadRows Trail::bad_rows(const at::Tensor& tensor, bool varies) const {
  BadRows bad;
  if (!has_floats(tensor) || tensor.numel() == 0) return bad;
  at::Tensor values = tensor.detach();
  // The small types lack operators, on the CPU of older LibTorch most of them.
  const bool is_small = at::elementSize(values.scalar_type()) < at::elementSize(at::kFloat);
  if (is_small) values = values.to(at::kFloat);
  const bool has_samples = varies && tensor.dim() > 0 && tensor.size(0) == samples_;
  values = values.reshape({has_samples ? samples_ : 1, -1});
  const at::Tensor nan = values.isnan().any(1).cpu(), finite = values.isfinite().all(1).cpu();
  if (finite.all().item<bool>()) return bad;
  bad.per_sample = has_samples;
  bad.nan = nan.expand({samples_});
  bad.any = finite.logical_not().expand({samples_});
  return bad;
}

void Trail::note_input(const std::string& name, const at::Tensor& tensor) {
  const BadRows bad = bad_rows(tensor, /*varies=*/true);
  if (bad.is_bad())
    add_producers({Producer::Kind::input, name, {}, {}, 0, {}}, bad.nan, bad.any.logical_and(bad.nan.logical_not()),
                  bad.per_sample);
}

void Trail::note_held(const std::string& name, const at::Tensor& tensor) {
  const BadRows bad = bad_rows(tensor, /*varies=*/false);
  if (bad.is_bad())
    add_producers({Producer::Kind::held, name, {}, {}, 0, {}}, bad.nan, bad.any.logical_and(bad.nan.logical_not()),
                  bad.per_sample);
}

void Trail::note_output(const std::string& name, const BadRows& bad) {
  if (bad.is_bad()) result_.outputs.push_back({name, indices(bad.any)});
}

void Trail::note_operation(size_t index, const Producer& like, const BadRows& read, const BadRows& made) {
  Ran& ran = operations_.try_emplace(index, Ran{like, {}, {}}).first->second;
  if (!made.is_bad()) return;
  ran.has_bad = true;
  const at::Tensor fresh = read.is_bad() ? made.any.logical_and(read.any.logical_not()) : made.any;
  if (samples_ > 0 && !has_any(fresh)) return;
  ran.produced = true;
  ran.per_sample &= made.per_sample;
  ran.nan = either(ran.nan, fresh.logical_and(made.nan));
  ran.inf = either(ran.inf, fresh.logical_and(made.nan.logical_not()));
}

void Trail::add_producers(const Producer& like, const at::Tensor& nan, const at::Tensor& inf, bool per_sample) {
  for (const auto& [code, mask] : {std::pair(err::nan, nan), std::pair(err::inf, inf)}) {
    if (!has_any(mask)) continue;
    Producer& producer = result_.producers.emplace_back(like);
    producer.code = code;
    if (per_sample) producer.rows = indices(mask);
  }
}

Provenance Trail::finish() && {
  result_.samples = samples_;
  result_.operations = static_cast<int64_t>(operations_.size());
  for (const auto& [index, ran] : operations_) {
    if (ran.produced)
      add_producers(ran.like, ran.nan, ran.inf, ran.per_sample);
    else if (ran.has_bad)
      ++result_.passed_on;
  }
  return std::move(result_);
}

}  // namespace triage::diagnose
