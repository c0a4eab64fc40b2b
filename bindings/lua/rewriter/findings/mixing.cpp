#include "bindings/lua/rewriter/findings/mixing.h"

#include <algorithm>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"

namespace triage::lua::rewriter {
namespace {

bool is_batch_norm(const Expression& e) {
  const std::string path = called_global(e);
  return path == "nn.BatchNorm1d" || path == "nn.BatchNorm2d" || path == "nn.BatchNorm3d";
}

bool searches(const Expression& e) {
  const std::string path = called_global(e);
  return path == "flag_nan" || path == "flag_inf" || path == "flag_nan_and_inf";
}

/// `{track_running_stats = false}`: by the batch in evaluation, too.
bool never_keeps_statistics(const Expression& call) {
  const Expression* const keeps = option(call, "track_running_stats");
  return keeps && keeps->kind == ExpressionKind::False;
}

}  // namespace

std::vector<Warning> find_mixing(const Chunk& chunk, bool policy) {
  const auto any = [&](const auto& fits) {
    return std::any_of(chunk.expressions.begin(), chunk.expressions.end(), fits);
  };
  const bool evaluates =
      any([](const Expression& e) { return e.kind == ExpressionKind::MethodCall && e.text == "eval"; });
  const bool judges = any(searches);
  std::vector<Warning> warnings;
  for (const Expression& e : chunk.expressions) {
    if (!is_batch_norm(e)) continue;
    const bool always = never_keeps_statistics(e);
    if (policy ? !always && evaluates : !judges) continue;
    warnings.push_back(
        {e.line, e.column,
         called_global(e) + " mixes samples" + (always ? "" : " until model:eval()") +
             ": it normalizes by the mean and variance of the batch, so that a bad sample, or what it was "
             "replaced by, changes the results of all others; use running statistics (model:eval()), or "
             "nn.GroupNorm or nn.LayerNorm, which look at one sample"});
  }
  return warnings;
}

}  // namespace triage::lua::rewriter
