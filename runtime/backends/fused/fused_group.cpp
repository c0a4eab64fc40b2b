#include "runtime/backends/fused/fused_group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/fused/emit.h"
#include "runtime/backends/fused/loops/groups_text.h"
#include "runtime/backends/thread_memory.h"
#include "runtime/memory/overlap.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/profiling/profiler_spans.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

constexpr int64_t task_bytes = 256 << 10;  // a thread should at least get this much: 32,768 elements, as at::sum has it

/// Elements of a row from which on a reduction by itself is as fast as ATen's.
constexpr int64_t shortest_reduced_alone = 256;

/// Positions of a row that is any stretch of memory: few enough for what tapes hold to stay in the first cache.
constexpr int64_t most_at_once = 4096;

/// A tape holds values for all positions of a row; of longer rows ATen's own memory is no more.
constexpr int64_t most_tape_bytes = 32 << 20;

/// At the beginning of a cache line.
char* scratch(size_t bytes) {
  constexpr size_t line = 64;
  std::vector<char>& memory = thread_memory.loops;
  if (memory.size() < bytes + line) memory.resize(bytes + line);
  return memory.data() + (line - reinterpret_cast<uintptr_t>(memory.data()) % line) % line;
}

void log_code(const std::string& graph, const std::string& source) {
  using messages::Artefact;
  using messages::DebugFile;
  if (source.empty()) return;
  messages::trace([&] {
    const std::string_view code = std::string_view(source).substr(support_source().size());
    return messages::TraceEvent("code").text("name", graph).text("code", code).graph(graph);
  });
  if (const std::string path = messages::debug_file_path(DebugFile::output_code); !path.empty()) {
    // One file has all loops of a graph: behind what they begin with, each in a namespace and under a name of its own.
    static std::atomic<int> last{0};
    const int number = ++last;
    std::error_code ignored;
    const std::string support = std::filesystem::exists(path, ignored) ? "" : support_source();
    messages::write_debug_file(
        DebugFile::output_code,
        fmt::format("{0}\n#define triage_rows triage_rows_{1}\nnamespace loops_{1} {{\n{2}\n}}\n#undef triage_rows\n",
                    support, number, source.substr(support_source().size())));
  }
  if (!messages::logs(Artefact::output_code)) return;
  const size_t begin = messages::logs(Artefact::output_code, messages::Detail::more) ? 0 : support_source().size();
  messages::log_artefact(Artefact::output_code, LogLevel::debug, "loops of graph `" + graph + "` as C++",
                         std::string_view(source).substr(begin), graph);
}

}  // namespace

struct FusedGroup::Memory : CallLayout {
  using CallLayout::CallLayout;
  c10::SmallVector<void*, 8> out;     // one for each loop output
  c10::SmallVector<Piece, 4> pieces;  // of joins
};

struct FusedGroup::RowsInMemory : Rows {
  size_t scratch_bytes = 0;
};

/// Null until it is compiled; the first call asks for that, and makes the tape.
RowsFunction FusedGroup::Version::function(const FusedGroup& group, Lanes lanes, std::optional<InPlace> in_place) {
  std::call_once(once, [&] {
    const bool has_kernel = may_have_kernel(group.compiler_);
    Emitted emitted;
    const bool shown = messages::logs(messages::Artefact::output_code) || messages::trace_on() ||
                       messages::wants_debug_file(messages::DebugFile::output_code);
    if (has_kernel || shown) emitted = emit(group.views_.loops(), lanes, in_place);
    log_code(group.graph_, emitted.source);
    if (has_kernel) {
      scratch_rows = emitted.scratch_rows;
      scratch_sizes = std::move(emitted.scratch_sizes);
      kernel = kernel_of(emitted.source, group.graph_, group.compiler_);
      if (group.compiler_ == CompilerMode::wait) kernel->wait();
    }
    tape = Tape::make(group.views_.loops(), lanes, in_place);
    asked.store(true, std::memory_order_release);
  });
  return kernel ? kernel->function() : nullptr;
}

int64_t FusedGroup::Version::tape_bytes(at::ArrayRef<int64_t> extents) const {
  const int64_t bytes = tape ? tape->scratch_bytes(extents) : -1;
  return bytes <= most_tape_bytes ? bytes : -1;
}

void FusedGroup::Version::finish_compiling() const {
  if (asked.load(std::memory_order_acquire) && kernel) kernel->wait();
}

LoopTiers FusedGroup::loops() const {
  const Version& version = versions_[static_cast<size_t>(views_.captured())];
  LoopTiers loops;
  if (version.kernel && version.kernel->function())
    loops.kernels = 1;
  else
    (version.tape ? loops.tapes : loops.unfused) = 1;
  return loops;
}

