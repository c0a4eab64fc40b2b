#pragma once
// Kernels walk over records: the flags tensor as rows of 16-bit slots, in parallel where there are many.
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/kernels/scan.h>
#include <runtime/flags/records/slots.h>

#include <algorithm>

#include "runtime/messages/assert.h"

namespace triage::flags::cpu {

/// An uninitialised contiguous CPU tensor, without the way through the dispatcher that at::empty takes: at the size of
/// a usual batch of flags that is a quarter of a call.
inline Tensor new_tensor(at::IntArrayRef sizes, ScalarType dtype) { return at::detail::empty_cpu(sizes, dtype); }

/// Rows a thread should at least get, when a row costs about as much as reading `bytes`.
inline int64_t rows_per_task(int64_t bytes) { return std::max<int64_t>(1, (128 << 10) / std::max<int64_t>(bytes, 1)); }

/// Calls part(begin, end) for parts of [0, rows), on several threads where they are worth it; small batches take no
/// step aside.
template <class Part>
void in_parallel(int64_t rows, size_t row_bytes, Part part) {
  const int64_t grain = rows_per_task(static_cast<int64_t>(row_bytes));
  if (rows > grain) {
    at::parallel_for(0, rows, grain, part);
  } else if (rows) {
    part(int64_t{0}, rows);
  }
}

/// A contiguous flags tensor as rows of slots.
struct SlotRows {
  explicit SlotRows(const Tensor& flags)
      : data(static_cast<uint16_t*>(flags.data_ptr())),
        count(flags.size(0)),
        width(flags.size(1) * check::slots_per_word(flags.scalar_type())) {
    TRIAGE_ASSERT(flags.is_contiguous());
  }
  /// `flags` of the same shape and dtype as those of `like`.
  SlotRows(const Tensor& flags, const SlotRows& like)
      : data(static_cast<uint16_t*>(flags.data_ptr())), count(like.count), width(like.width) {
    TRIAGE_ASSERT(flags.is_contiguous() && flags.nbytes() == static_cast<size_t>(count) * bytes());
  }
  uint16_t* operator[](int64_t row) const {
    TRIAGE_ASSERT(row >= 0 && row < count);
    return data + row * width;
  }
  size_t bytes() const { return static_cast<size_t>(width) * sizeof(uint16_t); }

  uint16_t* data;
  int64_t count;
  int64_t width;  // slots a row, unused ones included
};

/// Copies rows [begin, end) of `from`, or empties them where `from` is null.
inline void start_rows(const SlotRows& to, const uint16_t* from, int64_t begin, int64_t end) {
  TRIAGE_ASSERT(begin >= 0 && begin <= end && end <= to.count);
  const size_t bytes = static_cast<size_t>(end - begin) * to.bytes();
  if (!bytes) return;
  if (from) {
    std::memcpy(to[begin], from + begin * to.width, bytes);
  } else {
    std::memset(to[begin], 0, bytes);
  }
}

/// How many rows to look at as a whole where most are expected to be empty: some kilobytes of them.
inline int64_t rows_in_stretch(const SlotRows& rows) {
  return std::max<int64_t>(1, (16 << 10) / static_cast<int64_t>(rows.bytes()));
}

/// Any error in the rows [begin, end)?
inline bool any_live(const SlotRows& rows, int64_t begin, int64_t end) {
  TRIAGE_ASSERT(begin < end && end <= rows.count);
  constexpr auto severities = static_cast<uint32_t>(SEVERITIES);
  return scan_dense(HasAny{severities}, reinterpret_cast<const uint32_t*>(rows[begin]), (end - begin) * rows.width / 2);
}

}  // namespace triage::flags::cpu
