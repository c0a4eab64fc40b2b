#include "runtime/backends/fused/fused_group.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
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
#include "runtime/flags/checks.h"
#include "runtime/messages/artefacts.h"
#include "runtime/messages/debug_folder.h"
#include "runtime/messages/profiler_spans.h"
#include "runtime/operators/untrusted.h"

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

/// Where the rows of a tensor begin, when each row's own elements lie without gaps.
bool has_dense_rows(const at::Tensor& tensor) {
  int64_t expected = 1;
  for (int64_t dim = tensor.dim() - 1; dim >= 1; --dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != expected) return false;
    expected *= tensor.size(dim);
  }
  return true;
}

at::Scalar number_at(const void* memory, at::ScalarType dtype) {
  at::Scalar number;
  AT_DISPATCH_ALL_TYPES_AND3(at::kHalf, at::kBFloat16, at::kBool, dtype, "number_at",
                             [&] { number = *static_cast<const scalar_t*>(memory); });
  return number;
}

/// At the beginning of a cache line. Of the thread, because rows run on LibTorch's threads, and a warm call takes no memory.
char* scratch(size_t bytes) {
  constexpr size_t line = 64;
  thread_local std::vector<char> memory;
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

struct FusedGroup::Memory {
  int64_t batch = -1;
  c10::SmallVector<const void*, 8> in;
  c10::SmallVector<int64_t, 8> stride;
  c10::SmallVector<int64_t, 4> extents;                     // how many positions
  c10::SmallVector<Sizes, 4> sizes;                         // of each extent; none until an input has told
  c10::SmallVector<std::pair<size_t, at::Tensor>, 4> kept;  // dense copies, and by which slot they are read
  bool too_large = false;                                   // a copy that what is not trusted may not take
  c10::SmallVector<void*, 8> out;                           // one for each loop output
  c10::SmallVector<Piece, 4> pieces;                        // of joins
};

/// The rows that loops go through.
struct FusedGroup::Rows {
  Lanes lanes;
  int64_t count, block;                  // `block`: so many lie evenly apart
  c10::SmallVector<int64_t, 8> stride;   // bytes from one to the next
  c10::SmallVector<int64_t, 4> extents;  // how many positions
  bool flat = false;                     // one row, of any part of the positions
  size_t scratch_bytes = 0;
};

/// Null until it is compiled; the first call asks for that, and makes the tape.
RowsFunction FusedGroup::Version::function(const FusedGroup& group, Lanes lanes, std::optional<InPlace> in_place) {
  std::call_once(once, [&] {
    const bool has_kernel = may_have_kernel(group.compiler_);
    Emitted emitted;
    const bool shown = messages::logs(messages::Artefact::output_code) || messages::trace_on() ||
                       messages::wants_debug_file(messages::DebugFile::output_code);
    if (has_kernel || shown) emitted = emit(group.running(), lanes, in_place);
    log_code(group.graph_, emitted.source);
    if (has_kernel) {
      scratch_rows = emitted.scratch_rows;
      scratch_sizes = std::move(emitted.scratch_sizes);
      kernel = kernel_of(emitted.source, group.graph_, group.compiler_);
      if (group.compiler_ == CompilerMode::wait) kernel->wait();
    }
    tape = Tape::make(group.running(), lanes, in_place);
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
  const Version& version = versions_[static_cast<size_t>(captured_)];
  LoopTiers loops;
  if (version.kernel && version.kernel->function())
    loops.kernels = 1;
  else
    (version.tape ? loops.tapes : loops.unfused) = 1;
  return loops;
}

FusedGroup::FusedGroup(const FusionGroup& part, CompilerMode compiler, OutputPool* shared)
    : graph_(part.graph.name()),
      label_(label_of(part)),
      loops_(part.loops),
      compiler_(compiler),
      joins_(part.joins),
      by_segments_(joins_.empty() ? segments_as_rows(loops_) : std::nullopt),
      elementwise_(by_segments_ || !joins_.empty() ? std::nullopt : extent_of_elementwise(loops_)),
      choose_lanes_(part.loops),
      operators_(part.graph.nodes().size()),
      interpreter_(compile_eager(part.graph, {})),
      shared_(shared) {
  c10::SmallVector<int64_t, 4> counts;
  for (const Extent& extent : loops_.extents) counts.push_back(c10::multiply_integers(extent.sizes));
  captured_ = lanes_of(counts);
  if (elementwise_ && captured_ == Lanes::rows) captured_ = Lanes::positions;  // one row, as long as nothing has gaps
  versions_[static_cast<size_t>(captured_)].function(*this, captured_, {});
  for (size_t i = 0; i < part.outputs.size(); ++i)
    if (std::none_of(joins_.begin(), joins_.end(), [&](const Concatenation& join) { return join.output == i; }))
      direct_.push_back(i);
  if (!shared_) pools_ = std::make_unique<OutputPool[]>(part.outputs.size());
  for (const InPlace& where : in_place_choices(running()))
    if (where.output < direct_.size()) variants_.emplace_back().where = where;
}

bool FusedGroup::run_loops(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                           const CallContext& call) const {
  const messages::ProfilerSpan span([this] { return "fused group " + label_; });
  check_deadline(call.deadline);
  const auto interpret = [&] { interpreter_->run(inputs, outputs, {call.deadline}); };
  Memory memory;
  if (!lay_out(inputs, memory)) {
    interpret();
    return memory.too_large || loops().unfused > 0;
  }
  if (!within_terms(memory, call.deadline) || !numbers_fit(memory)) {
    interpret();
    return true;
  }
  const Lanes of_batch = choose_lanes_(memory.extents);
  if (operators_ == 1 && (of_batch != Lanes::positions || !memory.kept.empty() || reduces_short_rows(memory))) {
    interpret();  // ATen is faster
    return true;
  }
  Rows rows = rows_of(memory);
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
  run(rows, memory, [&](const Call& part, int64_t first, int64_t last) {
    function ? function(&part, first, last) : version->tape->run(part, first, last);
  });
  return true;
}

/// Those that give the bits of the rows of the batch: segments in lanes are rows in lanes.
Lanes FusedGroup::lanes_of(at::ArrayRef<int64_t> extents) const {
  const Lanes lanes = choose_lanes_(extents);
  return by_segments_ && lanes == Lanes::segments ? Lanes::rows : lanes;
}

/// Segments are rows where they can be. Elements that lie side by side are one long row where rows are short.
FusedGroup::Rows FusedGroup::rows_of(const Memory& memory) const {
  Rows rows{Lanes::positions, memory.batch, memory.batch, memory.stride, memory.extents};
  const auto item = [&](size_t slot) { return static_cast<int64_t>(c10::elementSize(loops_.inputs[slot].form.dtype)); };
  if (by_segments_) {
    const int64_t segments = count(by_segments_->segments, memory), positions = count(by_segments_->positions, memory);
    rows.count *= segments, rows.block = segments, rows.extents = {positions};
    for (size_t i = 0; i < rows.stride.size(); ++i) {
      const Kind kind = by_segments_->loops.inputs[i].form.kind;
      rows.stride[i] = kind == Kind::element ? item(i) * positions : kind == Kind::row ? item(i) : 0;
    }

    bool all = true;
    for (size_t i = 0; i < rows.stride.size(); ++i) all &= memory.stride[i] == segments * rows.stride[i];
    if (all) rows.block = rows.count;
  }
  rows.lanes = lanes_of(memory.extents);
  if (!elementwise_ || rows.lanes != Lanes::rows) return rows;
  const int64_t positions = rows.extents[static_cast<size_t>(*elementwise_)];
  for (size_t i = 0; i < rows.stride.size(); ++i)
    if (loops_.inputs[i].form.kind == Kind::element && rows.stride[i] != item(i) * positions) return rows;
  rows.flat = true;
  rows.lanes = Lanes::positions;
  rows.count *= positions;
  for (int64_t& extent : rows.extents) extent = std::min(rows.count, most_at_once);
  return rows;
}

template <class Loop>
void FusedGroup::run(const Rows& rows, const Memory& memory, const Loop& loop) const {
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
void FusedGroup::run_flat(const Rows& rows, const Memory& memory, char* scratch, int64_t begin, int64_t end,
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

/// Whether a call of what is not trusted may take what the loops take, with values that loops keep to a row counted as tensors. Operators
/// that broadcast make more of their inputs than what these hold. Where it may not, the interpreter refuses the operator that is too
/// much.
bool FusedGroup::within_terms(const Memory& memory,
                              const std::optional<std::chrono::steady_clock::time_point>& deadline) const {
  const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
  if (!terms) return true;
  constexpr int64_t few = 1 << 16;
  int64_t positions = 1, longest = 1;
  for (const int64_t extent : memory.extents) {
    positions += extent;
    longest = std::max(longest, extent);
  }
  if (memory.batch <= few && positions <= few && memory.batch * positions <= few) return true;
  double bytes = 0, largest = static_cast<double>(memory.batch) * static_cast<double>(longest) * 4;
  for (const LoopOutput& output : loops_.outputs) {
    const TensorForm& form = output.form;
    const int64_t row = form.kind == Kind::element  ? memory.extents[static_cast<size_t>(form.extent)]
                        : form.kind == Kind::record ? form.words
                                                    : 1;
    bytes += static_cast<double>(memory.batch) * static_cast<double>(row * c10::elementSize(form.dtype));
  }
  if (terms->bytes > 0 && std::max(bytes, largest) > static_cast<double>(terms->bytes)) return false;
  if (!deadline) return true;
  const double nanoseconds =
      static_cast<double>(memory.batch) * static_cast<double>(positions) * static_cast<double>(loops_.values.size());
  constexpr double few_nanoseconds = 1e7;
  const std::chrono::duration<double, std::nano> left = *deadline - std::chrono::steady_clock::now();
  return nanoseconds <= few_nanoseconds || nanoseconds <= left.count();
}

bool FusedGroup::numbers_fit(const Memory& memory) const {
  return std::all_of(loops_.bounds.begin(), loops_.bounds.end(), [&](const NumberBound& bound) {
    return flags::check::holds(bound.dtype, number_at(memory.in[bound.input], loops_.inputs[bound.input].form.dtype));
  });
}

bool FusedGroup::lay_out(at::ArrayRef<at::Tensor> inputs, Memory& memory) const {
  memory.sizes.resize(loops_.extents.size());
  memory.kept.reserve(loops_.inputs.size());
  for (const LoopInput& input : loops_.inputs)
    if (!lay_out(input, inputs[input.argument], memory)) return false;
  return resolve_sizes(memory);
}

/// Notes the sizes of an extent; false where they are not those that are known.
bool FusedGroup::tell(size_t extent, at::IntArrayRef sizes, Memory& memory) {
  if (memory.sizes[extent].empty()) memory.sizes[extent].assign(sizes.begin(), sizes.end());
  return at::IntArrayRef(memory.sizes[extent]) == sizes;
}

/// The sizes of segments and positions, from those of both.
bool FusedGroup::tell_parts(const Extent& extent, at::IntArrayRef whole, Memory& memory) const {
  const auto segments = static_cast<size_t>(extent.segments), positions = static_cast<size_t>(extent.positions);
  const size_t count = loops_.extents[positions].sizes.size();
  size_t first = loops_.extents[segments].sizes.size();
  Sizes outside;
  if (extent.inner >= 0) {
    const auto inner = static_cast<size_t>(extent.inner);
    first -= loops_.extents[inner].sizes.size();
    if (inner != segments && !tell(inner, whole.slice(first + count), memory)) return false;
  }
  outside.assign(whole.begin(), whole.begin() + first);
  outside.append(whole.begin() + first + count, whole.end());
  return tell(segments, outside, memory) && tell(positions, whole.slice(first, count), memory);
}

/// Of an extent that is looked at as segments: its sizes are those of segments and positions. False where they do not agree; as yet
/// unknown ones may.
bool FusedGroup::resolve_parts(size_t index, Memory& memory) const {
  const Extent& extent = loops_.extents[index];
  if (extent.segments < 0) return true;
  const auto segments = static_cast<size_t>(extent.segments), positions = static_cast<size_t>(extent.positions);
  Sizes both = memory.sizes[segments];
  const size_t behind = extent.inner < 0 ? 0 : loops_.extents[static_cast<size_t>(extent.inner)].sizes.size();
  if (both.size() >= behind)
    both.insert(both.end() - static_cast<int64_t>(behind), memory.sizes[positions].begin(),
                memory.sizes[positions].end());
  if (memory.sizes[index].empty() && both.size() == extent.sizes.size()) memory.sizes[index] = both;
  return memory.sizes[index].empty() ||
         (memory.sizes[index].size() == extent.sizes.size() && tell_parts(extent, memory.sizes[index], memory));
}

int64_t FusedGroup::count(int32_t extent, const Memory& memory) const {
  return c10::multiply_integers(memory.sizes[static_cast<size_t>(extent)]);
}

bool FusedGroup::reshape(const Reshape& reshape, Memory& memory) const {
  using From = Reshape::Size::From;
  if (!resolve_parts(static_cast<size_t>(reshape.from), memory)) return false;
  const Sizes& from = memory.sizes[static_cast<size_t>(reshape.from)];
  Sizes sizes;
  int64_t known = 1, rest = -1;
  for (const Reshape::Size& size : reshape.sizes) {
    const auto at = static_cast<size_t>(size.value);
    if (size.from == From::dim && at >= from.size()) return false;
    sizes.push_back(size.from == From::constant ? size.value
                    : size.from == From::dim    ? from[at]
                    : size.from == From::extent ? count(static_cast<int32_t>(size.value), memory)
                    : size.from == From::input  ? *static_cast<const int64_t*>(memory.in[at])
                                                : 1);
    if (size.from == From::rest || sizes.back() < 0)
      rest = static_cast<int64_t>(sizes.size()) - 1;
    else
      known *= sizes.back();
  }
  const int64_t all = c10::multiply_integers(from);
  if (from.empty() || known == 0) return false;
  if (rest >= 0) sizes[static_cast<size_t>(rest)] = all / known;
  return c10::multiply_integers(sizes) == all && tell(static_cast<size_t>(reshape.to), sizes, memory) &&
         resolve_parts(static_cast<size_t>(reshape.to), memory);
}

/// The sizes that no input told are those that stand in the graph, or follow from others; false where two do not agree.
bool FusedGroup::resolve_sizes(Memory& memory) const {
  if (loops_.fixed_batch && memory.batch >= 0 && memory.batch != *loops_.fixed_batch) return false;
  if (loops_.fixed_batch) memory.batch = *loops_.fixed_batch;
  for (const size_t input : loops_.batch_inputs)  // -1 asks for what the others leave: the rows, as their sizes fit
    if (const int64_t asked = *static_cast<const int64_t*>(memory.in[input]); asked != memory.batch && asked != -1)
      return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (loops_.extents[i].fixed && !tell(i, loops_.extents[i].sizes, memory)) return false;
  if (!loops_.reshapes.empty())
    for (size_t i = 0; i < loops_.extents.size(); ++i)
      if (!resolve_parts(i, memory)) return false;
  for (const Reshape& one : loops_.reshapes)
    if (!reshape(one, memory)) return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (!resolve_parts(i, memory)) return false;
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const int64_t positions = count(static_cast<int32_t>(i), memory);
    if (memory.sizes[i].empty() || positions == 0) return false;  // of nothing, the interpreter knows what ATen makes
    memory.extents.push_back(positions);
  }
  for (size_t i = 0; i < loops_.extents.size(); ++i)
    if (const int32_t same = loops_.extents[i].same;
        same >= 0 && memory.extents[i] != memory.extents[static_cast<size_t>(same)])
      return false;
  return memory.batch >= 0;
}

/// Null where nothing that was given can be used, or there is neither kernel nor tape for it.
FusedGroup::Variant* FusedGroup::variant_for(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> donated,
                                             const Memory& memory, const Rows& rows) const {
  const auto is_copy = [&](size_t slot) {
    return !read_by(slot, inputs, memory).is_same(inputs[loops_.inputs[slot].argument]);
  };
  const auto can_take = [&](const InPlace& where) {
    const at::Tensor& input = read_by(where.slot, inputs, memory);
    if (is_copy(where.slot)) return !input.requires_grad() && !input.is_inference();
    const auto same = [&](const at::Tensor& other) { return other.is_same(input); };
    const auto shares = [&](const at::Tensor& other) { return other.has_storage() && other.is_alias_of(input); };
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

/// Notes where an input lies; false where it is not what the loops were written for.
bool FusedGroup::lay_out(const LoopInput& input, const at::Tensor& given, Memory& memory) const {
  const TensorForm& form = input.form;
  const at::Tensor* tensor = &given;
  if (tensor->dim() != form.rank || tensor->scalar_type() != form.dtype || !tensor->device().is_cpu() ||
      tensor->layout() != at::kStrided || tensor->is_conj() || tensor->is_neg())
    return false;
  const auto dense = [&](const at::Tensor& gaps) {
    if (!shared_ || gaps.requires_grad()) return gaps.contiguous();
    return shared_->get(gaps.sizes(), gaps.scalar_type()).copy_(gaps);
  };
  const auto make_dense = [&] {  // of a view, which may be far larger than its memory
    const operators::Untrusted::Terms* const terms = operators::Untrusted::current();
    memory.too_large = terms && terms->bytes > 0 && static_cast<int64_t>(tensor->nbytes()) > terms->bytes;
    if (memory.too_large) return false;
    memory.kept.emplace_back(memory.in.size(), dense(*tensor));
    tensor = &memory.kept.back().second;
    return true;
  };
  const bool of_batch = form.kind != Kind::number && form.kind != Kind::column;
  if (of_batch) {
    if (memory.batch >= 0 && tensor->size(0) != memory.batch) return false;
    memory.batch = tensor->size(0);
    if (!has_dense_rows(*tensor) && (input.viewed || !make_dense())) return false;
  } else if (!tensor->is_contiguous() && !make_dense()) {
    return false;
  }
  if (form.kind == Kind::record) {
    if (tensor->size(1) != form.words) return false;
  } else {
    Sizes sizes;
    for (size_t dim = of_batch ? 1 : 0; dim < given.sizes().size(); ++dim) {
      const bool one = form.trailing.empty() || form.trailing[dim - (of_batch ? 1 : 0)] == 1;
      if (!one)
        sizes.push_back(given.sizes()[dim]);
      else if (given.sizes()[dim] != 1)
        return false;
    }
    if (form.extent >= 0 && !tell(static_cast<size_t>(form.extent), sizes, memory)) return false;
  }
  const int64_t stride = of_batch ? tensor->stride(0) * static_cast<int64_t>(c10::elementSize(form.dtype)) : 0;
  memory.in.push_back(tensor->data_ptr());
  memory.stride.push_back(stride);
  return true;
}

Sizes FusedGroup::sizes_of(const LoopOutput& output, const Memory& memory) const {
  const TensorForm& form = output.form;
  Sizes sizes{memory.batch};
  if (form.kind == Kind::element) {
    const int64_t* next = memory.sizes[static_cast<size_t>(form.extent)].begin();
    for (const int64_t captured : form.trailing) sizes.push_back(captured == 1 ? 1 : *next++);
  } else if (form.kind == Kind::record) {
    sizes.push_back(form.words);
  } else {
    sizes.resize(static_cast<size_t>(form.rank), 1);
  }
  return sizes;
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
    made = given && i == given_for ? *given : fresh(direct_[i], sizes_of(output, memory), output.form.dtype);
    memory.out[i] = made.data_ptr();
  }
  for (const Concatenation& join : joins_) {
    c10::SmallVector<Sizes, 4> pieces;
    for (const size_t piece : join.pieces) pieces.push_back(sizes_of(loops_.outputs[piece], memory));
    Sizes sizes;
    if (!joined_sizes(join, pieces, sizes)) return false;
    at::Tensor& made = outputs[join.output];
    made = fresh(join.output, sizes, loops_.outputs[join.pieces[0]].form.dtype);
    fused::lay_out(join, pieces, made, memory.out, memory.pieces);
  }
  return true;
}

}  // namespace triage::fused
