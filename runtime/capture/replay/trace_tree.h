#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/backend.h>
#include <triage/graph.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/capture/compiled.h"
#include "runtime/capture/graph_break.h"
#include "runtime/capture/reports/logs.h"

/// What a function with graph breaks was seen to do: its operators between two breaks make a segment, the segments that
/// begin alike make a tree. Built by a TraceReplayer; one thread at a time.
namespace triage::capture {

/// What stands for an argument of an operator in a trace. Values and inputs are numbered from the beginning of the
/// segment.
struct TraceArgument {
  enum class From : uint8_t { constant, value, input, list };
  From from = From::constant;
  uint32_t index = 0;  // of the value or input
  c10::IValue constant;
  std::vector<TraceArgument> items;
};

/// All that can be known of a result without its values.
struct ResultLayout {
  bool defined = true, inference = false, requires_grad = false;
  c10::DispatchKeySet keys;
  caffe2::TypeMeta dtype;
  c10::Device device = c10::kCPU;
  std::vector<int64_t> sizes, strides;
  int64_t storage_offset = 0;
  size_t storage_bytes = 0;
  std::optional<uint32_t> argument;  // it is that one of the tensors among the arguments, handed back

  static ResultLayout of(const at::Tensor& tensor);
};

struct TraceStep;

/// A segment that ended here.
struct TraceSegment {
  struct Alias {
    const TraceStep* step;
    uint32_t result;
  };
  std::vector<bool> wanted;  // by value: somebody used it after the segment's end
  CompiledSegment compiled;
  std::vector<uint32_t> outputs;  // the values that the graph gives; the wanted others are aliases
  std::vector<Alias> aliases;     // made from those by running their steps, in order
  bool ready = false;             // fits `wanted`
  bool by_steps = false;          // its steps run one by one, as the script calls them
  bool input_written = false;     // by the script, later: a graph may have saved more of it than the steps do
  bool failed = false;            // the backend could not compile it
};

struct TraceNode {
  std::vector<std::unique_ptr<TraceStep>> next;
  std::unique_ptr<TraceSegment> segment;
};

/// One call of an operator, and what may follow it.
struct TraceStep {
  /// Sizes and strides that the inputs so far came in; numbered. Which results come of them is known by that number.
  struct InputSignature {
    uint64_t before;
    std::vector<int64_t> extents;
    uint64_t id;
  };

  explicit TraceStep(const c10::OperatorHandle& op) : op(op) {}

  c10::OperatorHandle op;
  std::vector<TraceArgument> arguments;
  std::vector<Guards::InputGuard> new_inputs;  // of tensors that come into the segment here
  std::vector<bool> new_params;                // the same: whether it is a param of the policy
  uint32_t first_value = 0, num_results = 0;
  bool aliases = false;  // a result was seen to share memory with an argument
  /// How layouts for sizes that are new are told without computing: as it was right for what ATen gave so far.
  enum class Prediction : uint8_t { untried, by_running, by_rules, none } prediction = Prediction::untried;
  std::vector<ResultLayout> first_arguments;  // the tensors among those that gave the first of `results`
  Source source;
  std::vector<InputSignature> signatures;
  std::vector<std::pair<uint64_t, std::vector<ResultLayout>>> results;  // by the number of a signature
  TraceNode after;

  const std::vector<ResultLayout>* layouts(uint64_t signature) const;
  /// Forgets old ones, but for the first, where there are too many.
  const std::vector<ResultLayout>& add_layouts(uint64_t signature, std::vector<ResultLayout> layouts);
};

/// What operators depend on besides their arguments, for a whole segment.
struct ThreadState {
  uint64_t included_keys, excluded_keys, autocast;
  const ErrorConfig* config;  // as in Guards
  caffe2::TypeMeta default_dtype;
  bool grad_mode, inference;
  static ThreadState now();
  bool operator==(const ThreadState& other) const;
};

class TraceTree {
 public:
  TraceTree(std::string name, Backend backend, std::string backend_name)
      : name(std::move(name)), backend(std::move(backend)), backend_name(std::move(backend_name)) {}
  TraceTree(const TraceTree&) = delete;
  TraceTree& operator=(const TraceTree&) = delete;

  static constexpr size_t max_steps = 20'000;
  static constexpr size_t max_path = 1'000;     // of one segment
  static constexpr size_t max_signatures = 64;  // of one step; then the oldest are forgotten
  static constexpr size_t max_layouts = 256;    // of one step

  static constexpr size_t max_breaks = 256;
  static constexpr size_t max_roots = 64;

  /// Null where there are as many as there may be.
  TraceNode* root(const ThreadState& state);
  /// A step was found to give an alias: segments compiled so far may have taken it for a result of its own.
  void forget_compiled();
  /// Waits until the best code of every segment is ready.
  void finish_compiling() const;
  const std::string name;
  const Backend backend;
  const std::string backend_name;
  size_t num_steps = 0;
  uint64_t next_signature = 1;
  std::vector<CompiledSegment> segments;  // those compiled so far, newest form of each
  size_t spared_calls = 0;                // by all of them
  std::deque<GraphBreak> breaks;          // that were met, each line and reason once; they stay where they are
 private:
  std::vector<std::pair<ThreadState, std::unique_ptr<TraceNode>>> roots_;
};

/// Whether two graph breaks are one, whatever functions led there.
bool same_break(const GraphBreak& a, const GraphBreak& b);

/// Compiles the segment of `path` for what is wanted of it. `inputs` are examples, `samples` says which of them may
/// hold samples. Throws what the backend throws.
void compile_segment(TraceTree& tree, TraceSegment& segment, const std::vector<TraceStep*>& path,
                     const std::vector<at::Tensor>& inputs, std::vector<bool> samples);

}  // namespace triage::capture
