#pragma once
#include <triage/api.h>
#include <triage/backend.h>
#include <triage/error.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

/// Finds where a backend differs from `eager`: graph by graph, and in a graph node by node. The computation in float64
/// says which differences are wrong: a number that is further from it than `eager` is, times 10, and every difference
/// in dtype, sizes, places of NaN and Inf, flags, integers and booleans.
namespace triage {

/// One value in which a backend differs from `eager`.
struct ValueDifference {
  std::string value;  ///< "output z", "gradient of x", "%5 = aten::exp(%4)"
  Source source;      ///< script line of a node; the file is empty where there is none
  /// The largest difference, in units in the last place: of the number itself, or of the largest one of a gradient.
  /// Infinite where only one of the two is NaN, where integers differ, and where dtypes or sizes do.
  double units = 0;
  int64_t row = 0;    ///< where it is: index in dim 0
  std::string wrong;  ///< what is wrong with it; empty: it is as exact as `eager`
};

/// How one graph does on one backend, over all calls so far.
struct GraphComparison {
  std::string graph;    ///< its name
  std::string backend;  ///< its name
  size_t nodes = 0;     ///< of the graph
  std::string failure;  ///< the backend's error; empty: none
  /// The output or gradient that is wrong, or else the one that differs most. None: the same bits (all NaN count as
  /// equal, and so do zeros of both signs).
  std::optional<ValueDifference> result;
  /// The first node whose value differs; if `result` is wrong, the first whose value is wrong. The backend computes
  /// each node's value in a graph of its own, that ends there. None: each is right by itself, and only the whole graph
  /// is not.
  std::optional<ValueDifference> node;

  bool ok() const { return failure.empty() && (!result || result->wrong.empty()); }
};
/// Several lines for a person, without a line end.
TRIAGE_API std::string text(const GraphComparison& comparison);

/// A backend that answers with the results of `eager`, and compares other backends with it in each call. It runs every
/// graph many times, in time quadratic in the number of nodes: for diagnosis, not for production.
///
///     BackendComparison comparison({{"fused", find_backend("fused")}});
///     register_backend("compared", comparison.backend());   // then run a policy with this RuntimeOptions::backend
///     for (const GraphComparison& graph : comparison.graphs()) puts(text(graph).c_str());
///
/// Gradients are compared where an input of a graph requires grad. Thread-safe; copies share their state.
class TRIAGE_API BackendComparison {
 public:
  struct Compared {
    std::string name;
    Backend backend;
  };
  explicit BackendComparison(std::vector<Compared> backends);
  Backend backend() const;
  /// One entry for each graph and backend, in the order in which graphs were first called.
  std::vector<GraphComparison> graphs() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace triage
