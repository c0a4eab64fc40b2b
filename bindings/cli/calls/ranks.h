#pragma once
#include <triage/distributed.h>

#include <functional>
#include <string>

namespace triage::cli {

/// Runs `work` as one or several ranks of a group that c10d's Gloo connects, and returns the exit status of the first
/// that failed, or 0. `ranks`: how many processes to start on this machine, or "env": this process is one of those that
/// a launcher has started, as its environment says (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). `timeout`: seconds, of
/// each operation. Throws UsageError.
int in_ranks(const std::string& ranks, double timeout, const std::function<int(const Group&)>& work);

}  // namespace triage::cli
