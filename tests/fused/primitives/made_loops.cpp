#include "tests/fused/primitives/made_loops.h"

#include <ATen/ATen.h>
#include <runtime/backends/fused/loops/gpu_text.h>
#include <runtime/backends/fused/tape/tape.h>

#include <cmath>
#include <limits>
#include <map>

#include "tests/gpu_on_host.h"

namespace triage::fused {
namespace {

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

template <class T>
at::Tensor edges_of(int64_t count, int64_t input) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> edges{T(0), T(1), Limits::max(), Limits::lowest(), T(2), T(3), T(100)};
  if constexpr (std::is_floating_point_v<T>) {
    edges.insert(edges.end(),
                 {T(-0.0), Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(),
                  Limits::min(), Limits::denorm_min(), T(-0.5), T(1.5), T(-2.5), T(88.7), T(-104)});
  } else if (Limits::is_signed) {
    edges.insert(edges.end(), {static_cast<T>(-1), static_cast<T>(-3)});
  }
  const auto kinds = static_cast<int64_t>(edges.size());
  at::Tensor data = at::empty({count}, c10::CppTypeToScalarType<T>::value);
  for (int64_t i = 0; i < count; ++i)  // of two inputs, every pair
    data.template data_ptr<T>()[i] = edges[static_cast<size_t>((input % 2 ? i / kinds : i) % kinds)];
  return data;
}

at::Tensor edges_of(at::ScalarType dtype, int64_t count, int64_t input) {
  switch (dtype) {
    case at::kByte:
      return edges_of<uint8_t>(count, input);
    case at::kChar:
      return edges_of<int8_t>(count, input);
    case at::kLong:
      return edges_of<int64_t>(count, input);
    case at::kFloat:
      return edges_of<float>(count, input);
    default:
      return edges_of<double>(count, input);
  }
}

}  // namespace

MadeLoops all_opcodes(std::set<std::string>& done) {
  MadeLoops made;
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

std::vector<std::string> results_of(const Loops& loops, const Trial& trial) {
  const int64_t rows = trial.rows, positions = loops.extents[0].sizes[0];
  const auto bytes = [&](const TensorForm& form) {
    const int64_t count = form.kind == TensorForm::Kind::element ? positions : std::max<int64_t>(1, form.words);
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
    const bool has_edges = trial.edges && form.dtype != at::kBool && form.kind != TensorForm::Kind::record;
    if (has_edges) data = edges_of(form.dtype, count, static_cast<int64_t>(i));
    in.emplace_back(static_cast<const char*>(data.data_ptr()), data.nbytes());
    strides.push_back(static_cast<int64_t>(bytes(form)));
  }
  for (const LoopOutput& output : loops.outputs) out.emplace_back(bytes(output.form) * static_cast<size_t>(rows), '\0');
  for (const std::string& one : in) from.push_back(one.data());
  for (std::string& one : out) to.push_back(one.data());
  const int64_t extents[] = {positions};
  if (trial.for_gpu) {
    const GpuSource text = emit_for_gpu(loops, trial.lanes);
    std::vector<int64_t> arguments;
    for (size_t i = 0; i < from.size(); ++i)
      arguments.insert(arguments.end(), {reinterpret_cast<int64_t>(from[i]), strides[i], 0});
    for (void* const one : to) arguments.push_back(reinterpret_cast<int64_t>(one));
    arguments.insert(arguments.end(), {positions, rows, rows});
    test::gpu_on_host().compile(at::kCPU, text.source, text.parameters)->launch({}, arguments);
    return out;
  }
  const auto tape = Tape::make(loops, trial.lanes);
  REQUIRE(tape);
  std::vector<double> scratch(static_cast<size_t>(tape->scratch_bytes(extents)) / 8 + 16);
  tape->run({from.data(), strides.data(), to.data(), extents, reinterpret_cast<char*>(scratch.data())}, 0, rows);
  return out;
}

}  // namespace triage::fused
