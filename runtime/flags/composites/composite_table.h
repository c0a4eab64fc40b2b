#pragma once
// Tensors made of tables of rows (known_rows.h), as ATen calls: a `where` for each mask and value, and nothing for the
// rest.
#include <ATen/core/Tensor.h>
#include <runtime/flags/composites/known_rows.h>

#include <functional>

namespace triage::flags::composite {

/// int64, (N, 1): `number` of each row. `like`: some tensor (N, ...) of at least one column, for tables without masks.
at::Tensor numbers_of(const RowTable& table, const std::function<int64_t(const RowTable::Row&)>& number,
                      const at::Tensor& like);
/// bool, (N, 1): whether the number of each row of a table of a mask is 1.
at::Tensor mask_of(const RowTable& table, const at::Tensor& like);
/// Flags of this carrier.
at::Tensor records_of(const RowTable& table, at::ScalarType carrier, const at::Tensor& like);

}  // namespace triage::flags::composite
