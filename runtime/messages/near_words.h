#pragma once
#include <string>
#include <string_view>
#include <vector>

/// What errors say of a name that is unknown: which known one may be meant.
namespace triage::messages {

/// Of `candidates`, at most three that `word` may be a misspelling of, the nearest first: up to 1, 2 or 3 letters were
/// inserted, dropped, changed or swapped with a neighbour, by the length of `word`.
std::vector<std::string> close_words(std::string_view word, const std::vector<std::string>& candidates);

/// "; did you mean 'a' or 'b'?", empty where there are none.
std::string did_you_mean(const std::vector<std::string>& words, char quote = '\'');

}  // namespace triage::messages
