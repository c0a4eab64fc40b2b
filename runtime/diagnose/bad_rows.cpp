#include "runtime/diagnose/bad_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/config.h>

#include <exception>

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

/// The values of a tensor, a row a sample; one row where it does not have samples in front.
at::Tensor as_rows(const at::Tensor& tensor, bool has_samples) {
  at::Tensor values = tensor.detach();
  // The small types lack operators, on the CPU of older LibTorch most of them.
  if (at::elementSize(values.scalar_type()) < at::elementSize(at::kFloat)) values = values.to(at::kFloat);
  return values.reshape({has_samples ? tensor.size(0) : 1, -1});
}

at::Tensor elements_of(const at::Tensor& values, BadKind kind) {
  return kind == is_nan ? values.isnan() : values.isinf();
}

/// `aten::log  policy.lua:3`, `input z`
std::string text_of(const Producer& producer) {
  std::string text = producer.name;
  if (producer.kind != Producer::Kind::operation)
    text = (producer.kind == Producer::Kind::input ? "input " : "held ") + text;
  if (!producer.location.empty()) text += ' ' + producer.location;
  if (!producer.source.file.empty()) text += fmt::format(" {}:{}", producer.source.file, producer.source.line);
  return text;
}

}  // namespace

bool BadRows::has(BadKind kind) const { return has_any(of[kind]); }

at::Tensor BadRows::any() const { return either(of[is_nan], of[is_inf]); }

void BadRows::add(const BadRows& other) {
  if (!other.is_bad()) return;
  for (BadKind kind : bad_kinds) of[kind] = either(of[kind], other.of[kind]);
  per_sample &= other.per_sample;
  inf_from.insert(other.inf_from.begin(), other.inf_from.end());
}

BadRows Trail::bad_rows(const at::Tensor& tensor, bool varies) const {
  BadRows bad;
  if (!has_floats(tensor) || tensor.numel() == 0) return bad;
  const bool has_samples = varies && tensor.dim() > 0 && tensor.size(0) == samples_;
  const at::Tensor values = as_rows(tensor, has_samples);
  if (values.isfinite().all().item<bool>()) return bad;
  bad.per_sample = has_samples;
  for (BadKind kind : bad_kinds) bad.of[kind] = elements_of(values, kind).any(1).cpu().expand({samples_});
  return bad;
}

at::Tensor Trail::cleaned(const at::Tensor& tensor, bool varies, BadKind kind) const {
  if (!has_floats(tensor) || tensor.numel() == 0) return tensor;
  const bool has_samples = varies && tensor.dim() > 0 && tensor.size(0) == samples_;
  if (!has_samples) return tensor;
  const at::Tensor bad = elements_of(as_rows(tensor, true), kind).any(1);
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[0] = samples_;
  return tensor.detach().masked_fill(bad.reshape(shape), 1.0);
}

BadRows Trail::note_source(Producer::Kind kind, const std::string& name, const at::Tensor& tensor, bool varies) {
  BadRows bad = bad_rows(tensor, varies);
  if (!bad.is_bad()) return bad;
  const Producer like{kind, name, {}, {}, {}, {}, {}};
  add_producers(like, bad.of, bad.per_sample, {});
  if (bad.has(is_inf)) bad.inf_from.insert(text_of(like));
  return bad;
}

BadRows Trail::note_input(const std::string& name, const at::Tensor& tensor) {
  return note_source(Producer::Kind::input, name, tensor, /*varies=*/true);
}

BadRows Trail::note_held(const std::string& name, const at::Tensor& tensor) {
  return note_source(Producer::Kind::held, name, tensor, /*varies=*/false);
}

void Trail::note_output(const std::string& name, const BadRows& bad) {
  if (bad.is_bad()) result_.outputs.push_back({name, indices(bad.any())});
}

/// Samples that have this kind in the results and in none of the operands. What has no samples in front was made of all.
at::Tensor Trail::fresh_rows(BadKind kind, const BadRows& read, const BadRows& made, const RunClean& run_clean) const {
  if (!read.has(kind)) return made.of[kind];
  if (!made.per_sample) return at::zeros_like(made.of[kind]);
  const at::Tensor fresh = made.of[kind].logical_and(read.of[kind].logical_not());
  if (!run_clean || !has_any(fresh)) return fresh;
  BadRows clean;
  try {
    clean = run_clean(kind);
  } catch (const std::exception&) {
    return fresh;  // it cannot run on other values
  }
  return clean.is_bad() ? fresh.logical_and(clean.of[kind]) : at::zeros_like(fresh);
}

std::set<std::string> Trail::note_operation(size_t index, const Producer& like, const BadRows& read,
                                            const BadRows& made, const RunClean& run_clean) {
  Ran& ran = operations_.try_emplace(index, Ran{like, {}, {}}).first->second;
  std::set<std::string> inf_from;
  if (!made.is_bad()) return inf_from;
  ran.has_bad = true;
  for (BadKind kind : bad_kinds) {
    if (!made.has(kind) && samples_ > 0) continue;
    const at::Tensor fresh = fresh_rows(kind, read, made, run_clean);
    if (kind == is_inf) {
      if (has_any(fresh)) inf_from.insert(text_of(like));
      if (has_any(made.of[kind].logical_and(fresh.logical_not())))
        inf_from.insert(read.inf_from.begin(), read.inf_from.end());
    }
    if (samples_ > 0 && !has_any(fresh)) continue;
    ran.produced = true;
    ran.per_sample &= made.per_sample;
    ran.fresh[kind] = either(ran.fresh[kind], fresh);
    if (kind == is_nan && read.has(is_inf)) ran.nan_from.insert(read.inf_from.begin(), read.inf_from.end());
  }
  return inf_from;
}

void Trail::add_producers(const Producer& like, const std::array<at::Tensor, 2>& rows, bool per_sample,
                          const std::set<std::string>& nan_from) {
  for (BadKind kind : bad_kinds) {
    if (!has_any(rows[kind])) continue;
    Producer& producer = result_.producers.emplace_back(like);
    producer.code = kind == is_nan ? err::nan : err::inf;
    if (per_sample) producer.rows = indices(rows[kind]);
    if (kind == is_nan) producer.from_inf.assign(nan_from.begin(), nan_from.end());
  }
}

Provenance Trail::finish() && {
  result_.samples = samples_;
  result_.operations = static_cast<int64_t>(operations_.size());
  for (const auto& [index, ran] : operations_) {
    if (ran.produced)
      add_producers(ran.like, ran.fresh, ran.per_sample, ran.nan_from);
    else if (ran.has_bad)
      ++result_.passed_on;
  }
  return std::move(result_);
}

}  // namespace triage::diagnose
