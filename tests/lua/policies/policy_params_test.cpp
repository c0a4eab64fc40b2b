#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <cmath>
#include <string>

#include "tests/logs.h"

using triage::Policy;
using triage::Runtime;

TEST_CASE("params stand where operations on flags want a number, in one graph for all their values") {
  for (const std::string backend : {"eager", "fused", "aot_eager"}) {
    CAPTURE(backend);
    Runtime runtime({.log = triage::test::no_log(), .backend = backend, .fullgraph = true});
    const Policy bounds = runtime.load_source(R"(
return policy {
  inputs = {"ids"}, outputs = {"f"}, params = {vocab = 10},
  run = function(ids, p) return flag_oob_indices(ids, p.vocab, "ids") end,
})",
                                              "bounds.lua");
    for (const int64_t rows : {4, 0, 1, 2, 31, 32, 33})
      for (const int64_t vocab : {10, 3, 7}) {
        CAPTURE(rows);
        CAPTURE(vocab);
        const at::Tensor ids = at::arange(rows * 2, at::kLong).reshape({rows, 2});
        const at::Tensor f = bounds.run({ids}, {.params = {{"vocab", vocab}}})[0];
        CHECK(at::equal(triage::err::is_err(f), ids.ge(vocab).any(-1)));
      }
    CHECK(bounds.graphs().size() <= 2);  // one, and one for batches without rows or with one

    const Policy fills = runtime.load_source(R"(
return policy {
  inputs = {"z"}, outputs = {"a", "b", "c"}, params = {fill = 2.5},
  run = function(z, p)
    local f = flag_nan(z, "z")
    local c = fix(z, f, "z", {fallback = p.fill})
    return err.take_ok_p(f, z, p.fill), err.replace(z, p.fill, {err.NAN}), c
  end,
})",
                                             "fills.lua");
    at::Tensor z = at::ones({3, 2});
    z[1][0] = std::nan("");
    for (const double fill : {2.5, -1.0, 2.5}) {
      const auto [a, b, c] = fills.run<3>({z}, {.params = {{"fill", fill}}});
      CHECK(a[1][1].item<double>() == fill);
      CHECK(b[1][0].item<double>() == fill);
      CHECK(b[1][1].item<double>() == 1.0);
      CHECK(c[1][0].item<double>() == fill);
      CHECK(a[0][0].item<double>() == 1.0);
    }
    CHECK(fills.graphs().size() == 1);
  }
}

TEST_CASE("a param that no element of the data can be is the same error in every call") {
  const at::Tensor z = at::tensor({1.0F, std::nanf(""), 3.0F}).reshape({3, 1}).repeat({1, 4});
  for (const std::string body : {"err.take_ok_p(f, z, p.v)", "err.take_err_p(f, z, p.v)",
                                 "err.replace(z, p.v, {err.NAN})", "z", "fix(z, f, 'z', {fallback = 1.0})"}) {
    const bool used = body.find("p.v") != std::string::npos;
    const std::string unused = used ? "" : "local lost = err.take_ok_p(f, z, p.v) ";
    for (const std::string backend : {"eager", "aot_eager", "fused"}) {
      CAPTURE(body);
      CAPTURE(backend);
      Runtime runtime({.log = triage::test::no_log(), .backend = backend, .fullgraph = true});
      const Policy policy = runtime.load_source(
          "return policy { outputs = {'y', 'f'}, params = {v = {default = 0.0, finite = false}}, run = function(z, p) "
          "local f = flag_nan(z, 'z') " +
          unused + "return " + (body[0] == 'f' ? "(" + body + ")" : body) + ", f end }");
      const auto with = [&](double v) { return policy.run({z}, {.params = {{"v", v}}})[0]; };
      const auto refused = [&](double v) {
        try {
          with(v);
        } catch (const triage::PolicyError& error) {
          return std::string(error.what()).find("which Float cannot hold") != std::string::npos;
        }
        return false;
      };
      with(0.0);
      for (const double v : {1e300, -1e300, 3.4028236e38}) {
        CAPTURE(v);
        CHECK(refused(v));
      }
      for (const double v : {2.0, 3.4028234e38, double{INFINITY}, double{-INFINITY}, std::nan("")})
        CHECK_NOTHROW(with(v));
      if (body.find("take_ok_p") != std::string::npos) CHECK(with(-2.5)[1][0].item<double>() == -2.5);
      CHECK(policy.graphs().size() == 1);
    }
  }
}

