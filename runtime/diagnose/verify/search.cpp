#include "runtime/diagnose/verify/search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <set>
#include <tuple>

namespace triage::diagnose {
namespace {

constexpr size_t samples_at_once = 64;

/// A comparison, and whether it holds somewhere in a sample.
using Side = std::tuple<size_t, bool>;  // step

class SampleSearch {
 public:
  SampleSearch(IsolationSubject& subject, const std::vector<IsolationInput>& inputs, const SearchOptions& options)
      : subject_(subject), inputs_(inputs), options_(options), random_(options.seed) {}

  TriedSamples operator()(TriedSamples from) && {
    TriedSamples found;
    note_sides(from, nullptr);
    for (size_t drawn = 0; drawn < options_.count && is_open(); drawn += samples_at_once) {
      TriedSamples next;
      while (next.size() < samples_at_once) next.push_back(draw(from));
      TriedSamples news;
      note_sides(next, &news);
      for (const TriedSample& one : news) {
        found.push_back(one);
        from.push_back(one);  // a step to the next side
      }
    }
    return found;
  }

 private:
  /// Whether a side that was seen has another one that was not.
  bool is_open() const {
    for (const auto& [step, holds] : seen_)
      if (!seen_.count({step, !holds})) return true;
    return false;
  }

  void note_sides(const TriedSamples& samples, TriedSamples* news) {
    const Recording recording = subject_.record(batch_of(inputs_, samples));
    const auto count = static_cast<int64_t>(samples.size());
    if (!recording.failure.empty() && news) return keep_raising(samples, *news);
    for (size_t step = 0; step < recording.steps.size(); ++step)
      for (const size_t result : recording.steps[step].results) {
        const at::Tensor& value = recording.values[result].tensor;
        if (!value.defined() || value.scalar_type() != at::kBool || value.dim() == 0 || value.size(0) != count ||
            value.numel() == 0)
          continue;
        const at::Tensor rows = value.reshape({count, -1}).to(at::kCPU);
        note(step, recording.steps[step], rows.any(1), true, samples, news);
        note(step, recording.steps[step], rows.logical_not().any(1), false, samples, news);
      }
  }

  void note(size_t number, const RecordedStep& step, const at::Tensor& rows, bool holds, const TriedSamples& samples,
            TriedSamples* news) {
    if (seen_.count({number, holds}) || !rows.any().item<bool>()) return;
    seen_.insert({number, holds});
    if (!news) return;
    TriedSample found = samples[static_cast<size_t>(rows.to(at::kByte).argmax().item<int64_t>())];
    const std::string place = step.source.file.empty() ? step.op : fmt::format("line {}", step.source.line);
    found.what =
        fmt::format("a sample found by search, with which {} of {} is {}", step.op, place, holds ? "true" : "false");
    news->push_back(std::move(found));
  }

  void keep_raising(const TriedSamples& samples, TriedSamples& news) {
    for (const TriedSample& sample : samples) {
      if (subject_.record(batch_of(inputs_, {sample})).failure.empty()) continue;
      news.push_back(sample);
      news.back().what = "a sample found by search";
      return;
    }
  }

  // Drawing

  uint64_t below(uint64_t count) { return random_() % count; }
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }

  TriedSample draw(const TriedSamples& from) {
    TriedSample sample = from[below(from.size())];
    for (size_t i = 0; i < sample.rows.size(); ++i) {
      at::Tensor& row = sample.rows[i];
      if (!row.defined() || row.numel() == 0 || inputs_[i].is_flags) continue;
      if (sample.rows.size() > 1 && below(2)) continue;
      row = row.clone(at::MemoryFormat::Contiguous);
      change(row, from[below(from.size())].rows[i]);
    }
    return sample;
  }

  void change(at::Tensor& row, const at::Tensor& other) {
    const at::ScalarType dtype = row.scalar_type();
    at::Tensor flat = row.view({-1});
    const auto size = static_cast<uint64_t>(flat.numel());
    if (!at::isFloatingType(dtype)) {
      if (at::isIntegralType(dtype, true)) change_integers(flat, other.reshape({-1}));
      return;
    }
    const std::vector<double> values = special_values(dtype, options_.numbers);
    switch (below(5)) {
      case 0:
        flat.mul_(std::pow(10.0, uniform(-8, 8)));
        break;
      case 1:  // special values in some places
        for (uint64_t count = 1 + below(std::min<uint64_t>(size, 4)); count > 0; --count)
          flat[static_cast<int64_t>(below(size))].fill_(values[below(values.size())]);
        break;
      case 2:  // near a number
        flat.fill_(values[below(values.size())]).mul_(uniform(0.5, 2));
        break;
      case 3:
        for (uint64_t i = 0; i < size; ++i) flat[static_cast<int64_t>(i)].fill_(uniform(-1, 1));
        flat.mul_(std::pow(10.0, uniform(-4, 4)));
        break;
      default:  // half of another sample
        flat.slice(0, static_cast<int64_t>(size / 2))
            .copy_(other.reshape({-1}).slice(0, static_cast<int64_t>(size / 2)));
    }
  }

  /// One element becomes one of another sample, an integer of the script, or any other.
  void change_integers(const at::Tensor& flat, const at::Tensor& other) {
    const at::ScalarType dtype = flat.scalar_type();
    const at::Tensor place = flat[static_cast<int64_t>(below(static_cast<uint64_t>(flat.numel())))];
    const std::vector<int64_t> values = integers_near(dtype, options_.numbers);
    const uint64_t kind = dtype == at::kBool ? 0 : below(3);
    if (kind == 1 && !values.empty())
      place.fill_(values[below(values.size())]);
    else if (kind == 2)
      place.fill_(
          static_cast<int64_t>(below(uint64_t{1} << (1 + below(dtype == at::kByte || dtype == at::kChar ? 7 : 15)))));
    else
      place.copy_(other[static_cast<int64_t>(below(static_cast<uint64_t>(other.numel())))]);
  }

  IsolationSubject& subject_;
  const std::vector<IsolationInput>& inputs_;
  const SearchOptions& options_;
  std::mt19937_64 random_;
  std::set<Side> seen_;
};

}  // namespace

TriedSamples search_for_sides(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                              const TriedSamples& samples, const SearchOptions& options) {
  const at::NoGradGuard no_grad;
  return SampleSearch(subject, inputs, options)(samples);
}

}  // namespace triage::diagnose
