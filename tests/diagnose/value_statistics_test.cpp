// Counts of values: against ATen's, in every form of memory, and what is written of them.
#include <ATen/ATen.h>
#include <triage/error.h>
#include <triage/flags.h>
#include <triage/instrument.h>
#include <triage/value_statistics.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "runtime/diagnose/statistics/value_counts.h"
#include "runtime/flags/kernels/isa.h"
#include "tests/diagnose/script_model.h"

#include <doctest/doctest.h>

namespace {

using triage::ValueCollector;
using triage::ValueStatistics;
using triage::diagnose::count_on_device;
using triage::diagnose::count_values;
using triage::diagnose::merge_from_device;
using triage::diagnose::ValueCounts;
using triage::flags::cpu::chosen_isa;
using triage::flags::cpu::Isa;
using triage::flags::cpu::machine_isa;

const at::ScalarType float_dtypes[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};

double limit_by_hand(at::ScalarType dtype) {
  if (dtype == at::kHalf) return 65504;
  if (dtype == at::kBFloat16) return std::ldexp(255.0, 120);
  return dtype == at::kFloat ? std::numeric_limits<float>::max() : std::numeric_limits<double>::max();
}

/// One value at a time.
ValueCounts counted_by_hand(const at::Tensor& tensor) {
  const double limit = limit_by_hand(tensor.scalar_type());
  const at::Tensor values = tensor.to(at::kDouble).contiguous().flatten();
  ValueCounts counts;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.data_ptr<double>()[i], size = std::fabs(value);
    ++counts.values;
    counts.zeros += value == 0;
    counts.nan += std::isnan(value);
    counts.inf += std::isinf(value);
    counts.near_limit += size >= limit / 16;
    counts.saturated += size >= limit;
    if (!std::isfinite(value)) continue;
    counts.least = std::min(counts.least, value);
    counts.most = std::max(counts.most, value);
  }
  return counts;
}

bool same(const ValueCounts& a, const ValueCounts& b) {
  return a.least == b.least && a.most == b.most && a.values == b.values && a.zeros == b.zeros &&
         a.near_limit == b.near_limit && a.saturated == b.saturated && a.nan == b.nan && a.inf == b.inf;
}

at::Tensor any_bits(int64_t count, at::ScalarType dtype) {
  const auto bytes = count * static_cast<int64_t>(c10::elementSize(dtype));
  return at::randint(0, 256, {bytes}, at::kByte).view(dtype);
}

/// Numbers of every size, few of which are extreme.
at::Tensor mild_values(int64_t count, at::ScalarType dtype) {
  at::Tensor values = at::randn({count}).mul(3).to(dtype);
  const double extremes[] = {0.0, -0.0, NAN, INFINITY, -INFINITY, limit_by_hand(dtype), -limit_by_hand(dtype) / 16};
  for (size_t i = 0; i < std::size(extremes); ++i)
    if (const auto at = static_cast<int64_t>(i) * 977 + 5; at < count) values[at] = extremes[i];
  return values;
}

struct WithIsa {
  explicit WithIsa(Isa isa) { chosen_isa = isa; }
  ~WithIsa() { chosen_isa = machine_isa(); }
};

const ValueStatistics& row_of(const std::vector<ValueStatistics>& all, std::string_view location) {
  for (const ValueStatistics& one : all)
    if (one.location == location) return one;
  FAIL("no row " << location);
  return all.at(0);
}

}  // namespace

TEST_CASE("values are counted as one by one, in each build of the loops") {
  at::manual_seed(0);
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    if (isa > machine_isa()) continue;
    const WithIsa with(isa);
    for (const at::ScalarType dtype : float_dtypes)
      for (const int64_t count : {1, 2, 31, 33, 4095, 4096, 4097, 9001}) {
        CAPTURE(static_cast<int>(isa));
        CAPTURE(static_cast<int>(dtype));
        CAPTURE(count);
        for (const at::Tensor& values : {any_bits(count, dtype), mild_values(count, dtype), at::zeros({count}, dtype),
                                         at::full({count}, NAN, dtype), at::full({count}, -INFINITY, dtype)})
          CHECK(same(count_values(values), counted_by_hand(values)));
      }
  }
}