TEST_CASE("a param that says into how many tensors one is cut is part of no graph") {
  const at::Tensor z = at::arange(24, at::kFloat).reshape({6, 4});
  for (const std::string body :
       {"z:chunk(p.n, 1)", "z:split(p.n, 1)", "z:tensor_split(p.n, 1)", "torch.chunk(z, p.n)"}) {
    for (const std::string backend : {"eager", "aot_eager", "fused"}) {
      CAPTURE(body);
      CAPTURE(backend);
      const std::string source =
          "return policy { params = {n = 2}, run = function(z, p) z = z * 2 return " + body + "[1] + 1 end }";
      Runtime runtime({.log = triage::test::no_log(), .backend = backend});
      const Policy policy = runtime.load_source(source, "parts.lua");
      Policy scripted = Runtime({.log = triage::test::no_log()}).load_source(source);
      const auto expected = [&](int64_t n) {
        const auto before = triage::get_stance();
        triage::set_stance(triage::Stance::force_eager);
        const at::Tensor result = scripted.run({z}, {.params = {{"n", n}}})[0];
        triage::set_stance(before);
        return result;
      };
      for (const int64_t n : {2, 4, 1, 2, 4}) {
        CAPTURE(n);
        CHECK(policy.run({z}, {.params = {{"n", n}}})[0].equal(expected(n)));
      }
      policy.set_param("n", int64_t{1});
      CHECK(policy.run({z})[0].equal(expected(1)));
      try {
        Runtime({.log = triage::test::no_log(), .backend = backend, .fullgraph = true})
            .load_source(source, "parts.lua")
            .run({z});
        FAIL("one graph holds it");
      } catch (const triage::GraphBreakError& error) {
        CAPTURE(error.what());
        CHECK(std::string(error.what()).find("returns depends on a param") != std::string::npos);
      }
    }
  }
  // Where a param says only sizes, there are as many in every call.
  Runtime runtime({.log = triage::test::no_log(), .fullgraph = true});
  const Policy cut = runtime.load_source(
      "return policy { params = {n = 1}, run = function(z, p) return z:chunk(2, 0)[2]:narrow(1, 0, p.n) + 1 end }");
  for (const int64_t n : {1, 3, 4})
    CHECK(cut.run({z}, {.params = {{"n", n}}})[0].equal(z.narrow(0, 3, 3).narrow(1, 0, n) + 1));
}

/// A policy of one expression with the integer param `n`, called with the values in turn.
struct WithInteger {
  std::string expression;
  std::vector<int64_t> good, bad;
};

