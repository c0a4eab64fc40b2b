// T34: every dtype that this LibTorch has, found by asking it: what can hold numbers is detected, repaired and selected
// alike on both levels, and the Meta kernels foretell dtypes and shapes.
#include "levels.h"

#include <limits>

namespace triage::test {
namespace {

using at::ScalarType;

bool holds_numbers(ScalarType dtype) {
  return at::isFloatingType(dtype) || at::isComplexType(dtype) || at::isIntegralType(dtype, /*includeBool=*/true);
}

bool can_be_non_finite(ScalarType dtype) { return at::isFloatingType(dtype) || at::isComplexType(dtype); }

// Some formats cannot even be made or copied (packed pairs of 4 bits): those hold no tensor of numbers. Of unsigned
// integers, LibTorch before 2.13 does not choose.
bool is_served(ScalarType dtype) {
  try {
    const Tensor ones = at::ones({2, 2}, at::kFloat).to(dtype);
    return at::where(at::ones({2, 1}, at::kBool), ones, ones).to(at::kFloat).eq(1).all().item<bool>();
  } catch (const std::exception&) {
    return false;
  }
}

std::vector<ScalarType> dtypes() {
  std::vector<ScalarType> all;
  for (int i = 0; i < static_cast<int>(ScalarType::NumOptions); ++i) {
    const auto dtype = static_cast<ScalarType>(i);
    if (dtype != ScalarType::Undefined && holds_numbers(dtype) && is_served(dtype)) all.push_back(dtype);
  }
  return all;
}

// Small whole numbers, which every format holds; for those that can, rows with NaN, Inf, and both.
Tensor data(ScalarType dtype, int64_t n, bool strided) {
  auto z = at::arange(n * 4, at::kDouble).remainder(2).reshape({n, 4});
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (int64_t row = 0; can_be_non_finite(dtype) && row < n; ++row) {
    if (row % 4 == 1 || row % 4 == 3) z[row][row % 3] = nan;
    if (row % 4 >= 2) z[row][3] = row % 8 < 4 ? inf : -inf;
  }
  z = z.to(dtype);
  return strided ? z.t().contiguous().t() : z;
}

bool agree(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  const auto wide = [](const Tensor& x) {
    return at::isComplexType(x.scalar_type()) ? at::view_as_real(x.to(at::kComplexDouble)) : x.to(at::kDouble);
  };
  return at::allclose(wide(a), wide(b), 0, 0, /*equal_nan=*/true);
}

IValue on_meta(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const auto& x = value.toTensor();
  return at::empty_strided(x.sizes(), x.strides(), x.options().device(at::kMeta));
}

// The kernel's results, after holding the other level and the Meta kernel to them.
std::vector<Tensor> checked(const std::string& name, const std::vector<IValue>& arguments) {
  CAPTURE(name);
  const auto kernel = run_all(Level::kernel, name, arguments);
  const auto composite = run_all(Level::composite, name, arguments);
  std::vector<IValue> shapes;
  for (const auto& argument : arguments) shapes.push_back(on_meta(argument));
  const auto meta = run_all(Level::kernel, name, shapes);
  std::vector<Tensor> results;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const auto &result = kernel[i].toTensor(), &told = meta[i].toTensor();
    CHECK(agree(result, composite[i].toTensor()));
    CHECK(told.device().is_meta());
    CHECK(told.sizes() == result.sizes());
    CHECK((told.scalar_type() == result.scalar_type()));
    results.push_back(result);
  }
  return results;
}

template <class Check>
void for_each_batch(Check check) {
  for (const ScalarType dtype : dtypes()) {
    for (const int64_t n : {0, 1, 2, 31, 32, 33}) {
      for (const bool strided : {false, true}) {
        const std::string what =
            std::string(c10::toString(dtype)) + ", " + std::to_string(n) + (strided ? ", strided" : "");
        CAPTURE(what);
        check(dtype, n, data(dtype, n, strided));
      }
    }
  }
}

const int64_t policy = ErrorConfig{}.policy();

Tensor mask_of(int64_t n, int64_t first, int64_t second) {
  const auto row = at::arange(n).remainder(4);
  return at::logical_or(row.eq(first), row.eq(second));
}

}  // namespace

TEST_CASE("T34: this LibTorch's dtypes are those that are known to matter, and more") {
  const auto all = dtypes();
  for (const auto dtype : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kComplexHalf, at::kComplexFloat,
                           at::kComplexDouble, at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong})
    CHECK_MESSAGE(std::find(all.begin(), all.end(), dtype) != all.end(), std::string(c10::toString(dtype)));
}

