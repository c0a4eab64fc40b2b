#pragma once
// Kernels walk over records: the flags tensor as rows of 16-bit slots, in parallel where there are many.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/slots.h>

#include <algorithm>

namespace triage::flags::cpu {

/// Rows a thread should at least get, when a row costs about as much as reading `bytes`.
inline int64_t rows_per_task(int64_t bytes) { return std::max<int64_t>(1, (128 << 10) / std::max<int64_t>(bytes, 1)); }

/// A contiguous flags tensor as rows of slots.
struct Rows {
  explicit Rows(const Tensor& flags)
      : data(static_cast<uint16_t*>(flags.data_ptr())),
        count(flags.size(0)),
        width(flags.size(1) * check::slots_per_word(flags.scalar_type())) {}
  uint16_t* operator[](int64_t row) const { return data + row * width; }
  size_t bytes() const { return static_cast<size_t>(width) * sizeof(uint16_t); }

  uint16_t* data;
  int64_t count;
  int64_t width;  // slots a row, unused ones included
};

/// Copies rows [begin, end) of `from`, or empties them where `from` is null.
inline void start_rows(const Rows& to, const uint16_t* from, int64_t begin, int64_t end) {
  const size_t bytes = static_cast<size_t>(end - begin) * to.bytes();
  if (!bytes) return;
  if (from) {
    std::memcpy(to[begin], from + begin * to.width, bytes);
  } else {
    std::memset(to[begin], 0, bytes);
  }
}

}  // namespace triage::flags::cpu
