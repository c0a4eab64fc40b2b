// Tapes make the bits of the same loops as text: each step, merged or not, in every instruction set that this processor
// has.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/fusion_groups.h>
#include <runtime/backends/fused/tape/instructions.h>
#include <runtime/backends/fused/tape/merges.h>
#include <runtime/backends/fused/tape/tape.h>
#include <triage/flags.h>
#include <triage/graph.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "tests/fused/primitives/made_loops.h"
#include "tests/fused/primitives/tape_sets.h"
#include "tests/fused/programs.h"

namespace triage::fused {
namespace {

/// The same bits; which NaN it is that comes of two, no compiler promises.
template <class T>
bool same_reals(const std::string& a, const std::string& b, double ulps) {
  std::vector<T> x(a.size() / sizeof(T)), y(x.size());
  std::memcpy(x.data(), a.data(), a.size()), std::memcpy(y.data(), b.data(), b.size());
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i])) continue;
    if (std::memcmp(&x[i], &y[i], sizeof(T)) == 0) continue;
    const T most = static_cast<T>(ulps) * std::numeric_limits<T>::epsilon() * std::abs(x[i]);
    if (ulps == 0 || !(std::abs(x[i] - y[i]) <= most + std::numeric_limits<T>::min())) return false;
  }
  return true;
}
bool same_values(Type type, const std::string& a, const std::string& b, double ulps) {
  return a.size() == b.size() && (type == Type::f32   ? same_reals<float>(a, b, ulps)
                                  : type == Type::f64 ? same_reals<double>(a, b, ulps)
                                                      : a == b);
}

/// Compares the outputs of tapes, in every set, with those of the same loops as text for a GPU, which the CPU runs.
void tapes_agree(const MadeLoops& made, Trial trial) {
  trial.for_gpu = true;
  const auto text = results_of(made.loops, trial);
  trial.for_gpu = false;
  for (const Primitives* set : sets_to_try()) {
    const UseInstructions use(set);
    const auto tape = results_of(made.loops, trial);
    for (size_t i = 0; i < text.size(); ++i) {
      const LoopValue& value = made.loops.values[static_cast<size_t>(made.loops.outputs[i].value)];
      const double ulps =
          !rounds_once(*set) && (row_of(value.opcode).slow || value.kind == LoopValue::Kind::reduce) ? 64 : 0;
      CHECK_MESSAGE(same_values(value.type, text[i], tape[i], ulps), set->name << ": " << row_of(value.opcode).name
                                                                               << " to " << name_of(value.type)
                                                                               << ", output " << i);
    }
  }
}

/// A row of the table of merges; `all`: what is between its steps is given out too.
void add_merge(MadeLoops& made, const Merge& merge, bool all) {
  std::vector<Ref> operands, nodes;
  for (const char letter : merge.operands) {
    TensorForm row;
    row.kind = TensorForm::Kind::row, row.rank = 1;
    operands.push_back(letter == 's'   ? made.input(row, Type::f32)
                       : letter == 'c' ? made.element(Type::boolean)
                                       : made.element(Type::f32));
  }
  for (size_t k = 0; k < merge.count; ++k) {
    std::vector<Ref> in;
    for (size_t i = 0; i < row_of(merge.nodes[k].opcode).arity(); ++i) {
      const int which = merge.nodes[k].in[i];
      in.push_back(which >= 0 ? operands[static_cast<size_t>(which)] : nodes[static_cast<size_t>(-1 - which)]);
    }
    const Opcode opcode = merge.nodes[k].opcode;
    nodes.push_back(
        made.map(opcode, in, {}, opcode == Opcode::magnitude_bits ? std::optional(Type::i32) : std::nullopt));
    made.loops.values.back().expensive = row_of(opcode).slow;
    if (all || static_cast<int>(k) == merge.stored) made.store(nodes.back());
  }
  if (merge.joined < 0) return;
  LoopValue joined;
  joined.kind = LoopValue::Kind::reduce, joined.place = Place::row, joined.join = merge.join;
  joined.operands = {nodes[static_cast<size_t>(merge.joined)]};
  joined.type = merge.join == Join::any ? Type::u32 : made.loops.values[static_cast<size_t>(joined.operands[0])].type;
  joined.dtype = dtype_of(joined.type);
  made.store(made.add(joined));
}

}  // namespace