FusedGroup::FusedGroup(const FusionGroup& part, CompilerMode compiler, OutputPool* shared)
    : LoopGroup(part, compiler, compile_eager(part.graph, {})),
      joins_(part.joins),
      views_(loops_, !joins_.empty()),
      shared_(shared) {
  versions_[static_cast<size_t>(views_.captured())].function(*this, views_.captured(), {});
  for (size_t i = 0; i < part.outputs.size(); ++i)
    if (std::none_of(joins_.begin(), joins_.end(), [&](const Concatenation& join) { return join.output == i; }))
      direct_.push_back(i);
  if (!shared_) pools_ = std::make_unique<OutputPool[]>(part.outputs.size());
  for (const InPlace& where : in_place_choices(views_.loops()))
    if (where.output < direct_.size()) variants_.emplace_back().where = where;
}

bool FusedGroup::run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                           const CallContext& call) const {
  const messages::ProfilerSpan span([this] { return "fused group " + label_; });
  check_deadline(call.deadline);
  const auto interpret = [&] { interpreter_->run(inputs, outputs, {call.deadline}); };
  if (order_matters(inputs)) {
    interpret();
    return true;
  }
  Memory memory(loops_, at::kCPU, shared_);
  if (!memory.lay_out(inputs)) {
    interpret();
    return memory.too_large || loops().unfused > 0;
  }
  if (!memory.within_terms(call.deadline) || !memory.numbers_fit()) {
    interpret();
    return true;
  }
  const Lanes of_batch = views_.lanes_of_batch(memory.extents);
  if (operators_ == 1 && (of_batch != Lanes::positions || !memory.kept.empty() || reduces_short_rows(memory))) {
    interpret();  // ATen is faster
    return true;
  }
  RowsInMemory rows{views_.rows_of(memory)};
  if (rows.flat)
    for (int64_t& extent : rows.extents) extent = std::min(rows.count, most_at_once);
  Variant* const variant =
      call.donated.empty() && memory.kept.empty() ? nullptr : variant_for(inputs, call.donated, memory, rows);
  Version* const version = &(variant ? variant->versions : versions_)[static_cast<size_t>(rows.lanes)];
  const RowsFunction function =
      version->function(*this, rows.lanes, variant ? std::optional(variant->where) : std::nullopt);
  const int64_t tape_bytes = function ? 0 : version->tape_bytes(rows.extents);
  if (tape_bytes < 0) {
    interpret();
    return true;
  }
  const at::Tensor* const given = variant ? &read_by(variant->where.slot, inputs, memory) : nullptr;
  if (!make_outputs(memory, outputs, given, variant ? variant->where.output : 0)) {
    outputs.clear();
    interpret();
    return false;
  }
  if (given) given->unsafeGetTensorImpl()->bump_version();
  int64_t longest = 0;
  for (const ScratchSize& size : version->scratch_sizes) longest = std::max(longest, size_of(size, rows.extents));
  rows.scratch_bytes = static_cast<size_t>(function ? version->scratch_rows * 8 * longest : tape_bytes);
  const messages::ProfilerSpan loops([&] { return (function ? "kernel " : "tape ") + label_; });
  run_rows(rows, memory, [&](const Call& part, int64_t first, int64_t last) {
    function ? function(&part, first, last) : version->tape->run(part, first, last);
  });
  return true;
}

template <class Loop>
void FusedGroup::run_rows(const RowsInMemory& rows, const Memory& memory, const Loop& loop) const {
  if (rows.count == 0) return;
  const PieceWriter writer(memory.pieces);
  const auto staged = static_cast<size_t>(writer.scratch_bytes());
  const size_t bytes = rows.scratch_bytes + staged;
  const auto task = [&](int64_t begin, int64_t end) {
    char* const own = bytes ? scratch(bytes) : nullptr;
    if (rows.flat) return run_flat(rows, memory, own, begin, end, loop);
    auto in = memory.in;
    const auto part = [&](void* const* out, int64_t first, int64_t last) {
      for (int64_t next; first < last; first = next) {
        const int64_t block = first / rows.block;
        next = std::min(last, (block + 1) * rows.block);
        for (size_t i = 0; i < in.size(); ++i)
          in[i] = static_cast<const char*>(memory.in[i]) + block * (memory.stride[i] - rows.block * rows.stride[i]);
        loop(Call{in.data(), rows.stride.data(), out, rows.extents.data(), own + staged}, first, next);
      }
    };
    memory.pieces.empty() ? part(memory.out.data(), begin, end) : writer(memory.out, own, begin, end, part);
  };
  int64_t row_bytes = rows.flat ? 16 : 32;
  if (!rows.flat)
    for (const int64_t extent : rows.extents) row_bytes += 8 * extent;
  const int64_t grain = std::max<int64_t>(1, task_bytes / row_bytes);
  if (rows.count <= grain)
    task(0, rows.count);
  else
    at::parallel_for(0, rows.count, grain, task);
}

