// Every program in every mode gives the bits of the plain script, at every batch size, dense and strided.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/error.h>

#include <cstring>

#include "programs.h"

namespace triage::parity {
namespace {

constexpr int64_t batches[] = {0, 1, 2, 31, 32, 33};

/// Equal in dtype, shape and every bit; NaNs equal whatever their sign and payload.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const auto canonical = [](const at::Tensor& x) {
    const bool data = at::isFloatingType(x.scalar_type()) && x.dim() != 2;
    return data ? at::where(x.isnan(), at::full({}, std::numeric_limits<double>::quiet_NaN(), x.options()), x)
                      .contiguous()
                : x.contiguous();
  };
  const at::Tensor x = canonical(a.detach()), y = canonical(b.detach());
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// What a fused loop may differ in: sums are added up in another order, exp and its kind are other polynomials.
bool close(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && at::isFloatingType(a.scalar_type()) &&
         at::allclose(a.to(at::kDouble), b.to(at::kDouble), 2e-6, 1e-6, /*equal_nan=*/true);
}

std::string difference(const Tensors& expected, const Tensors& got, bool exact = true) {
  if (expected.size() != got.size()) return std::to_string(got.size()) + " results";
  for (size_t i = 0; i < got.size(); ++i)
    if (!same_bits(expected[i], got[i]) && (exact || !close(expected[i], got[i]))) return "result " + std::to_string(i);
  return "";
}

Tensors run_or_tell(const Mode& mode, const Program& program, const Tensors& given, const Tensors& warm_up) {
  try {
    return mode.run(program, given, warm_up);
  } catch (const std::exception& error) {
    FAIL_CHECK(program.name << ", " << mode.name << ": " << std::string(error.what()));
    return {};
  }
}

}  // namespace

TEST_CASE("T01 T03 T04 T05 T06 T07 T08 T09 T10 T11 T12 T14 T15 T26 T27 T32 T33 T34: every program in every mode") {
  REQUIRE(programs().size() > 30);
  for (const Program& program : programs()) {
    const auto names = input_names(program);
    for (const bool strided : {false, true}) {
      for (const int64_t n : batches) {
        const Tensors given = inputs(names, n, strided), warm_up = inputs(names, 5, strided);
        const Tensors expected = run_script(program, given);
        for (const Mode& mode : modes()) {
          if (mode.needs_graph && program.breaks) continue;
          const std::string differs = difference(expected, run_or_tell(mode, program, given, warm_up), mode.exact);
          CHECK_MESSAGE(differs.empty(), program.name << ", " << mode.name << ", " << n << " samples"
                                                      << std::string(strided ? ", strided: " : ": ") << differs
                                                      << " differs");
        }
      }
    }
  }
}

TEST_CASE("T04 T05 T06 T07 T08 T09 T10 T11 T12 T14 T26: C++ hosts get what scripts get") {
  for (const Twin& twin : twins()) {
    const Program& same = program(twin.name);
    for (const int64_t n : batches) {
      const Tensors given = inputs(input_names(same), n, n % 2 == 1);
      const std::string differs = difference(run_script(same, given), twin.run(given));
      CHECK_MESSAGE(differs.empty(), twin.name << ", " << n << " samples: " << differs << " differs");
    }
  }
}

}  // namespace triage::parity
