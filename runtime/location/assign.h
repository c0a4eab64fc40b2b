#pragma once
#include <triage/tracked.h>

#include <string>
#include <vector>

namespace triage {

/// A module as its model lists it.
struct ListedModule {
  std::string path;  // dotted; empty for the model itself
  bool holds_parameters = false;
};

/// What `tracked` gives every module that holds parameters or has a submodule that does, in the order of the list; modules
/// with neither get an entry with an empty path. Registers the locations.
std::vector<TrackedModule> assign_locations(const std::vector<ListedModule>& modules, const TrackOptions& options);

/// Says once in the process that a module without a location was given as one.
void warn_of_untracked_module();

}  // namespace triage
