#pragma once
#include <triage/api.h>
#include <triage/location.h>
#include <triage/location_tree.h>

#include <string>
#include <vector>

/// Modules as locations: `err::push(f, code, model->layer1)` once `tracked(*model)` has named the modules of the model.
namespace triage {

struct TrackOptions {
  /// Prefix of every path (`teacher` gives `teacher.layer1`), and the name of the module itself, which is `root` by
  /// default. Two models tracked without a prefix share their common paths.
  std::string prefix = {};
  /// Decides which modules share an id when there are more modules than ids, e.g. a WeightedLocationTree with weights
  /// (its patterns match paths without the prefix). `tracked` adds the module's paths to it. Default: a new
  /// LocationTree.
  LocationTree* tree = nullptr;
};

struct TrackedModule {
  std::string path;      ///< of the module, with the prefix
  std::string location;  ///< the path that errors there are recorded under: this one, or the longest kept prefix of it
  int64_t id = 0;        ///< of `location`, in ErrorLocation
};

/// Names the modules that hold parameters, themselves or in a submodule, by their dotted paths, and registers them in
/// ErrorLocation depth first, in the order in which the module lists its children: the same model gets the same ids in
/// every run that registers nothing before it. A module in several places has the first path. If there are more modules
/// than free ids, a LocationTree decides which paths keep an id; the others share the id of their longest kept prefix.
/// Thread-safe; calling it again on the same module changes nothing.
///
/// Modules are identified by object identity while they live. A torch::nn::Module that no std::shared_ptr owns (one on
/// the stack) is not remembered, but its submodules are.
TRIAGE_API std::vector<TrackedModule> tracked(const torch::nn::Module& module, const TrackOptions& options = {});
TRIAGE_API std::vector<TrackedModule> tracked(const torch::jit::Module& module, const TrackOptions& options = {});

/// The location of a module. For one that was not tracked, or that holds no parameters: `Unknown` (id 0), with one
/// warning in the process.
TRIAGE_API Location location_of(const torch::nn::Module& module);
TRIAGE_API Location location_of(const torch::jit::Module& module);

}  // namespace triage
