#pragma once
#include <iterator>
#include <string_view>

#include "runtime/operators/semantics.h"

/// The words in which rows of the table state what operators do. A word that is none of these does not compile.
namespace triage::operators {

/// In the order of the bits of Semantics::Property.
inline constexpr std::string_view property_words[] = {
    "moves",        "moves_records",   "queries",       "form_of_first", "form_of_second",  "gives_flags",
    "never_raises", "raises_by_sizes", "judges_values", "judges_whole",  "no_gradient",     "random",
    "effect",       "uninitialized",   "zeros",         "dynamic",       "dynamic_by_mask", "dynamic_by_classes",
    "view_or_copy", "repeats",         "quotient",      "modulus",       "checks_numbers",  "rounds_by_position",
    "same_out",     "reads_metadata",  "fixed_count",   "keeps_rows"};
/// In the order of the enumerations.
inline constexpr std::string_view size_words[] = {
    "unknown",   "broadcast",    "either",    "like_first",    "like_other",  "like_z",   "scalar",
    "row_each",  "record",       "repaired",  "reduced",       "linear",      "matmul",   "addmm",
    "embedding", "convolution",  "flatten",   "view",          "unsqueeze",   "swap_two", "swap_last_two",
    "transpose", "permute",      "select",    "slice",         "concatenate", "stack",    "parts",
    "host",      "rows_by_mask", "positions", "unknown_length"};
inline constexpr std::string_view mask_words[] = {"unknown",
                                                  "elementwise_backward",
                                                  "kept",
                                                  "moved",
                                                  "reshaped",
                                                  "expanded",
                                                  "taken",
                                                  "selected",
                                                  "turned",
                                                  "parts",
                                                  "where",
                                                  "masked_fill",
                                                  "sum_of_two",
                                                  "factors",
                                                  "joined",
                                                  "stacked",
                                                  "scattered",
                                                  "scattered_rows",
                                                  "index_put",
                                                  "cumulated",
                                                  "padded",
                                                  "reduced",
                                                  "slice_backward",
                                                  "select_backward",
                                                  "glu_backward",
                                                  "softmax_backward",
                                                  "product",
                                                  "convolution_backward",
                                                  "layer_norm_backward"};
inline constexpr std::string_view arithmetic_words[] = {
    "none",         "negate",     "add",     "subtract",      "subtract_from", "multiply", "divide",
    "floor_divide", "remainder",  "bit_and", "bit_or",        "bit_xor",       "largest",  "smallest",
    "less",         "less_equal", "greater", "greater_equal", "equal",         "not_equal"};

static_assert(Semantics::keeps_rows == 1u << (std::size(property_words) - 1) &&
              static_cast<size_t>(ResultSizes::unknown_length) + 1 == std::size(size_words) &&
              static_cast<size_t>(MaskedRows::layer_norm_backward) + 1 == std::size(mask_words) &&
              static_cast<size_t>(Arithmetic::not_equal) + 1 == std::size(arithmetic_words));

/// Semantics written as words: "elementwise never_raises number:negate"; and for loops over elements, a formula.
class Does {
 public:
  constexpr Does() = default;
  consteval Does(const char* text, const char* formula = "") {  // NOLINT(google-explicit-constructor)
    semantics_.formula = formula;
    for (std::string_view rest = text; !rest.empty();) {
      const size_t end = rest.find(' ') < rest.size() ? rest.find(' ') : rest.size();
      add(rest.substr(0, end));
      rest.remove_prefix(end < rest.size() ? end + 1 : end);
    }
  }
  constexpr const Semantics& semantics() const { return semantics_; }

 private:
  template <size_t count>
  static consteval size_t index(const std::string_view (&words)[count], std::string_view word) {
    size_t i = 0;
    while (words[i] != word) ++i;  // behind the last one: an error of the compiler
    return i;
  }

  consteval void add(std::string_view word) {
    if (word == "elementwise")
      semantics_.sizes = ResultSizes::broadcast;
    else if (word.starts_with("sizes:"))
      semantics_.sizes = static_cast<ResultSizes>(index(size_words, word.substr(6)));
    else if (word.starts_with("masked:"))
      semantics_.masked_rows = static_cast<MaskedRows>(index(mask_words, word.substr(7)));
    else if (word.starts_with("number:"))
      semantics_.arithmetic = static_cast<Arithmetic>(index(arithmetic_words, word.substr(7)));
    else
      semantics_.properties |= 1u << index(property_words, word);
    if (word == "moves_records") semantics_.properties |= Semantics::moves;
  }

  Semantics semantics_;
};

}  // namespace triage::operators
