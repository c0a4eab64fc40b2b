// The table of opcodes, formulas, and what becomes of them in text.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <runtime/backends/fused/loop_call.h>
#include <runtime/backends/fused/loops/expression.h>
#include <runtime/backends/fused/loops/gpu_text.h>
#include <runtime/backends/fused/lowering/lowering.h>
#include <runtime/backends/fused/tape/tape.h>
#include <triage/error.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "tests/fused/primitives/made_loops.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

/// The names in a piece of C++.
std::set<std::string> words_of(const std::string& code) {
  std::set<std::string> words;
  std::string word;
  for (const char c : code + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      word += c;
    else if (!word.empty())
      words.insert(std::exchange(word, {}));
  }
  return words;
}

std::string source_of(const Program& program, const Tensors& examples) {
  const auto parts = cut(graph::trace(program, examples));
  REQUIRE(parts.size() == 1);
  REQUIRE(parts[0].fused);
  return emit_for_gpu(parts[0].loops, Lanes::positions).source;
}

}  // namespace

TEST_CASE("the table of opcodes is complete: a signature, C++ that takes its operands and numbers, and a result") {
  std::set<std::string> names;
  for (const OpcodeRow& row : opcode_rows()) {
    const std::string name = row.name, code = row.code;
    CAPTURE(name);
    CHECK(names.insert(name).second);
    CHECK(static_cast<size_t>(find_opcode(name).value()) + 1 == names.size());
    REQUIRE(row.signature.size() == row.arity() + 2);
    const char result = row.signature.back();
    CHECK((std::string("bilR?").find(result) != std::string::npos || row.signature.find(result) < row.arity()));
    for (const char letter : row.signature.substr(0, row.arity()))
      CHECK((allows(letter, Type::f32) || allows(letter, Type::i64) || allows(letter, Type::boolean) ||
             allows(letter, Type::record) || allows(letter, Type::non_finite)));
    if (name == "literal" || name == "count") continue;
    CHECK(!code.empty());
    const std::set<std::string> words = words_of(code);
    for (size_t i = 0; i < 3; ++i) CHECK(words.count(std::string(1, static_cast<char>('a' + i))) == (i < row.arity()));
    if (name == "position") continue;  // its number tells positions of rows and of segments apart
    for (size_t i = 0; i < 10; ++i) CHECK(words.count(fmt::format("n{}", i)) == (i < row.numbers));
  }
}

TEST_CASE("every opcode has a step for each of its types, and makes the same bits whichever way lanes are given") {
  std::set<std::string> done;
  const MadeLoops made = all_opcodes(done);
  for (const OpcodeRow& row : opcode_rows()) CHECK_MESSAGE(done.count(row.name), std::string(row.name));
  const auto by_position = results_of(made.loops, {Lanes::positions}), by_row = results_of(made.loops, {Lanes::rows});
  for (size_t i = 0; i < by_position.size(); ++i) {
    const LoopValue& value = made.loops.values[static_cast<size_t>(made.loops.outputs[i].value)];
    CHECK_MESSAGE(by_position[i] == by_row[i],
                  row_of(value.opcode).name << " to " << name_of(value.type) << ", output " << i);
  }
}

TEST_CASE("an opcode takes its types and no others") {
  CHECK(result_type(Opcode::add, {Type::f32, Type::f32}) == Type::f32);
  CHECK_FALSE(result_type(Opcode::add, {Type::f32, Type::f64}));
  CHECK_FALSE(result_type(Opcode::add, {Type::f32}));
  CHECK_FALSE(result_type(Opcode::add, {Type::boolean, Type::boolean}));
  CHECK_FALSE(result_type(Opcode::exp, {Type::i64}));
  CHECK(result_type(Opcode::lt, {Type::i8, Type::i8}) == Type::boolean);
  CHECK(result_type(Opcode::select, {Type::boolean, Type::record, Type::record}) == Type::record);
  CHECK_FALSE(result_type(Opcode::select, {Type::i32, Type::f32, Type::f32}));
  CHECK_FALSE(result_type(Opcode::convert, {Type::f32}));
  CHECK(result_type(Opcode::convert, {Type::f32}, Type::f64) == Type::f64);
  CHECK_FALSE(result_type(Opcode::add, {Type::f32, Type::f32}, Type::f32));
}

TEST_CASE("formulas: every one of the table is understood") {
  for (const FormulaRow& row : formula_operators()) {
    CAPTURE(row.formula);
    const Formula formula = parse_formula(row.formula);
    CHECK(!formula.operands().empty());
    CHECK(can_lower(row.op));
  }
  CHECK_FALSE(can_lower("aten::sin"));
  CHECK_FALSE(can_lower("tanh_backward"));
}

