#include "bindings/lua/rewriter/extract.h"

#include <algorithm>
#include <map>

#include "bindings/lua/rewriter/natural_edits.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/parser.h"

namespace triage::lua::rewriter {
namespace {

const Function* find_function(const Chunk& chunk, int number) {
  for (const Function& function : chunk.functions)
    if (function.id == number) return &function;
  throw SyntaxError("there is no function " + std::to_string(number) + " in this text", 1, 1);
}

/// The byte behind its `end`.
size_t end_of(const Chunk& chunk, const Function& function) {
  for (const Expression& e : chunk.expressions)
    if (e.function == &function) return e.end;
  for (const Statement& s : chunk.statements)
    if (s.function == &function) return s.end;
  return 0;
}

bool is_within(const Function* inner, const Function& outer) {
  while (inner && inner != &outer) inner = inner->parent;
  return inner != nullptr;
}

/// Declarations of the variables that the function takes from outside.
std::string outer_variables(const Chunk& chunk, const Function& function, size_t end, std::string_view source) {
  std::map<std::string, std::string> declared;
  for (const Expression& e : chunk.expressions) {
    const Variable* const variable = e.kind == ExpressionKind::Name ? e.variable : nullptr;
    if (!variable || e.begin < function.parameters_begin || e.begin >= end || is_within(variable->owner, function))
      continue;
    const Expression* const value = variable->compile_time_constant ? variable->initial : nullptr;
    declared[variable->name] =
        value ? variable->name + "<const> =" + std::string(source.substr(value->begin, value->end - value->begin))
              : variable->name;
  }
  std::string text;
  for (const auto& [name, declaration] : declared) {
    std::string line = declaration;
    std::replace(line.begin(), line.end(), '\n', ' ');
    text += "local " + line + " ";
  }
  return text;
}

}  // namespace

std::string extract_function(std::string_view source, std::string_view chunk_name, int number) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, {.policy = false});
  if (number == 0) return std::string(source);
  const Function& function = *find_function(*chunk, number);
  const size_t end = end_of(*chunk, function);
  const std::string_view before = source.substr(0, function.parameters_begin);
  const auto lines = static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t line_begin = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  std::string head = outer_variables(*chunk, function, end, source) + "return";
  if (is_natural(*chunk, source)) head = "--!tensor\n" + head;
  const auto head_lines = static_cast<size_t>(std::count(head.begin(), head.end(), '\n'));
  std::string text = head;
  if (lines > head_lines) text.append(lines - head_lines, '\n');
  std::string opening = "function(";
  if (function.is_method) opening += function.has_parameters ? "self," : "self";
  const size_t column = before.size() - line_begin, used = lines > head_lines ? 0 : head.size() - head.rfind('\n') - 1;
  if (column > opening.size() + used)
    text.append(column - opening.size() - used, ' ');
  else
    text += ' ';
  return text + opening + std::string(source.substr(function.parameters_begin, end - function.parameters_begin)) + "\n";
}

}  // namespace triage::lua::rewriter
