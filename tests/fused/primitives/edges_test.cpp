// The edges of rows tell exactly what a look at each float does, in every instruction set; steps that watch make the
// bits of those that do not.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <runtime/backends/fused/tape/merges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "tests/fused/primitives/tape_sets.h"

namespace triage::fused {
namespace {

using Floats = std::vector<float>;

const Floats& special() {
  using Limits = std::numeric_limits<float>;
  static const Floats all{0.0F,
                          -0.0F,
                          1.0F,
                          -1.0F,
                          std::nextafter(1.0F, 2.0F),
                          2.0F,
                          -2.0F,
                          Limits::denorm_min(),
                          -Limits::denorm_min(),
                          Limits::max(),
                          Limits::lowest(),
                          Limits::infinity(),
                          -Limits::infinity(),
                          Limits::quiet_NaN(),
                          -Limits::quiet_NaN()};
  return all;
}

constexpr EdgeQuestion questions[] = {EdgeQuestion::magnitude, EdgeQuestion::below, EdgeQuestion::above,
                                      EdgeQuestion::outside,   EdgeQuestion::nan,   EdgeQuestion::not_finite};

int32_t looked_at(EdgeQuestion question, const Floats& row, float first, float second) {
  int32_t found = question == EdgeQuestion::magnitude ? std::numeric_limits<int32_t>::min() : 0;
  for (const float x : row) {
    int32_t bits = 0;
    std::memcpy(&bits, &x, sizeof(bits));
    switch (question) {
      case EdgeQuestion::magnitude:
        found = std::max(found, bits & 0x7FFFFFFF);
        break;
      case EdgeQuestion::below:
        found |= !(x >= first);
        break;
      case EdgeQuestion::above:
        found |= !(x <= first);
        break;
      case EdgeQuestion::outside:
        found |= !(x >= first && x <= second);
        break;
      case EdgeQuestion::nan:
        found |= std::isnan(x);
        break;
      case EdgeQuestion::not_finite:
        found |= !std::isfinite(x);
        break;
    }
  }
  return found;
}

struct Found {
  int32_t highest = 0;
  uint32_t farthest = 0, nearest = 0;
  EdgeTotals totals() { return {&highest, &farthest, &nearest}; }
};

int32_t told(const EdgeSteps& steps, EdgeQuestion question, Found found, float first, float second) {
  const void* const bounds[] = {&first, &second};
  int32_t answer = -1;
  steps.answer(question, &answer, found.totals(), 1, bounds);
  return answer;
}

Found edges_of(const EdgeSteps& steps, const Floats& row, float* stored = nullptr) {
  Found found;
  steps.start(found.totals(), 1);
  const size_t half = row.size() / 2;
  for (const auto& [begin, end] : {std::pair{size_t{0}, half}, {half, row.size()}}) {
    JoinedRows rows{};
    rows.count = 1, rows.from.in[0] = row.data() + begin, rows.stored = stored ? stored + begin : nullptr;
    steps.join(rows, found.totals(), static_cast<int64_t>(end - begin));
  }
  return found;
}

void tells_what_a_look_does(const EdgeSteps& steps, const Floats& row) {
  Floats stored(row.size() + 1, 7.0F);
  const Found found = edges_of(steps, row, stored.data());
  CHECK((row.empty() || std::memcmp(stored.data(), row.data(), row.size() * sizeof(float)) == 0));
  CHECK(stored.back() == 7.0F);
  const Found again = edges_of(steps, row);
  CHECK((again.highest == found.highest && again.farthest == found.farthest && again.nearest == found.nearest));
  for (const EdgeQuestion question : questions)
    for (const float first : special())
      for (const float second : special()) {
        if (question != EdgeQuestion::outside && &second != &special().front()) continue;
        const int32_t expected = looked_at(question, row, first, second);
        if (told(steps, question, found, first, second) == expected) continue;
        FAIL_CHECK("question " << static_cast<int>(question) << " between " << first << " and " << second << " of "
                               << row.size() << " floats is not answered by " << expected);
      }
}

/// Calls `act` with each operand list of a step of so many operands, each of which has `n` floats: few are special.
void with_operands(size_t arity, int64_t n, uint32_t seed,
                   const std::function<void(const std::vector<Floats>&, bool tame)>& act) {
  std::mt19937 random(seed);
  for (const uint32_t rare : {1U, 40U, 0U}) {
    std::vector<Floats> operands(arity, Floats(static_cast<size_t>(n)));
    for (Floats& operand : operands)
      for (float& x : operand)
        x = rare > 0 && random() % rare == 0 ? special()[random() % special().size()]
                                             : static_cast<float>(random() % 1000) / 250.0F - (rare ? 2.0F : 0.0F);
    act(operands, rare == 0);
  }
}

/// The bits but for those of NaN: which of two operands it comes of, no compiler promises.
bool same_floats(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return a.size() == b.size();
}

/// `watched` does what `plain` does, and finds edges that what it makes is within; exactly its edges, where it looks
/// for all.
void watches(const EdgeSteps& steps, MapStep plain, WatchedStep watched, Watching what, const void* const* in,
             int64_t n, const std::string& name) {
  Floats expected(static_cast<size_t>(n)), got(static_cast<size_t>(n));
  plain(expected.data(), in, n, nullptr);
  alignas(64) char lanes[edge_lanes_bytes];
  steps.start_lanes(what, lanes);
  watched(got.data(), in, n, lanes);
  CHECK_MESSAGE(same_floats(expected, got), name);
  Found found;
  steps.finish_lanes(what, found.totals(), lanes);
  for (const EdgeQuestion question : questions) {
    const bool is_bounded =
        question == EdgeQuestion::below || question == EdgeQuestion::above || question == EdgeQuestion::outside;
    if (is_bounded && what == Watching::finite) continue;
    for (const float first : {-2.0F, -0.0F, 0.0F, 1.0F})
      for (const float second : {0.0F, 1.0F, 2.0F, std::numeric_limits<float>::infinity()}) {
        const int32_t says = told(steps, question, found, first, second), is = looked_at(question, got, first, second);
        const auto finds = [&](int32_t answer) {
          return question == EdgeQuestion::magnitude ? answer >= 0x7F800000 : answer != 0;
        };
        CHECK_MESSAGE((what == Watching::edges ? says == is : finds(says) || !finds(is)),
                      name << ", question " << static_cast<int>(question));
      }
  }
}

constexpr Watching all_watching[] = {Watching::edges, Watching::far_edge, Watching::finite};

}  // namespace

TEST_CASE("edges of a row tell what a look at each float does: of special floats, in any number and place") {
  std::mt19937 random(1);
  for (const Primitives* set : sets_to_try()) {
    CAPTURE(set->name);
    tells_what_a_look_does(*set->edges, {});
    for (const float a : special())
      for (const float b : special()) tells_what_a_look_does(*set->edges, {a, b});
    for (const size_t n : {1, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 300}) {
      Floats row(n);
      for (const float usual : {0.0F, -0.0F, 1.5F, -1.5F}) {
        for (float& x : row) x = usual + (usual == 0 ? 0 : static_cast<float>(random() % 100) / 1000);
        tells_what_a_look_does(*set->edges, row);
        row[random() % n] = special()[random() % special().size()];
        row[random() % n] = special()[random() % special().size()];
        tells_what_a_look_does(*set->edges, row);
      }
    }
  }
}

TEST_CASE("every step that watches makes the bits of the one that does not, and sees all that it makes") {
  size_t count = 0;
  for (const Primitives* set : sets_to_try())
    for (const OpcodeRow& row : opcode_rows())
      for (unsigned single = 0; single < 8; ++single)
        for (const Watching what : all_watching) {
          const Opcode opcode = find_opcode(row.name).value();
          const WatchedStep watched = set->watched(opcode, single, what);
          if (!watched) continue;
          const MapStep plain = set->map(opcode, Type::f32, Type::f32, single);
          REQUIRE((plain != nullptr));
          ++count;
          for (const int64_t n : {1, 5, 16, 150})
            with_operands(row.arity(), n, single, [&](const std::vector<Floats>& operands, bool) {
              std::vector<uint8_t> condition;
              for (int64_t i = 0; i < n; ++i) condition.push_back(static_cast<uint8_t>(i % 3 == 0));
              const void* in[5] = {};
              for (size_t i = 0; i < operands.size(); ++i)
                in[i] = row.signature[i] == 'b' ? static_cast<const void*>(condition.data()) : operands[i].data();
              watches(*set->edges, plain, watched, what, in, n, std::string(set->name) + ": " + row.name);
            });
        }
  CHECK(count > 100 * sets_to_try().size());
}

TEST_CASE("every merge that watches makes the bits of the one that does not, and sees all that it makes") {
  size_t count = 0;
  for (const Primitives* set : sets_to_try())
    for (size_t merge = 0; merge < merges.size(); ++merge)
      for (const Watching what : all_watching) {
        const WatchedStep watched = set->watched_merge(merge, what);
        if (!watched) continue;
        ++count;
        for (const int64_t n : {1, 5, 16, 150})
          with_operands(merges[merge].operands.size(), n, 3, [&](const std::vector<Floats>& operands, bool) {
            const std::vector<uint8_t> condition(static_cast<size_t>(n), 1);
            const void* in[5] = {};
            for (size_t i = 0; i < operands.size(); ++i)
              in[i] =
                  merges[merge].operands[i] == 'c' ? static_cast<const void*>(condition.data()) : operands[i].data();
            watches(*set->edges, set->merged(merge, Type::f32), watched, what, in, n,
                    std::string(set->name) + ": merge " + std::to_string(merge));
          });
      }
  CHECK(count >= sets_to_try().size() * 15);
}

TEST_CASE("steps that look for less find nothing in floats that are as they should be") {
  for (const Primitives* set : sets_to_try())
    for (const Watching what : {Watching::far_edge, Watching::finite})
      for (const int64_t n : {1, 16, 150})
        with_operands(1, n, 5, [&](const std::vector<Floats>& operands, bool tame) {
          if (!tame) return;
          alignas(64) char lanes[edge_lanes_bytes];
          set->edges->start_lanes(what, lanes);
          Floats out(static_cast<size_t>(n));
          const void* const in[] = {operands[0].data()};
          set->watched(Opcode::sigmoid, 0, what)(out.data(), in, n, lanes);
          Found found;
          set->edges->finish_lanes(what, found.totals(), lanes);
          CHECK(told(*set->edges, EdgeQuestion::not_finite, found, 0, 0) == 0);
          if (what == Watching::far_edge) CHECK(told(*set->edges, EdgeQuestion::outside, found, 0, 1) == 0);
        });
}

}  // namespace triage::fused
