#pragma once
#include <triage/tracked.h>

#include "runtime/location/owner.h"

#include <string>
#include <vector>

namespace triage {

/// A module as its model lists it.
struct ListedModule {
  std::string path;  // dotted; empty for the model itself
  bool holds_parameters = false;
};

/// What `tracked` gives every module that holds parameters or has a submodule that does, in the order of the list;
/// modules with neither get an entry with an empty path. Registers the locations, at most `most_new` that nobody had
/// named before, for `owner`, or for the host.
std::vector<TrackedModule> assign_locations(const std::vector<ListedModule>& modules, const TrackOptions& options,
                                            int64_t most_new = ErrorLocation::MAX_LOCATION_ID + 1,
                                            LocationOwner* owner = nullptr);

/// Says once in the process that a module without a location was given as one.
void warn_of_untracked_module();

}  // namespace triage
