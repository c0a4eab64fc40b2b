// Four processes over c10d's Gloo: what they decide, report and compare, and what the others get when one of them is
// gone.
#include "tests/distributed/ranks.h"
#include "tests/paths.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <signal.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

using namespace triage;
using test::error_of;
using test::in_ranks;
using namespace std::chrono_literals;

namespace {

constexpr auto patient = 30s, impatient = 2s;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

at::Tensor mask(std::initializer_list<bool> bad) {
  at::Tensor tensor = at::zeros({static_cast<int64_t>(bad.size())}, at::kBool);
  int64_t i = 0;
  for (const bool one : bad) tensor[i++] = one;
  return tensor;
}

std::string text(bool value) { return value ? "yes" : "no"; }

void check_all(const std::vector<std::string>& texts, const std::string& expected) {
  for (const std::string& one : texts) CHECK(one == expected);
}

const char* const repair = R"(
return policy {
  name = "repair", inputs = {"z"}, outputs = {"z", "f"}, params = {fill = 0.5},
  run = function(z, p)
    local f = flag_nan(z, "encoder")
    return fix(z, f, "encoder"), f
  end,
})";

}  // namespace

TEST_CASE("one bad sample on one rank decides for all; a share counts the samples of all") {
  check_all(in_ranks(4, patient,
                     [](const Group& group) {
                       const at::Tensor bad = group.rank() == 2 ? mask({false, true}) : mask({false, false});
                       const std::string any = text(agree(bad, group));
                       const std::string more = text(agree(bad, group, {.share = 0.125}));  // 1 of 8 is not more
                       const std::string less = text(agree(bad, group, {.share = 0.12}));
                       return any + " " + more + " " + less + " " + text(agree(false, group)) + " " +
                              text(agree(group.rank() == 3, group));
                     }),
            "yes no yes no yes");
}

TEST_CASE("a rank with an empty batch takes part") {
  check_all(in_ranks(4, patient,
                     [](const Group& group) {
                       const at::Tensor bad = group.rank() == 0 ? mask({}) : mask({group.rank() == 1});
                       const ErrorReport own = report_of(err::new_t(group.rank() == 0 ? 0 : 1));
                       return text(agree(bad, group)) + " " + text(agree(mask({}), group)) + " " +
                              std::to_string(reduce(own, group).samples);
                     }),
            "yes no 3");
}

TEST_CASE("reports add up by the names of locations, whose numbers differ between ranks") {
  const auto texts = in_ranks(4, patient, [](const Group& group) {
    ErrorLocation::register_path("only_on_" + std::to_string(group.rank()));
    if (group.rank() % 2) ErrorLocation::register_path("head");
    at::Tensor z = at::zeros({2, 3});
    z[1][0] = std::nan("");
    at::Tensor f = flag_nan(z, Location("encoder"));
    if (group.rank() == 3)
      f = push(f, err::inf, Location("head"), {.severity = err::warn, .where = mask({true, false})});
    return reduce(report_of(f), group, {.examples = 3}).text();
  });
  check_all(texts,
            "8 samples, 5 with errors, worst CRITICAL\n"
            "  CRITICAL NAN @ encoder: 4\n"
            "  WARN INF @ head: 1\n"
            "  rank 0, sample 1: NAN @ encoder\n"
            "  rank 1, sample 1: NAN @ encoder\n"
            "  rank 2, sample 1: NAN @ encoder");
}

TEST_CASE("names of any bytes, and many kinds of errors, go through") {
  check_all(in_ranks(4, patient,
                     [](const Group& group) {
                       ErrorReport own;
                       for (int i = 0; i < 2000; ++i)
                         own.counts.push_back({"\xff" + std::to_string(i), err::nan, err::error, group.rank() + 1});
                       const ErrorReport all = reduce(own, group);
                       return std::to_string(all.counts.size()) + " " + std::to_string(all.counts[7].count);
                     }),
            "2000 10");
}