const WithInteger with_integers[] = {
    {"z:select(1, p.n)", {0, 3, -1, 2}, {4, -5}},
    {"z:select(p.n, 0)", {0, 1, -1}, {2}},
    {"z:narrow(1, 0, p.n)", {1, 4, 0}, {5, -1}},
    {"z:narrow(1, p.n, 1)", {0, 3}, {4}},
    {"z:unsqueeze(p.n)", {0, 1, 2, -1}, {3}},
    {"z:squeeze(p.n)", {0, 1}, {2}},
    {"z:softmax(p.n)", {0, 1, -1}, {2}},
    {"z:cumsum(p.n)", {0, 1}, {-3}},
    {"z:sum(p.n)", {0, 1, -2}, {2}},
    {"z:mean({p.n}, true)", {0, 1}, {7}},
    {"z:amax({p.n})", {0, 1}, {2}},
    {"z:roll(p.n, 1)", {1, 0, -3, 77}, {}},
    {"z:roll(1, p.n)", {0, 1}, {2}},
    {"z:flip({p.n})", {0, 1}, {2}},
    {"z:reshape({-1, p.n})", {1, 2, 4, 20}, {3, -7}},
    {"z:reshape({z:size(0), p.n, -1})", {1, 2, 4}, {3}},
    {"z:reshape({-1, p.n})", {4, 2, 20}, {3, -1, -7}},
    {"z:reshape({z:size(0), p.n})", {4, -1}, {3, -7}},
    {"z:reshape({p.n, -1})", {5, 10, 1}, {3, -1, -7}},
    {"z:reshape({p.n, 4})", {5, -1}, {4, -7}},
    {"z:reshape({p.n, p.n, -1}):sum(2)", {1, 2}, {-1, 3, int64_t{1} << 40}},
    {"z:view({-1, p.n})", {1, 2, 4}, {3}},
    {"z:unsqueeze(0):expand({p.n, -1, -1})", {1, 3}, {-3}},
    {"z:tile({1, p.n})", {1, 3, 0}, {-1}},
    {"z:permute({p.n, 1 - p.n})", {0, 1}, {2}},
    {"z:transpose(0, p.n)", {0, 1}, {2}},
    {"z:topk(p.n, 1)", {1, 4, 2}, {5}},
    {"torch.zeros({z:size(0), p.n}) + z:sum(1, true)", {1, 3}, {-1}},
    {"torch.ones(p.n) + z:sum()", {1, 3}, {-1}},
    {"z:reshape(p.n, -1)", {1, 2, 4}, {3}},
    {"z:expand(p.n, -1, -1)", {1, 3}, {-3}},
    {"z:sum({0, p.n - 1})", {2, 0}, {1, 4}},
    {"z:narrow(1, p.n, (z:sum() * 0):long() + 1)", {0, 3, 1}, {4}},
    {"(z:sum():item() > 0 and z):reshape({-1, p.n})", {1, 2, 4}, {3}},
    {"(z:sum():item() > 0 and z):sum(p.n)", {1, 0}, {2}},
    {"torch.zeros(p.n, z:sum():long():item() % 7) + z:sum()", {1, 3}, {-1}},
    {"z:tensor_split(p.n, 1)[1]", {1, 2}, {0}},
    {"z:repeat_interleave(p.n, 0)", {1, 2, 0}, {-1}},
    {"z:movedim(0, p.n)", {1, 0}, {2}},
    {"z:unflatten(1, {-1, p.n})", {1, 2, 4}, {3}},
    {"z:rot90(1, {0, p.n})", {1, -1}, {0}},
    {"z:norm(2, {p.n})", {1, 0}, {2}},
    {"z:quantile(0.5, p.n)", {1, 0}, {2}},
    {"z:std({p.n}, true)", {1, 0}, {2}},
    {"torch.full({2, p.n}, p.n) + z:sum()", {1, 3}, {-1}},
    {"torch.arange(p.n) + z:sum()", {1, 3, 0}, {-1}},
    {"torch.constant_pad_nd(z, {p.n, 0})", {0, 2, -1}, {-5}},
    {"torch.one_hot(z:long() % 3, p.n)", {3, 5}, {2}},
};

/// Calls a policy with this body for the values in turn, twice, captured by each backend; `expected` says what it gives
/// for a good one.
template <typename Expected>
void check_values(const WithInteger& one, const std::string& body, const Expected& expected) {
  const at::Tensor z = at::arange(20, at::kFloat).reshape({5, 4});
  for (const std::string backend : {"eager", "aot_eager", "fused"}) {
    CAPTURE(one.expression);
    CAPTURE(backend);
    Runtime runtime({.log = triage::test::no_log(), .backend = backend});
    const Policy policy =
        runtime.load_source("return policy { params = {n = 1}, run = function(z, p) " + body + " end }");
    const auto with = [&](int64_t n) { return policy.run({z}, {.params = {{"n", n}}})[0]; };
    for (int again = 0; again < 2; ++again) {
      for (const int64_t n : one.good) {
        CAPTURE(n);
        CHECK(at::equal(with(n), expected(runtime, z, n)));
      }
      for (const int64_t n : one.bad) CHECK_THROWS_AS(with(n), triage::PolicyError);
    }
  }
}

