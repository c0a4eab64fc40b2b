#include "runtime/backends/fused/lowering/formula.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <set>
#include <string>

namespace triage::fused {
namespace {

struct Infix {
  std::string_view sign;
  Opcode opcode;
};
/// Those that bind least first, as in C. A sign that begins another one stands behind it.
const std::vector<std::vector<Infix>>& infixes() {
  static const auto& levels = *new std::vector<std::vector<Infix>>{
      {{"|", Opcode::bit_or}},
      {{"^", Opcode::bit_xor}},
      {{"&", Opcode::bit_and}},
      {{"==", Opcode::eq}, {"!=", Opcode::ne}},
      {{"<=", Opcode::le}, {">=", Opcode::ge}, {"<", Opcode::lt}, {">", Opcode::gt}},
      {{"+", Opcode::add}, {"-", Opcode::sub}},
      {{"*", Opcode::mul}, {"/", Opcode::div}},
  };
  return levels;
}

class FormulaParser {
 public:
  explicit FormulaParser(std::string_view text) : text_(text) {}

  Formula run() {
    choice();
    space();
    if (at_ < text_.size()) fail("an operator or the end");
    return std::move(formula_);
  }

 private:
  using FormulaStep = Formula::FormulaStep;

  [[noreturn]] void fail(const std::string& expected) const {
    throw GraphError(fmt::format("formula \"{}\": expected {} at \"{}\"", text_, expected, text_.substr(at_)));
  }
  void space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(std::string_view sign) {
    space();
    if (text_.substr(at_, sign.size()) != sign) return false;
    at_ += sign.size();
    return true;
  }
  void expect(std::string_view sign) {
    if (!accept(sign)) fail(fmt::format("'{}'", sign));
  }
  size_t add(FormulaStep step) {
    formula_.steps.push_back(std::move(step));
    return formula_.steps.size() - 1;
  }
  size_t operation(Opcode opcode, std::vector<size_t> steps) {
    return add({FormulaStep::Kind::operation, 0, 0, opcode, std::move(steps)});
  }

  size_t choice() {
    const size_t condition = infix(0);
    if (!accept("?")) return condition;
    const size_t yes = choice();
    expect(":");
    const size_t no = choice();
    return operation(Opcode::select, {condition, yes, no});
  }

  size_t infix(size_t level) {
    if (level == infixes().size()) return prefix();
    size_t left = infix(level + 1);
    for (;;) {
      const auto& signs = infixes()[level];
      const auto found = std::find_if(signs.begin(), signs.end(), [&](const Infix& one) { return accept(one.sign); });
      if (found == signs.end()) return left;
      const size_t right = infix(level + 1);
      left = operation(found->opcode, {left, right});
    }
  }

  size_t prefix() {
    if (accept("!")) return operation(Opcode::logical_not, {prefix()});
    if (!accept("-")) return primary();
    const size_t step = prefix();
    if (formula_.steps[step].kind != FormulaStep::Kind::number) return operation(Opcode::neg, {step});
    formula_.steps[step].number *= -1;
    return step;
  }

  size_t primary() {
    if (accept("(")) {
      const size_t inside = choice();
      expect(")");
      return inside;
    }
    space();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "inf") return add({FormulaStep::Kind::number, 0, std::numeric_limits<double>::infinity()});
    if (word == "nan") return add({FormulaStep::Kind::number, 0, std::numeric_limits<double>::quiet_NaN()});
    if (word.size() == 1 && word[0] >= 'a' && word[0] <= 'z')
      return add({FormulaStep::Kind::operand, static_cast<size_t>(word[0] - 'a')});
    at_ = begin;
    if (!word.empty() && !std::isdigit(static_cast<unsigned char>(word[0]))) return call(word);
    return number();
  }

  size_t number() {
    double value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, fault] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (fault != std::errc()) fail("a number, an operand or a function");
    at_ += static_cast<size_t>(end - begin);
    return add({FormulaStep::Kind::number, 0, value});
  }

  size_t call(std::string_view name) {
    const auto opcode = find_opcode(name);
    if (!opcode || row_of(*opcode).is_leaf() || row_of(*opcode).numbers > 0 || row_of(*opcode).signature.back() == '?')
      fail("the name of a function");
    at_ += name.size();
    expect("(");
    std::vector<size_t> steps{choice()};
    while (accept(",")) steps.push_back(choice());
    if (steps.size() != row_of(*opcode).arity()) fail(fmt::format("{} operands", row_of(*opcode).arity()));
    expect(")");
    return operation(*opcode, std::move(steps));
  }

  const std::string_view text_;
  size_t at_ = 0;
  Formula formula_;
};

}  // namespace

std::vector<size_t> Formula::operands() const {
  std::set<size_t> found;
  for (const FormulaStep& step : steps)
    if (step.kind == FormulaStep::Kind::operand) found.insert(step.operand);
  return {found.begin(), found.end()};
}

bool Formula::is_slow() const {
  return std::any_of(steps.begin(), steps.end(), [](const FormulaStep& step) {
    return step.kind == FormulaStep::Kind::operation && row_of(step.opcode).slow;
  });
}

bool Formula::is_condition() const {
  return steps.back().kind == FormulaStep::Kind::operation && row_of(steps.back().opcode).signature.back() == 'b';
}

Formula parse_formula(std::string_view text) { return FormulaParser(text).run(); }

}  // namespace triage::fused
