#pragma once
#include <string>
#include <string_view>

/// Messages hold text that scripts and files have chosen: names, paths, what `error` was given. Where people read it,
/// it may neither look like another message nor tell their terminal to do something.
namespace triage::messages {

/// With escapes for whatever moves a cursor, hides or turns round text: control characters (\x1b, \u{9b}), marks of
/// writing direction, bytes that are no UTF-8. Line ends and tabs stay.
std::string printable(std::string_view text);

/// The same on one line: line ends and tabs become \n, \r and \t as well. For logs, where a line is a message.
std::string one_line(std::string_view text);

/// The same, lines kept, as a string of JSON with its quotation marks.
std::string json_text(std::string_view text);

}  // namespace triage::messages
