#include "runtime/diagnose/verify/search.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "runtime/diagnose/bits.h"
#include "runtime/diagnose/verify/facts.h"

// A fault that needs one condition shows with a sample that takes that side. A fault that needs several (a divisor of
// zero where a branch is taken) shows with a sample of which several facts hold, so pairs of facts are looked for, by
// crossing samples that have one each: from pair to pair come more. A narrow interval lies at the edge of a comparison,
// which is found between a sample on either side.

namespace triage::diagnose {
namespace {

constexpr size_t samples_at_once = 61;                      // and no usual size of another dim
constexpr size_t most_facts = 200;                          // of which pairs are looked for
constexpr size_t most_elements_searched = size_t{1} << 24;  // of all samples that are looked at
constexpr size_t most_found = 160;                          // samples, not counting edges
constexpr size_t most_combinations = 4096;
constexpr size_t most_witnesses = 4;  // of a fact
constexpr int rounds_to_edge = 4;     // each divides the distance by 60

bool is_plain_float(const at::Tensor& row) { return row.defined() && at::isFloatingType(row.scalar_type()); }

class SampleSearch {
 public:
  SampleSearch(IsolationSubject& subject, const std::vector<IsolationInput>& inputs, const SearchOptions& options)
      : subject_(subject), inputs_(inputs), options_(options), random_(options.seed) {}

  TriedSamples operator()(const TriedSamples& from) && {
    if (options_.count == 0) return {};
    pool_ = from;
    most_pool_ = pool_.size() + at_most(most_combinations, 64);
    note_facts(from, false);
    find_edges();
    const size_t most_drawn = at_most(options_.count, 256);
    for (size_t drawn = 0; drawn < most_drawn && count_ < most_found && !facts_.empty(); drawn += samples_at_once) {
      TriedSamples next;
      while (next.size() < samples_at_once) next.push_back(below(2) ? crossed() : drawn_from_pool());
      note_facts(next, true);
    }
    return std::move(found_);
  }

 private:
  /// The first samples, with finite values where there are such.
  struct Witnesses {
    TriedSamples samples = {};
    size_t finite = 0;  // of them, the first ones

    void note(const TriedSample& sample, bool is_finite) {
      if (samples.size() < most_witnesses)
        samples.push_back(sample);
      else if (is_finite && finite < samples.size())
        samples.back() = sample;
      else
        return;
      if (is_finite) std::swap(samples[finite++], samples.back());
    }
  };
  struct KnownFact {
    std::string what;
    SampleFact::Kind kind;
    bool is_comparison;
    Witnesses with = {}, without = {};
    size_t count = 0;   // of samples that had it
    bool told = false;  // as news
  };
  using Facts = std::vector<size_t>;  // of one sample, in the order of the steps

  /// So many samples as are looked at where one is not large; of larger ones fewer, and at least `least`.
  size_t at_most(size_t count, size_t least, size_t samples_of_each = 1) const {
    const size_t elements = samples_of_each * (1 + elements_of(pool_.front()));
    return std::min(count, std::max(least, most_elements_searched / elements));
  }

  // What is known

  /// The facts of each sample. Those that show something new are kept where `keeps`.
  std::vector<Facts> note_facts(const TriedSamples& samples, bool keeps) {
    const Recording recording = subject_.record(batch_of(inputs_, samples));
    if (!recording.failure.empty()) return keeps ? note_halves(samples) : std::vector<Facts>(samples.size());
    std::vector<Facts> of_samples(samples.size());
    std::vector<bool> finite;
    for (const TriedSample& sample : samples) finite.push_back(is_good(sample));
    for (SampleFact& fact : facts_of(recording, static_cast<int64_t>(samples.size()))) {
      const size_t id = id_of(fact);
      for (size_t i = 0; i < samples.size(); ++i) {
        if (fact.samples[i]) of_samples[i].push_back(id), ++facts_[id].count;
        (fact.samples[i] ? facts_[id].with : facts_[id].without).note(samples[i], finite[i]);
      }
    }
    for (size_t i = 0; i < samples.size(); ++i) note_sample(samples[i], of_samples[i], keeps);
    return of_samples;
  }

  size_t id_of(SampleFact& fact) {
    const auto [known, fresh] = ids_.emplace(fact.key, facts_.size());
    if (fresh) facts_.push_back({std::move(fact.what), std::get<SampleFact::Kind>(fact.key), fact.is_comparison});
    return known->second;
  }

  /// The first fact, or pair of facts, that no sample had; empty: there is none.
  std::string news_of(const Facts& facts) {
    std::string news;
    for (const size_t fact : facts)
      if (!std::exchange(facts_[fact].told, true) && news.empty()) news = facts_[fact].what;
    for (size_t i = 0; i < facts.size(); ++i)
      for (size_t k = i + 1; k < facts.size() && facts[i] < most_facts; ++k) {
        if (facts[k] >= most_facts) continue;
        auto seen = pairs_[pair_of(facts[i], facts[k])];
        if (!seen && news.empty()) news = facts_[facts[i]].what + " and " + facts_[facts[k]].what;
        seen = true;
      }
    return news;
  }

