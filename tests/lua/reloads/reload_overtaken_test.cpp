// A reload that never ends by itself: a decision of the host takes effect while it runs, and ends it.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <string>

#include "tests/logs.h"

namespace {

namespace fs = std::filesystem;

/// A policy in a file, in a Runtime without any limits. A script can say with `inside()` that it runs.
class Unlimited {
 public:
  Unlimited() : runtime_(options()), folder_(fs::temp_directory_path() / "triage-overtaken") {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    runtime_.define("inside", [this](const std::vector<at::Tensor>& given) {
      inside_.count_down();
      return given;
    });
    save("", "");
    policy = runtime_.load(file_);
    policy.run({z});
  }
  ~Unlimited() { fs::remove_all(folder_); }

  /// `top` stands before the policy.
  void save(const std::string& top, const std::string& fields, const std::string& body = "return z") const {
    const fs::path draft = folder_ / "draft";
    std::ofstream(draft) << top << "\nreturn policy {inputs = {'z'}, outputs = {'z'}, " << fields
                         << " run = function(z) " << body << " end}\n";
    fs::rename(draft, file_);
  }

  /// Rolls back while the reload runs, which never ends otherwise.
  void roll_back_meanwhile() {
    auto reload = std::async(std::launch::async, [&] { return policy.reload(); });
    inside_.wait();
    policy.rollback(1);
    CHECK(policy.run({z})[0].equal(z));
    CHECK((reload.get() == triage::Reload::refused));
    const auto failure = policy.version().last_error;
    REQUIRE(failure);
    CHECK_MESSAGE(failure->message.find("was cancelled, because version 1 was rolled back to") != std::string::npos,
                  failure->message);
    save("", "", "return z * 3");
    CHECK((policy.reload() == triage::Reload::swapped));
    CHECK(policy.run({z})[0].equal(z * 3));
  }

  triage::Policy policy;
  const at::Tensor z = at::ones({4, 3});

 private:
  static triage::RuntimeOptions options() {
    triage::RuntimeOptions options;
    options.log = triage::test::no_log();
    options.limits = {.instructions = 0, .seconds = 0, .script_bytes = 0, .tensor_bytes = 0};
    return options;
  }

  triage::Runtime runtime_;
  const fs::path folder_;
  const fs::path file_ = folder_ / "p.lua";
  std::latch inside_{1};
};

}  // namespace

TEST_CASE("reload: a source that never ends is overtaken while it is loaded, whatever it catches") {
  Unlimited it;
  it.save("inside(torch.ones({1})) while true do pcall(function() while true do end end) end", "");
  it.roll_back_meanwhile();
}

TEST_CASE("reload: a test that never ends is overtaken") {
  Unlimited it;
  it.save("",
          "tests = {{name = 'slow', args = function() inside(torch.ones({1})) while true do end end, "
          "check = function() return true end}},");
  it.roll_back_meanwhile();
}

TEST_CASE("reload: operators that never come to an end are overtaken between two of them") {
  Unlimited it;
  it.save("local x = inside(torch.ones({16, 16})) while true do x = x:matmul(x):clamp(0, 1) end", "");
  it.roll_back_meanwhile();
}
