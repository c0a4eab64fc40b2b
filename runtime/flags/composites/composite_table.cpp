#include "runtime/flags/composites/composite_table.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "runtime/flags/records/slots.h"

namespace triage::flags::composite {
namespace {

using at::Tensor;
using Numbers = std::vector<int64_t>;

/// One number in all rows, or a tensor (N, 1).
struct ScalarOrColumn {
  Tensor each;
  int64_t all = 0;
  bool is(int64_t number) const { return !each.defined() && all == number; }
  bool operator==(const ScalarOrColumn& other) const { return each.is_same(other.each) && all == other.all; }
};

Tensor chosen_number(const Tensor& mask, const ScalarOrColumn& on, const ScalarOrColumn& off) {
  if (off.is(0)) return on.each.defined() ? at::mul(on.each, mask) : at::mul(mask, on.all);
  if (off.each.defined())
    return on.each.defined() ? at::where(mask, on.each, off.each) : at::masked_fill(off.each, mask, on.all);
  return on.each.defined() ? at::where(mask, on.each, off.all) : at::where(mask, at::Scalar(on.all), off.all);
}

Tensor chosen_truth(const Tensor& mask, const ScalarOrColumn& on, const ScalarOrColumn& off) {
  if (on.is(1)) return off.is(0) ? mask : at::logical_or(mask, off.each);
  if (off.is(0)) return at::logical_and(mask, on.each);
  if (on.each.defined() && off.each.defined()) return at::where(mask, on.each, off.each);
  const Tensor other = at::logical_not(mask);
  if (off.is(1)) return on.is(0) ? other : at::logical_or(other, on.each);
  return at::logical_and(other, off.each);
}

using Chosen = Tensor (*)(const Tensor& mask, const ScalarOrColumn& on, const ScalarOrColumn& off);

/// The decision tree over masks, last mask first; equal branches are one.
class Tree {
 public:
  Tree(const std::vector<Tensor>& masks, Chosen chosen) : masks_(masks), chosen_(chosen) {}

  ScalarOrColumn operator()(const Numbers& numbers) {
    if (std::all_of(numbers.begin(), numbers.end(), [&](int64_t number) { return number == numbers[0]; }))
      return {Tensor(), numbers[0]};
    const auto [made, fresh] = made_.try_emplace(numbers);
    if (!fresh) return made->second;
    const auto half = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    const ScalarOrColumn off = (*this)({numbers.begin(), half}), on = (*this)({half, numbers.end()});
    const Tensor& mask = masks_[static_cast<size_t>(std::countr_zero(numbers.size())) - 1];
    return made->second = on == off ? on : ScalarOrColumn{chosen_(mask, on, off)};
  }

 private:
  const std::vector<Tensor>& masks_;
  Chosen chosen_;
  std::map<Numbers, ScalarOrColumn> made_;
};

/// `dtype`: of the result where it is the same number in all rows.
Tensor choose(const RowTable& table, const Numbers& numbers, Chosen chosen, const Tensor& like, at::ScalarType dtype) {
  const ScalarOrColumn choice = Tree(table.masks, chosen)(numbers);
  if (choice.each.defined()) return choice.each;
  const Tensor column = table.masks.empty() ? at::slice(like, 1, 0, 1) : table.masks[0];
  return at::full_like(column, choice.all, column.options().dtype(dtype));
}

int64_t word_of(const RowTable::Row& row, size_t word, size_t slots) {
  const auto bits = four_slots(row.data() + word * slots, static_cast<int64_t>(slots));
  return slots == 2 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
}

}  // namespace

Tensor numbers_of(const RowTable& table, const std::function<int64_t(const RowTable::Row&)>& number,
                  const Tensor& like) {
  Numbers numbers;
  for (const auto& row : table.rows) numbers.push_back(number(row));
  return choose(table, numbers, chosen_number, like, at::kLong);
}

Tensor mask_of(const RowTable& table, const Tensor& like) {
  Numbers numbers;
  for (const auto& row : table.rows) numbers.push_back(row[0]);
  return choose(table, numbers, chosen_truth, like, at::kBool);
}

Tensor records_of(const RowTable& table, at::ScalarType carrier, const Tensor& like) {
  const size_t slots = carrier == at::kInt || carrier == at::kFloat ? 2 : 4;
  const size_t words = table.rows[0].size() / slots;
  size_t used = 1;
  for (size_t word = 1; word < words; ++word)
    for (const auto& row : table.rows)
      if (word_of(row, word, slots)) used = word + 1;
  std::vector<Tensor> columns;
  for (size_t word = 0; word < used; ++word)
    columns.push_back(numbers_of(
        table, [&](const auto& row) { return word_of(row, word, slots); }, like));
  Tensor record = used == 1 ? columns[0] : at::cat(columns, 1);
  if (slots == 2) record = record.to(at::kInt);
  if (used < words) record = at::constant_pad_nd(record, {0, static_cast<int64_t>(words - used)});
  return record.scalar_type() == carrier ? record : record.view(carrier);
}

}  // namespace triage::flags::composite
