#pragma once
#include <triage/location.h>
#include <triage/location_tree.h>

#include <string>
#include <vector>

/// Modules as locations: `err::push(f, code, model->layer1)` once `tracked(*model)` has named the modules of the model.
namespace triage {

struct TrackOptions {
  /// Put before every path (`teacher` makes `teacher.layer1`), and the name of the module itself, which otherwise is `root`.
  /// Two models that are tracked without one share the paths they have in common.
  std::string prefix = {};
  /// Decides what shares an id when there are more modules than ids, e.g. a WeightedLocationTree with weights set (its
  /// patterns see paths without the prefix). The module's paths are added to it. Default: a LocationTree of its own.
  LocationTree* tree = nullptr;
};

struct TrackedModule {
  std::string path;      ///< of the module, the prefix included
  std::string location;  ///< the path that errors there are recorded under: this one, or the longest kept prefix of it
  int64_t id = 0;        ///< of `location`, in ErrorLocation
};

/// Names the modules that hold parameters, themselves or in a submodule, by their dotted paths, and registers them in
/// ErrorLocation depth first, in the order in which the module lists its children: the same model gets the same ids in
/// every run that registers nothing before it. A module that stands in several places has the first path. Where there are
/// more of them than ids left, a LocationTree decides which paths are kept; the others share the id of the longest prefix
/// that is. Thread-safe; calling it again on the same module changes nothing.
///
/// Modules are known by identity while they live. A torch::nn::Module that no std::shared_ptr owns (one on the stack) is
/// not remembered itself, its submodules are.
std::vector<TrackedModule> tracked(const torch::nn::Module& module, const TrackOptions& options = {});
std::vector<TrackedModule> tracked(const torch::jit::Module& module, const TrackOptions& options = {});

/// Which location a module is: for one that was not tracked, or that holds no parameters, `Unknown` (id 0), with one warning
/// in the process.
Location location_of(const torch::nn::Module& module);
Location location_of(const torch::jit::Module& module);

}  // namespace triage
