#pragma once
#include <string>
#include <vector>

/// Where capsules of calls that fail go, for `triage replay`. For the process; at first what TRIAGE_REPLAY_RECORD and
/// TRIAGE_REPLAY_MASK say. Thread-safe.
namespace triage::messages {

/// One load, for those who only ask whether there is anything to do.
bool replay_record_on() noexcept;
/// Empty: none are written.
std::string replay_dir();
void set_replay_dir(const std::string& folder);
/// Names of inputs and variables whose values no capsule holds, with commas between them; and taken apart.
std::string replay_mask();
std::vector<std::string> replay_masked();
void set_replay_mask(const std::string& names);

}  // namespace triage::messages
