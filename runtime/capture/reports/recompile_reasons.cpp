#include "runtime/capture/reports/recompile_reasons.h"

#include <fmt/format.h>

#include <algorithm>

namespace triage::capture {

/// A failed guard without the values of one call, so that failures of the same guard count together.
std::string guard_of(const std::string& why) {
  const size_t values = std::min(why.find(". expected"), why.find(" was "));
  if (values == std::string::npos) return why;
  const size_t place = why.rfind(" (");
  const bool has_place = place != std::string::npos && place > values && why.back() == ')';
  return why.substr(0, values) + (has_place ? why.substr(place) : "");
}

std::string advice_for(const std::string& guard) {
  const auto has = [&](const char* text) { return guard.find(text) != std::string::npos; };
  if (has("size mismatch") && has("(read at"))
    return "work on the whole batch at that line instead of a loop over its rows, so that the graph serves every size";
  if (has("size mismatch")) return "a size that changes must not be marked static, and needs `dynamic` capture";
  if (guard.rfind("param ", 0) == 0)
    return "a boolean param in a condition has a graph for each of its values; IF(p.name, ...) keeps both in one";
  if (guard.rfind("argument ", 0) == 0)
    return "a plain argument is part of the graph: pass a param of the policy, or a 0-dim tensor";
  if (has("upvalue") || has("global") || has("variable"))
    return "what a function reads from outside is part of the graph: make it an argument, or a tensor whose values "
           "change";
  if (has("requires_grad") || has("grad mode")) return "call the function in one grad mode, or accept a graph for each";
  if (has("dtype")) return "convert the inputs to one dtype before the call";
  if (has("rank")) return "give the inputs the same number of dims, or accept a graph for each";
  return "call the function with inputs of the same kind, or accept a graph for each";
}

std::string reason_lines(const std::vector<MisfitGraph>& oldest_first) {
  struct FailedGuard {
    std::string guard;
    const MisfitGraph* newest;
    size_t older = 0;
  };
  std::vector<FailedGuard> failed;  // newest first
  for (size_t i = oldest_first.size(); i-- > 0;) {
    const std::string guard = guard_of(oldest_first[i].why);
    const auto same = [&](const FailedGuard& known) { return known.guard == guard; };
    const auto found = std::find_if(failed.begin(), failed.end(), same);
    if (found == failed.end())
      failed.push_back({guard, &oldest_first[i]});
    else
      ++found->older;
  }
  std::string lines;
  for (size_t i = failed.size(); i-- > 0;) {
    lines += fmt::format("\n  - {}: {}", failed[i].newest->graph, failed[i].newest->why);
    if (failed[i].older > 0)
      lines +=
          fmt::format(" (the same guard failed for {} older graph{})", failed[i].older, failed[i].older > 1 ? "s" : "");
  }
  return lines;
}

}  // namespace triage::capture
