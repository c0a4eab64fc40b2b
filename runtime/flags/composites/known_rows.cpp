#include "runtime/flags/composites/known_rows.h"

#include <algorithm>
#include <utility>

#include "runtime/flags/context.h"

namespace triage::flags {

RowTable RowTable::changed(const std::function<Row(const Row&)>& change) const {
  RowTable result{masks, {}};
  for (const Row& row : rows) result.rows.push_back(change(row));
  return result;
}

std::optional<RowTable> RowTable::joined(const RowTable& other,
                                         const std::function<Row(const Row&, const Row&)>& row) const {
  RowTable result{masks, {}};
  std::vector<size_t> place;  // of each mask of the other table
  for (const at::Tensor& mask : other.masks) {
    const auto same =
        std::find_if(result.masks.begin(), result.masks.end(), [&](const auto& m) { return m.is_same(mask); });
    place.push_back(static_cast<size_t>(same - result.masks.begin()));
    if (same == result.masks.end()) result.masks.push_back(mask);
  }
  if (result.masks.size() > MOST_MASKS) return std::nullopt;
  for (size_t index = 0; index < size_t{1} << result.masks.size(); ++index) {
    size_t theirs = 0;
    for (size_t i = 0; i < place.size(); ++i) theirs |= (index >> place[i] & 1) << i;
    result.rows.push_back(row(rows[index & (rows.size() - 1)], other.rows[theirs]));
  }
  return result;
}

KnownRows::KnownRows(Writes writes) noexcept : before_(std::exchange(context.known_rows, this)), writes_(writes) {}
KnownRows::~KnownRows() {
  context.known_rows = before_;
  if (writes_ == Writes::unseen) forget();
}

bool KnownRows::any() noexcept { return context.known_rows && !context.known_rows->entries_.empty(); }

void KnownRows::forget() noexcept {
  for (KnownRows* known = context.known_rows; known; known = known->before_) known->entries_.clear();
}

/// Of the tensor and the masks; nothing where writes would not be seen.
std::optional<std::vector<int64_t>> KnownRows::versions(const at::Tensor& tensor, const RowTable& table) const {
  std::vector<int64_t> result;
  if (writes_ == Writes::none) return result;
  if (writes_ == Writes::unseen || tensor.is_inference()) return std::nullopt;
  // Few operators of LibTorch (`_unsafe_view`, `set_`) give the memory to a tensor that has a version of its own.
  if (tensor.storage().use_count() > 1) return std::nullopt;
  result.push_back(static_cast<int64_t>(tensor._version()));
  for (const at::Tensor& mask : table.masks) {
    if (mask.is_inference()) return std::nullopt;
    result.push_back(static_cast<int64_t>(mask._version()));
  }
  return result;
}

std::shared_ptr<const RowTable> KnownRows::of(const at::Tensor& tensor) {
  const KnownRows* known = context.known_rows;
  if (!known) return nullptr;
  for (auto entry = known->entries_.rbegin(); entry != known->entries_.rend(); ++entry) {
    if (entry->tensor._unsafe_get_target() != tensor.unsafeGetTensorImpl()) continue;
    return known->versions(tensor, *entry->table) == entry->versions ? entry->table : nullptr;
  }
  return nullptr;
}

at::Tensor KnownRows::note(at::Tensor tensor, RowTable table) {
  KnownRows* known = context.known_rows;
  if (!known) return tensor;
  auto versions = known->versions(tensor, table);
  if (!versions) return tensor;
  auto& entries = known->entries_;
  if (entries.size() == MOST_ENTRIES) entries.erase(entries.begin());
  entries.push_back(
      {Weak(tensor.getIntrusivePtr()), std::move(*versions), std::make_shared<const RowTable>(std::move(table))});
  return tensor;
}

}  // namespace triage::flags
