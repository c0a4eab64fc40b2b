#include "runtime/policy/attribution/counters.h"

#include "runtime/policy/thread_stripe.h"

#include <triage/error.h>

#include <algorithm>
#include <bit>
#include <new>

namespace triage::policy {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;

size_t bucket_of(std::chrono::nanoseconds time) noexcept {
  const auto units = static_cast<uint64_t>(std::max<int64_t>(0, time.count())) / latency_bound(0).count();
  return std::min<size_t>(std::bit_width(units), latency_bucket_count - 1);
}

}  // namespace

FailureKind kind_of(const std::exception& error) noexcept {
  if (dynamic_cast<const InputError*>(&error)) return FailureKind::input;
  if (dynamic_cast<const LimitError*>(&error)) return FailureKind::limit;
  if (dynamic_cast<const GraphBreakError*>(&error)) return FailureKind::graph_break;
  return dynamic_cast<const Error*>(&error) ? FailureKind::policy : FailureKind::other;
}

FlagCounts::~FlagCounts() {
  for (auto& page : pages_) delete page.load(relaxed);
}

/// Where there is no memory for a statistic, it is lost.
void FlagCounts::add(uint16_t slot, uint64_t count) noexcept {
  std::atomic<Page*>& place = pages_[slot >> LOCATION_SHIFT];
  Page* page = place.load(std::memory_order_acquire);
  if (!page) {
    auto* const made = new (std::nothrow) Page{};
    if (!made) return;
    if (place.compare_exchange_strong(page, made, std::memory_order_acq_rel))
      page = made;
    else
      delete made;
  }
  (*page)[slot & (page->size() - 1)].fetch_add(count, relaxed);
}

std::vector<FlagCount> FlagCounts::read(const CodeNames& codes) const {
  std::vector<FlagCount> counts;
  for (size_t location = 0; location < pages_.size(); ++location)
    if (const Page* page = pages_[location].load(std::memory_order_acquire))
      for (size_t kind = 0; kind < page->size(); ++kind)
        if (const uint64_t count = (*page)[kind].load(relaxed))
          counts.push_back({static_cast<int64_t>(location), static_cast<Code>(kind >> CODE_SHIFT),
                            static_cast<Severity>(kind & SEVERITY_MASK), count,
                            code_name(static_cast<Code>(kind >> CODE_SHIFT), codes)});
  return counts;
}

Counters::CounterStripe& Counters::mine() noexcept { return stripes_[thread_stripe(stripe_count)]; }

void Counters::answered(Answered by, CallForm form, std::chrono::nanoseconds time) noexcept {
  CounterStripe& stripe = mine();
  stripe.answers[static_cast<size_t>(by)][static_cast<size_t>(form)].fetch_add(1, relaxed);
  stripe.latency[bucket_of(time)].fetch_add(1, relaxed);
  stripe.time.fetch_add(static_cast<uint64_t>(time.count()), relaxed);
}

Counters::Counters(const Signature& signature) : codes_(signature.codes) {
  for (size_t i = 0; i < signature.output_ranges.size(); ++i)
    if (signature.output_ranges[i]) violated_.emplace_back(i, signature.outputs[i]);
}

void Counters::violated(size_t index, uint64_t samples) noexcept {
  for (Violated& output : violated_)
    if (output.index == index) output.samples.fetch_add(samples, relaxed);
}

void Counters::failed(FailureKind kind) noexcept { failures_[static_cast<size_t>(kind)].fetch_add(1, relaxed); }

void Counters::flagged(const Flagged& found) noexcept {
  CounterStripe& stripe = mine();
  stripe.samples.fetch_add(found.samples, relaxed);
  if (!found.flagged) return;
  stripe.flagged.fetch_add(found.flagged, relaxed);
  stripe.repaired.fetch_add(found.repaired, relaxed);
  if (found.full) stripe.full.fetch_add(found.full, relaxed);
}

Counters::Flagged Counters::totals() const noexcept {
  Flagged sum;
  for (const CounterStripe& stripe : stripes_) {
    sum.samples += stripe.samples.load(relaxed);
    sum.flagged += stripe.flagged.load(relaxed);
    sum.repaired += stripe.repaired.load(relaxed);
    sum.full += stripe.full.load(relaxed);
  }
  return sum;
}

CallStatistics Counters::read() const {
  CallStatistics sum;
  for (const CounterStripe& stripe : stripes_) {
    for (size_t by = 0; by < answered_count; ++by)
      for (size_t form = 0; form < call_form_count; ++form)
        sum.answers[by][form] += stripe.answers[by][form].load(relaxed);
    for (size_t bucket = 0; bucket < latency_bucket_count; ++bucket)
      sum.latency[bucket] += stripe.latency[bucket].load(relaxed);
    sum.time += std::chrono::nanoseconds(stripe.time.load(relaxed));
  }
  const Flagged all = totals();
  sum.samples = all.samples;
  sum.flagged = all.flagged;
  sum.repaired = all.repaired;
  sum.full = all.full;
  for (size_t kind = 0; kind < failure_kind_count; ++kind) sum.failures[kind] = failures_[kind].load(relaxed);
  sum.uncounted = uncounted_.load(relaxed);
  sum.recompiles = compiled_.recompiles.load(relaxed);
  sum.graph_breaks = compiled_.graph_breaks.load(relaxed);
  sum.flags = flags_.read(codes_);
  for (const Violated& output : violated_) sum.violations.push_back({output.output, output.samples.load(relaxed)});
  return sum;
}

void CallCounts::add(int number, const std::string& hash, std::shared_ptr<const Counters> counters) {
  forget_ended();
  counted_.push_back({number, hash, std::move(counters)});
}

void CallCounts::forget_ended() {
  std::erase_if(counted_, [this](const CountedVersion& version) {
    if (!version.counters->ended()) return false;
    gone_ += version.counters->read();
    return true;
  });
}

void CallCounts::read(PolicyStatistics& statistics) {
  forget_ended();
  statistics.total = gone_;
  for (const CountedVersion& version : counted_) {
    statistics.versions.push_back({version.number, version.hash, version.counters->read()});
    statistics.total += statistics.versions.back().calls;
  }
}

}  // namespace triage::policy
