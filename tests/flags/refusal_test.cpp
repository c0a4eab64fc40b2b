// Bad arguments: a clear error at every level, never a read out of bounds.
#include "levels.h"

namespace triage::test {
namespace {

void refused(const std::string& name, const std::vector<IValue>& arguments, std::initializer_list<const char*> parts) {
  CAPTURE(name);
  std::string messages[std::size(LEVELS)];
  for (Level level : LEVELS) messages[static_cast<int>(level)] = message_of([&] { run_all(level, name, arguments); });
  for (const auto& message : messages) check_refused(message, parts);
  CHECK(messages[0] == messages[1]);
  CHECK(messages[0] == messages[2]);
}

}  // namespace

TEST_CASE("T02: flags of the wrong form are refused by every operation") {
  const auto z = at::zeros({4, 2});
  const auto wrong_dtype = at::zeros({4, 4}, at::kHalf), wrong_rank = at::zeros({4}, at::kLong),
             no_words = at::zeros({4, 0}, at::kLong);
  for (const char* name : {"is_ok", "is_err", "has_critical", "all_ok", "any_err", "count_errors", "max_severity",
                           "get_first_code", "get_first_location", "get_first_severity"}) {
    refused(name, {wrong_dtype}, {name, "int64, int32, float32 or float64", "Half"});
    refused(name, {wrong_rank}, {name, "(N, num_words)", "[4]"});
    refused(name, {no_words}, {name, "(N, num_words)"});
  }
  refused("clear", {wrong_dtype, 1}, {"clear", "Half"});
  refused("has_code", {wrong_rank, 1}, {"has_code"});
  refused("take_ok_p", {wrong_rank, z, 0.0}, {"take_ok_p"});
  refused("push.scalar", {wrong_rank, 1, 1, 1, 16, 24}, {"push"});
}

TEST_CASE("T05 T26: a width that does not fit num_slots is refused") {
  const auto f = at::zeros({4, 4}, at::kLong);
  refused("push.scalar", {f, 1, 1, 1, 17, 24}, {"17 slots", "(N, 5)", "[4, 4]"});
  refused("push.scalar", {f, 1, 1, 1, 12, 24}, {"12 slots", "(N, 3)"});
  refused("push.scalar", {f, 1, 1, 1, 0, 24}, {"num_slots", "1..32768", "got 0"});
  refused("push.scalar", {f, 1, 1, 1, 32769, 24}, {"num_slots"});
  refused("push.scalar", {f.to(at::kInt), 1, 1, 1, 16, 24}, {"(N, 8)"});
  refused("merge", {f, at::zeros({4, 5}, at::kLong), 16, 24}, {"merge", "one carrier and width"});
  refused("merge", {f, at::zeros({5, 4}, at::kLong), 16, 24}, {"merge", "5 samples", "4"});
  refused("flag_nan", {at::zeros({4, 2}), f, 1, 20, 24, at::kLong}, {"flag_nan", "20 slots"});
}

TEST_CASE("T05: codes, locations, severities and policies out of range are refused") {
  const auto f = at::zeros({4, 4}, at::kLong);
  for (int64_t code : {-1, 16, 1 << 20}) {
    refused("push.scalar", {f, code, 1, 1, 16, 24}, {"error code is 0..15", std::to_string(code).c_str()});
    refused("has_code", {f, code}, {"error code"});
    refused("clear", {f, code}, {"error code"});
  }
  refused("push.scalar", {f, 1, 1024, 1, 16, 24}, {"location id is 0..1023", "1024"});
  refused("push.scalar", {f, 1, -1, 1, 16, 24}, {"location id"});
  refused("push.scalar", {f, 1, 1, 4, 16, 24}, {"severity", "got 4"});
  refused("push.scalar", {f, 1, 1, 1, 16, 3}, {"policy", "got 3"});
  refused("push.scalar", {f, 1, 1, 1, 16, 64}, {"policy"});
  refused("push.scalar", {f, 1, 1, 1, 16, -1}, {"policy"});
  refused("has_domain", {f, 4}, {"domain", "got 4"});
  refused("get_slot", {f, 16}, {"slots 0..15", "got 16"});
  refused("get_slot", {f, -1}, {"slots 0..15"});
  refused("match", {f, 0x10000, 1}, {"set of codes"});
  refused("match", {f, -1, 1}, {"set of codes"});
  refused("flag_inf", {at::zeros({4, 2}), IValue(), 5000, 16, 24, at::kLong}, {"location id"});
  refused("flag_inf", {at::zeros({4, 2}), IValue(), 5, 16, 24, at::kHalf}, {"a flags tensor has dtype"});
  refused("new", {f, 16, at::kBool}, {"a flags tensor has dtype", "Bool"});
  refused("flag_oob_indices", {at::zeros({4}, at::kLong), -1, IValue(), 5, 16, 24, at::kLong},
          {"num_embeddings", "-1"});
  for (const auto dtype : {at::kBool, at::kHalf, at::kFloat, at::kDouble, at::kComplexFloat})
    refused("flag_oob_indices", {at::zeros({4}, dtype), 5, IValue(), 5, 16, 24, at::kLong},
            {"integer dtype", c10::toString(dtype)});
}

TEST_CASE("T05: masks and code tensors of the wrong form are refused") {
  const auto f = at::zeros({4, 4}, at::kLong);
  refused("push.where", {f, 1, 1, 1, at::zeros({3}, at::kBool), 16, 24}, {"`where`", "(4,)", "[3]"});
  refused("push.where", {f, 1, 1, 1, at::zeros({4, 1}, at::kBool), 16, 24}, {"`where`", "flatten(1).any(1)"});
  refused("push.where", {f, 1, 1, 1, at::zeros({4}, at::kLong), 16, 24}, {"bool mask", "Long"});
  refused("push", {f, at::zeros({4}), 1, 1, 16, 24}, {"integer dtype", "Float"});
  refused("push", {f, at::zeros({4}, at::kBool), 1, 1, 16, 24}, {"integer dtype", "Bool"});
  refused("push", {f, at::zeros({5}, at::kLong), 1, 1, 16, 24}, {"(4,)", "[5]"});
  refused("push", {f, at::zeros({}, at::kLong), 1, 1, 16, 24}, {"(4,)"});
}

TEST_CASE("T14: data of another batch, or without one, is refused") {
  const auto f = at::zeros({4, 4}, at::kLong);
  refused("flag_nan", {at::zeros({}), IValue(), 1, 16, 24, at::kLong}, {"0-dim", "unsqueeze(0)"});
  refused("flag_nan", {at::zeros({3, 2}), f, 1, 16, 24, at::kLong}, {"3 samples", "4"});
  refused("take_ok_p", {f, at::zeros({3, 2}), 0.0}, {"3 samples", "4"});
  refused("take_err_p", {f, at::zeros({}), 0.0}, {"0-dim"});
  refused("fix.scalar", {at::zeros({3, 2}), f, 0.0, 1, 0xFFFF, 1, 16, 24}, {"fix", "3 samples"});
  refused("fix", {at::zeros({4, 2}), f, at::zeros({3}), 1, 0xFFFF, 1, 16, 24}, {"`fallback`", "[3]", "[4, 2]"});
  refused("fix", {at::zeros({4, 2}), f, at::zeros({2, 4, 2}), 1, 0xFFFF, 1, 16, 24}, {"does not broadcast"});
  refused("new", {at::zeros({}), 16, at::kLong}, {"0-dim"});
}

TEST_CASE("T15: select refuses conditions and branches that do not fit") {
  const auto a = at::zeros({4, 2});
  refused("select", {at::zeros({4, 1}, at::kBool), a, a}, {"(N,)", "[4, 1]"});
  refused("select", {at::zeros({4}), a, a}, {"condition", "Float"});
  refused("select", {at::zeros({3}, at::kBool), a, a}, {"3 samples", "4"});
  refused("select", {at::zeros({4}, at::kBool), a, at::zeros({4, 3})}, {"agree in shape", "[4, 3]"});
  refused("select", {at::zeros({4}, at::kBool), a, a.to(at::kDouble)}, {"agree in shape and dtype"});
  refused("select", {at::zeros({4}, at::kBool), at::zeros({}), at::zeros({})}, {"0-dim"});
  refused("guard_grad", {a, at::zeros({4})}, {"taken"});
  refused("guard_grad.elements", {a, a, at::zeros({4, 2})}, {"taken", "bool mask"});
}

TEST_CASE("tensors that are not dense are refused") {
  const auto sparse = at::eye(4).to_sparse();
  CHECK_FALSE(message_of([&] { flag_nan(sparse, 1); }).empty());
  CHECK_FALSE(message_of([&] { err::is_ok(at::eye(4).to_sparse()); }).empty());
}

TEST_CASE("T05: a number that is no code is recorded as UNKNOWN, a sample at a time") {
  const auto codes = at::tensor({0L, 1L, 16L, -1L, 1L << 40});
  for (Level level : LEVELS) {
    const auto f = run(level, "push", {at::zeros({5, 4}, at::kLong), codes, 3, 2, 16, 24});
    CHECK(run(level, "get_first_code", {f}).equal(at::tensor({0, 1, 15, 15, 15}).to(at::kInt)));
    CHECK(run(level, "count_errors", {f}).equal(at::tensor({0, 1, 1, 1, 1}).to(at::kInt)));
  }
}

TEST_CASE("no operation writes to its arguments or hands one back") {
  const auto f = err::push(err::new_t(3), err::nan, 1), before = f.clone();
  PushOptions none;
  none.where = at::zeros({3}, at::kBool);
  for (const auto& result : {err::push(f, err::inf, 2), err::push(f, err::inf, 2, none), err::clear(f, err::inf),
                             err::push_scalar(f, err::ok, 1), err::merge({f, f})}) {
    CHECK_FALSE(result.is_alias_of(f));
  }
  const auto z = at::ones({3, 2});
  CHECK_FALSE(err::take_err_p(f, z).is_alias_of(z));
  CHECK_FALSE(err::replace(z, 0, {true}).is_alias_of(z));
  CHECK(f.equal(before));
}

}  // namespace triage::test