TEST_CASE("a rank that is killed in the middle is an error of the others, and no hang") {
  const auto texts = in_ranks(4, impatient, [](const Group& group) {
    agree(false, group);
    if (group.rank() == 2) ::raise(SIGKILL);
    agree(false, group);
    return std::string("went on");
  });
  CHECK(texts[2] == "signal: Killed");
  for (const int other : {0, 1, 3}) {
    CAPTURE(texts[other]);
    CHECK(has(texts[other], "threw: agree: rank " + std::to_string(other) + " of 4 waited "));
    CHECK(has(texts[other], "make a new process group"));
  }
}

TEST_CASE("a rank that is stopped is an error of the others once the timeout has passed") {
  const auto texts = in_ranks(4, impatient, [](const Group& given) {
    Group group = given;
    agree(false, group);
    group.set_step(7);
    if (group.rank() == 1) ::raise(SIGSTOP);
    std::string first;
    try {
      reduce({}, group);
    } catch (const DistributedError& error) {
      first = error.what();
    }
    try {
      agree(false, group);
    } catch (const DistributedError& error) {
      return first + "\n" + error.what();
    }
    return std::string("went on");
  });
  CHECK(texts[1] == "stopped");
  for (const int other : {0, 2, 3}) {
    CAPTURE(texts[other]);
    CHECK(has(texts[other], "reduce: rank " + std::to_string(other) + " of 4 waited "));
    CHECK(has(texts[other], "at step 7"));
    CHECK(has(texts[other], "an earlier operation of this group failed: reduce:"));
  }
}

TEST_CASE("ranks that call different operations, or at different steps, all get an error") {
  const auto other_call = in_ranks(4, patient, [](const Group& group) {
    if (group.rank() == 3) reduce({}, group);
    return text(agree(false, group));
  });
  for (const int rank : {0, 1, 2}) CHECK(has(other_call[rank], "but rank 3 calls reduce at step 0. All ranks must"));
  CHECK(has(other_call[3], "reduce: rank 3 of 4 calls it at step 0, but rank 0 calls agree"));
  const auto other_step = in_ranks(4, patient, [](const Group& given) {
    Group group = given;
    group.set_step(group.rank() == 1 ? 5 : 4);
    return text(agree(false, group));
  });
  CHECK(has(other_step[0], "at step 4, but rank 1 calls agree at step 5."));
  CHECK(has(other_step[1], "at step 5, but rank 0 calls agree at step 4, rank 2 calls"));
}

TEST_CASE("a wrong argument on one rank is an error on all, and the next call works") {
  const auto texts = in_ranks(4, patient, [](const Group& group) {
    std::string error;
    try {
      agree(group.rank() == 1 ? at::zeros({2}) : mask({true}), group);
    } catch (const Error& failed) {
      error = failed.what();
    }
    return error + " then " + text(agree(group.rank() == 1, group));
  });
  CHECK(texts[1] == "agree: expected a bool tensor as `bad`, such as err::is_err(f), got Float then yes");
  for (const int other : {0, 2, 3}) {
    CHECK(has(texts[other], "the call of rank 1 had a wrong argument"));
    CHECK(has(texts[other], "then yes"));
  }
  const auto shares = in_ranks(4, patient, [](const Group& group) {
    return text(agree(true, group, {.share = group.rank() == 2 ? 0.5 : 0.1}));
  });
  for (const auto& one : shares)
    CHECK(has(one, "`share` must be the same on all ranks; rank 2 gave 0.5 and rank 0 gave 0.1"));
}

