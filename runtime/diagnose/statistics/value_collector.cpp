#include <ATen/ATen.h>
#include <triage/files.h>
#include <triage/value_statistics.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "runtime/diagnose/isolation/poison.h"
#include "runtime/diagnose/statistics/value_counts.h"

namespace triage {

namespace {

constexpr size_t most_pending = 64;  // counts on a device before they are added up; that waits for it

using LocationAndDtype = std::pair<std::string, at::ScalarType>;

struct LocationCounts {
  uint64_t batches = 0;
  diagnose::ValueCounts counts;
  std::vector<at::Tensor> pending;
};

ValueStatistics statistics_of(const LocationAndDtype& key, const LocationCounts& location) {
  const diagnose::ValueCounts& counts = location.counts;
  ValueStatistics found;
  found.location = key.first;
  found.dtype = dtype_name(key.second);
  found.limit = diagnose::largest_of(key.second);
  found.batches = location.batches;
  found.values = counts.values;
  if (counts.least <= counts.most) found.minimum = counts.least, found.maximum = counts.most;
  found.zeros = counts.zeros;
  found.near_limit = counts.near_limit;
  found.saturated = counts.saturated;
  found.nan = counts.nan;
  found.inf = counts.inf;
  return found;
}

bool is_nearer(const ValueStatistics& a, const ValueStatistics& b) {
  if ((a.inf > 0) != (b.inf > 0)) return a.inf > 0;
  return a.largest() / a.limit > b.largest() / b.limit;
}

}  // namespace

struct ValueCollector::Counts {
  std::mutex mutex;
  std::map<LocationAndDtype, LocationCounts> locations;
  uint64_t resets = 0;

  /// With the mutex held.
  static void add_up(LocationCounts& location) {
    diagnose::merge_from_device(location.counts, location.pending);
    location.pending.clear();
  }
};

struct ValueCollector::Batch::Seen {
  std::shared_ptr<Counts> counts;
  std::set<LocationAndDtype> locations;
  uint64_t resets = 0;  // of `counts`, when these locations were seen
};

ValueCollector::ValueCollector() : counts_(std::make_shared<Counts>()) {}

ValueCollector::Batch::Batch(const ValueCollector& collector) : seen_(new Seen{collector.counts_, {}, 0}) {}

ValueCollector::Batch::~Batch() = default;

bool ValueCollector::Batch::add(std::string_view location, const at::Tensor& values) {
  if (!values.defined() || !diagnose::has_counted_values(values)) return false;
  const bool on_device = !values.device().is_cpu() && !values.is_meta() && values.layout() == at::kStrided;
  diagnose::ValueCounts counts;
  at::Tensor device_counts;
  if (!on_device)
    counts = diagnose::count_values(values);
  else if (values.numel() > 0)
    device_counts = diagnose::count_on_device(values);
  const LocationAndDtype key{location, diagnose::counted_dtype(values)};

  Counts& shared = *seen_->counts;
  std::lock_guard lock(shared.mutex);
  if (seen_->resets != shared.resets) seen_->locations.clear(), seen_->resets = shared.resets;
  LocationCounts& into = shared.locations[key];
  if (seen_->locations.insert(key).second) ++into.batches;
  into.counts.merge(counts);
  if (!device_counts.defined()) return on_device || counts.nan > 0 || counts.inf > 0;
  into.counts.values += static_cast<uint64_t>(values.numel() * (values.is_complex() ? 2 : 1));
  into.pending.push_back(std::move(device_counts));
  if (into.pending.size() >= most_pending) Counts::add_up(into);
  return true;
}

void ValueCollector::add(std::string_view location, const at::Tensor& values) { Batch(*this).add(location, values); }

std::vector<ValueStatistics> ValueCollector::statistics() const {
  std::vector<ValueStatistics> all;
  {
    std::lock_guard lock(counts_->mutex);
    for (auto& [key, location] : counts_->locations) {
      Counts::add_up(location);
      all.push_back(statistics_of(key, location));
    }
  }
  std::stable_sort(all.begin(), all.end(), is_nearer);
  return all;
}

void ValueCollector::reset() {
  std::lock_guard lock(counts_->mutex);
  counts_->locations.clear();
  ++counts_->resets;
}

}  // namespace triage
