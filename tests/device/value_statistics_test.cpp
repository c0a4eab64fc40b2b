// Values on a device: counted there, as on the CPU, and nothing waits until somebody reads the counts.
#include "tests/other_device.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/value_statistics.h>

#include <limits>

using namespace triage::test;

TEST_CASE("values of a device are counted without waiting for it, and as those of the CPU") {
  at::manual_seed(0);
  triage::ValueCollector there, here;
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    at::Tensor values = at::randn({40, 30}).mul(9000).to(dtype);
    values[1][2] = std::numeric_limits<double>::quiet_NaN();
    values[3][0] = -std::numeric_limits<double>::infinity();
    values[4] = 0;
    const at::Tensor other = to_other(values), empty = to_other(at::empty({0, 3}, dtype));
    const Calls calls = calls_of([&] {
      there.add("a", other);
      there.add("a", empty);
    });
    CHECK_MESSAGE(calls.waits.empty(), listed(calls.waits));
    here.add("a", values);
    here.add("a", at::empty({0, 3}, dtype));
  }
  CHECK(triage::value_statistics_json(there.statistics()) == triage::value_statistics_json(here.statistics()));
  CHECK(there.statistics().size() == 4);
  there.reset();
  CHECK(there.statistics().empty());
}

TEST_CASE("counts that wait on a device are added up now and then") {
  triage::ValueCollector collector;
  const at::Tensor ones = to_other(at::ones({5}));
  for (int i = 0; i < 200; ++i) collector.add("a", ones);
  const auto all = collector.statistics();
  REQUIRE(all.size() == 1);
  CHECK(all[0].values == 1000);
  CHECK(all[0].batches == 200);
  CHECK(all[0].maximum == 1.0);
}
