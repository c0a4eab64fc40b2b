#pragma once
#include <string>
#include <string_view>

namespace triage::fused {

/// 32 hexadecimal digits. Not against an attacker: against accidents.
std::string hash_of(std::string_view bytes);

/// A shared object, behind it a text, and a last line of `mark` (which tells kinds of files apart), the length of the text and
/// the hash of all before it. So the file is checked without running any of it, and a loader passes over what is behind the
/// object.
std::string with_trailer(std::string_view shared_object, std::string_view text, std::string_view mark);

/// Whether there is a last line with that mark; what is before it may be damaged.
bool has_trailer(std::string_view bytes, std::string_view mark);

struct Checked {
  enum class State { none, changed, whole };  // none: not sealed with that mark, or its end is missing
  State state = State::none;
  std::string_view text;  // of a whole one; lies in the bytes
};
Checked check_trailer(std::string_view bytes, std::string_view mark);

/// Without control characters: they become \x0a and the like, and a backslash \x5c.
std::string on_one_line(std::string_view text);

}  // namespace triage::fused