/// Elements from `begin` to `end`, as rows of as many as tapes hold at once.
template <class Loop>
void FusedGroup::run_flat(const RowsInMemory& rows, const Memory& memory, char* scratch, int64_t begin, int64_t end,
                          const Loop& loop) const {
  auto in = memory.in;
  auto out = memory.out;
  auto extents = rows.extents;
  for (int64_t first = begin; first < end; first += most_at_once) {
    for (int64_t& extent : extents) extent = std::min(end - first, most_at_once);
    for (size_t i = 0; i < in.size(); ++i)
      if (const TensorForm& form = loops_.inputs[i].form; form.kind == Kind::element)
        in[i] = static_cast<const char*>(memory.in[i]) + first * static_cast<int64_t>(c10::elementSize(form.dtype));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<char*>(memory.out[i]) +
               first * static_cast<int64_t>(c10::elementSize(loops_.outputs[i].form.dtype));
    loop(Call{in.data(), rows.stride.data(), out.data(), extents.data(), scratch}, 0, 1);
  }
}

bool FusedGroup::reduces_short_rows(const Memory& memory) const {
  const auto is_short = [](int64_t size) { return size < shortest_reduced_alone; };
  const auto has_elements = [](const LoopOutput& output) { return output.form.kind == Kind::element; };
  return std::all_of(memory.extents.begin(), memory.extents.end(), is_short) &&
         std::none_of(loops_.outputs.begin(), loops_.outputs.end(), has_elements);
}

void FusedGroup::finish_compiling() const {
  for (const Version& version : versions_) version.finish_compiling();
  for (const Variant& variant : variants_)
    for (const Version& version : variant.versions) version.finish_compiling();
}

/// Null where nothing that was given can be used, or there is neither kernel nor tape for it.
FusedGroup::Variant* FusedGroup::variant_for(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> donated,
                                             const Memory& memory, const RowsInMemory& rows) const {
  const auto is_copy = [&](size_t slot) {
    return !read_by(slot, inputs, memory).is_same(inputs[loops_.inputs[slot].argument]);
  };
  const auto can_take = [&](const InPlace& where) {
    const at::Tensor& input = read_by(where.slot, inputs, memory);
    if (is_copy(where.slot)) return !input.requires_grad() && !input.is_inference();
    const auto same = [&](const at::Tensor& other) { return other.is_same(input); };
    const auto shares = [&](const at::Tensor& other) { return share_memory(other, input); };
    return std::any_of(donated.begin(), donated.end(), same) &&
           std::count_if(inputs.begin(), inputs.end(), shares) == 1 && input.is_contiguous() &&
           !input.requires_grad() && !input.is_inference() && memory.in[where.slot] == input.data_ptr();
  };
  for (Variant& variant : variants_) {
    if (!can_take(variant.where)) continue;
    Version& version = variant.versions[static_cast<size_t>(rows.lanes)];
    if (version.function(*this, rows.lanes, variant.where) || version.tape_bytes(rows.extents) >= 0) return &variant;
  }
  return nullptr;
}

/// The tensor that a slot reads: an input, or the dense copy of one.
const at::Tensor& FusedGroup::read_by(size_t slot, at::ArrayRef<at::Tensor> inputs, const Memory& memory) const {
  for (const auto& [reader, copy] : memory.kept)
    if (reader == slot) return copy;
  return inputs[loops_.inputs[slot].argument];
}

/// Loop output `given_for` is `given`, where there is that. False where pieces do not fit together.
bool FusedGroup::make_outputs(Memory& memory, std::vector<at::Tensor>& outputs, const at::Tensor* given,
                              size_t given_for) const {
  const auto fresh = [&](size_t index, at::IntArrayRef sizes, at::ScalarType dtype) {
    return (shared_ ? *shared_ : pools_[index]).get(sizes, dtype);
  };
  outputs.resize(direct_.size() + joins_.size());
  memory.out.resize(loops_.outputs.size());
  for (size_t i = 0; i < direct_.size(); ++i) {
    const LoopOutput& output = loops_.outputs[i];
    at::Tensor& made = outputs[direct_[i]];
    made = given && i == given_for ? *given : fresh(direct_[i], memory.sizes_of(output), output.form.dtype);
    memory.out[i] = made.data_ptr();
  }
  for (const Concatenation& join : joins_) {
    c10::SmallVector<Sizes, 4> pieces;
    for (const size_t piece : join.pieces) pieces.push_back(memory.sizes_of(loops_.outputs[piece]));
    Sizes sizes;
    if (!joined_sizes(join, pieces, sizes)) return false;
    at::Tensor& made = outputs[join.output];
    made = fresh(join.output, sizes, loops_.outputs[join.pieces[0]].form.dtype);
    fused::lay_out(join, pieces, made, memory.out, memory.pieces);
  }
  return true;
}

}  // namespace triage::fused
