#include "runtime/backends/fused/region.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/fused/emit.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

constexpr int64_t task_bytes = 128 << 10;  // a thread should at least get this much to read

/// Where the rows of a tensor begin, when each row's own elements lie without gaps.
bool has_dense_rows(const at::Tensor& tensor) {
  int64_t expected = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 1; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return true;
}

char* scratch(size_t bytes) {
  thread_local std::vector<char> memory;
  if (memory.size() < bytes) memory.resize(bytes);
  return memory.data();
}

}  // namespace

struct Region::Memory {
  int64_t batch = -1;
  c10::SmallVector<const void*, 8> in;
  c10::SmallVector<int64_t, 8> stride;
  c10::SmallVector<int64_t, 4> extents;                               // -1 until an input has told
  c10::SmallVector<const at::Tensor*, 4> of_extent;                   // an input whose rows have these sizes
  c10::SmallVector<std::pair<size_t, const at::Tensor*>, 4> columns;  // with their extents
  c10::SmallVector<at::Tensor, 4> kept;                               // dense copies
};

Region::Region(const Part& part) : loops_(part.loops), interpreter_(compile_eager(part.graph, {})) {
  Emitted emitted = emit(loops_);
  scratch_rows_ = emitted.scratch_rows;
  kernel_ = kernel_of(emitted.source);
  pools_ = std::make_unique<OutputPool[]>(loops_.outputs.size());
}

void Region::run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs) const {
  check_deadline();
  const RowsFunction function = kernel_->function();
  Memory memory;
  if (!function || !lay_out(inputs, memory)) return interpreter_->run(inputs, outputs);
  make_outputs(memory, outputs);
  if (memory.batch == 0) return;
  c10::SmallVector<void*, 8> out;
  for (const at::Tensor& output : outputs) out.push_back(output.data_ptr());
  int64_t longest = 1, row_bytes = 32;
  for (const int64_t extent : memory.extents) longest = std::max(longest, extent), row_bytes += 8 * extent;
  at::parallel_for(0, memory.batch, std::max<int64_t>(1, task_bytes / row_bytes), [&](int64_t begin, int64_t end) {
    const Call call{memory.in.data(), memory.stride.data(), out.data(), memory.extents.data(),
                    scratch(static_cast<size_t>(scratch_rows_ * 8 * longest))};
    function(&call, begin, end);
  });
}

bool Region::lay_out(at::ArrayRef<at::Tensor> inputs, Memory& memory) const {
  memory.extents.resize(loops_.extents.size(), -1);
  memory.of_extent.resize(loops_.extents.size(), nullptr);
  memory.kept.reserve(loops_.inputs.size());
  for (size_t slot = 0; slot < loops_.inputs.size(); ++slot) {
    const LoopInput& input = loops_.inputs[slot];
    if (!lay_out(input, inputs[input.argument], slot, memory)) return false;
  }
  for (const auto& [extent, column] : memory.columns)
    if (!memory.of_extent[extent] || memory.of_extent[extent]->sizes().slice(1) != column->sizes()) return false;
  return memory.batch >= 0 && std::find(memory.extents.begin(), memory.extents.end(), -1) == memory.extents.end();
}

/// Notes where an input lies; false where it is not what the loops were written for.
bool Region::lay_out(const LoopInput& input, const at::Tensor& given, size_t slot, Memory& memory) const {
  const TensorForm& form = input.form;
  const at::Tensor* tensor = &given;
  if (tensor->dim() != form.rank || tensor->scalar_type() != form.dtype || !tensor->device().is_cpu() ||
      tensor->layout() != at::kStrided || tensor->is_conj() || tensor->is_neg())
    return false;
  const auto dense = [&] {
    memory.kept.push_back(tensor->contiguous());
    tensor = &memory.kept.back();
  };
  int64_t stride = 0;
  if (form.kind != Kind::number && form.kind != Kind::column) {
    if (memory.batch >= 0 && tensor->size(0) != memory.batch) return false;
    memory.batch = tensor->size(0);
    if (!has_dense_rows(*tensor)) dense();
    stride = tensor->stride(0) * static_cast<int64_t>(c10::elementSize(form.dtype));
  } else if (!tensor->is_contiguous()) {
    dense();
  }
  switch (form.kind) {
    case Kind::number:
      break;
    case Kind::record:
      if (tensor->size(1) != form.words) return false;
      break;
    case Kind::row:
      for (int64_t dim = 1; dim < tensor->dim(); ++dim)
        if (tensor->size(dim) != 1) return false;
      break;
    case Kind::element:
    case Kind::column: {
      const auto sizes = form.kind == Kind::element ? given.sizes().slice(1) : given.sizes();
      int64_t count = 1;
      for (const int64_t size : sizes) count *= size;
      const auto extent = static_cast<size_t>(form.extent);
      if (count == 0) return false;  // the interpreter knows what ATen makes of nothing
      if (form.kind == Kind::element) {
        if (memory.of_extent[extent] && memory.of_extent[extent]->sizes().slice(1) != sizes) return false;
        memory.of_extent[extent] = &given;
      }
      if (form.kind == Kind::column) memory.columns.emplace_back(extent, &given);
      if (memory.extents[extent] >= 0 && memory.extents[extent] != count) return false;
      memory.extents[extent] = count;
      break;
    }
  }
  memory.in.push_back(tensor->data_ptr());
  memory.stride.push_back(stride);
  return true;
}

void Region::make_outputs(const Memory& memory, std::vector<at::Tensor>& outputs) const {
  for (size_t i = 0; i < loops_.outputs.size(); ++i) {
    const TensorForm& form = loops_.outputs[i].form;
    c10::SmallVector<int64_t, 6> sizes{memory.batch};
    if (form.kind == Kind::element) {
      const auto trailing = memory.of_extent[static_cast<size_t>(form.extent)]->sizes().slice(1);
      sizes.append(trailing.begin(), trailing.end());
    } else if (form.kind == Kind::record) {
      sizes.push_back(form.words);
    } else {
      sizes.resize(static_cast<size_t>(form.rank), 1);
    }
    outputs.push_back(pools_[i].get(sizes, form.dtype));
  }
}

}  // namespace triage::fused
