#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {

struct Chunk;

/// The line of each global's name, read or written, in order, each pair once. Where `_ENV` is written out it is one of
/// them.
std::vector<std::pair<int, std::string>> global_names(const Chunk& chunk);

/// One place where a script reads a global, or a field of one by name.
struct GlobalRead {
  std::string path;  // "flag_nan", "err.NAN", "torch.linalg.norm"
  int line = 0, column = 0;
  enum class Use {
    Needed,  // called, indexed, an argument, a result, a field: nil is an error there, or dropped in silence
    Kept,    // the value of a variable, or what follows `or`: it may be tested later
    Tested,  // a condition, `x == nil`, `type(x)`: nil may be meant
  } use = Use::Needed;
  bool protected_call = false;  // in a function that is an argument of pcall or xpcall
};

/// What a script reads that it does not define itself: every free global that is never assigned, in the order of the
/// source, and each field that is written as a constant name. `path` of a field stands once for each of its prefixes.
struct GlobalReads {
  std::vector<GlobalRead> reads;
  bool makes_globals = false;               // uses _G, load, ...: globals may come from where the text does not show it
  std::vector<Warning> foreign;             // what foreign.h finds: for who loads the script without `check`
  std::vector<std::string> params, inputs;  // that a policy of the script declares
};

/// Throws SyntaxError.
GlobalReads global_reads(std::string_view source, std::string_view chunk_name, const ParseOptions& options = {});

/// A field of the params that a policy does not have: `p.lmit` in policy { params = {limit = 1}, run = function(z, p)
/// }.
struct UnknownParam {
  std::string name;
  int line = 0, column = 0;
  std::vector<std::string> params;  // those there are
};

/// Only where `params` is written as a table of names, and `run` as a function, in the call of `policy`. Throws
/// SyntaxError.
std::vector<UnknownParam> unknown_params(std::string_view source, std::string_view chunk_name,
                                         const ParseOptions& options = {});

/// Names and numbers of `codes = { MISSING = 4 }` in calls of `policy`, where they are written as such. Throws
/// SyntaxError.
std::vector<std::pair<std::string, int64_t>> declared_codes(std::string_view source, std::string_view chunk_name,
                                                            const ParseOptions& options = {});

}  // namespace triage::lua::rewriter
