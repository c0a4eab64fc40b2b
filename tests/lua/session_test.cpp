// What stands behind the prompt of `triage repl`: answers, and what a word may become.
#include "bindings/lua/repl/session.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace triage::lua {
namespace {

using Status = Session::ReplAnswer::Status;
using Words = std::vector<std::string>;

bool offers(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

}  // namespace

TEST_CASE("a session completes names, fields, methods of tensors, and operators") {
  Session session;
  REQUIRE(session.evaluate("x = torch.ones({2}) s = 'text' t = {first = 1, run = print}").status == Status::done);
  CHECK(session.complete("y = x:softm") == Words{"x:softmax"});
  CHECK(session.complete("x:flag_n").empty());
  CHECK(session.complete("x.sha") == Words{"x.shape"});
  CHECK(offers(session.complete("x:"), "x:relu"));
  CHECK_FALSE(offers(session.complete("x:"), "x:ones"));
  CHECK(session.complete("torch.linalg.chol") == Words{"torch.linalg.cholesky", "torch.linalg.cholesky_ex"});
  CHECK(offers(session.complete("torch.ra"), "torch.randn"));
  CHECK(session.complete("err.NA") == Words{"err.NAN"});
  CHECK(session.complete("print(flag_nan_") == Words{"flag_nan_and_inf"});
  CHECK(session.complete("t.f") == Words{"t.first"});
  CHECK(session.complete("t:") == Words{"t:run"});
  CHECK(session.complete("CONFIG.num_") == Words{"CONFIG.num_slots", "CONFIG.num_words"});
  CHECK(session.complete("CONFIG:") == Words{"CONFIG:should_transpose"});
  CHECK(session.complete("CONFIG.accumulation.or") == Words{"CONFIG.accumulation.order"});
  CHECK(session.complete("CONFIG.nosuch.x").empty());
  CHECK(session.complete("s:rev") == Words{"s:reverse"});
  CHECK(session.complete("whi") == Words{"while"});
  CHECK(session.complete("").empty());
  CHECK(session.complete("nosuch.field").empty());
  CHECK(session.complete("1 + ").empty());
  CHECK(session.complete("('a'):re").empty());
}

TEST_CASE("a session keeps what was said, and goes on after errors") {
  Session session;
  CHECK(session.evaluate("local n = 2").text.empty());
  CHECK(session.evaluate("n + 1").text == "3\n");
  CHECK(session.evaluate("_").text == "3\n");
  CHECK(session.evaluate("if n then").status == Status::unfinished);
  Session::ReplAnswer failed = session.evaluate("error({kind = 'x', message = 'told'})");
  CHECK(failed.status == Status::failed);
  CHECK(failed.text.rfind("repl:1: told\n", 0) == 0);
  failed = session.evaluate("error({kind = 'X', code = 3, seen = {1}, 7})");
  CHECK(failed.text.rfind("repl:1: (error object is a table: {code = 3, kind = \"X\", seen = table})\n", 0) == 0);
  CHECK(session.evaluate("error({})").text.rfind("repl:1: (error object is a table)\n", 0) == 0);
  CHECK(session.evaluate("setmetatable({}, {__tostring = function() error('no text') end})").status == Status::failed);
  CHECK(session.evaluate("  \n ").text.empty());
  CHECK(session.evaluate("n").text == "2\n");
}

TEST_CASE("flags are known as flags as long as the session lasts") {
  Session session;
  REQUIRE(session.evaluate("f = flag_nan(torch.zeros({2, 2}), 'x')").status == Status::done);
  REQUIRE(session.evaluate("for i = 1, 5000 do flag_nan(torch.zeros({1, 1}), 'x') end collectgarbage()").status ==
          Status::done);
  CHECK(session.evaluate("f").text == "ErrorFlags(2 samples, no errors)\n");
  CHECK(session.evaluate("f[{{0, 1}}]").text == "ErrorFlags(1 samples, no errors)\n");
}

TEST_CASE("a chunk that runs can be stopped from another thread, whatever it catches") {
  Session session;
  session.interrupt();  // nothing runs: nothing happens
  CHECK(session.evaluate("1").text == "1\n");
  std::atomic<bool> stopped{false};
  std::thread impatient([&] {
    while (!stopped) {
      session.interrupt();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  Session::ReplAnswer answer = session.evaluate("while true do pcall(function() end) end");
  stopped = true;
  impatient.join();
  CHECK(answer.status == Status::failed);
  CHECK(answer.text.find("interrupted") != std::string::npos);
  CHECK(session.evaluate("1").text == "1\n");
}

}  // namespace triage::lua
