// Law::order.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "runtime/diagnose/verify/blame.h"
#include "runtime/diagnose/verify/smallest.h"
#include "runtime/diagnose/verify/trial.h"

namespace triage::diagnose {
namespace {

class OrderLaw : public LawTrial {
 public:
  using LawTrial::LawTrial;

  void try_order() {
    const Answers together = ask(samples_);
    if (!together.gives_flags()) return not_tried(Law::order, "the policy gives no flags");
    const std::vector<Record> records = together.records();
    std::vector<size_t> order(samples_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::mt19937_64 random(options_.seed);
    for (const size_t size : {samples_.size(), size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{31}, size_t{33}}) {
      if (size == 1 && !answers_one_) continue;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
      for (size_t begin = 0; begin < order.size(); begin += size) {
        const std::vector<size_t> part(
            order.begin() + static_cast<std::ptrdiff_t>(begin),
            order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + size, order.size())));
        if (!compare_records(part, records)) return;
      }
    }
  }

  /// False: enough was found.
  bool compare_records(const std::vector<size_t>& part, const std::vector<Record>& expected) {
    const std::vector<Record> got = ask(picked(part)).records();
    for (size_t i = 0; i < part.size(); ++i)
      if (got[i] != expected[part[i]]) {
        note_other_record(part, i, got[i], expected[part[i]]);
        return false;
      }
    return true;
  }

  static std::string shown(const Record& record) { return record.empty() ? "clean" : diagnose::text_of(record); }

  Record record_of(const TriedSamples& batch, size_t row) { return ask(batch).records()[row]; }

  /// With as few other samples as show it.
  void note_other_record(const std::vector<size_t>& part, size_t place_in_part, const Record& got,
                         const Record& expected) {
    const size_t which = part[place_in_part];
    Violation violation{"", "", samples_[which].what, 1};
    const Record by_itself = record_of(picked({which}), 0);
    std::vector<size_t> batch = part;
    if (got == by_itself) {  // then the batch of all is the one that shows it
      batch.resize(samples_.size());
      std::iota(batch.begin(), batch.end(), size_t{0});
    }
    batch = fewest(std::move(batch), which, [&](const std::vector<size_t>& some) {
      return record_of(picked(some), place_of(which, some)) != by_itself;
    });
    const size_t row = place_of(which, batch);
    const TriedSamples least = smallest(picked(batch), inputs_, [&](const TriedSamples& some) {
      try {
        return record_of(some, row) != record_of({some[row]}, 0);
      } catch (const std::exception&) {  // of samples that were cut
        return false;
      }
    });
    const Record alone = record_of({least[row]}, 0), beside = record_of(least, row);
    violation.row = static_cast<int64_t>(row);
    violation.what =
        alone == beside
            ? fmt::format("the record of one sample is {} in a batch of {}, and {} in a batch of {}", shown(expected),
                          samples_.size(), shown(got), part.size())
            : fmt::format("the record of a sample is {} alone, and {} as sample {} {}", shown(alone), shown(beside),
                          row,
                          least.size() == 2 ? "beside another one" : fmt::format("of a batch of {}", least.size()));
    const Tensors together = diagnose::batch_of(inputs_, least);
    const Recording one = subject_.record(batch_of(least[row])), other = subject_.record(together);
    place(violation, first_other({one, 1, 0}, {other, static_cast<int64_t>(least.size()), violation.row}));
    violation.inputs = named(together);
    add(Law::order, std::move(violation));
  }
};

}  // namespace

void try_order(TrialState& state) { OrderLaw(state).try_order(); }

}  // namespace triage::diagnose