TEST_CASE("every opcode has a step for each of its types, which makes the bits of its text, at the edges too") {
  std::set<std::string> done;
  const MadeLoops made = all_opcodes(done);
  for (const Lanes lanes : {Lanes::positions, Lanes::rows})
    for (const bool edges : {false, true}) tapes_agree(made, {lanes, edges ? 80 : 19, edges});
}

TEST_CASE("every merged step makes the bits of its steps, and what others read of them is there") {
  for (const bool all : {false, true}) {
    MadeLoops made(150);
    for (const Merge& merge : merges) add_merge(made, merge, all);
    for (const bool edges : {false, true}) tapes_agree(made, {Lanes::positions, 20, edges});
  }
}

TEST_CASE("reductions over the same floats, told by their edges, make the bits of each by itself") {
  const auto any = [](MadeLoops& made, Ref condition) {
    LoopValue value;
    value.kind = LoopValue::Kind::reduce, value.place = Place::row, value.join = Join::any;
    value.operands = {condition}, value.type = Type::u32, value.dtype = dtype_of(value.type);
    made.store(made.add(value));
  };
  for (const bool watched : {false, true})
    for (const auto& [low, high] : {std::pair{0.0, 2.0}, {1.0, 3.0}, {nan, 1.0}}) {
      MadeLoops made(150);
      const Ref x = made.element(Type::f32), lowest = made.literal(Type::f32, low),
                most = made.literal(Type::f32, high);
      const Ref z = watched ? made.map(Opcode::sub, {x, made.literal(Type::f32, 1)}) : x;
      if (watched) made.store(z);
      const auto is_not = [&](Ref condition) { any(made, made.map(Opcode::logical_not, {condition})); };
      is_not(made.map(Opcode::ge, {z, lowest}));
      is_not(made.map(Opcode::le, {z, most}));
      is_not(made.map(Opcode::bit_and, {made.map(Opcode::ge, {z, lowest}), made.map(Opcode::le, {z, most})}));
      is_not(made.map(Opcode::is_finite, {z}));
      any(made, made.map(Opcode::is_nan, {z}));
      const std::string listing = text_of(Tape::make(made.loops, Lanes::positions)->listing({}));
      CHECK_MESSAGE((listing.find("edges.f32") != std::string::npos) == true, listing);
      CHECK_MESSAGE((listing.find("watched") != std::string::npos) == watched, listing);
      for (const int64_t rows : {2, 70}) tapes_agree(made, {Lanes::positions, rows, /*edges=*/true});
    }
}

TEST_CASE("merged steps are of float32 alone: those of other types stay as they are") {
  for (const Type type : {Type::boolean, Type::i8, Type::f64}) {
    MadeLoops made(150);
    const Ref a = made.element(type), b = made.element(type);
    const Ref asked[] = {made.map(Opcode::is_nan, {a}),
                         made.map(Opcode::logical_not, {made.map(Opcode::is_finite, {a})}),
                         made.map(Opcode::gt, {a, b}), made.map(Opcode::lt, {a, b})};
    for (const Ref ref : asked) {
      LoopValue any;
      any.kind = LoopValue::Kind::reduce, any.place = Place::row, any.join = Join::any, any.operands = {ref};
      any.type = Type::u32, any.dtype = dtype_of(any.type);
      made.store(made.add(any));
    }
    tapes_agree(made, {Lanes::positions, 20, /*edges=*/true});
  }
}

TEST_CASE("a merged step does not read what it took the place of") {
  for (const Lanes lanes : {Lanes::positions, Lanes::rows}) {
    MadeLoops made;
    const Ref a = made.element(Type::f32), b = made.element(Type::f32), product = made.map(Opcode::mul, {a, b});
    made.store(made.map(Opcode::add, {product, product}));
    tapes_agree(made, {lanes});
  }
}

TEST_CASE("every merge of the table is found: each is one step") {
  for (size_t i = 0; i < merges.size(); ++i) {
    MadeLoops made;
    add_merge(made, merges[i], /*all=*/false);
    const auto loads = std::count(merges[i].operands.begin(), merges[i].operands.end(), 'c');  // conditions in memory
    CHECK_MESSAGE(Tape::make(made.loops, Lanes::positions)->steps() == static_cast<size_t>(1 + loads), "merge " << i);
  }
}

