// CPU kernels of detection: the data is read once. A stretch of rows is scanned for anything wrong at all; only where
// there is, its rows are looked at one by one, while they are still in the cache.
#include <ATen/ATen.h>
#include <runtime/flags/kernels/geometry.h>
#include <runtime/flags/kernels/scan.h>
#include <runtime/flags/records/rows.h>

#include <limits>

namespace triage::flags::cpu {

namespace {

constexpr int64_t STRETCH_BYTES = 2 << 10;  // short rows are scanned together, up to so much at once

template <class Probe>
struct Detector {
  using Word = typename Probe::Word;
  Probe probe;
  const Word* data;
  const Geometry& shape;

  // Calls bad(row) for each row of [begin, end) with a marked element, in order.
  template <class Bad>
  void run(int64_t begin, int64_t end, Bad bad) const {
    if (shape.contiguous()) return run_stretches(begin, end, bad);
    if (shape.dims[0].stride != 1 && shape.row_stride == 1) return run_columns(begin, end, bad);
    for (int64_t row = begin; row < end; ++row) {
      if (row_marked(data + row * shape.row_stride)) bad(row);
    }
  }

 private:
  template <class Bad>
  void run_stretches(int64_t begin, int64_t end, Bad bad) const {
    const int64_t length = shape.dims[0].size;
    const int64_t stretch = std::max<int64_t>(1, STRETCH_BYTES / static_cast<int64_t>(sizeof(Word)) / length);
    for (int64_t first = begin; first < end; first += stretch) {
      const int64_t last = std::min(first + stretch, end);
      if (!scan_dense(probe, data + first * length, (last - first) * length)) continue;
      for (int64_t row = first; row < last; ++row) {
        if (last - first == 1 || scan_dense(probe, data + row * length, length)) bad(row);
      }
    }
  }

  // Rows that lie side by side (a transposed tensor): all of them in step, one position after the other.
  template <class Bad>
  void run_columns(int64_t begin, int64_t end, Bad bad) const {
    constexpr int64_t block = 512;
    Word marks[block];
    for (int64_t first = begin; first < end; first += block) {
      const int64_t count = std::min(block, end - first);
      std::fill_n(marks, count, Word{0});
      shape.each_offset(0, [&](int64_t offset) { scan_columns(probe, data + first + offset, marks, count); });
      for (int64_t i = 0; i < count; ++i) {
        if (probe.marked(marks[i])) bad(first + i);
      }
    }
  }

