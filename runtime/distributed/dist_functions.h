#pragma once
#include <triage/distributed.h>
#include <triage/front_end.h>

#include <vector>

namespace triage {

/// The operations of a group as scripts call them: `dist.agree` and the others.
std::vector<HostFunction> dist_functions(const Group& group);

}  // namespace triage
