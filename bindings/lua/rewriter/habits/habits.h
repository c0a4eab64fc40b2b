#pragma once
#include <cstddef>
#include <string>
#include <string_view>

/// What people write who come from Python and PyTorch, and what to write in its place. docs/coming-from-pytorch.md
/// lists the habits for readers; tests/docs/habits_test.cpp holds that page and these tables to each other.
namespace triage::lua::rewriter {

/// What to write in the place of a text that is no Lua.
struct Hint {
  std::string text;     // empty: nobody knows what was meant
  size_t begin = 0;     // the byte where the habit stands, which may be some lines above the error
  std::string instead;  // of a character that a terminal may not show: how the message names it
};

/// Of a text at whose byte `error` the parser gave up.
Hint hint_of_text(std::string_view source, size_t error);

/// Behind what is said of a block that lacks its `end`; empty where nothing is known.
std::string hint_of_missing_end(std::string_view source);

/// Of a global or a field of one, "len" or "math.nan", that policies do not have. Empty for other names.
std::string_view hint_of_name(std::string_view path);

/// Of a field or method that a table or a text does not have: "append". Empty for other names.
std::string_view hint_of_field(std::string_view name);

/// Of `x:name(...)` or `x.name` that tensors do not have: "astype". A name such as "1:3" is a slice. Empty for other
/// names.
std::string hint_of_method(std::string_view name);

/// `z[{":", 0}]` for the index `:, 0` of `tensor`; empty where the index has neither a range nor several dimensions.
std::string index_as_table(std::string_view tensor, std::string_view index);

/// Of the character that begins at `byte`, where Lua has no such character.
Hint hint_of_character(std::string_view source, size_t byte);

}  // namespace triage::lua::rewriter