TEST_CASE("the same policy on all ranks passes; another source or other params are named") {
  const auto texts = in_ranks(4, patient, [](const Group& group) {
    Runtime runtime;
    const Policy same = runtime.load_source(repair, "repair.lua");
    check_same(same, group, {.params = {{"fill", 1.0}, {"means", at::ones({2})}}});
    std::string errors;
    const auto check = [&](const Policy& policy, const SameOptions& options) {
      try {
        check_same(policy, group, options);
      } catch (const DistributedError& error) {
        errors += error.what() + std::string("\n");
      }
    };
    check(runtime.load_source(std::string(repair) + (group.rank() == 2 ? " " : ""), "repair.lua"), {});
    check(same, {.params = {{"fill", group.rank() == 1 ? 1.5 : 1.0}}});
    check(same, {.params = {{"means", at::full({2}, group.rank() == 3 ? 2 : 1)}}});
    check_same(same, group);
    return errors;
  });
  for (const std::string& one : texts) {
    CAPTURE(one);
    CHECK(has(one, "the ranks do not run the same policy 'repair': rank 2 differs in source ("));
    CHECK(has(one, "rank 1 differs in param 'fill' (\"1.5\", rank 0 has \"1\""));
    CHECK(has(one, "rank 3 differs in param 'means'"));
    CHECK_FALSE(has(one, "rank 0 differs"));
  }
}

TEST_CASE("a file that reaches one rank later is no difference after a reload") {
  const test::TemporaryFolder folder;
  const auto texts = in_ranks(4, patient, [&](const Group& group) {
    const std::string file = folder.file("repair-" + std::to_string(group.rank()) + ".lua");
    const auto write = [&](const char* end) {
      std::ofstream(file + ".new") << repair << end;
      std::filesystem::rename(file + ".new", file);
    };
    write("");
    Runtime runtime;
    const Policy policy = runtime.load(file);
    check_same(policy, group);
    if (group.rank() != 1) {
      write("-- new");
      policy.reload();
    }
    std::string early;
    try {
      check_same(policy, group);
    } catch (const DistributedError&) {
      early = "early ";
    }
    std::thread late([&] {
      std::this_thread::sleep_for(250ms);
      if (group.rank() == 1) write("-- new");
    });
    policy.reload();
    check_same(policy, group, {.reloads = 50});
    late.join();
    return early + std::to_string(policy.version().number);
  });
  check_all(texts, "early 2");
}

TEST_CASE("a policy agrees with the other ranks, by the script and exactly once a call") {
  const auto texts = in_ranks(4, patient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    const Policy policy = runtime.load_source(R"(
return policy {
  name = "skip", inputs = {"z"}, outputs = {"z", "skip", "counts"},
  run = function(z)
    local f = flag_nan(z, "encoder")
    local skip = dist.agree(err.is_err(f))
    local often = dist.agree(err.is_err(f), torch.tensor(0.5))
    local counts, totals = dist.reduce_report(f)
    if dist.rank():item() >= dist.world_size():item() then error("no such rank") end
    return z, torch.stack({skip, often}), torch.cat({counts[{0}]:narrow(0, 1, 3), totals})
  end,
})",
                                              "skip.lua");
    std::string text;
    for (int step = 0; step < 3; ++step) {
      at::Tensor z = at::zeros({2, 3});
      if (group.rank() <= step) z[0][1] = std::nan("");
      const auto outputs = policy.run({z});
      text += std::to_string(outputs[1][0].item<bool>()) + std::to_string(outputs[1][1].item<bool>());
      for (int64_t i = 0; i < 5; ++i) text += " " + std::to_string(outputs[2][i].item<int64_t>());
      text += "; ";
    }
    return text;
  });
  check_all(texts, "10 1 3 1 8 1; 10 1 3 2 8 2; 10 1 3 3 8 3; ");
}

TEST_CASE("a policy adds tensors of all ranks, and ranks that give others all get an error") {
  const auto texts = in_ranks(3, patient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    const Policy policy = runtime.load_source(
        "return policy { inputs = {'z'}, run = function(z) local n, s = dist.all_reduce(torch.ones({}), z) return s / "
        "n end }");
    const at::Tensor mean = policy.run({at::full({2}, group.rank())})[0];
    const std::string error = error_of([&] { policy.run({at::ones({2 + group.rank() / 2})}); });
    return std::to_string(mean.sum().item<float>()) + " " + error + " " + text(agree(true, group));
  });
  for (const std::string& one : texts) {
    CAPTURE(one);
    CHECK(has(one, "2.000000 "));
    CHECK(has(one,
              "the ranks give different tensors: rank 0 gives Float [], Float [2]; rank 2 gives Float [], Float [3]"));
    CHECK(has(one, " yes"));
  }
}

