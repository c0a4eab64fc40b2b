#include "runtime/diagnose/bad_rows.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <triage/config.h>

#include <exception>
#include <optional>

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

/// Whether the bad values of a tensor have samples in front: dim 0, in what depends on the inputs.
bool in_samples(const at::Tensor& tensor, bool varies, int64_t samples) {
  return varies && tensor.dim() > 0 && tensor.size(0) == samples;
}

void join(const Origins& more, Origins& all) {
  for (const auto& [origin, rows] : more) {
    at::Tensor& known = all[origin];
    known = either(known, rows);
  }
}

/// The samples among `rows` in which a run on other operands has nothing of the kind.
at::Tensor vanished(const at::Tensor& rows, BadKind kind, const BadRows& rerun) {
  return rerun.is_bad() ? rows.logical_and(rerun.of[kind].logical_not()) : rows;
}

/// What `run` gives for `argument`; nothing where the operation cannot run on other values.
template <class Run, class Argument>
std::optional<BadRows> tried(const Run& run, const Argument& argument) {
  if (!run) return std::nullopt;
  try {
    return run(argument);
  } catch (const std::exception&) {
    return std::nullopt;
  }
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
  join(other.inf_from, inf_from);
}

BadRows Trail::bad_rows(const at::Tensor& tensor, bool varies) const {
  BadRows bad;
  if (!has_floats(tensor) || tensor.numel() == 0) return bad;
  const bool has_samples = in_samples(tensor, varies, samples_);
  const at::Tensor values = as_rows(tensor, has_samples);
  if (values.isfinite().all().item<bool>()) return bad;
  bad.per_sample = has_samples;
  for (BadKind kind : bad_kinds) bad.of[kind] = elements_of(values, kind).any(1).cpu().expand({samples_});
  return bad;
}

at::Tensor Trail::cleaned(const at::Tensor& tensor, bool varies, BadKind kind) const {
  if (!has_floats(tensor) || tensor.numel() == 0) return tensor;
  if (!in_samples(tensor, varies, samples_)) return tensor;
  const at::Tensor bad = elements_of(as_rows(tensor, true), kind).any(1);
  std::vector<int64_t> shape(static_cast<size_t>(tensor.dim()), 1);
  shape[0] = samples_;
  return tensor.detach().masked_fill(bad.reshape(shape), 1.0);
}

at::Tensor Trail::without_inf_of(const std::string& origin, const at::Tensor& tensor, const BadRows& bad,
                                 bool varies) const {
  const auto found = bad.inf_from.find(origin);
  if (bad.inf_from.empty() || (!origin.empty() && found == bad.inf_from.end())) return tensor;
  const bool has_samples = in_samples(tensor, varies, samples_);
  at::Tensor inf = elements_of(as_rows(tensor, has_samples), is_inf);
  if (has_samples && !origin.empty()) inf = inf.logical_and(found->second.to(inf.device()).unsqueeze(1));
  return tensor.detach().masked_fill(inf.reshape(tensor.sizes()), 1.0);
}