TEST_CASE("values are counted whatever the form of their memory") {
  at::manual_seed(1);
  for (const at::ScalarType dtype : float_dtypes) {
    const at::Tensor values = mild_values(60 * 70, dtype).view({60, 70});
    for (const at::Tensor& form :
         {values.t(), values.slice(1, 3, 60, 2), values[7].expand({5, 70}), values.slice(0, 9, 9),
          values.view({6, 10, 70}).permute({2, 0, 1}), values[0][5], values.requires_grad_()})
      CHECK(same(count_values(form), counted_by_hand(form.detach())));
  }
  const at::Tensor many = mild_values(300'000, at::kFloat);  // several threads
  CHECK(same(count_values(many), counted_by_hand(many)));
}

TEST_CASE("counts that stay on a device are those of the CPU") {
  at::manual_seed(2);
  for (const at::ScalarType dtype : float_dtypes) {
    ValueCounts all, expected;
    std::vector<at::Tensor> pending;
    for (const int64_t count : {1, 40, 5000}) {
      const at::Tensor values = mild_values(count, dtype);
      pending.push_back(count_on_device(values));
      expected.merge(counted_by_hand(values));
    }
    merge_from_device(all, pending);
    all.values = expected.values;  // which need no device
    CHECK(same(all, expected));
  }
}

TEST_CASE("a collector counts batches, values and dtypes of a location") {
  ValueCollector collector;
  {
    ValueCollector::Batch batch(collector);
    CHECK_FALSE(batch.add("a", at::ones({2, 3})));
    CHECK_FALSE(batch.add("a", at::full({4}, -2.0)));  // a module that is called twice
    CHECK(batch.add("a", at::full({1}, INFINITY, at::kHalf)));
    CHECK_FALSE(batch.add("ids", at::ones({2}, at::kLong)));
    CHECK_FALSE(batch.add("mask", at::ones({2}, at::kBool)));
    CHECK_FALSE(batch.add("none", at::Tensor()));
  }
  collector.add("a", at::zeros({0, 3}));
  collector.add("z", at::complex(at::full({2}, 3.0), at::full({2}, NAN)));
  const auto all = collector.statistics();
  REQUIRE(all.size() == 3);
  CHECK(all[0].dtype == "float16");
  CHECK(all[0].inf == 1);
  CHECK_FALSE(all[0].minimum);
  CHECK(all[0].largest() == 0);
  CHECK(all[0].limit == 65504);
  const ValueStatistics& z = row_of(all, "z");
  CHECK(z.dtype == "float32");
  CHECK(z.values == 4);
  CHECK(z.nan == 2);
  CHECK(z.maximum == 3.0);
  const ValueStatistics& a = all[2];
  CHECK(a.batches == 2);
  CHECK(a.values == 10);
  CHECK(a.minimum == -2.0);
  CHECK(a.maximum == 1.0);
  CHECK(a.largest() == 2.0);
  CHECK_THROWS_AS(collector.add("meta", at::empty({2}, at::kMeta)), triage::InputError);
}

TEST_CASE("statistics begin with what comes nearest to the limit of its dtype") {
  ValueCollector collector;
  collector.add("wide", at::full({2}, 1e6));
  collector.add("half", at::full({2}, -40000.0, at::kHalf));
  collector.add("small", at::full({2}, 40.0, at::kHalf));
  collector.add("over", at::full({2}, INFINITY));
  collector.add("brain", at::full({2}, 40000.0, at::kBFloat16));
  std::vector<std::string> order;
  for (const ValueStatistics& one : collector.statistics()) order.push_back(one.location);
  CHECK(order == std::vector<std::string>{"over", "half", "small", "wide", "brain"});
}

TEST_CASE("statistics can be reset while a batch runs, and copies share them") {
  ValueCollector collector;
  const ValueCollector copy = collector;
  ValueCollector::Batch batch(collector);
  batch.add("a", at::ones({2}));
  CHECK(copy.statistics().at(0).values == 2);
  collector.reset();
  CHECK(copy.statistics().empty());
  batch.add("a", at::ones({3}));
  CHECK(copy.statistics().at(0).values == 3);
  CHECK(copy.statistics().at(0).batches == 1);
}

TEST_CASE("threads count into one collector while another reads it") {
  ValueCollector collector;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([collector, t]() mutable {
      for (int i = 0; i < 50; ++i) {
        ValueCollector::Batch batch(collector);
        batch.add("shared", at::full({8}, static_cast<double>(t)));
        batch.add("own." + std::to_string(t), at::zeros({3}));
      }
    });
  for (int i = 0; i < 50; ++i)
    for (const ValueStatistics& one : collector.statistics()) CHECK(one.values <= 1600);
  for (std::thread& thread : threads) thread.join();
  const auto all = collector.statistics();
  CHECK(all.size() == 5);
  CHECK(row_of(all, "shared").values == 1600);
  CHECK(row_of(all, "shared").batches == 200);
  CHECK(row_of(all, "own.3").zeros == 150);
}

TEST_CASE("statistics as a table, JSON and metrics; names do not leave their place") {
  ValueCollector collector;
  collector.add("half", at::tensor({65504.0, 0.0, -1.0, 5000.0}).to(at::kHalf));
  collector.add("odd\"\\\n|name", at::full({1}, NAN, at::kDouble));
  const auto all = collector.statistics();
  CHECK(triage::value_statistics_text(all) ==
        "location      dtype    batches  values  min    max  of limit  near limit  saturated    zero  NaN  Inf\n"
        "half          float16        1       4   -1  65504   100.0 %      50.0 %     25.0 %  25.0 %    0    0\n"
        "odd\"\\\\n|name  float64        1       1    -      -       0 %         0 %        0 %     0 %    1    0\n");
  const auto json = nlohmann::json::parse(triage::value_statistics_json(all))["statistics"];
  REQUIRE(json.size() == 2);
  CHECK(json[0]["max"] == 65504.0);
  CHECK(json[0]["of_limit"] == 1.0);
  CHECK(json[0]["saturated"] == 1);
  CHECK(json[1]["location"] == "odd\"\\\n|name");
  CHECK(json[1]["min"].is_null());
  CHECK(json[1]["limit"] == std::numeric_limits<double>::max());
  const std::string metrics = triage::value_statistics_metrics(all);
  const auto has = [&](const std::string& line) { return metrics.find("\n" + line + "\n") != std::string::npos; };
  CHECK(has("# TYPE triage_values_total counter"));
  CHECK(has("triage_values_total{location=\"half\",dtype=\"float16\"} 4"));
  CHECK(has("triage_value_of_limit{location=\"half\",dtype=\"float16\"} 1"));
  CHECK(has("triage_value_near_limit_total{location=\"half\",dtype=\"float16\"} 2"));
  CHECK(has("triage_value_nan_total{location=\"odd\\\"\\\\\\\\n|name\",dtype=\"float64\"} 1"));
  CHECK_FALSE(has("triage_value_max{location=\"odd\\\"\\\\\\\\n|name\",dtype=\"float64\"} 0"));
  CHECK(triage::value_statistics_json({}) == "{\"statistics\":[]}\n");
}

TEST_CASE("instrument with statistics: the same outputs and flags, and the values of each module") {
  triage::ErrorLocation::reset();
  const torch::jit::Module model = triage::testing::network();
  const auto plain = triage::instrument(model, {.every = 2});
  const auto counted = triage::instrument(model, {.benign = {}, .every = 2, .statistics = true});
  at::manual_seed(3);
  for (int call = 0; call < 4; ++call) {
    const at::Tensor x = at::randn({6, 4});
    const auto expected = plain({x, 1.0}), result = counted({x, 1.0});
    CHECK(result.checked == (call % 2 == 0));
    CHECK(at::equal(result.flags, expected.flags));
    CHECK(triage::testing::same_bits(result.output.toTupleRef().elements()[0].toTensor(),
                                     expected.output.toTupleRef().elements()[0].toTensor()));
    CHECK(result.unlooked == expected.unlooked);
  }
  const auto all = counted.statistics();
  CHECK(all.size() == 9);
  CHECK(row_of(all, "first.0").batches == 2);
  CHECK(row_of(all, "first.1").zeros > 0);  // of ReLU
  CHECK(row_of(all, "first.0").values == 2 * 6 * 8);
  CHECK(row_of(all, "root").values == 2 * 2 * 6 * 4);  // a tuple of a tensor and a dictionary
  CHECK(row_of(all, "root").nan > 0);
  CHECK(row_of(all, "first.2").nan == 0);
  counted.reset_statistics();
  CHECK(counted.statistics().empty());
  counted({at::randn({0, 4}), 1.0});
  CHECK(row_of(counted.statistics(), "root").batches == 1);
  CHECK(row_of(counted.statistics(), "root").values == 0);
  CHECK_THROWS_AS(plain.statistics(), triage::InputError);
  CHECK_THROWS_AS(plain.reset_statistics(), triage::InputError);
}

TEST_CASE("instrument counts modules without parameters by their paths, and flags only the others") {
  triage::ErrorLocation::reset();
  using triage::testing::script;
  const torch::jit::Module relu = triage::testing::relu();
  const torch::jit::Module scale = script("Scale", R"(
    def forward(self, x):
        return x * self.weight
  )",
                                          {}, {{"weight", at::ones({4})}});
  const torch::jit::Module model = script("Net", R"(
    def forward(self, x):
        return self.again.forward(self.relu.forward(self.scale.forward(x)))
  )",
                                          {{"scale", scale}, {"relu", relu}, {"again", relu}});
  const auto counted = triage::instrument(model, {.track = {.prefix = "net"}, .statistics = true});
  const auto result = counted({at::full({2, 4}, std::numeric_limits<double>::quiet_NaN())});
  const auto all = counted.statistics();
  CHECK(all.size() == 3);
  CHECK(row_of(all, "net").nan == 8);
  CHECK(row_of(all, "net.scale").nan == 8);
  CHECK(row_of(all, "net.relu").nan == 16);  // called under two names
  CHECK(counted.locations().size() == 2);
  CHECK(counted.unseen().empty());
  CHECK(triage::flags::repr(result.flags) == "ErrorFlags(2 samples, 4 errors: 4xNAN @ net, net.scale)");
}

TEST_CASE("instrument counts benign locations, and outputs that are no samples") {
  triage::ErrorLocation::reset();
  const torch::jit::Module summing = triage::testing::script("Sum", R"(
    def forward(self, x):
        return ((x * self.weight).half().sum(), x.long())
  )",
                                                             {}, {{"weight", at::ones({4})}});
  const auto model = triage::instrument(summing, {.benign = {{}}, .statistics = true});
  const auto result = model({at::full({3, 4}, 5000.0)});
  CHECK_FALSE(triage::has_err(result.flags));
  const auto all = model.statistics();
  REQUIRE(all.size() == 1);
  CHECK(all[0].dtype == "float16");
  CHECK(all[0].maximum == 60000.0);
  CHECK(all[0].near_limit == 1);
  CHECK(all[0].saturated == 0);
}