TEST_CASE("a mask that cannot be read on one rank is an error on all at once, and the next call is not taken for it") {
  const auto texts = in_ranks(4, patient, [](const Group& group) {
    const at::Tensor unreadable = at::empty({2}, at::TensorOptions().device(at::kMeta).dtype(at::kBool));
    const std::string error = error_of([&] { agree(group.rank() == 1 ? unreadable : mask({false, false}), group); });
    return error + " then " + text(agree(group.rank() == 1, group));
  });
  CAPTURE(texts[1]);
  CHECK(has(texts[1], "agree: rank 1 of 4: "));
  CHECK(has(texts[1], "_local_scalar_dense"));  // LibTorch's own message, which differs between versions
  for (const int other : {0, 2, 3}) CHECK(has(texts[other], "the call of rank 1 had a wrong argument"));
  for (const auto& one : texts) CHECK(has(one, "then yes"));
}

TEST_CASE("a policy or param that cannot be compared on one rank is an error on all at once") {
  const auto texts = in_ranks(2, patient, [](const Group& group) {
    Runtime runtime;
    const Policy policy = runtime.load_source(repair, "repair.lua");
    std::string errors = error_of([&] { check_same(group.rank() == 1 ? Policy() : policy, group); });
    const at::Tensor none = group.rank() == 1 ? at::Tensor() : at::ones({2});
    errors += "\n" + error_of([&] { check_same(policy, group, {.params = {{"means", none}}}); });
    check_same(policy, group);
    return errors;
  });
  CAPTURE(texts[1]);
  CHECK(has(texts[0], "the call of rank 1 had a wrong argument (its own error says which)\ncheck_same: rank 0 of 2"));
  CHECK(has(texts[1], "\ncheck_same: rank 1"));
}

TEST_CASE("wrong arguments of dist on one rank are errors on all at once") {
  const auto texts = in_ranks(2, patient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    const Policy decides = runtime.load_source(
        "return policy { inputs = {'z', 'share'}, run = function(z, share) return dist.agree(z:gt(0), share) end }");
    const Policy reports =
        runtime.load_source("return policy { inputs = {'f'}, run = function(f) return dist.reduce_report(f) end }");
    const bool wrong = group.rank() == 1;
    std::string errors = error_of([&] { decides.run({at::ones({2}), at::full({wrong ? 2 : 1}, 0.5)}); });
    errors += "\n" + error_of([&] { reports.run({wrong ? at::ones({2}) : err::new_t(2)}); });
    return errors + "\n" + text(agree(group.rank() == 1, group));
  });
  CAPTURE(texts[0]);
  CAPTURE(texts[1]);
  CHECK(has(texts[0], "agree: rank 0 of 2 has no result: the call of rank 1 had a wrong argument"));
  CHECK(has(texts[0], "reduce: rank 0 of 2 has no result: the call of rank 1 had a wrong argument"));
  CHECK(
      has(texts[1], "agree: rank 1 of 2: expected one number as `share`, such as torch.tensor(0.1), got a tensor {2}"));
  for (const auto& one : texts) CHECK(has(one, "\nyes"));
}

TEST_CASE("a rank that goes on after the others gave up gets an error, and no answer of theirs") {
  const auto texts = in_ranks(4, impatient, [](const Group& group) {
    agree(false, group);
    if (group.rank() == 1) {
      const pid_t stopped = ::getpid();
      if (::fork() == 0) {
        std::this_thread::sleep_for(2 * impatient);
        ::kill(stopped, SIGCONT);
        ::_exit(0);
      }
      ::kill(stopped, SIGSTOP);
    }
    std::string errors = error_of([&] { agree(true, group); });
    errors += "\n" + error_of([&] { agree(false, group); });
    if (group.rank() != 1) std::this_thread::sleep_for(2 * impatient);  // its sockets are open meanwhile
    return errors;
  });
  for (const auto& one : texts) {
    CAPTURE(one);
    CHECK(has(one, "did not hear from all of them"));
    CHECK(has(one, "\nagree: rank "));
  }
}