TEST_CASE("T14 T34: NaN and Inf are found in every dtype that has them, and in no other") {
  for_each_batch([](ScalarType dtype, int64_t n, const Tensor& z) {
    // What the format made of NaN and Inf: some formats of 8 bits lack the one or the other.
    const auto wide =
        at::isComplexType(dtype) ? at::view_as_real(z.to(at::kComplexDouble)).flatten(1) : z.to(at::kDouble);
    const auto nan = wide.isnan().any(1), inf = wide.isinf().any(1);
    const auto found = [&](const char* name) { return checked(name, {z, IValue(), 3, 16, policy, at::kLong})[0]; };
    const auto nans = found("flag_nan"), infs = found("flag_inf"), both = found("flag_nan_and_inf");
    CHECK(err::has_nan(nans).equal(nan));
    CHECK(err::has_inf(infs).equal(inf));
    CHECK(err::has_nan(both).equal(nan));
    CHECK(err::has_inf(both).equal(inf));
    CHECK_FALSE(err::has_inf(nans).any().item<bool>());
    if (dtype == at::kHalf || dtype == at::kComplexFloat) CHECK(nan.equal(mask_of(n, 1, 3)));
  });
}

TEST_CASE("T09 T14 T34: repairs in every dtype") {
  for_each_batch([](ScalarType dtype, int64_t n, const Tensor& z) {
    const auto f = err::push(err::new_t(n), err::nan, 1, {.where = mask_of(n, 1, 3)});
    const auto bad = mask_of(n, 1, 3).unsqueeze(1).expand({n, 4});
    const c10::Scalar one = dtype == at::kBool ? c10::Scalar(true) : c10::Scalar(int64_t{1});
    const auto ones = at::ones({n, 4}, at::kFloat).to(dtype);
    const auto expected = at::where(bad, ones, z);
    const auto fixed = checked("fix.scalar", {z, f, one, 3, 0xFFFF, 1, 16, policy})[0];
    CHECK((fixed.scalar_type() == dtype));
    CHECK(agree(fixed, expected));
    CHECK(agree(checked("fix", {z, f, ones, 3, 0xFFFF, 1, 16, policy})[0], expected));
    CHECK(agree(checked("fix", {z, f, at::ones({4}, at::kFloat).to(dtype), 3, 0xFFFF, 1, 16, policy})[0], expected));
    CHECK(agree(checked("take_ok_p", {f, z, one})[0], expected));
    CHECK(agree(checked("take_err_p", {f, z, one})[0], at::where(bad, z, ones)));
    CHECK(agree(err::take_ok(f, z), z.index({mask_of(n, 1, 3).logical_not()})));
    const auto [good, rest] = err::partition(f, z);
    CHECK(good.size(0) + rest.size(0) == n);
  });
}

TEST_CASE("T11 T34: replace in every dtype") {
  for_each_batch([](ScalarType dtype, int64_t, const Tensor& z) {
    const bool complex = at::isComplexType(dtype);
    const auto one = dtype == at::kBool ? c10::Scalar(true) : c10::Scalar(int64_t{1});
    const auto wide = complex ? z.to(at::kComplexDouble) : z.to(at::kDouble);
    const auto ones = at::ones_like(z, at::kFloat).to(dtype);
    CHECK(agree(checked("replace", {z, one, true, true, true, std::vector<double>{}, std::vector<int64_t>{}})[0],
                at::where(at::logical_or(wide.isnan(), wide.isinf()), ones, z)));
    CHECK(agree(checked("replace", {z, one, true, false, false, std::vector<double>{}, std::vector<int64_t>{}})[0],
                at::where(wide.isnan(), ones, z)));
    CHECK(agree(checked("replace", {z, one, false, false, false, std::vector<double>{0.0}, std::vector<int64_t>{}})[0],
                at::where(wide.eq(0), ones, z)));
    if (!complex)
      CHECK(agree(checked("replace", {z, one, false, false, true, std::vector<double>{}, std::vector<int64_t>{}})[0],
                  at::where(wide.eq(-std::numeric_limits<double>::infinity()), ones, z)));
  });
}

TEST_CASE("T15 T34: selection in every dtype") {
  for_each_batch([](ScalarType dtype, int64_t n, const Tensor& z) {
    const auto other = at::zeros({n, 4}, at::kFloat).to(dtype);
    const auto rows = mask_of(n, 0, 2);
    CHECK(agree(checked("select", {rows, z, other})[0], at::where(rows.unsqueeze(1), z, other)));
    for (const bool whole : {false, true})
      CHECK(agree(checked("select", {at::scalar_tensor(whole, at::kBool), z, other})[0], whole ? z : other));
    CHECK(agree(checked("guard_grad", {z, rows})[0], z));
  });
}

TEST_CASE("T14 T34: indices of every integer dtype") {
  for_each_batch([](ScalarType dtype, int64_t n, const Tensor& z) {
    if (!at::isIntegralType(dtype, /*includeBool=*/false)) return;
    CHECK_FALSE(
        err::is_err(checked("flag_oob_indices", {z, 2, IValue(), 3, 16, policy, at::kLong})[0]).any().item<bool>());
    const auto none = checked("flag_oob_indices", {z, 0, IValue(), 3, 16, policy, at::kLong})[0];
    CHECK(err::is_err(none).sum().item<int64_t>() == n);
  });
}

}  // namespace triage::test