  static size_t pair_of(size_t one, size_t other) { return std::min(one, other) * most_facts + std::max(one, other); }

  void note_sample(const TriedSample& sample, const Facts& facts, bool keeps) {
    std::string news = news_of(facts);
    const bool is_new = combinations_.size() < most_combinations && combinations_.insert(facts).second;
    if (!keeps || !is_new) return;
    const auto spoils = [&](size_t fact) { return facts_[fact].kind == SampleFact::Kind::not_finite; };
    if (const auto fact = std::find_if(facts.begin(), facts.end(), spoils); fact != facts.end() && news.empty())
      news = facts_[*fact].what + " under other conditions";
    if (pool_.size() < most_pool_) pool_.push_back(sample);  // a step to the next
    if (news.empty() || count_ == most_found) return;
    ++count_;
    keep(sample, "a sample found by search, with which " + news);
  }

  void keep(TriedSample sample, std::string what) {
    sample.what = std::move(what);
    sample.is_given = false;
    found_.push_back(std::move(sample));
  }

  /// Of samples of which some raise. Some of these are kept.
  std::vector<Facts> note_halves(const TriedSamples& samples) {
    constexpr size_t most_raising = 16;
    if (raising_ == most_raising) return std::vector<Facts>(samples.size());
    if (samples.size() == 1) {
      ++raising_;
      keep(samples.front(), "a sample found by search");
      return {{}};
    }
    const auto middle = static_cast<std::ptrdiff_t>(samples.size() / 2);
    std::vector<Facts> of_samples = note_facts({samples.begin(), samples.begin() + middle}, true);
    for (Facts& facts : note_facts({samples.begin() + middle, samples.end()}, true))
      of_samples.push_back(std::move(facts));
    return of_samples;
  }

  // Edges

  void find_edges() {
    size_t edges = at_most(24, 2, samples_at_once * rounds_to_edge);
    for (size_t id = 0; id < facts_.size() && edges > 0; ++id) {
      const Witnesses &with = facts_[id].with, &without = facts_[id].without;
      if (!facts_[id].is_comparison || with.finite == 0 || without.finite == 0) continue;
      --edges;
      find_edge(id, TriedSample(without.samples.front()), TriedSample(with.samples.front()));
    }
  }

  /// Between two samples, of which the last has the fact.
  void find_edge(size_t id, TriedSample from, TriedSample to) {
    const auto has = [&](const Facts& facts) { return std::find(facts.begin(), facts.end(), id) != facts.end(); };
    for (int round = 0; round < rounds_to_edge; ++round) {
      TriedSamples points;
      for (size_t i = 0; i < samples_at_once; ++i)
        points.push_back(between(from, to, static_cast<double>(i) / (samples_at_once - 1)));
      const std::vector<Facts> facts = note_facts(points, true);
      size_t last = 1;
      while (last < points.size() && has(facts[last]) == has(facts[last - 1])) ++last;
      if (last == points.size()) return;
      from = points[last - 1];
      to = points[last];
    }
    const std::string what = fmt::format("a sample at the edge of where {}", facts_[id].what);
    keep(std::move(from), what);
    keep(std::move(to), what);
  }

  TriedSample between(const TriedSample& from, const TriedSample& to, double part) const {
    TriedSample sample = to;
    for (size_t i = 0; i < sample.rows.size(); ++i) {
      const at::Tensor &a = from.rows[i], &b = to.rows[i];
      if (inputs_[i].is_flags || !is_plain_float(a) || !is_plain_float(b) || !same_kind(a, b)) continue;
      const at::Tensor low = a.to(at::kDouble), high = b.to(at::kDouble);
      sample.rows[i] = (low * (1 - part) + high * part).to(a.scalar_type());  // low + (high - low) may overflow
    }
    return sample;
  }

  // Drawing

  uint64_t below(uint64_t count) { return random_() % count; }
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }

  at::Tensor uniform_values(int64_t count) {
    const at::Tensor values = at::empty({count}, at::kDouble);
    double* const first = values.data_ptr<double>();
    for (int64_t i = 0; i < count; ++i) first[i] = uniform(-1, 1);
    return values;
  }

  /// What elements of a dtype become: found once, for each sample drawn asks.
  struct NumbersOfDtype {
    std::vector<double> scripted, special;
    std::vector<int64_t> integers;
  };
  const NumbersOfDtype& numbers_of(at::ScalarType dtype) {
    const auto [known, fresh] = numbers_.try_emplace(dtype);
    if (!fresh) return known->second;
    if (at::isFloatingType(dtype))
      known->second = {near_numbers(dtype, options_.numbers), special_values(dtype, options_.numbers), {}};
    else
      known->second.integers = integers_near(dtype, options_.numbers);
    return known->second;
  }

  /// A sample of the pool, or one that has a fact: these are few.
  const TriedSample& any() {
    size_t rarest = below(facts_.size());  // of three
    for (int i = 0; i < 2; ++i)
      if (const size_t other = below(facts_.size()); facts_[other].count < facts_[rarest].count) rarest = other;
    const TriedSamples& with = facts_[rarest].with.samples;
    return with.empty() || below(2) ? pool_[below(pool_.size())] : with[below(with.size())];
  }

