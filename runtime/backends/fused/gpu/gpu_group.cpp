#include "runtime/backends/fused/gpu/gpu_group.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/fused/loops/gpu_text.h"
#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/fused/support/gpu_grid.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

constexpr int64_t warp_threads = 32;

/// So many warps keep a large GPU busy; fewer where rows share a block of threads without need.
constexpr int64_t enough_warps = 4096;

int64_t divided_up(int64_t count, int64_t by) { return (count + by - 1) / by; }

/// Loops without positions are a thread's.
Lanes lanes_on_gpu(const Loops& loops, Lanes lanes) { return loops.extents.empty() ? Lanes::rows : lanes; }

int64_t bits_of_number(const void* memory, size_t bytes) {
  int64_t bits = 0;
  std::memcpy(&bits, memory, bytes);
  return bits;
}

void log_code(const std::string& graph, const std::string& source) {
  using messages::Artefact;
  messages::trace([&] { return messages::TraceEvent("code").text("name", graph).text("code", source).graph(graph); });
  if (messages::wants_debug_file(messages::DebugFile::output_code))
    messages::write_debug_file(messages::DebugFile::output_code,
                               fmt::format("// loops of graph `{}` as CUDA C++\n{}\n", graph, source));
  if (messages::logs(Artefact::output_code))
    messages::log_artefact(Artefact::output_code, LogLevel::debug, "loops of graph `" + graph + "` as CUDA C++", source,
                           graph);
}

}  // namespace

bool can_be_gpu_group(const FusionGroup& part) {
  const auto is_of_aten = [](const auto& node) { return graph::op_name(node->op).rfind("aten::", 0) == 0; };
  const auto& nodes = part.graph.nodes();
  if (!part.fused || !part.joins.empty() || (nodes.size() == 1 && is_of_aten(nodes[0]))) return false;
  const auto by_segments = segments_as_rows(part.loops);
  return can_run_on_gpu(by_segments ? by_segments->loops : part.loops);
}

GpuGroup::GpuGroup(const FusionGroup& part, c10::Device device)
    : LoopGroup(part, compile_eager(graph::decompose(part.graph, graph::Numbers::as_they_are), {})),
      device_(device),
      views_(loops_, /*whole=*/false),
      has_clusters_(accelerator_of(device.type())->has_clusters(device)) {
  version(captured());
}

Lanes GpuGroup::captured() const { return lanes_on_gpu(loops_, views_.captured()); }

/// The first call asks for the kernel.
const GpuGroup::GpuKernelVersion& GpuGroup::version(Lanes lanes) const {
  GpuKernelVersion& version = versions_[static_cast<size_t>(lanes)];
  std::call_once(version.once, [&] {
    const GpuSource text = emit_for_gpu(views_.loops(), lanes);
    log_code(graph_, text.source);
    version.joins = text.joins;
    version.kernel = gpu_kernel_of({text.source, text.parameters, device_}, graph_);
    version.asked.store(true, std::memory_order_release);
  });
  return version;
}

bool GpuGroup::run_row_major(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call,
                             StepTimes*) const {
  const messages::ProfilerSpan span([this] { return "fused group " + label_; });
  check_deadline(call.deadline);
  const auto interpret = [&] {
    interpreter_->run(inputs, outputs, {call.deadline});
    return true;
  };
  CallLayout layout(loops_, device_, nullptr);
  if (!layout.lay_out(inputs)) {
    interpret();
    return layout.too_large || loops().unfused > 0;
  }
  if (!layout.within_terms(call.deadline) || !layout.numbers_fit()) return interpret();
  RowLayout rows = views_.rows_of(layout);
  rows.lanes = lanes_on_gpu(loops_, rows.lanes);
  const GpuKernelVersion& one = version(rows.lanes);
  if (!one.kernel->code()) return interpret();
  for (const LoopOutput& output : loops_.outputs)
    outputs.push_back(at::empty(layout.sizes_of(output), at::TensorOptions(output.form.dtype).device(device_)));
  const messages::ProfilerSpan loops([&] { return "kernel " + label_; });
  if (rows.count > 0) launch(one, layout, rows, outputs);
  return true;
}

void GpuGroup::launch(const GpuKernelVersion& version, const CallLayout& layout, const RowLayout& rows,
                      at::ArrayRef<at::Tensor> outputs) const {
  c10::SmallVector<int64_t, 48> arguments;
  for (size_t i = 0; i < layout.in.size(); ++i) {
    const bool by_value = layout.on_host[i];
    const auto bytes = c10::elementSize(loops_.inputs[i].form.dtype);
    arguments.push_back(by_value ? 0 : reinterpret_cast<int64_t>(layout.in[i]));
    arguments.push_back(by_value ? bits_of_number(layout.in[i], bytes) : rows.stride[i]);
    arguments.push_back(layout.stride[i] - rows.block * rows.stride[i]);
  }
  for (const at::Tensor& output : outputs) arguments.push_back(reinterpret_cast<int64_t>(output.data_ptr()));
  for (const int64_t extent : rows.extents) arguments.push_back(rows.flat ? rows.count : extent);
  arguments.push_back(rows.flat ? 1 : rows.count);
  arguments.push_back(std::max<int64_t>(rows.flat ? 1 : rows.block, 1));
  version.kernel->code()->launch(grid_of(rows, version.joins), arguments);
}

/// How many threads take part changes no bit (support/gpu.h).
GpuGrid GpuGroup::grid_of(const RowLayout& rows, bool joins) const {
  constexpr int64_t rows_of_threads = 128, short_rows = 4;
  const auto grid = [](int64_t threads, int64_t rows, int64_t blocks, int64_t shared, bool cluster) {
    return GpuGrid{static_cast<uint32_t>(threads), static_cast<uint32_t>(rows), static_cast<uint32_t>(blocks),
                   static_cast<uint32_t>(shared), cluster};
  };
  if (rows.lanes == Lanes::rows) return grid(rows_of_threads, 1, divided_up(rows.count, rows_of_threads), 1, false);
  int64_t longest = rows.flat ? rows.count : 1;
  const int64_t count = rows.flat ? 1 : rows.count;
  if (!rows.flat)
    for (const int64_t extent : rows.extents) longest = std::max(longest, extent);
  const int64_t parts = divided_up(longest, block_positions);
  if (parts == 1) return grid(warp_threads, short_rows, divided_up(count, short_rows), 1, false);
  if (!joins) {
    const int64_t warps = std::min<int64_t>(parts, most_warps / 2);
    return grid(warps * warp_threads, 1, count, std::min<int64_t>(divided_up(parts, warps), 65535), false);
  }
  int64_t shared = 1;
  const auto warps = [&] { return std::min<int64_t>(most_warps, divided_up(parts, shared)); };
  while (has_clusters_ && shared < most_blocks && 2 * shared <= parts && count * shared * warps() < enough_warps)
    shared *= 2;
  return grid(warps() * warp_threads, 1, count, shared, shared > 1);
}

void GpuGroup::finish_compiling() const {
  for (const GpuKernelVersion& version : versions_)
    if (version.asked.load(std::memory_order_acquire)) version.kernel->wait();
}

LoopTiers GpuGroup::loops() const {
  LoopTiers loops;
  (version(captured()).kernel->code() ? loops.kernels : loops.unfused) = 1;
  return loops;
}

}  // namespace triage::fused