TEST_CASE("formulas: precedence as in C") {
  const auto shape = [](const char* text) {
    const Formula formula = parse_formula(text);
    const std::function<std::string(size_t)> show = [&](size_t index) {
      const Formula::FormulaStep& step = formula.steps[index];
      if (step.kind == Formula::FormulaStep::Kind::operand)
        return std::string(1, static_cast<char>('a' + step.operand));
      if (step.kind == Formula::FormulaStep::Kind::number) return fmt::format("{}", step.number);
      std::string list;
      for (const size_t operand : step.steps) list += (list.empty() ? "" : " ") + show(operand);
      return fmt::format("{}({})", row_of(step.opcode).name, list);
    };
    return show(formula.steps.size() - 1);
  };
  CHECK(shape("a * (1 - b * b)") == "mul(a sub(1 mul(b b)))");
  CHECK(shape("a - b - c") == "sub(sub(a b) c)");
  CHECK(shape("-a * -2") == "mul(neg(a) -2)");
  CHECK(shape("a <= b | c >= d & !e ? 0 : a") == "select(bit_or(le(a b) bit_and(ge(c d) logical_not(e))) 0 a)");
  CHECK(shape("a > 0 ? b : a < -1e-3 ? c : -inf") == "select(gt(a 0) b select(lt(a -0.001) c -inf))");
  CHECK(shape("pick(a == b, exp(c), nan)") == "pick(eq(a b) exp(c) nan)");
  CHECK(parse_formula("f + b").operands() == std::vector<size_t>{1, 5});
  CHECK(parse_formula("a / (1 + exp(-a))").is_slow());
  CHECK_FALSE(parse_formula("a / b").is_slow());
  CHECK(parse_formula("is_nan(a)").is_condition());
  CHECK_FALSE(parse_formula("is_nan(a) ? b : a").is_condition());
}

TEST_CASE("formulas: faults say what was expected, and where") {
  const std::pair<const char*, const char*> faults[] = {
      {"", "a number, an operand or a function at \"\""},
      {"a +", "a number, an operand or a function at \"\""},
      {"a b", "an operator or the end at \"b\""},
      {"(a", "')' at \"\""},
      {"a ? b", "':' at \"\""},
      {"exp a", "'(' at \"a\""},
      {"exp(a, b)", "1 operands at \")\""},
      {"pow(a)", "2 operands at \")\""},
      {"sine(a)", "the name of a function at \"sine(a)\""},
      {"literal(a)", "the name of a function"},
      {"convert(a)", "the name of a function"},
      {"record_slot(a)", "the name of a function"},
      {"a = b", "an operator or the end at \"= b\""},
      {"{0} * 2", "a number, an operand or a function at \"{0} * 2\""},
  };
  for (const auto& [formula, message] : faults) {
    const std::string text = formula;
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_formula(text), doctest::Contains(message), GraphError);
  }
}

TEST_CASE("equal values are one by what they are, not by how they are written") {
  MadeLoops made;
  const Ref x = made.element(Type::f32), wide = made.element(Type::f64);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto scaled = [&](Ref of, double number) {
    const Type type = made.loops.values[static_cast<size_t>(of)].type;
    made.store(made.map(Opcode::mul, {of, made.literal(type, number)}));
  };
  for (const double number : {1.0, 1.0, 0.0, -0.0, nan, -nan, 0.1}) scaled(x, number);
  for (const double number : {1.0, 0.1}) scaled(wide, number);
  made.store(made.map(Opcode::mul, {made.literal(Type::f32, 1), x}));  // other operands
  share_equal_values(made.loops);
  const auto& out = made.loops.outputs;
  CHECK(out[0].value == out[1].value);
  CHECK(out[2].value != out[3].value);  // zeros of two signs
  CHECK(out[4].value == out[5].value);  // NaN is one
  CHECK(out[9].value != out[0].value);
  std::set<Ref> different;
  for (const LoopOutput& output : out) different.insert(output.value);
  CHECK(different.size() == 8);
  size_t ones = 0;
  for (const LoopValue& value : made.loops.values)
    ones += value.is(Opcode::literal) && value.numbers[0] == bits_of_real(value.type, 1);
  CHECK(ones == 2);  // a float and a double
}

TEST_CASE("a step that is also a result of its own has a name, and is kept where it is slow") {
  MadeLoops made;
  const Ref x = made.element(Type::f32);
  for (const bool inner : {true, false}) {
    const Ref power = made.map(Opcode::exp, {x});
    made.loops.values.back().inner = inner, made.loops.values.back().expensive = true;
    made.store(made.map(Opcode::add, {power, made.literal(Type::f32, inner)}));
  }
  share_equal_values(made.loops);
  const LoopValue& power = made.loops.values[1];
  REQUIRE(power.is(Opcode::exp));
  CHECK_FALSE(power.inner);
  CHECK(power.expensive);
  CHECK_FALSE(inlined_values(made.loops)[1]);
}