  bool may_change(size_t input, const TriedSample& sample) const {
    return sample.rows[input].defined() && sample.rows[input].numel() > 0 && !inputs_[input].is_flags;
  }

  TriedSample drawn_from_pool() {
    TriedSample sample = any();
    for (size_t i = 0; i < sample.rows.size(); ++i) {
      if (!may_change(i, sample) || (sample.rows.size() > 1 && below(2))) continue;
      sample.rows[i] = sample.rows[i].clone(at::MemoryFormat::Contiguous);
      for (uint64_t count = 1 + below(2); count > 0; --count) change(sample.rows[i], any().rows[i]);
    }
    if (sample.rows.size() > 1 && below(4) == 0) make_equal(sample);
    return sample;
  }

  /// Or opposite.
  void make_equal(TriedSample& sample) {
    const size_t one = below(sample.rows.size()), other = below(sample.rows.size());
    if (one == other || !may_change(one, sample) || !is_plain_float(sample.rows[one]) ||
        !same_kind(sample.rows[one], sample.rows[other]))
      return;
    sample.rows[one] = below(2) ? sample.rows[other] : sample.rows[other].neg();
  }

  /// Of two samples that have a fact each which no sample had together, or of any two: parts of both.
  TriedSample crossed() {
    TriedSample sample = any();
    TriedSample giver = pool_[below(pool_.size())];
    if (below(2)) cross_apart(sample, giver);
    const uint64_t way = below(4);
    for (size_t i = 0; i < sample.rows.size(); ++i) {
      if (!may_change(i, sample) || (way == 3 && below(2))) continue;
      at::Tensor& row = sample.rows[i];
      row = row.clone(at::MemoryFormat::Contiguous);
      take_parts(row.view({-1}), giver.rows[i].reshape({-1}), way);
    }
    return sample;
  }

  void cross_apart(TriedSample& sample, TriedSample& giver) {
    const size_t count = std::min(facts_.size(), most_facts);
    for (int tries = 0; tries < 16; ++tries) {
      const size_t one = below(count), other = below(count);
      const TriedSamples &with_one = facts_[one].with.samples, &with_other = facts_[other].with.samples;
      if (one == other || with_one.empty() || with_other.empty() || pairs_[pair_of(one, other)]) continue;
      sample = with_one[below(with_one.size())];
      giver = with_other[below(with_other.size())];
      return;
    }
  }

  void take_parts(const at::Tensor& row, const at::Tensor& other, uint64_t way) {
    const auto size = row.numel();
    if (other.numel() != size) return;
    if (way == 0) {  // any
      row.copy_(at::where(uniform_values(size).gt(0).to(row.device()), other, row));
    } else if (way == 1) {  // few
      for (uint64_t count = 1 + below(3); count > 0; --count) {
        const auto place = static_cast<int64_t>(below(static_cast<uint64_t>(size)));
        row[place].copy_(other[place]);
      }
    } else if (way == 2) {  // one end
      const auto middle = static_cast<int64_t>(below(static_cast<uint64_t>(size) + 1));
      row.slice(0, middle).copy_(other.slice(0, middle));
    } else {  // whole inputs
      row.copy_(other);
    }
  }

  void change(at::Tensor& row, const at::Tensor& other) {
    const at::ScalarType dtype = row.scalar_type();
    at::Tensor flat = row.view({-1});
    const auto size = static_cast<uint64_t>(flat.numel());
    if (!at::isFloatingType(dtype)) {
      if (at::isIntegralType(dtype, true)) change_integers(flat, other.reshape({-1}));
      return;
    }
    const NumbersOfDtype& numbers = numbers_of(dtype);
    const std::vector<double>& values = numbers.scripted.empty() || below(2) ? numbers.special : numbers.scripted;
    switch (below(7)) {
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
        flat.copy_(uniform_values(flat.numel())).mul_(std::pow(10.0, uniform(-4, 4)));
        break;
      case 4:
        flat.copy_(std::get<0>(flat.sort(0, below(2) != 0)));
        break;
      case 5:
        flat.abs_();
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
    const std::vector<int64_t>& values = numbers_of(dtype).integers;
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
  TriedSamples pool_, found_;
  size_t most_pool_ = 0;
  size_t count_ = 0;  // of those found that are no edges
  size_t raising_ = 0;
  std::map<SampleFact::Key, size_t> ids_;
  std::vector<KnownFact> facts_;
  std::vector<bool> pairs_ = std::vector<bool>(most_facts * most_facts);  // that a sample had
  std::set<Facts> combinations_;
  std::map<at::ScalarType, NumbersOfDtype> numbers_;
};

}  // namespace

TriedSamples search_samples(IsolationSubject& subject, const std::vector<IsolationInput>& inputs,
                            const TriedSamples& samples, const SearchOptions& options) {
  const at::NoGradGuard no_grad;
  return SampleSearch(subject, inputs, options)(samples);
}

}  // namespace triage::diagnose