TEST_CASE("tapes make the same bits with every number of OpenMP's workers, and of a row in every batch") {
  const Program program = [](const Tensors& in) {
    const Tensors clipped = zscore_clip(in);
    return Tensors{clipped[0].softmax(-1), clipped[1], in[0].flatten(1).abs().sum(-1)};
  };
  for (const int64_t columns : {7, 300, 5000}) {
    const at::Tensor z = with_bad_rows({600, columns});
    const auto tapes = compiled(program, {z});
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const Tensors alone = run(*tapes, {z});
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      const Tensors got = run(*tapes, {z}), part = run(*tapes, {z.slice(0, 13, 31)});
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(same_bits(alone[i], got[i]));
        CHECK(same_bits(alone[i].slice(0, 13, 31), part[i]));
      }
    }
    at::set_num_threads(before);
  }
}

TEST_CASE("donated: tapes write where the input was") {
  const auto donated = [](const Program& program, const at::Tensor& z) {
    const auto tapes = compiled(program, {z});
    const Tensors expected = run(*tapes, {z});
    const at::Tensor given = z.clone();
    const Tensors got = run(*tapes, {given}, {{}, {given}});
    CHECK(got[0].data_ptr() == given.data_ptr());
    for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(expected[i], got[i]));
  };
  for (const int64_t columns : {7, 37, 3000})
    for (const int64_t rows : {1, 16, 33}) {
      donated(detect_repair, with_bad_rows({rows, columns}));
      donated(zscore_clip, with_bad_rows({rows, columns}));
      donated(softmax_repair, with_bad_rows({rows, columns}));
      donated(detect_repair, with_bad_rows({rows, columns}, at::kHalf));
    }
}

TEST_CASE("the best set of instructions comes first, and baseline is in all processors") {
  const auto& sets = instruction_sets();
  CHECK(std::string_view(sets.back()->name) == "baseline");
  CHECK(&primitives() == sets.front());
  {
    const UseInstructions use(sets.back());
    CHECK(&primitives() == sets.back());
  }
  CHECK(&primitives() == sets.front());
}

TEST_CASE("rows that are searched at once have the bits of rows that are searched one by one") {
  // `bad` rows from `first` on, each `step`-th; none where it is 0. Neighbours share a search.
  struct Bad {
    int64_t first, step;
  };
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const auto batch = [&](int64_t rows, int64_t columns, Bad bad) {
    at::Tensor x = data({rows, columns});
    for (int64_t row = bad.first; bad.step > 0 && row < rows; row += bad.step) {
      x[row][columns - 1] = row % 2 ? nan : -inf;
      if (row % 3 == 0) x[row][0] = row % 2 ? inf : nan;
    }
    return x;
  };
  const auto plain_repair = [](const Tensors& in) {
    const at::Tensor bad = in[0].isfinite().logical_not().any(-1, true);
    return Tensors{at::where(bad, at::zeros({}), in[0]), bad};
  };
  for (const Program& program : {Program(detect_repair), Program(plain_repair)}) {
    for (const int64_t columns : {1, 3, 16, 17, 64, 200, 2100}) {
      const auto executable = compiled(program, {batch(4, columns, {0, 2})});
      for (const int64_t rows : {0, 1, 2, 31, 32, 33, 150}) {
        for (const Bad bad : {Bad{0, 0}, Bad{0, 1}, Bad{0, 7}, Bad{1, 40}, Bad{std::max<int64_t>(rows - 1, 0), 1}}) {
          const at::Tensor x = batch(rows, columns, bad);
          const Tensors wanted = program({x});
          const at::Tensor apart = at::cat({x, x}, -1).slice(1, 0, columns);  // rows that do not lie side by side
          for (const at::Tensor& given : {x, apart}) {
            const Tensors got = run(*executable, {given});
            INFO(rows << "x" << columns << ", bad rows from " << bad.first << " in steps of " << bad.step);
            REQUIRE(got.size() == wanted.size());
            for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], wanted[i]));
          }
        }
      }
    }
  }
}