TEST_CASE("one rank that loads, tests and reloads a policy does not take part in the operations of the others") {
  const auto texts = in_ranks(2, impatient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    const std::string source = R"(
return policy {
  name = "skip", inputs = {"z"}, outputs = {"skip", "counts"},
  run = function(z) return dist.agree(z:gt(0)), (dist.reduce_report(flag_nan(z, "input"))) end,
  tests = {{
    name = "skips", args = function() return torch.tensor({{1.0, 0 / 0}}) end,
    check = function(skip, counts) return skip:item() and counts:size(0) == 1 end,
  }},
})";
    std::string failures;
    if (group.rank() == 1) {
      const Policy policy = runtime.load_source(source);
      if (policy.replace(source + " -- new") != Reload::swapped) failures += policy.version().last_error->message;
      for (const auto& [name, failure] : policy.run_tests()) failures += failure;
    }
    return failures + text(agree(false, group));
  });
  check_all(texts, "no");
}

TEST_CASE("a policy that agrees while its file is loaded is refused, and the other ranks get no message") {
  const auto texts = in_ranks(2, impatient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    std::string error;
    if (group.rank() == 1)
      error = error_of([&] {
        runtime.load_source(
            "local rank = dist.rank():item()\nlocal all = dist.agree(torch.tensor(true))\n"
            "return policy { inputs = {'z'}, run = function(z) return z end }");
      });
    return error + text(agree(false, group));
  });
  CHECK(texts[0] == "no");
  CAPTURE(texts[1]);
  CHECK(has(texts[1], "policy.lua:2: dist.agree: called while the file of the policy is loaded"));
  CHECK(has(texts[1], "no"));
}

TEST_CASE("in a policy a failed operation is an error of the policy, and the group refuses all that follows") {
  const auto texts = in_ranks(3, impatient, [](const Group& group) {
    Runtime runtime;
    define_dist(runtime, group);
    const Policy policy =
        runtime.load_source("return policy { inputs = {'z'}, run = function(z) return dist.agree(z:gt(0)) end }");
    policy.run({at::ones({2})});
    if (group.rank() == 1) ::raise(SIGKILL);
    std::string error;
    try {
      policy.run({at::ones({2})});
    } catch (const PolicyError& failed) {
      error = failed.what();
    }
    return error + "\n" + error_of([&] { agree(false, group); });
  });
  for (const int other : {0, 2}) {
    CAPTURE(texts[other]);
    CHECK(has(texts[other], "policy.lua:1: agree: rank " + std::to_string(other) + " of 3 waited "));
    CHECK(has(texts[other], "\nagree: rank " + std::to_string(other) + " of 3: an earlier operation of this group"));
  }
}

TEST_CASE("a world of one over c10d") {
  const auto texts = in_ranks(1, patient, [](const Group& group) {
    ErrorReport own = report_of(flag_nan(at::full({2, 2}, std::nan("")), Location("encoder")));
    return text(agree(mask({true}), group)) + text(reduce(own, group) == own);
  });
  CHECK(texts[0] == "yesyes");
}

TEST_CASE("examples/distributed prints what docs/distributed.md shows") {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "demo_distributed";
  FILE* const output = ::popen(("'" + program.string() + "'").c_str(), "r");
  REQUIRE(output);
  std::string printed;
  char buffer[512];
  while (std::fgets(buffer, sizeof buffer, output)) printed += buffer;
  CHECK(::pclose(output) == 0);
  std::ifstream page(test::source_dir() + "/docs/distributed.md");
  const std::string docs{std::istreambuf_iterator<char>(page), {}};
  CAPTURE(printed);
  CHECK(has(docs, "$ build/distributed/demo_distributed\n" + printed + "```\n"));
}
