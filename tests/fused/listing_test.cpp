// The listing of a tape: `output_code` on the CPU.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <runtime/backends/fused/fused_group.h>
#include <runtime/backends/fused/parts/part_times.h>
#include <runtime/backends/fused/tape/merges.h>
#include <runtime/backends/fused/tape/tape.h>

#include <algorithm>
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
    const std::string text = text_of(Tape::make(made.loops, Lanes::positions)->listing({}));
    CHECK_MESSAGE(has(text, fmt::format("{} instructions\n", set->name)), text);
    CHECK_MESSAGE(has(text, "mul + add.f32"), text);
    CHECK_MESSAGE(!has(text, "  step "), text);
  }
}

TEST_CASE("every opcode, in every form of rows, has a name in the listing") {
  std::set<std::string> done;
  const MadeLoops made = all_opcodes(done);
  for (const Lanes lanes : {Lanes::positions, Lanes::rows}) {
    const std::string text = text_of(Tape::make(made.loops, lanes)->listing({}));
    CHECK(!has(text, " step "));
    for (const OpcodeRow& row : opcode_rows())
      if (!row.is_leaf()) CHECK_MESSAGE(has(text, fmt::format("  {}.", row.name)), std::string(row.name));
  }
}

namespace {

double time_of_lines(const std::vector<GraphTime>& times) {
  double sum = 0;
  for (const LineTime& line : times_of_lines(times)) sum += line.micros;
  return sum;
}

/// That of the first part with a tape.
const PartTime& part_with_tape(const GraphTime& time) {
  const auto found =
      std::find_if(time.parts.begin(), time.parts.end(), [](const PartTime& part) { return !part.listing.empty(); });
  REQUIRE(found != time.parts.end());
  return *found;
}

}  // namespace

TEST_CASE("D15: a timed call has a time for each step of a listing and each part, which add up; an untimed call none") {
  const Program program = [](const Tensors& in) {
    const at::Tensor sorted = std::get<0>((in[0] * 3).exp2().sort(-1));
    return Tensors{sorted.tanh() - sorted.sum(-1, true), in[1].exp2()};
  };
  for (const int64_t columns : {4, 300, 5000}) {  // rows in lanes, and chunks of one row
    CAPTURE(columns);
    const Tensors inputs{data({7, columns}), data({7, columns})};
    const auto executable = compiled(program, inputs);
    const Tensors untimed = run(*executable, inputs);
    const TimeCalls timing;
    CHECK(timing.times().empty());
    const Tensors timed = run(*executable, inputs);
    run(*executable, inputs);
    for (size_t i = 0; i < timed.size(); ++i) CHECK(same_bits(timed[i], untimed[i]));
    const std::vector<GraphTime> times = timing.times();
    REQUIRE(times.size() == 1);
    CHECK(times[0].calls == 2);
    double parts = 0;
    for (const PartTime& part : times[0].parts) parts += part.micros;
    CHECK(parts > 0);
    CHECK(parts <= times[0].micros);
    CHECK(time_of_lines(times) == doctest::Approx(times[0].micros));
    const PartTime& part = part_with_tape(times[0]);
    double steps = 0;
    for (const double step : part.steps) steps += step;
    CHECK(steps > 0);
    CHECK(steps <= part.micros);
    int32_t next = 0;
    for (const ListedLine& line : part.listing)
      if (line.step >= 0) CHECK(line.step == next++);
    CHECK(static_cast<size_t>(next) == part.steps.size());
    CHECK(has(text_of(times[0]), "aten::sort"));
  }
  CHECK(TimeCalls().times().empty());
}

TEST_CASE("D15: calls of other sizes are timed anew, and steps of several threads take no longer than the call") {
  const Program program = [](const Tensors& in) { return Tensors{in[0].exp2() * 3 - in[0].sum(-1, true)}; };
  const auto executable = compiled(program, {data({8, 300})});
  const TimeCalls timing;
  for (int call = 0; call < 3; ++call) run(*executable, {data({8, 300})});
  const Tensors large{data({4000, 4})};
  for (int call = 0; call < 2; ++call) run(*executable, large);
  const std::vector<GraphTime> times = timing.times();
  REQUIRE(times.size() == 1);
  CHECK(times[0].calls == 2);
  CHECK(has(part_with_tape(times[0]).listing[0].text, "tiles of 16 rows"));
  double steps = 0;
  for (const double step : part_with_tape(times[0]).steps) steps += step;
  CHECK(steps <= times[0].micros);
}

}  // namespace triage::fused
