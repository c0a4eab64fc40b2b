#include "runtime/backends/fused/fused_group.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "runtime/backends/deadline.h"
#include "runtime/backends/eager.h"
#include "runtime/backends/fused/tape/step_times.h"
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

/// To the trace, the debug folder and the log `output_code`, where these are on.
void log_listing(const std::string& graph, const std::function<std::string()>& listing) {
  using messages::Artefact;
  using messages::DebugFile;
  messages::trace(
      [&] { return messages::TraceEvent("code").text("name", graph).text("code", listing()).graph(graph); });
  if (messages::wants_debug_file(DebugFile::output_code))
    messages::write_debug_file(DebugFile::output_code, fmt::format("loops of graph `{}`\n{}", graph, listing()), graph);
  if (messages::logs(Artefact::output_code))
    messages::log_artefact(Artefact::output_code, LogLevel::debug, "loops of graph `" + graph + "` as a tape",
                           listing(), graph);
}

/// The scratch memory that a tape takes for rows of these extents; -1: there is no tape, or it takes too much.
int64_t scratch_of(const Tape* tape, at::ArrayRef<int64_t> extents) {
  const int64_t bytes = tape ? tape->scratch_bytes(extents) : -1;
  return bytes <= most_tape_bytes ? bytes : -1;
}

}  // namespace

std::string listing_of(const FusionGroup& part) {
  const RowViews views(part.loops, !part.joins.empty());
  const auto tape = Tape::make(views.loops(), views.captured());
  return tape ? text_of(tape->listing(part.loops.lines)) : "";
}

struct FusedGroup::FusedCallMemory : CallLayout {
  using CallLayout::CallLayout;
  c10::SmallVector<void*, 8> out;     // one for each loop output
  c10::SmallVector<Piece, 4> pieces;  // of joins
};

struct FusedGroup::RowsInMemory : RowLayout {
  size_t scratch_bytes = 0;
};

/// Null where a value has no primitive. The first call makes it.
const Tape* FusedGroup::tape(Tapes& tapes, Lanes lanes, std::optional<InPlace> in_place) const {
  MadeOnce& made = tapes[static_cast<size_t>(lanes)];
  std::call_once(made.once, [&] {
    made.tape = Tape::make(views_.loops(), lanes, in_place);
    if (made.tape) log_listing(graph_, [&] { return text_of(made.tape->listing(loops_.lines)); });
  });
  return made.tape.get();
}

LoopTiers FusedGroup::loops() const {
  LoopTiers loops;
  (tape(tapes_, views_.captured(), {}) ? loops.tapes : loops.unfused) = 1;
  return loops;
}

FusedGroup::FusedGroup(const FusionGroup& part, OutputPool* shared)
    : LoopGroup(part, compile_eager(part.graph, {})),
      joins_(part.joins),
      views_(loops_, !joins_.empty()),
      shared_(shared) {
  tape(tapes_, views_.captured(), {});
  for (size_t i = 0; i < part.outputs.size(); ++i)
    if (std::none_of(joins_.begin(), joins_.end(), [&](const Concatenation& join) { return join.output == i; }))
      direct_.push_back(i);
  if (!shared_) pools_ = std::make_unique<OutputPool[]>(part.outputs.size());
  for (const InPlace& where : in_place_choices(views_.loops()))
    if (where.output < direct_.size()) variants_.emplace_back().where = where;
}

bool FusedGroup::run_row_major(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                               const CallContext& call, StepTimes* times) const {
  const messages::ProfilerSpan span([this] { return "fused group " + label_; });
  check_deadline(call.deadline);
  const auto interpret = [&] { interpreter_->run(inputs, outputs, {call.deadline}); };
  FusedCallMemory memory(loops_, at::kCPU, shared_ ? shared_ : &copies_);
  if (!memory.lay_out(inputs)) {
    interpret();
    return memory.too_large || loops().unfused > 0;
  }
  if (!shared_ && !memory.kept.empty()) copies_.begin_call(inputs);
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
  InPlaceVariant* const variant =
      call.donated.empty() && memory.kept.empty() ? nullptr : variant_for(inputs, call.donated, memory, rows);
  const Tape* const chosen = variant ? tape(variant->tapes, rows.lanes, variant->where) : tape(tapes_, rows.lanes, {});
  const int64_t scratch_bytes = scratch_of(chosen, rows.extents);
  if (scratch_bytes < 0) {
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
  rows.scratch_bytes = static_cast<size_t>(scratch_bytes);
  const messages::ProfilerSpan running([&] { return "tape " + label_; });
  const int64_t begin = times ? StepClock::now() : 0;
  run_rows(rows, memory, *chosen, times);
  if (times) times->loops = StepClock::now() - begin;
  return true;
}

void FusedGroup::run_rows(const RowsInMemory& rows, const FusedCallMemory& memory, const Tape& loops,
                          StepTimes* times) const {
  if (rows.count == 0) return;
  const PieceWriter writer(memory.pieces);
  const auto staged = static_cast<size_t>(writer.scratch_bytes());
  const size_t bytes = rows.scratch_bytes + staged;
  const auto task = [&](int64_t begin, int64_t end) {
    char* const own = bytes ? scratch(bytes) : nullptr;
    if (rows.flat) return run_flat(rows, memory, own, begin, end, loops, times);
    auto in = memory.in;
    const auto part = [&](void* const* out, int64_t first, int64_t last) {
      for (int64_t next; first < last; first = next) {
        const int64_t block = first / rows.block;
        next = std::min(last, (block + 1) * rows.block);
        for (size_t i = 0; i < in.size(); ++i)
          in[i] = static_cast<const char*>(memory.in[i]) + block * (memory.stride[i] - rows.block * rows.stride[i]);
        loops.run({in.data(), rows.stride.data(), out, rows.extents.data(), own + staged, times}, first, next);
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
void FusedGroup::run_flat(const RowsInMemory& rows, const FusedCallMemory& memory, char* scratch, int64_t begin,
                          int64_t end, const Tape& loops, StepTimes* times) const {
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
    loops.run({in.data(), rows.stride.data(), out.data(), extents.data(), scratch, times}, 0, 1);
  }
}

bool FusedGroup::reduces_short_rows(const FusedCallMemory& memory) const {
  const auto is_short = [](int64_t size) { return size < shortest_reduced_alone; };
  const auto has_elements = [](const LoopOutput& output) { return output.form.kind == Kind::element; };
  return std::all_of(memory.extents.begin(), memory.extents.end(), is_short) &&
         std::none_of(loops_.outputs.begin(), loops_.outputs.end(), has_elements);
}

/// Null where nothing that was given can be used, or there is no tape for it.
FusedGroup::InPlaceVariant* FusedGroup::variant_for(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> donated,
                                                    const FusedCallMemory& memory, const RowsInMemory& rows) const {
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
  for (InPlaceVariant& variant : variants_) {
    if (!can_take(variant.where)) continue;
    if (scratch_of(tape(variant.tapes, rows.lanes, variant.where), rows.extents) >= 0) return &variant;
  }
  return nullptr;
}

/// The tensor that a slot reads: an input, or the dense copy of one.
const at::Tensor& FusedGroup::read_by(size_t slot, at::ArrayRef<at::Tensor> inputs,
                                      const FusedCallMemory& memory) const {
  for (const auto& [reader, copy] : memory.kept)
    if (reader == slot) return copy;
  return inputs[loops_.inputs[slot].argument];
}

/// Loop output `given_for` is `given`, where there is that. False where pieces do not fit together.
bool FusedGroup::make_outputs(FusedCallMemory& memory, std::vector<at::Tensor>& outputs, const at::Tensor* given,
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
