// The listing of a tape: `output_code` on the CPU.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/fused_group.h>
#include <runtime/backends/fused/tape/merges.h>
#include <runtime/backends/fused/tape/tape.h>

#include <set>
#include <string>

#include "tests/fused/primitives/made_loops.h"
#include "tests/fused/primitives/tape_sets.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

std::string listing_of(const Program& program, const Tensors& examples) {
  const auto parts = cut(graph::trace(program, examples));
  REQUIRE(parts.size() == 1);
  REQUIRE(parts[0].fused);
  return listing_of(parts[0]);
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("D12, D14: a listing has a line a step: opcode, type, result and operands, under the loop and the level") {
  const std::string text = listing_of(
      [](const Tensors& in) {
        const at::Tensor x = in[0] * 3;
        return Tensors{(x + in[1]).exp2(), x.sum(-1)};
      },
      {data({4, 300}), data({4, 1})});
  CAPTURE(text);
  CHECK(text.rfind("tape of ", 0) == 0);
  for (const char* part : {" levels: blocks of at most 64 rows, chunks of 2048 values, ", " instructions\n",
                           "level 0\n", "  loop over [300]\n", "mul.f32", "<- in0, 3", "exp2.f32", "sum.f32", "out0"})
    CHECK_MESSAGE(has(text, part), part);
  const std::string short_rows =
      listing_of([](const Tensors& in) { return Tensors{in[0].exp2() * 3}; }, {data({4, 5})});
  CHECK_MESSAGE(has(short_rows, "  loop over [5]\n"), short_rows);
}

TEST_CASE("a listing names the opcodes that a merged step stands for, in every set of instructions") {
  for (const Primitives* set : sets_to_try()) {
    const UseInstructions use(set);
    MadeLoops made(300);
    const Ref x = made.element(Type::f32), y = made.element(Type::f32);
    made.store(made.map(Opcode::sub, {made.map(Opcode::mul, {x, y}), y}));
    made.store(made.map(Opcode::add, {made.map(Opcode::mul, {x, y}), x}));
    const std::string text = Tape::make(made.loops, Lanes::positions)->listing({});
    CHECK_MESSAGE(has(text, fmt::format("{} instructions\n", set->name)), text);
    CHECK_MESSAGE(has(text, "mul + add.f32"), text);
    CHECK_MESSAGE(!has(text, "  step "), text);
  }
}

TEST_CASE("every opcode, in every form of rows, has a name in the listing") {
  std::set<std::string> done;
  const MadeLoops made = all_opcodes(done);
  for (const Lanes lanes : {Lanes::positions, Lanes::rows}) {
    const std::string text = Tape::make(made.loops, lanes)->listing({});
    CHECK(!has(text, " step "));
    for (const OpcodeRow& row : opcode_rows())
      if (!row.is_leaf()) CHECK_MESSAGE(has(text, fmt::format("  {}.", row.name)), std::string(row.name));
  }
}

}  // namespace triage::fused