TEST_CASE("what rows that loops make are asked for is found in each of them, however rare, in every number of rows") {
  const auto outside = [](const at::Tensor& z, double low, double high) {
    return at::logical_not((z >= low).logical_and(z <= high)).any(-1);
  };
  const auto repaired = [](const at::Tensor& x, at::Tensor& f) {
    f = flag_nan(x, 1);
    return at::where(err::is_err(f).unsqueeze(1), at::zeros({}), x);
  };
  const Program programs[] = {
      [&](const Tensors& in) {
        const at::Tensor z = in[0] * 0.5 + 1;
        return Tensors{z, outside(z, -1, 3), flag_nan_and_inf(z, 1)};
      },
      [&](const Tensors& in) {
        at::Tensor f;
        const at::Tensor z = repaired(in[0], f).clamp(-1, 1);
        return Tensors{z, f, outside(z, -1, 1), outside(z, -2, 0.5)};
      },
      [&](const Tensors& in) {
        const at::Tensor z = in[0].clamp(0, 1), half = z.to(at::kHalf);
        return Tensors{z, half, outside(z, 0, 1), outside(half, 0, 1), flag_nan_and_inf(half, 1)};
      },
      [&](const Tensors& in) {
        const at::Tensor z = in[0].abs(), y = in[0] - 1;
        return Tensors{z, outside(z, 0, 8), y, outside(y, -9, -0.0), outside(in[0], 0, 1), in[0].isnan().any(-1)};
      },
      [&](const Tensors& in) {
        const at::Tensor z = at::where((in[0].amax(-1, true) > 7), in[0], in[0] + 1);
        return Tensors{z, outside(z, -2, 3), z.isfinite().logical_not().any(-1)};
      },
  };
  for (const Program& program : programs)
    for (const int64_t columns : {1, 3, 16, 17, 64, 200, 2100}) {
      const auto executable = compiled(program, {data({4, columns})});
      for (const int64_t rows : {0, 1, 2, 31, 32, 33, 150})
        for (const float bad : {nan, inf, -inf, 8.0F, -0.0F}) {
          at::Tensor x = data({rows, columns});
          for (int64_t row = rows - 1; row >= 0; row -= 37) x[row][row % columns] = bad;
          const at::Tensor apart = at::cat({x, x}, -1).slice(1, 0, columns);
          for (const at::Tensor& given : {x, apart}) {
            const Tensors got = run(*executable, {given}), wanted = program({given});
            INFO(rows << "x" << columns << ", " << bad);
            for (size_t i = 0; i < got.size(); ++i) CHECK_MESSAGE(same_bits(got[i], wanted[i]), "result " << i);
          }
        }
    }
}

TEST_CASE("whether a record has an error that every record gets is told of every row") {
  const Program pushed = [](const Tensors& in) {
    return Tensors{in[0] * 2, err::is_err(err::push_scalar(err::new_(in[0]), err::nan, 1))};
  };
  for (const int64_t columns : {7, 200}) {
    const auto executable = compiled(pushed, {data({4, columns})});
    for (const int64_t rows : {1, 33, 150}) CHECK(run(*executable, {data({rows, columns})})[1].all().item<bool>());
  }
}

TEST_CASE("the bounds of a function decide what its results are asked for") {
  const auto asks = [](const at::Tensor& z) {
    const at::Tensor infs = flag_inf(z, 1);
    return Tensors{z, at::logical_not((z >= 0).logical_and(z <= 1)).any(-1), flag_nan_and_inf(z, 1), infs,
                   err::is_err(infs)};
  };
  const Program sigmoid = [&](const Tensors& in) { return asks(in[0].sigmoid()); };
  const Program distant = [&](const Tensors& in) { return asks(in[0].tanh()); };
  for (const auto& [program, is_known] : {std::pair{&sigmoid, true}, {&distant, false}}) {
    const auto parts = cut(graph::trace(*program, {data({4, 200})}));
    REQUIRE(parts[0].fused);
    const std::string listing = text_of(Tape::make(parts[0].loops, Lanes::positions)->listing(parts[0].loops.lines));
    CHECK_MESSAGE((listing.find("any of ge") == std::string::npos) == is_known, listing);
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const auto executable = compiled(*program, {data({4, 200}, dtype)});
      at::Tensor x = data({40, 200}, dtype);
      x[3][7] = nan, x[4][8] = inf, x[5][9] = -inf, x[39][199] = -nan;
      const Tensors got = run(*executable, {x}), wanted = (*program)({x});
      for (size_t i = 1; i < got.size(); ++i) CHECK_MESSAGE(same_bits(got[i], wanted[i]), "result " << i);
    }
  }
}

