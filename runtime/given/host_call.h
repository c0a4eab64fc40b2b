#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <triage/graph.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

/// Functions and modules of the host as nodes of graphs: the operators `triage::call_host` and `triage::call_module`,
/// which a number tells what to call. What a number stands for lives as long as somebody holds it: the scripts that
/// were given it do.
namespace triage::given {

using Tensors = std::vector<at::Tensor>;
using Forms = std::vector<graph::TensorMeta>;

/// Immutable, and called by any thread.
struct Callee {
  std::string name;
  std::function<Tensors(const Tensors&)> call;
  std::function<Forms(const Forms&)> shapes = nullptr;  // of a function; null: like its first input
  bool is_module = false;
  int64_t number = 0;  // given by `add`
};

std::shared_ptr<const Callee> add(Callee callee);
/// Null where nobody holds it any more.
std::shared_ptr<const Callee> find(int64_t number);

/// The operator that calls it: its arguments are a list of tensors and the number, its result is a list.
c10::OperatorHandle operator_for(const Callee& callee);
bool is_host_call(const c10::OperatorHandle& op);
/// The name of what a number stands for, for messages.
std::string callee_name(const c10::IValue& number);
/// The first such call; null where there is none.
const graph::Node* find_host_call(const graph::Graph& graph);

Forms forms_of(const Tensors& tensors);
/// What the outputs are to be for such inputs. Throws what `shapes` throws, and InputError where nothing says it.
Forms expected(const Callee& callee, const Forms& inputs);

}  // namespace triage::given
