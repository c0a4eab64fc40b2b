#include "runtime/diagnose/minify/minifier.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "runtime/diagnose/minify/oracle.h"
#include "runtime/diagnose/minify/reduce.h"
#include "runtime/diagnose/minify/simplify.h"

namespace triage::diagnose {
namespace {

using Fill = ProgramInput::Fill;

class Minifier {
 public:
  Minifier(const GraphProgram& program, const Backend& backend, const MinifierOptions& options)
      : options_(options), oracle_(program, backend, options), best_(program.clone()) {
    recorded_ = record_values(best_);
    restart_steps();
  }

  Minified run() {
    say("fails: " + oracle_.failure());
    bool again = true;
    while (again && !oracle_.out_of_time()) {
      again = make_smaller();
      again |= !holds();
    }
    if (!oracle_.harmless()) {
      best_.isolated = options_.child.seconds;
      best_.memory_mib = options_.child.bytes >> 20;
    }
    return {std::move(best_), oracle_.failure(), oracle_.candidates(), !oracle_.out_of_time()};
  }

 private:
  void say(const std::string& text) { options_.say(text); }

  bool make_smaller() {
    bool smaller = drop_nodes();
    smaller |= drop_outputs();
    smaller |= merge_inputs();
    smaller |= drop_gradients();
    smaller |= drop_inputs();
    smaller |= simplify_values();
    smaller |= simplify_numbers();
    smaller |= shrink_sizes();
    smaller |= simplify_types();
    return smaller;
  }

  void restart_steps() {
    steps_.clear();
    if (oracle_.must_confirm()) steps_.push_back(best_.clone());
  }

  /// Whether the smallest program so far fails with the full limit too. Else it becomes the last one that does.
  bool holds() {
    if (steps_.size() <= 1) return true;  // nothing is smaller than what was confirmed last
    const bool confirmed = oracle_.confirm(best_);
    if (!confirmed) {
      size_t good = 0, bad = steps_.size() - 1;
      while (bad - good > 1 && !oracle_.out_of_time()) {
        const size_t middle = (good + bad) / 2;
        (oracle_.confirm(steps_[middle]) ? good : bad) = middle;
      }
      best_ = std::move(steps_[good]);
      recorded_ = record_values(best_);
      say(fmt::format("smaller ones are only slow: back to {} nodes", best_.graph.nodes().size()));
    }
    restart_steps();
    return confirmed;
  }

  /// Takes the candidate where it fails the same.
  template <typename Make>
  bool take(const Make& make) {
    GraphProgram candidate;
    try {
      candidate = make();
      graph::verify(candidate.graph);
    } catch (const std::exception&) {  // no such graph
      return false;
    }
    if (!oracle_.fails_the_same(candidate)) return false;
    best_ = std::move(candidate);
    recorded_ = record_values(best_);
    if (!steps_.empty()) steps_.push_back(best_.clone());
    return true;
  }

  bool drop_nodes() {
    const size_t before = best_.graph.nodes().size();
    const GraphProgram whole = best_.clone();
    const auto recorded = recorded_;
    delta_debug(before, [&](const std::vector<size_t>& kept) {
      std::vector<bool> keep(before);
      for (const size_t node : kept) keep[node] = true;
      const bool fails = take([&] { return part_of(whole, recorded, keep); });
      if (fails) say(fmt::format("{} of {} nodes", best_.graph.nodes().size(), before));
      return fails;
    });
    return best_.graph.nodes().size() < before;
  }

  bool drop_outputs() {
    const size_t before = best_.graph.outputs().size();
    const GraphProgram whole = best_.clone();
    delta_debug(before,
                [&](const std::vector<size_t>& kept) { return take([&] { return with_outputs(whole, kept); }); });
    return best_.graph.outputs().size() < before;
  }

  bool merge_inputs() {
    bool smaller = false;
    for (size_t from = best_.inputs.size(); from-- > 1;)
      for (size_t to = 0; to < from; ++to) {
        const ProgramInput &a = best_.inputs[from], &b = best_.inputs[to];
        if (a.sizes != b.sizes || a.dtype != b.dtype || a.is_number != b.is_number) continue;
        if (!take([&] { return with_merged_inputs(best_, from, to); })) continue;
        smaller = true;
        break;
      }
    return smaller;
  }

  /// Takes the program with each input as `change` makes it, where that changes one; all at once, else one by one.
  bool change_inputs(const std::function<bool(ProgramInput&, const graph::Value&)>& change) {
    const auto changed = [&](GraphProgram& program, size_t i) {
      return change(program.inputs[i], *program.graph.inputs()[i].value);
    };
    GraphProgram all = best_.clone();
    size_t changes = 0;
    for (size_t i = 0; i < all.inputs.size(); ++i) changes += changed(all, i);
    if (changes == 0) return false;
    if (take([&] { return with_types_of_inputs(std::move(all)); })) return true;
    bool any = false;
    for (size_t i = 0; i < best_.inputs.size() && changes > 1; ++i) {
      GraphProgram one = best_.clone();
      if (changed(one, i)) any |= take([&] { return with_types_of_inputs(std::move(one)); });
    }
    return any;
  }

