#include "runtime/backends/fused/loops/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace triage::fused {
namespace {

using Kind = LoopValue::Kind;

/// Whether operators around this text of an opcode may take it for theirs: `{0} + {1}` yes, `pick({0}, {1})` no.
bool is_infix(std::string_view code) {
  int depth = 0;
  for (const char c : code) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ' ' && depth == 0) return true;
  }
  return !code.empty() && (code[0] == '-' || code[0] == '!' || code[0] == '(');
}

/// C++ computes whole numbers narrower than int, and what `&` makes of bools, as int.
bool becomes_int(const LoopValue& value) {
  return value.type == Type::boolean ? row_of(value.opcode).signature.back() == 'W' : value.type < Type::i32;
}

struct ExpressionWriter {
  const Loops& loops;
  const std::vector<bool>& inlined;
  const std::function<std::string(Ref)>& name;

  const LoopValue& at(Ref ref) const { return loops.values[static_cast<size_t>(ref)]; }

  std::string operand(Ref ref, bool in_infix) const {
    if (!inlined[static_cast<size_t>(ref)]) return name(ref);
    const LoopValue& value = at(ref);
    if (!is_infix(row_of(value.opcode).code)) return text(ref);
    const bool condition = value.type == Type::boolean && in_infix;
    if (becomes_int(value) && !condition) return fmt::format("{}({})", name_of(value.type), text(ref));
    return in_infix ? "(" + text(ref) + ")" : text(ref);
  }

  std::string text(Ref ref) const {
    const LoopValue& value = at(ref);
    if (value.kind == Kind::reduce) return operand(value.operands[0], /*in_infix=*/false);
    if (value.opcode == Opcode::literal) return literal_code(value.type, value.numbers[0]);
    if (value.opcode == Opcode::count) return fmt::format("d{}", value.numbers[0]);
    const std::string_view code = row_of(value.opcode).code;
    const bool in_infix = is_infix(code);
    std::string made;
    for (size_t i = 0; i < code.size();) {
      size_t end = i;
      while (end < code.size() && (std::isalnum(static_cast<unsigned char>(code[end])) || code[end] == '_')) ++end;
      const std::string_view word = code.substr(i, end - i);
      if (word.empty())
        made += code[i++];
      else if (word == "T")
        made += name_of(value.type);
      else if (word.size() == 1 && word[0] >= 'a' && word[0] < static_cast<char>('a' + value.operands.size()))
        made += operand(value.operands[static_cast<size_t>(word[0] - 'a')], in_infix || i == 0);
      else if (word.size() == 2 && word[0] == 'n' && word[1] >= '0' && word[1] <= '9')
        made += std::to_string(value.numbers.at(static_cast<size_t>(word[1] - '0')));
      else
        made += word;
      i = std::max(i, end);
    }
    return made;
  }
};

}  // namespace

std::vector<bool> inlined_values(const Loops& loops) {
  struct ValueUse {
    int count = 0;
    size_t by = 0;
  };
  std::vector<ValueUse> uses(loops.values.size());
  for (size_t i = 0; i < loops.values.size(); ++i)
    for (const Ref operand : loops.values[i].operands)
      ++uses[static_cast<size_t>(operand)].count, uses[static_cast<size_t>(operand)].by = i;
  for (const LoopOutput& output : loops.outputs) uses[static_cast<size_t>(output.value)].count += 2;
  std::vector<bool> inlined(loops.values.size());
  for (size_t i = 0; i < inlined.size(); ++i) {
    const LoopValue& value = loops.values[i];
    if (value.kind != Kind::map) continue;
    const LoopValue& user = loops.values[uses[i].by];
    const bool beside = user.kind == Kind::reduce ||
                        (user.kind == Kind::map && user.place == value.place && user.extent == value.extent);
    // An empty record has a name of its own.
    const bool is_leaf = value.operands.empty() && value.type != Type::record;
    inlined[i] = is_leaf || (value.inner && uses[i].count == 1 && beside);
  }
  return inlined;
}

std::string expression(const Loops& loops, const std::vector<bool>& inlined, Ref ref,
                       const std::function<std::string(Ref)>& name) {
  return ExpressionWriter{loops, inlined, name}.text(ref);
}

std::string type_code(const LoopValue& value) {
  return value.type == Type::record ? fmt::format("Record<{}>", value.slots) : name_of(value.type);
}

}  // namespace triage::fused