  bool row_marked(const Word* row) const {
    Word marks = 0;
    bool found = false;
    const auto& inner = shape.dims[0];
    shape.each_offset(1, [&](int64_t offset) {
      if (inner.stride == 1) {
        found = found || scan_dense(probe, row + offset, inner.size);
      } else {
        for (int64_t i = 0; i < inner.size; ++i) probe.add(marks, row[offset + i * inner.stride]);
      }
    });
    return found || probe.marked(marks);
  }
};

// Which of the two a row holds that is known to hold one.
template <class Bits, uint64_t exponent>
FloatClasses classify_row(const Bits* row, const Geometry& shape) {
  FloatClasses found;
  auto add = [&](const Bits* from, int64_t count) {
    const FloatClasses more = scan_classes<Bits, exponent>(from, count);
    found.nan |= more.nan;
    found.inf |= more.inf;
  };
  const auto& inner = shape.dims[0];
  shape.each_offset(1, [&](int64_t offset) {
    if (inner.stride == 1) return add(row + offset, inner.size);
    for (int64_t i = 0; i < inner.size; ++i) add(row + offset + i * inner.stride, 1);
  });
  return found;
}

// The result of a detection, its rows as they were before. `fill(out rows, from, begin, end)` starts and marks a part
// of them.
template <class Mark>
Tensor detected(const Tensor& z, const Geometry& shape, size_t element, const MaybeTensor& flags, int64_t num_slots,
                ScalarType dtype, Mark mark) {
  const Tensor from = flags ? flags->contiguous() : Tensor();
  auto result = flags ? new_tensor(from.sizes(), from.scalar_type())
                      : new_tensor({z.size(0), check::words_for(num_slots, dtype)}, dtype);
  const SlotRows rows(result);
  const uint16_t* source = flags ? SlotRows(from).data : nullptr;
  const int64_t row_bytes = shape.row_elements() * static_cast<int64_t>(element) + static_cast<int64_t>(rows.bytes());
  in_parallel(rows.count, static_cast<size_t>(row_bytes), [&](int64_t begin, int64_t end) {
    start_rows(rows, source, begin, end);
    if (!shape.empty) mark(rows, begin, end);
  });
  return result;
}

struct Wanted {
  bool nan;
  bool inf;
};

template <class Bits, uint64_t exponent>
Tensor detect_as(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                 ScalarType dtype, Wanted wanted) {
  const Geometry shape(z, at::isComplexType(z.scalar_type()) ? 2 : 1);
  const Detector<NonFiniteProbe<Bits, exponent>> detector{{}, static_cast<const Bits*>(z.data_ptr()), shape};
  const RecordingPolicy how(policy);
  const uint16_t nan = pack_slot(err::nan, location, err::critical);
  const uint16_t inf = pack_slot(err::inf, location, err::critical);
  return detected(
      z, shape, sizeof(Bits), flags, num_slots, dtype, [&](const SlotRows& rows, int64_t begin, int64_t end) {
        detector.run(begin, end, [&](int64_t row) {
          const FloatClasses found = classify_row<Bits, exponent>(detector.data + row * shape.row_stride, shape);
          if (wanted.nan && found.nan) push_slot(rows[row], num_slots, nan, how);
          if (wanted.inf && found.inf) push_slot(rows[row], num_slots, inf, how);
        });
      });
}

Tensor detect(const char* op, const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots,
              int64_t policy, ScalarType dtype, Wanted wanted) {
  check::detection(op, z, flags, location, num_slots, policy, dtype);
  switch (c10::toRealValueType(z.scalar_type())) {  // a complex number is two of them
    case ScalarType::Half:
      return detect_as<uint16_t, 0x7C00>(z, flags, location, num_slots, policy, dtype, wanted);
    case ScalarType::BFloat16:
      return detect_as<uint16_t, 0x7F80>(z, flags, location, num_slots, policy, dtype, wanted);
    case ScalarType::Float:
      return detect_as<uint32_t, 0x7F800000>(z, flags, location, num_slots, policy, dtype, wanted);
    case ScalarType::Double:
      return detect_as<uint64_t, 0x7FF0000000000000>(z, flags, location, num_slots, policy, dtype, wanted);
    default:
      break;
  }
  if (at::isFloatingType(z.scalar_type())) {  // formats of fewer bits: what ATen can do with them
    const auto wide = z.to(at::kFloat);
    return detect(op, wide, flags, location, num_slots, policy, dtype, wanted);
  }
  return flags ? flags->clone(at::MemoryFormat::Contiguous) : new_flags(z, num_slots, dtype);
}

template <class Bits>
Tensor out_of_bounds_as(const Tensor& ids, Bits limit, const MaybeTensor& flags, int64_t location, int64_t num_slots,
                        int64_t policy, ScalarType dtype) {
  const Geometry shape(ids, 1);
  const Detector<AtLeast<Bits>> detector{{limit}, static_cast<const Bits*>(ids.data_ptr()), shape};
  const RecordingPolicy how(policy);
  const uint16_t slot = pack_slot(err::out_of_bounds, location, err::error);
  return detected(ids, shape, sizeof(Bits), flags, num_slots, dtype,
                  [&](const SlotRows& rows, int64_t begin, int64_t end) {
                    detector.run(begin, end, [&](int64_t row) { push_slot(rows[row], num_slots, slot, how); });
                  });
}

// Seen as unsigned, the negative numbers of a signed type begin after its largest: no limit may lie above that.
template <class Signed>
auto unsigned_limit(int64_t num_embeddings) {
  using Bits = std::make_unsigned_t<Signed>;
  const auto first_negative = static_cast<uint64_t>(std::numeric_limits<Signed>::max()) + 1;
  return static_cast<Bits>(std::min(static_cast<uint64_t>(num_embeddings), first_negative));
}

}  // namespace

Tensor flag_nan(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_nan", z, flags, location, num_slots, policy, dtype, {true, false});
}

Tensor flag_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_inf", z, flags, location, num_slots, policy, dtype, {false, true});
}

Tensor flag_nan_and_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                        ScalarType dtype) {
  return detect("flag_nan_and_inf", z, flags, location, num_slots, policy, dtype, {true, true});
}

Tensor flag_oob_indices(const Tensor& ids, int64_t num_embeddings, const MaybeTensor& flags, int64_t location,
                        int64_t num_slots, int64_t policy, ScalarType dtype) {
  check::indices(ids, num_embeddings);
  check::detection("flag_oob_indices", ids, flags, location, num_slots, policy, dtype);
  auto with = [&](auto limit) { return out_of_bounds_as(ids, limit, flags, location, num_slots, policy, dtype); };
  switch (ids.scalar_type()) {
    case ScalarType::Long:
      return with(unsigned_limit<int64_t>(num_embeddings));
    case ScalarType::Int:
      return with(unsigned_limit<int32_t>(num_embeddings));
    case ScalarType::Short:
      return with(unsigned_limit<int16_t>(num_embeddings));
    case ScalarType::Char:
      return with(unsigned_limit<int8_t>(num_embeddings));
    default:
      return composite::flag_oob_indices(ids, num_embeddings, flags, location, num_slots, policy, dtype);
  }
}

}  // namespace triage::flags::cpu
