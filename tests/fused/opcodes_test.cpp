// The table of opcodes, formulas, and what becomes of them in the text of a kernel.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/emit.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <runtime/backends/fused/kernels/kernel.h>
#include <runtime/backends/fused/loops/expression.h>
#include <runtime/backends/fused/lowering/lowering.h>
#include <runtime/backends/fused/tape/tape.h>
#include <triage/error.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "programs.h"

namespace triage::fused {
namespace {

size_t count_of(const std::string& part, const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

/// Loops that were made by hand.
struct Made {
  Loops loops;

  Made() { loops.extents.push_back({{positions}, false, -1, -1, -1}); }
  static constexpr int64_t positions = 5;

  Ref add(LoopValue value) {
    loops.values.push_back(std::move(value));
    return static_cast<Ref>(loops.values.size() - 1);
  }
  Ref input(TensorForm form, Type type) {
    LoopValue value;
    value.kind = LoopValue::Kind::input;
    value.place = form.kind == TensorForm::Kind::element ? Place::element : Place::row;
    value.type = type;
    value.dtype = form.dtype;
    value.extent = form.extent;
    value.slots = type == Type::record ? static_cast<int32_t>(form.words * 4) : 0;
    value.slot = static_cast<int32_t>(loops.inputs.size());
    loops.inputs.push_back({loops.inputs.size(), form});
    return add(std::move(value));
  }
  Ref element(Type type) { return input(element_form(type), type); }
  Ref record() {
    TensorForm form;
    form.kind = TensorForm::Kind::record;
    form.dtype = at::kLong, form.rank = 2, form.words = 1;
    return input(form, Type::record);
  }
  static TensorForm element_form(Type type) {
    TensorForm form;
    form.kind = TensorForm::Kind::element;
    form.dtype = dtype_of(type), form.rank = 2, form.extent = 0, form.trailing = {positions};
    return form;
  }
  Ref map(Opcode opcode, std::vector<Ref> operands, std::vector<int64_t> numbers = {}, std::optional<Type> asked = {}) {
    std::vector<Type> types;
    LoopValue made;
    made.opcode = opcode, made.place = operands.empty() ? Place::number : Place::row;
    for (const Ref ref : operands) {
      const LoopValue& from = loops.values[static_cast<size_t>(ref)];
      types.push_back(from.type);
      made.slots = std::max(made.slots, from.slots);
      if (from.place != Place::element) continue;
      made.place = Place::element, made.extent = 0;
    }
    const auto type = result_type(opcode, types, asked);
    REQUIRE_MESSAGE(type.has_value(), std::string(row_of(opcode).name));
    made.type = *type, made.dtype = dtype_of(*type);
    if (opcode == Opcode::record_empty) made.slots = static_cast<int32_t>(numbers[0]), made.place = Place::row;
    if (*type != Type::record) made.slots = 0;
    made.operands = std::move(operands), made.numbers = std::move(numbers);
    return add(std::move(made));
  }
  Ref literal(Type type, double number) {
    return map(Opcode::literal, {}, {is_real(type) ? bits_of_real(type, number) : static_cast<int64_t>(number)}, type);
  }
  void store(Ref ref) {
    const LoopValue& value = loops.values[static_cast<size_t>(ref)];
    TensorForm form = element_form(value.type);
    if (value.place != Place::element) form.kind = TensorForm::Kind::row, form.rank = 1, form.trailing = {};
    if (value.type == Type::record) form.kind = TensorForm::Kind::record, form.rank = 2, form.words = value.slots / 4;
    loops.outputs.push_back({ref, form});
  }
};

/// The types for which an operand of this letter is tried: of two kinds is enough.
std::vector<Type> samples(char letter) {
  switch (letter) {
    case 'F':
      return {Type::f32, Type::f64};
    case 'S':
      return {Type::f32};
    case 'T':
      return {Type::i8, Type::f32};
    case 'D':
      return {Type::i64, Type::f32};
    case 'W':
      return {Type::boolean, Type::u8};
    default:
      return {Type::boolean, Type::f32};
  }
}
constexpr Type all_samples[] = {Type::boolean, Type::u8, Type::i8, Type::i64, Type::f32, Type::f64};

std::vector<int64_t> numbers_of(Opcode opcode) {
  if (opcode == Opcode::record_push) return {4, 1, 3, 24};
  if (opcode == Opcode::record_merge) return {4, 24};
  return std::vector<int64_t>(row_of(opcode).numbers, 1);
}

/// What is left to ask for, of opcodes whose signature says so.
std::vector<Type> asked_types(Opcode opcode, Type from) {
  switch (opcode) {
    case Opcode::convert:
      return is_real(from) ? std::vector{Type::f32, Type::f64} : std::vector{Type::i16, Type::f32};
    case Opcode::truncate:
      return {Type::u8, Type::i32, Type::i64};
    case Opcode::whole_as_real:
      return {Type::f32, Type::f64};
    case Opcode::magnitude_bits:
      return {from == Type::f64 ? Type::i64 : Type::i32};
    default:
      return {};
  }
}

/// Every opcode of every letter's types, each as an output. `done`: the names of those that are there.
Made all_opcodes(std::set<std::string>& done) {
  Made made;
  std::map<Type, std::pair<Ref, Ref>> elements;
  for (const Type type : all_samples) elements[type] = {made.element(type), made.element(type)};
  TensorForm row_form;
  row_form.kind = TensorForm::Kind::row, row_form.dtype = at::kBool, row_form.rank = 1;
  const Ref row = made.input(row_form, Type::boolean), record = made.record(), other = made.record();
  const auto emitted = [&](Ref ref, Opcode opcode) { made.store(ref), done.insert(row_of(opcode).name); };

  LoopValue largest, found;
  largest.kind = LoopValue::Kind::reduce, largest.join = Join::largest, largest.type = Type::i32;
  largest.operands = {made.map(Opcode::magnitude_bits, {elements[Type::f32].first}, {}, Type::i32)};
  found.kind = LoopValue::Kind::classify, found.type = Type::non_finite;
  found.operands = {elements[Type::f32].first, made.add(largest)};
  const Ref non_finite = made.add(found);

  for (size_t i = 0; i < opcode_rows().size(); ++i) {
    const auto opcode = static_cast<Opcode>(i);
    const OpcodeRow& info = row_of(opcode);
    if (info.is_leaf()) {
      if (opcode == Opcode::record_empty) emitted(made.map(opcode, {}, {4}), opcode);
      if (opcode == Opcode::literal)
        for (const Type type : all_samples) {
          LoopValue copy;  // in all positions
          copy.opcode = Opcode::copy, copy.type = type, copy.dtype = dtype_of(type);
          copy.place = Place::element, copy.extent = 0, copy.operands = {made.literal(type, 1)};
          emitted(made.add(copy), opcode);
        }
      if (opcode == Opcode::count)
        emitted(made.map(Opcode::add, {made.map(opcode, {}, {0}), elements[Type::i64].first}), opcode);
      if (opcode == Opcode::position) {
        const Ref position = made.map(opcode, {}, {-1});
        LoopValue& value = made.loops.values.back();
        value.place = Place::element, value.extent = 0;
        emitted(made.map(Opcode::add, {position, elements[Type::i64].first}), opcode);
      }
      continue;
    }
    const size_t letter = info.signature.find_first_not_of("bRN");
    const bool of_rows = info.signature.find_first_of("RN") != std::string_view::npos;
    const std::vector<Type> types =
        letter < info.arity() ? samples(info.signature[letter]) : std::vector{Type::boolean};
    for (const Type type : types) {
      if ((of_rows && type != types.front()) || (info.slow && type == Type::f64))
        continue;  // numbers_test.cpp has these
      int taken = 0;
      std::vector<Ref> operands;
      for (const char one : info.signature.substr(0, info.arity())) {
        const Type own = one == 'b' ? Type::boolean : type;
        const bool row_condition = one == 'b' && (opcode == Opcode::pick || of_rows);
        operands.push_back(one == 'R'                 ? (taken++ ? other : record)
                           : one == 'N'               ? non_finite
                           : row_condition            ? row
                           : one == 'W' && of_rows    ? made.literal(Type::i32, 3)
                           : one == 'D' && taken == 1 ? made.literal(own, 3)  // what is left over in a vector is 0
                           : taken++ % 2              ? elements[own].second
                                                      : elements[own].first);
      }
      const auto asked = info.signature.back() == '?' ? asked_types(opcode, type) : std::vector<Type>{type};
      for (const Type to : asked)
        emitted(made.map(opcode, operands, numbers_of(opcode),
                         info.signature.back() == '?' ? std::optional(to) : std::nullopt),
                opcode);
    }
  }
  return made;
}

/// The bytes of all outputs of `rows` rows of inputs that hold small numbers, by a kernel or by a tape.
std::vector<std::string> results_of(const Loops& loops, Lanes lanes, int64_t rows, bool by_tape = false) {
  const Emitted emitted = emit(loops, lanes);
  const auto kernel = kernel_of(emitted.source);
  kernel->wait();
  REQUIRE_MESSAGE((kernel->function() != nullptr), emitted.source.substr(emitted.source.find("extern \"C\"")));
  const auto bytes = [](const TensorForm& form) {
    const int64_t count = form.kind == TensorForm::Kind::element ? Made::positions : std::max<int64_t>(1, form.words);
    return static_cast<size_t>(count) * c10::elementSize(form.dtype);
  };
  std::vector<std::string> in, out;
  std::vector<const void*> from;
  std::vector<void*> to;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < loops.inputs.size(); ++i) {
    const TensorForm& form = loops.inputs[i].form;
    const int64_t count = rows * static_cast<int64_t>(bytes(form) / c10::elementSize(form.dtype));
    at::Tensor data = (at::arange(count, at::kDouble) * 0.37 + static_cast<double>(i)).remainder(3) + 1;
    if (form.dtype == at::kBool) data = data.gt(2);
    if (form.kind == TensorForm::Kind::record) data = data.mul(0x41);
    data = data.to(form.dtype);
    in.emplace_back(static_cast<const char*>(data.data_ptr()), data.nbytes());
    strides.push_back(static_cast<int64_t>(bytes(form)));
  }
  for (const LoopOutput& output : loops.outputs) out.emplace_back(bytes(output.form) * static_cast<size_t>(rows), '\0');
  for (const std::string& one : in) from.push_back(one.data());
  for (std::string& one : out) to.push_back(one.data());
  const int64_t extents[] = {Made::positions};
  int64_t longest = 0;
  for (const ScratchSize& size : emitted.scratch_sizes) longest = std::max(longest, size_of(size, extents));
  const auto tape = Tape::make(loops, lanes);
  REQUIRE(tape);
  std::vector<double> scratch(static_cast<size_t>(emitted.scratch_rows * longest + tape->scratch_bytes(extents)) + 8);
  const Call call{from.data(), strides.data(), to.data(), extents, reinterpret_cast<char*>(scratch.data())};
  by_tape ? tape->run(call, 0, rows) : kernel->function()(&call, 0, rows);
  return out;
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
  const std::string source = emit(parts[0].loops).source;
  return source.substr(source.find("extern \"C\""));
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

TEST_CASE("every opcode compiles for each of its types, and makes the same bits whichever way lanes are given") {
  std::set<std::string> done;
  const Made made = all_opcodes(done);
  for (const OpcodeRow& row : opcode_rows()) CHECK_MESSAGE(done.count(row.name), std::string(row.name));
  const auto by_position = results_of(made.loops, Lanes::positions, 19),
             by_row = results_of(made.loops, Lanes::rows, 19);
  for (size_t i = 0; i < by_position.size(); ++i) {
    const LoopValue& value = made.loops.values[static_cast<size_t>(made.loops.outputs[i].value)];
    CHECK_MESSAGE(by_position[i] == by_row[i],
                  row_of(value.opcode).name << " to " << name_of(value.type) << ", output " << i);
  }
}

TEST_CASE("every opcode has a step for each of its types, which makes the bits of the kernel") {
  std::set<std::string> done;
  const Made made = all_opcodes(done);
  for (const Lanes lanes : {Lanes::positions, Lanes::rows}) {
    const auto kernel = results_of(made.loops, lanes, 19), tape = results_of(made.loops, lanes, 19, /*by_tape=*/true);
    for (size_t i = 0; i < kernel.size(); ++i) {
      const LoopValue& value = made.loops.values[static_cast<size_t>(made.loops.outputs[i].value)];
      CHECK_MESSAGE(kernel[i] == tape[i],
                    row_of(value.opcode).name << " to " << name_of(value.type) << ", output " << i);
    }
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
      const Formula::Step& step = formula.steps[index];
      if (step.kind == Formula::Step::Kind::operand) return std::string(1, static_cast<char>('a' + step.operand));
      if (step.kind == Formula::Step::Kind::number) return fmt::format("{}", step.number);
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
  for (const auto& [text, message] : faults) {
    CAPTURE(text);
    CHECK_THROWS_WITH_AS(parse_formula(text), doctest::Contains(message), GraphError);
  }
}

TEST_CASE("equal values are one by what they are, not by how they are written") {
  Made made;
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
  Made made;
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

TEST_CASE("a formula is one line of a kernel, rounded once") {
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
  Made made;
  const Ref x = made.element(Type::i8), y = made.element(Type::i8);
  const Ref sum = made.map(Opcode::add, {x, y});
  made.loops.values.back().inner = true;
  made.store(made.map(Opcode::lt, {sum, y}));
  const std::string source = emit(made.loops).source;
  CHECK(source.find("= int8_t(v0 + v1) < v1;") != std::string::npos);
}

TEST_CASE("the text of a kernel grows with its operators, and no line with the chain that they are") {
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
