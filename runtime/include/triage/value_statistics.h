#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// How near values come to the limits of their dtypes, before anything overflows.
namespace triage {

/// The values of one dtype that one location gave. A complex number counts as its two parts.
struct ValueStatistics {
  std::string location;
  std::string dtype;     ///< "float16"
  double limit = 0;      ///< the largest finite number of the dtype: 65504 of float16
  uint64_t batches = 0;  ///< batches in which the location gave such values, empty tensors too
  uint64_t values = 0;   ///< all of them
  std::optional<double> minimum = {}, maximum = {};  ///< of the finite ones; nothing if there are none
  uint64_t zeros = 0;                                ///< 0 and -0
  uint64_t near_limit = 0;                           ///< of a magnitude of limit / 16 or more, Inf included
  uint64_t saturated = 0;                            ///< of the magnitude of the limit, and Inf
  uint64_t nan = 0, inf = 0;

  /// The largest finite magnitude; 0 if no value is finite.
  double largest() const {
    const double below = -minimum.value_or(0), above = maximum.value_or(0);
    return below > above ? below : above;
  }
};

/// Collects the values of batches. Thread-safe: other threads may read and reset it while batches run. Copies share
/// their counts.
class TRIAGE_API ValueCollector {
 public:
  ValueCollector();

  /// What one batch gives: a location that gives several tensors counts one batch. One thread at a time.
  class TRIAGE_API Batch {
   public:
    explicit Batch(const ValueCollector& collector);
    ~Batch();
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;
    /// Reads the values once. Integers and booleans are not counted. On the CPU, false says that no value is NaN or
    /// Inf; on another device the counts stay there until somebody reads them, and the result is true. Throws
    /// InputError for a tensor without values that can be read.
    bool add(std::string_view location, const at::Tensor& values);

   private:
    struct Seen;
    std::unique_ptr<Seen> seen_;
  };

  /// A batch of one tensor.
  void add(std::string_view location, const at::Tensor& values);
  /// For each location and dtype; first those whose values come nearest to the limit of their dtype: those with Inf,
  /// then by largest() / limit. Waits for the devices of the values.
  std::vector<ValueStatistics> statistics() const;
  /// Forgets all that was counted.
  void reset();

 private:
  struct Counts;
  std::shared_ptr<Counts> counts_;
};

/// A table for a person.
TRIAGE_API std::string value_statistics_text(const std::vector<ValueStatistics>& statistics);
/// One JSON object, which `triage statistics FILE.json` reads.
TRIAGE_API std::string value_statistics_json(const std::vector<ValueStatistics>& statistics);
/// Metrics in Prometheus' text format, labelled by `location` and `dtype`. Give it the statistics of all models at
/// once: a name may stand only once in what Prometheus reads.
TRIAGE_API std::string value_statistics_metrics(const std::vector<ValueStatistics>& statistics);

}  // namespace triage