BadRows Trail::note_source(Producer::Kind kind, const std::string& name, const at::Tensor& tensor, bool varies) {
  BadRows bad = bad_rows(tensor, varies);
  if (!bad.is_bad()) return bad;
  const Producer like{kind, name, {}, {}, {}, {}, {}};
  add_producers(like, bad.of, bad.per_sample, {});
  if (bad.has(is_inf)) bad.inf_from.emplace(text_of(like), bad.of[is_inf]);
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

/// Samples that have this kind in the results and in none of the operands. What has no samples in front was made of
/// all.
at::Tensor Trail::fresh_rows(BadKind kind, const BadRows& read, const BadRows& made, const Rerun& rerun) const {
  if (!read.has(kind)) return made.of[kind];
  if (!made.per_sample) return at::zeros_like(made.of[kind]);
  const at::Tensor fresh = made.of[kind].logical_and(read.of[kind].logical_not());
  if (!has_any(fresh)) return fresh;
  const std::optional<BadRows> clean = tried(rerun.clean, kind);
  if (!clean) return fresh;
  return clean->is_bad() ? fresh.logical_and(clean->of[kind]) : at::zeros_like(fresh);
}

/// Whose Inf among the operands gave the results this kind, and in which samples among `rows`. An Inf counts in the
/// samples that lose the kind when it is replaced: those that have it or, if the operation mixes samples, others too. A
/// sample that keeps the kind without any one of several Inf counts for those that are in it or, if none is, for all.
Origins Trail::causes(BadKind kind, const at::Tensor& rows, const BadRows& read, const Rerun& rerun) const {
  Origins found;
  if (read.inf_from.empty() || !has_any(rows)) return found;
  if (kind == is_inf && read.inf_from.size() == 1) return {{read.inf_from.begin()->first, rows}};
  at::Tensor left = rows;
  for (const auto& [origin, where] : read.inf_from) {
    const std::optional<BadRows> without = tried(rerun.without_inf_of, origin);
    const at::Tensor caused = without ? vanished(rows, kind, *without) : rows.logical_and(where);
    if (!has_any(caused)) continue;
    found.emplace(origin, caused);
    left = left.logical_and(caused.logical_not());
  }
  if (kind == is_nan && has_any(left)) {  // a NaN may have other causes than an Inf
    const std::optional<BadRows> without = tried(rerun.without_inf_of, std::string());
    left = without ? vanished(left, kind, *without) : at::zeros_like(left);
  }
  at::Tensor elsewhere = left;  // samples that have no Inf themselves
  for (const auto& [origin, where] : read.inf_from) elsewhere = elsewhere.logical_and(where.logical_not());
  for (const auto& [origin, where] : read.inf_from) {
    const at::Tensor more = left.logical_and(where).logical_or(elsewhere);
    if (has_any(more)) join({{origin, more}}, found);
  }
  return found;
}

Origins Trail::note_operation(size_t index, const Producer& like, const BadRows& read, const BadRows& made,
                              const Rerun& rerun) {
  OperationRuns& ran = operations_.try_emplace(index, OperationRuns{like, {}, {}}).first->second;
  Origins inf_from;
  if (!made.is_bad()) return inf_from;
  ran.has_bad = true;
  for (BadKind kind : bad_kinds) {
    if (!made.has(kind) && samples_ > 0) continue;
    const at::Tensor fresh = fresh_rows(kind, read, made, rerun);
    if (kind == is_inf) {
      inf_from = causes(is_inf, made.of[kind].logical_and(fresh.logical_not()), read, rerun);
      if (has_any(fresh)) join({{text_of(like), fresh}}, inf_from);
    }
    if (samples_ > 0 && !has_any(fresh)) continue;
    ran.produced = true;
    ran.per_sample &= made.per_sample;
    ran.fresh[kind] = either(ran.fresh[kind], fresh);
    if (kind == is_nan) join(causes(is_nan, fresh, read, rerun), ran.nan_from);
  }
  return inf_from;
}

/// Samples that became NaN of different Inf are producers of their own.
void Trail::add_producers(const Producer& like, const std::array<at::Tensor, 2>& rows, bool per_sample,
                          const Origins& nan_from) {
  for (BadKind kind : bad_kinds) {
    if (!has_any(rows[kind])) continue;
    std::map<std::vector<std::string>, std::vector<int64_t>> by_cause;
    for (const int64_t row : indices(rows[kind])) {
      std::vector<std::string> from;
      if (kind == is_nan)
        for (const auto& [origin, where] : nan_from)
          if (per_sample ? where[row].item<bool>() : has_any(where)) from.push_back(origin);
      by_cause[std::move(from)].push_back(row);
    }
    for (auto& [from, bad] : by_cause) {
      Producer& producer = result_.producers.emplace_back(like);
      producer.code = kind == is_nan ? err::nan : err::inf;
      if (per_sample) producer.rows = std::move(bad);
      producer.from_inf = from;
    }
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
