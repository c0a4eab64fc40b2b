// The C++ of docs/rollouts.md, which examples_test.cpp finds here: compiled, and run.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>

#include <unistd.h>

#include "tests/cli/folder.h"

namespace {

struct Request {
  std::string id;
  at::Tensor logits;
};

const char* const repair_lua = R"(
return policy {
  name = "repair", inputs = {"z"}, outputs = {"z", "f"},
  run = function(z)
    local f = flag_nan_and_inf(z, "logits")
    return fix(z, f, "logits", {fallback = %s}), f
  end,
})";

std::string with_fallback(const char* value) {
  std::string text = repair_lua;
  return text.replace(text.find("%s"), 2, value);
}

std::atomic<int> pages{0};
void page_somebody(const std::string&) { ++pages; }

bool eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 60'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}

}  // namespace

TEST_CASE("the host of docs/rollouts.md: a shadow, its report, a canary that is promoted") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("triage-rollouts-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::filesystem::path before = std::filesystem::current_path();
  write_bytes(folder / "repair.lua", with_fallback("0.0"));
  write_bytes(folder / "next.lua", with_fallback("0.5"));
  std::filesystem::current_path(folder);
  {
    triage::Runtime runtime;
    triage::Policy repair = runtime.load("repair.lua");
    at::Tensor logits = at::randn({32, 16});
    logits[3][1] = std::numeric_limits<float>::quiet_NaN();
    const auto answer = [&](const Request& request) {
      triage::RunOptions options;
      options.decision_id = request.id;  // the same decision meets the same version
      return repair.run<2>({request.logits}, options);
    };
    answer({"warm", logits});

    repair.shadow("next.lua", {.share = 0.1});

    for (int i = 0; i < 200; ++i) answer({"request " + std::to_string(i), logits});
    CHECK(eventually([&] { return repair.candidate()->shadow.compared > 0; }));
    std::ostringstream out;
    {
      std::ostream& console = out;
      const triage::CandidateReport report = repair.end_candidate();
      console << report.text();
      if (report.shadow.failed > 0 || report.shadow.different_unflagged > 0) page_somebody(report.json());
    }
    CHECK(out.str().find("repair: shadow of next.lua, version 2") == 0);
    CHECK(pages == 0);

    triage::CanaryOptions options;
    options.share = 0.05;
    options.promote_after = 10'000;
    options.revert_if = {.failures = 1, .flagged_ratio = 2.0, .p99_ratio = 1.5};
    options.on_end = [](const triage::CandidateReport& report) {
      if (report.state == triage::CandidateState::reverted) page_somebody(report.reason);
    };
    options.share = 0.5;  // the test has less patience
    options.promote_after = 50;
    repair.canary("next.lua", options);
    for (int i = 0; i < 400; ++i) answer({"request " + std::to_string(i), logits});
    CHECK(eventually([&] { return repair.candidate()->state == triage::CandidateState::promoted; }));
    CHECK(repair.version().number == 3);
    CHECK(repair.run<2>({logits})[0][3][0].item<float>() == 0.5f);
    CHECK(pages == 0);
  }
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}
