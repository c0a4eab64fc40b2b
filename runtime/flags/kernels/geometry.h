#pragma once
// How the samples of a tensor lie in memory. For detection the order of a sample's elements does not matter, nor how
// often one is seen: dims are sorted by stride and merged, expanded dims are dropped.
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

namespace triage::flags::cpu {

struct Geometry {
  struct StridedDim {
    int64_t size;
    int64_t stride;
  };

  /// `parts` is 2 for complex tensors, whose elements are two reals.
  Geometry(const at::Tensor& z, int64_t parts)
      : rows(z.size(0)), row_stride(z.stride(0) * parts), empty(z.numel() == 0) {
    if (parts > 1) dims.push_back({parts, 1});
    for (int64_t d = 1; d < z.dim(); ++d) {
      if (z.size(d) != 1 && z.stride(d) != 0) dims.push_back({z.size(d), z.stride(d) * parts});
    }
    std::sort(dims.begin(), dims.end(), [](const StridedDim& a, const StridedDim& b) { return a.stride < b.stride; });
    size_t kept = 0;
    for (size_t i = 1; i < dims.size(); ++i) {
      if (dims[i].stride == dims[kept].size * dims[kept].stride) {
        dims[kept].size *= dims[i].size;
      } else {
        dims[++kept] = dims[i];
      }
    }
    if (dims.empty()) dims.push_back({1, 1});
    dims.resize(std::max<size_t>(kept, 0) + 1);
  }

  /// Each sample is one stretch of memory.
  bool dense_rows() const { return dims.size() == 1 && dims[0].stride == 1; }
  /// The samples follow one another without a gap.
  bool contiguous() const { return dense_rows() && row_stride == dims[0].size; }
  int64_t row_elements() const {
    int64_t count = 1;
    for (const StridedDim& dim : dims) count *= dim.size;
    return count;
  }

  /// Calls visit(offset) for each position of dims[from..], the offset from the first element of a sample.
  template <class Visit>
  void each_offset(size_t from, Visit visit) const {
    if (from == dims.size()) return visit(0);
      // g++ 12 takes the inline memory of a SmallVector for uninitialized where it is grown.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
    c10::SmallVector<int64_t, 8> index(dims.size(), 0);
#pragma GCC diagnostic pop
    for (int64_t offset = 0;;) {
      visit(offset);
      size_t d = from;
      for (; d < dims.size(); ++d) {
        offset += dims[d].stride;
        if (++index[d] < dims[d].size) break;
        offset -= dims[d].size * dims[d].stride;
        index[d] = 0;
      }
      if (d == dims.size()) return;
    }
  }

  int64_t rows;
  int64_t row_stride;
  bool empty;                            // no elements at all
  c10::SmallVector<StridedDim, 8> dims;  // of one sample, smallest stride first; at least one
};

}  // namespace triage::flags::cpu