TEST_CASE("numbers in generated text are those of the loops") {
  CHECK(literal_code(Type::f32, bits_of_real(Type::f32, 0.1)) == "0.1f");
  CHECK(literal_code(Type::f64, bits_of_real(Type::f64, 0.1)) == "0.1");
  CHECK(literal_code(Type::f32, bits_of_real(Type::f32, 3)) == "3.0f");
  CHECK(literal_code(Type::f64, bits_of_real(Type::f64, 1e300)) == "1e+300");
  CHECK(literal_code(Type::f32, bits_of_real(Type::f32, -0.0)) == "(-0.0f)");
  CHECK(literal_code(Type::f32, bits_of_real(Type::f32, -INFINITY)) == "(-__builtin_inff())");
  CHECK(literal_code(Type::f64, bits_of_real(Type::f64, NAN)) == "__builtin_nan(\"\")");
  CHECK(literal_code(Type::i64, INT64_MIN) == "INT64_MIN");
  CHECK(literal_code(Type::i64, -7) == "INT64_C(-7)");
  CHECK(literal_code(Type::i32, 7) == "7");
  CHECK(literal_code(Type::i32, INT32_MIN) == "int32_t{-2147483648}");
  CHECK(literal_code(Type::u8, 255) == "uint8_t{255}");
  CHECK(literal_code(Type::boolean, 1) == "true");
  CHECK(start_of(Join::smallest, Type::i64) == INT64_MAX);
  CHECK(start_of(Join::largest, Type::i64) == INT64_MIN);
  CHECK(start_of(Join::largest, Type::u8) == 0);
  CHECK(start_of(Join::largest, Type::i8) == -128);
  CHECK(start_of(Join::smallest, Type::u8) == 255);
  CHECK(real_of_bits(Type::f32, start_of(Join::largest, Type::f32)) == -INFINITY);
  CHECK(real_of_bits(Type::f64, start_of(Join::product, Type::f64)) == 1);
  CHECK(start_of(Join::product, Type::i64) == 1);
}

TEST_CASE("a formula is one line of text, rounded once") {
  const auto derivative = [](const Tensors& in) { return Tensors{at::tanh_backward(in[0], in[1]).abs()}; };
  const std::string single = source_of(derivative, {data({4, 80}), data({4, 80})});
  CHECK_MESSAGE(single.find("= v0 * (1.0f - (v1 * v1));") != std::string::npos, single);
  const std::string half = source_of(derivative, {data({4, 80}, at::kBFloat16), data({4, 80}, at::kBFloat16)});
  CHECK_MESSAGE(half.find("= as_bfloat16(v0 * (1.0f - (v1 * v1)));") != std::string::npos, half);
  CHECK(count_of("as_bfloat16(", half) == 1);
  const std::string gate = source_of(  // one exp, though the formula has two
      [](const Tensors& in) { return Tensors{at::silu_backward(in[0], in[1]).abs()}; }, {data({4, 80}), data({4, 80})});
  CHECK_MESSAGE(count_of("exponential(", gate) == 1, gate);
}

TEST_CASE("whole numbers narrower than int wrap around inside of expressions") {
  MadeLoops made;
  const Ref x = made.element(Type::i8), y = made.element(Type::i8);
  const Ref sum = made.map(Opcode::add, {x, y});
  made.loops.values.back().inner = true;
  made.store(made.map(Opcode::lt, {sum, y}));
  const std::string source = emit_for_gpu(made.loops, Lanes::positions).source;
  CHECK(source.find("= int8_t(v0 + v1) < v1;") != std::string::npos);
}

TEST_CASE("the text of loops grows with its operators, and no line with the chain that they are") {
  const auto chain = [](int length) {
    return [length](const Tensors& in) {
      at::Tensor x = in[0];
      for (int i = 0; i < length; ++i) x = at::silu(x + x);
      return Tensors{x};
    };
  };
  const auto sizes = [&](int length) {
    const std::string source = source_of(chain(length), {data({4, 80})});
    size_t longest = 0, begin = 0;
    for (size_t end; (end = source.find('\n', begin)) != std::string::npos; begin = end + 1)
      longest = std::max(longest, end - begin);
    return std::pair(source.size(), longest);
  };
  const auto few = sizes(50), many = sizes(100);
  CHECK(many.first < few.first * 5 / 2);
  CHECK(many.second < few.second + 20);
}

}  // namespace triage::fused