TEST_CASE(
    "loops of one level are searched each for itself: rows of one may lie side by side, and those of another apart") {
  const Program asked = [](const Tensors& in) { return Tensors{in[0].isnan().any(-1), in[1].isnan().any(-1)}; };
  for (const int64_t columns : {16, 40}) {
    const auto executable = compiled(asked, {data({4, columns}), data({4, columns - 6})});
    for (const int64_t rows : {1, 2, 20, 100}) {
      at::Tensor a = data({rows, columns}), b = data({rows, columns - 6}), one = data({1, columns - 6});
      a[rows - 1][0] = b[rows / 2][9] = one[0][3] = nan;
      const auto apart = [](const at::Tensor& x) { return at::cat({x, x}, -1).slice(1, 0, x.size(1)); };
      for (const Tensors& in : {Tensors{a, b}, Tensors{a, apart(b)}, Tensors{apart(a), b}, Tensors{apart(a), apart(b)},
                                Tensors{a, one.expand({rows, columns - 6})}}) {
        const Tensors got = run(*executable, in), wanted = asked(in);
        for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], wanted[i]));
      }
    }
  }
}

TEST_CASE("an output takes the place of no input that another reduction of its loop still reads") {
  const std::pair<Program, size_t> programs[] = {
      {[](const Tensors& in) {
         return Tensors{in[1].isnan().any(-1), in[0].clone(), in[0].isnan().any(-1)};
       },
       1},
      {[](const Tensors& in) {
         return Tensors{in[0].clone(), in[0].isnan().any(-1), in[1].isnan().any(-1)};
       },
       1},
      {[](const Tensors& in) {
         const at::Tensor far = in[0] - in[0].amax(-1, true), powers = far.exp();
         return Tensors{powers, powers.sum(-1), far.square().sum(-1)};
       },
       0}};
  for (const auto& [program, donated] : programs) {
    for (const int64_t columns : {10, 16, 40, 600}) {
      const auto executable = compiled(program, {data({4, columns}), data({4, columns})});
      for (const int64_t rows : {1, 2, 33}) {
        Tensors in{data({rows, columns}), data({rows, columns}) + 1};
        if (donated == 1) in[1][0][3] = nan;
        const Tensors wanted = program(in), given{in[donated]};
        const Tensors got = run(*executable, in, {{}, given});
        for (size_t i = 0; i < got.size(); ++i) CHECK(same(got[i], wanted[i]));
      }
    }
  }
}

TEST_CASE("what an earlier level still reads is not put off to a later one: in lanes of short rows too") {
  const Program chains = [](const Tensors& in) {
    const at::Tensor x = in[0], y = in[1], w = in[2], all = in[3], any = in[4], rows = in[5];
    const at::Tensor chosen = at::where(all, w, y);
    const at::Tensor mixed = at::where(x.amax(-1, true) != 1, x, at::where(chosen > 1, x, chosen));
    const at::Tensor kept = at::where(rows, y, at::where(any, y, chosen));
    return Tensors{kept, at::where(mixed.isnan().any(-1, true), at::where(rows, 0.0, kept), mixed)};
  };
  const at::Tensor yes = at::ones({}, at::kBool), no = at::zeros({}, at::kBool);
  for (const int64_t width : {1, 4, 16, 200})
    for (const int64_t n : {1, 2, 31, 32, 33, 100})
      for (const bool every : {false, true}) {
        const at::Tensor y = with_bad_rows({n, width});
        const Tensors inputs{with_bad_rows({n, width}), y,  y * 2 - 1,
                             every ? yes : no,          no, (at::arange(n) % 3 == 0).view({n, 1})};
        const Tensors expected = chains(inputs);
        const Tensors got = run(*compiled(chains, inputs), inputs);
        for (size_t i = 0; i < got.size(); ++i)
          CHECK_MESSAGE(same_bits(expected[i], got[i]), "result " << i << " of " << n << " rows of " << width);
      }
}

}  // namespace triage::fused
