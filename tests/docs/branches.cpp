// The C++ of docs/embedding.md on branches and logs, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <triage/control_flow.h>
#include <triage/flags.h>
#include <triage/runtime.h>

#include <iostream>
#include <limits>
#include <sstream>

#include <doctest/doctest.h>

namespace {

std::pair<at::Tensor, at::Tensor> repaired(const at::Tensor& z) {
  // clang-format off
  at::Tensor f = triage::flag_nan_and_inf(z, triage::Location("hidden"));
  at::Tensor y = triage::IF(triage::err::has_nan(f), [&] { return at::zeros_like(z); })
                     .ELIF(triage::err::has_inf(f), [&] { return z.nan_to_num(0.0, 1e4, -1e4); })
                     .ELSE([&] { return z.tanh(); });
  // clang-format on
  return triage::IF(triage::AND(triage::HAS(f), triage::NOT(triage::IS(triage::err::nan, f))),
                    [&] { return std::pair(y.clamp(-10, 10), f); })
      .ELSE([&] { return std::pair(y, f); });
}

at::Tensor logarithm(const at::Tensor& x) {
  // clang-format off
  return triage::WHERE(x > 0, [&] { return x.log(); }, 0.0);
  // clang-format on
}

}  // namespace

TEST_CASE("the log of docs/embedding.md") {
  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord& record) {
    std::clog << triage::to_string(record.level) << ' ' << record.text << '\n';
    for (const auto& [name, value] : record.fields) std::clog << "  " << name << '=' << value << '\n';
  };
  std::ostringstream text;
  std::streambuf* const before = std::clog.rdbuf(text.rdbuf());
  triage::Runtime(options).load_source("return policy {run = function(z) return z end}", "p.lua");
  std::clog.rdbuf(before);
  CHECK(text.str().rfind("debug policy 'p': version 1 loaded from 'p.lua'", 0) == 0);
  CHECK(text.str().find("\n  policy=p\n  path=p.lua\n  version=1\n") != std::string::npos);
}

TEST_CASE("T15: the branches of docs/embedding.md") {
  at::Tensor z = at::ones({3, 2});
  z[1][0] = std::numeric_limits<float>::infinity();
  CHECK(repaired(z).first[1].equal(at::tensor({10.0F, 1.0F})));
  z[2][1] = std::numeric_limits<float>::quiet_NaN();
  const auto [y, f] = repaired(z);
  CHECK(y[0].allclose(at::ones({2}).tanh()));
  CHECK(y[1].equal(at::tensor({1e4F, 1.0F})));
  CHECK(y[2].eq(0).all().item<bool>());
}

TEST_CASE("the elements of docs/embedding.md") {
  CHECK(logarithm(at::tensor({1.0F, -1.0F, 0.0F})).equal(at::zeros({3})));
}
