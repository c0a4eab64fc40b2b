// Operators that are a formula of their arguments (formula.h): the table of operators has them.
#include <algorithm>
#include <array>
#include <iterator>

#include "runtime/backends/fused/lowering/lowering.h"
#include "runtime/messages/assert.h"
#include "runtime/operators/semantics.h"

namespace triage::fused {
namespace {

/// In the order of Dtypes.
constexpr std::array<std::string_view, 10> dtype_words = {
    "any",      "number",  "real",  "single_or_double", "single_or_half",
    "bfloat16", "integer", "whole", "int_or_long",      "boolean"};
static_assert(dtype_words.size() == static_cast<size_t>(Dtypes::boolean) + 1);

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return text;
}

}  // namespace

const std::vector<FormulaRow>& formula_operators() {
  static const auto& rows = *new std::vector<FormulaRow>([] {
    std::vector<FormulaRow> all;
    for (const auto& [op, text] : operators::formulas())
      for (std::string_view rest = text; !rest.empty();) {
        const size_t colon = rest.find(':'), end = std::min(rest.find(';'), rest.size());
        const auto word = std::find(dtype_words.begin(), dtype_words.end(), trimmed(rest.substr(0, colon)));
        if (colon == std::string_view::npos || word == dtype_words.end())
          throw GraphError("fused: the formula of '" + op + "' begins with no dtypes: " + std::string(rest));
        const auto dtypes = static_cast<Dtypes>(std::distance(dtype_words.begin(), word));
        all.push_back({op, dtypes, std::string(trimmed(rest.substr(colon + 1, end - colon - 1)))});
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    return all;
  }());
  return rows;
}

}  // namespace triage::fused
