#include "bindings/lua/rewriter/prompt_lines.h"

#include <algorithm>

#include "bindings/lua/rewriter/edits.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/parser.h"

namespace triage::lua::rewriter {
namespace {

constexpr bool kPolicy = false;  // what a user types is trusted

/// What must stay a variable of the line: closed at its end, or the environment itself.
bool stays_local(const Variable& variable) {
  return variable.attribute == Variable::Attribute::Close || variable.name == "_ENV";
}

/// `local a <const>, b =` as `a,b=`, with as many line ends; without values the variables become nil.
void make_global(const Statement& s, std::string_view source, Edits& edits) {
  if (std::any_of(s.variables.begin(), s.variables.end(), [](const Variable* v) { return stays_local(*v); })) return;
  std::string targets;
  for (const Variable* const variable : s.variables) targets += (targets.empty() ? " " : ",") + variable->name;
  const size_t end = s.values.empty() ? s.end : s.values[0]->begin;
  const std::string_view replaced = source.substr(s.begin, end - s.begin);
  targets += s.values.empty() ? "=nil " : "=";
  targets.append(static_cast<size_t>(std::count(replaced.begin(), replaced.end(), '\n')), '\n');
  edits.replace(s.begin, end, targets);
}

}  // namespace

std::string keep_locals(std::string_view source, std::string_view chunk_name) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, {kPolicy});
  Edits edits;
  for (const Statement* const s : chunk->main->body->statements) {
    if (s->kind == StatementKind::Local) make_global(*s, source, edits);
    constexpr size_t keyword = std::string_view("local").size();
    if (s->kind == StatementKind::LocalFunction) edits.replace(s->begin, s->begin + keyword, " ");
  }
  std::string result;
  edits.apply(source, 0, result);
  return result;
}

bool is_unfinished(std::string_view source) {
  try {
    parse(source, "=line", {kPolicy});
    return false;
  } catch (const SyntaxError& error) {
    std::string_view message = error.what();
    // No later line ends a string in quotes, but behind a backslash.
    if (message.find("unfinished string") != std::string_view::npos) return !source.empty() && source.back() == '\\';
    if (!message.empty() && message.back() == '\'') message.remove_suffix(1);
    constexpr std::string_view end = "<eof>";
    return message.size() >= end.size() && message.substr(message.size() - end.size()) == end;
  }
}

}  // namespace triage::lua::rewriter