  static GraphProgram with_types_of_inputs(GraphProgram program) {
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      graph::Value* value = program.graph.inputs()[i].value;
      const ProgramInput& input = program.inputs[i];
      program.graph.edit(value).meta = graph::TensorMeta{input.dtype, input.sizes, input.device};
    }
    return program;
  }

  bool drop_gradients() {
    if (!best_.backward) return false;
    GraphProgram forward = best_.clone();
    forward.backward = false;
    for (ProgramInput& input : forward.inputs) input.requires_grad = false;
    if (take([&] { return std::move(forward); })) return true;
    bool any = false;
    for (size_t i = 0; i < best_.inputs.size(); ++i) {
      if (!best_.inputs[i].requires_grad) continue;
      GraphProgram less = best_.clone();
      less.inputs[i].requires_grad = false;
      any |= take([&] { return std::move(less); });
    }
    return any;
  }

  /// Real values stay only where they matter.
  bool simplify_values() {
    bool any = false;
    for (const Fill fill : {Fill::ones, Fill::zeros, Fill::arange, Fill::seed})
      any |= change_inputs(
          [&](ProgramInput& input, const graph::Value& value) { return simplify_fill(input, value.is_flags, fill); });
    return any;
  }

  bool drop_inputs() {
    bool any = false;
    for (size_t i = best_.inputs.size(); i-- > 0 && best_.inputs.size() > 1;)
      if (!best_.graph.inputs()[i].value->is_flags) any |= take([&] { return without_input(best_, i); });
    return any;
  }

  /// Numbers in the graph become 1; constant tensors ones or zeros.
  bool simplify_numbers() {
    const auto places = odd_scalars(best_);
    bool any = !places.empty() && take([&] { return with_ones(best_, places); });
    if (!any && places.size() > 1)
      for (const ScalarPlace& place : places) any |= take([&] { return with_ones(best_, {place}); });
    for (size_t i = 0; i < best_.graph.constants().size(); ++i) {
      const graph::Constant& constant = best_.graph.constants()[i];
      if (constant.value->is_flags || is_filled_with(constant.tensor, 1) || is_filled_with(constant.tensor, 0))
        continue;
      any |= take([&] { return with_filled_constant(best_, i, 1); }) ||
             take([&] { return with_filled_constant(best_, i, 0); });
    }
    return any;
  }

  bool shrink_sizes() {
    bool any = false;
    for (bool smaller = true; smaller && !oracle_.out_of_time();) {
      smaller = false;
      std::set<int64_t, std::greater<>> sizes;
      for (const ProgramInput& input : best_.inputs) sizes.insert(input.sizes.begin(), input.sizes.end());
      for (const auto& constant : best_.graph.constants())
        sizes.insert(constant.tensor.sizes().begin(), constant.tensor.sizes().end());
      for (const int64_t size : sizes) smaller |= shrink(size);
      any |= smaller;
    }
    return any;
  }

  bool shrink(int64_t size) {
    int64_t last = 0;
    for (const int64_t to : {int64_t{1}, int64_t{2}, size / 4, size / 2, size - 1}) {
      if (to <= last || to >= size) continue;
      last = to;
      for (const bool in_arguments : {true, false})
        if (take([&] { return with_size(best_, size, to, in_arguments); })) return true;
    }
    return false;
  }

  bool simplify_types() {
    bool any = change_inputs([](ProgramInput& input, const graph::Value&) {
      const auto usual = at::empty(input.sizes, at::TensorOptions(at::kMeta)).strides().vec();
      if (input.strides == usual) return false;
      input.strides = usual;
      return true;
    });
    any |= change_inputs([](ProgramInput& input, const graph::Value&) {
      if (!at::isFloatingType(input.dtype) || input.dtype == at::kFloat) return false;
      input.dtype = at::kFloat;
      if (input.values.defined()) input.values = input.values.to(at::kFloat);
      return true;
    });
    return any;
  }

  const MinifierOptions& options_;
  Oracle oracle_;
  GraphProgram best_;
  std::vector<std::vector<ProgramInput>> recorded_;
  std::vector<GraphProgram> steps_;  // to `best_`, from the one that was confirmed last; empty where none needs to be
};

}  // namespace

Minified minify(const GraphProgram& program, const Backend& backend, const MinifierOptions& options) {
  return Minifier(program, backend, options).run();
}

}  // namespace triage::diagnose
