#pragma once
#include <string>
#include <vector>

namespace triage::fused {

struct Steps;

/// A tape as text, as the listing of a bytecode is read: one line a step, with its opcode and type, where the result
/// goes, the operands, and the line of the script. Levels and loops are headings; a step that several were merged into
/// has the opcodes of all. `lines`: Loops::lines.
std::string listing(const Steps& steps, const std::vector<std::string>& lines);

}  // namespace triage::fused