TEST_CASE("an integer param stands wherever an operator takes an integer, in lists too") {
  for (const WithInteger& one : with_integers) {
    const auto written_out = [&](Runtime& runtime, const at::Tensor& z, int64_t n) {
      const std::string number = "(" + std::to_string(n) + ")";
      std::string text = one.expression;
      for (size_t at = 0; (at = text.find("p.n", at)) != std::string::npos;) text.replace(at, 3, number);
      return runtime.load_source("return function(z) return (" + text + ") * 2 + 1 end").run({z})[0];
    };
    check_values(one, "return (" + one.expression + ") * 2 + 1", written_out);
  }
}

TEST_CASE("a call whose result is not used fails in every call for a param that it cannot take") {
  for (const WithInteger& one : with_integers)
    check_values(one, "local lost = " + one.expression + " return z * 2",
                 [](Runtime&, const at::Tensor& z, int64_t) { return z * 2; });
}

TEST_CASE("guarded tensors take integer params, in lists too, where they do not name the batch") {
  const at::Tensor z = at::arange(20, at::kFloat).reshape({5, 4});
  const std::pair<std::string, at::Tensor> calls[] = {
      {"torch.constant_pad_nd(x, {p.two, 0})", at::constant_pad_nd(z, {2, 0})},
      {"torch.layer_norm(x, {p.four})", at::layer_norm(z, {4})},
      {"x:unsqueeze(2):permute({0, p.two, 1})", z.unsqueeze(2).permute({0, 2, 1})},
      {"(x:topk(p.two, 1)):topk(p.two, 1)", std::get<0>(z.topk(2, 1))},
  };
  for (const auto& [text, expected] : calls) {
    const std::string& call = text;
    for (const std::string backend : {"eager", "aot_eager", "fused"}) {
      CAPTURE(call);
      CAPTURE(backend);
      Runtime runtime({.log = triage::test::no_log(), .backend = backend});
      const Policy policy = runtime.load_source(
          "return policy { params = {two = 2, four = 4}, run = function(z, p) local x = guard(z) local y = " + call +
          " return (unguard(y)) end }");
      for (int again = 0; again < 2; ++again) CHECK(at::equal(policy.run({z})[0], expected));
    }
  }
}

TEST_CASE("a call of sizes alone is left out where its result is not used") {
  Runtime runtime({.log = triage::test::no_log()});
  const Policy policy =
      runtime.load_source("return function(z) local lost = torch.zeros({z:size(0), 1024}) return z * 2 end");
  policy.run({at::ones({5, 4})});
  policy.run({at::ones({7, 4})});
  REQUIRE(policy.graphs().size() == 1);
  CHECK(policy.graphs()[0].graph->nodes().size() == 1);
}

TEST_CASE("another tensor is no number, and the message says what is") {
  Runtime runtime({.log = triage::test::no_log()});
  const Policy policy =
      runtime.load_source("return function(ids, n) return flag_oob_indices(ids, n, \"ids\") end", "bounds.lua");
  try {
    policy.run({at::zeros({2, 2}, at::kLong), at::tensor(int64_t{3})});
    FAIL("it takes a tensor as a number");
  } catch (const triage::PolicyError& error) {
    CAPTURE(error.what());
    const std::string text = error.what();
    CHECK(text.find("expected a number as `num_embeddings`") != std::string::npos);
    CHECK(text.find("belongs into the params of the policy") != std::string::npos);
  }
}
