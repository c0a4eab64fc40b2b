// Policies behave as under the C locale, whatever the host has set, and whenever.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <stdlib.h>
#include <triage/triage.h>
#include <unistd.h>

#include <clocale>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/logs.h"

namespace {

namespace fs = std::filesystem;

/// German numbers have a comma, and "a" comes before "B". Made from the sources of the C library where it is not
/// installed.
class German {
 public:
  German() : folder_(fs::temp_directory_path() / ("triage-locale-" + std::to_string(::getpid()))) {
    if (set()) return;
    fs::create_directories(folder_);
    const std::string command =
        "localedef -i de_DE -f UTF-8 '" + (folder_ / name).string() + "' > /dev/null 2>&1 < /dev/null";
    if (std::system(command.c_str()) == 0) ::setenv("LOCPATH", folder_.c_str(), 1);
    is_there_ = set();
  }
  ~German() {
    unset();
    ::unsetenv("LOCPATH");
    fs::remove_all(folder_);
  }
  German(const German&) = delete;
  German& operator=(const German&) = delete;

  explicit operator bool() const { return is_there_; }
  static bool set() { return std::setlocale(LC_ALL, name) && std::localeconv()->decimal_point == std::string(","); }
  static void unset() { std::setlocale(LC_ALL, "C"); }

 private:
  static constexpr const char* name = "de_DE.UTF-8";
  const fs::path folder_;
  bool is_there_ = true;
};

const char* const source = R"(
local half = 0.5
return policy {
  name = "numbers", inputs = {"z"}, params = {scale = 1.5},
  run = function(z, p)
    between(z)
    print(half, tostring(2.5), 1e100, ("%.2f|%g|%5.1f|%a"):format(0.25, 1.5, 2.5, 0.1), 1 / 3 .. "")
    print(tonumber("1.5"), tonumber("1,5"), "2.5" + 1, load("return 0.25")(), math.tointeger("3"), tostring(-0.0))
    print("a" < "B", ("\xe4 \xc4"):upper(), ("\xe4x"):match("%a+"), ("a1"):find("%d"), (";"):match("%p"))
    print(z, z:mean():item(), p.scale, ("1.5 2.5"):gsub("%d+%.%d+", function(n) return n * 2 end))
    return z * half
  end,
}
)";

/// All that the policy prints and triage says of it.
std::string outcome(const std::function<void()>& between) {
  std::ostringstream log;
  triage::RuntimeOptions options;
  options.log = triage::test::log_to(log);
  options.print = [&](const std::string& text) { log << text << "\n"; };
  triage::Runtime runtime(options);
  runtime.define("between", [&](const std::vector<at::Tensor>& given) {
    between();
    return given;
  });
  const triage::Policy policy = runtime.load_source(source, "numbers.lua");
  for (int i = 0; i < 2; ++i) log << policy.run({at::full({2, 2}, 0.75)})[0].sum().item<double>() << "\n";
  for (const triage::CapturedGraph& graph : policy.graphs()) log << triage::graph::print(*graph.graph);
  return log.str();
}

}  // namespace

TEST_CASE(
    "a policy reads and prints numbers as in the C locale, whatever the host has set before, between or during calls") {
  const std::string expected = outcome([] {});
  CHECK(expected.find("0.25|1.5|  2.5|") != std::string::npos);
  const German german;
  if (!german) {
    MESSAGE("skipped: there is no locale de_DE.UTF-8, and `localedef` cannot make one (Debian: locales)");
    return;
  }
  CHECK(outcome([] {}) == expected);
  bool of_host = true;
  CHECK(outcome([&] {  // a function of the host has its own
          of_host = of_host && std::localeconv()->decimal_point == std::string(",");
          std::thread([] { German::unset(), German::set(); }).join();
        }) == expected);
  CHECK(of_host);
  German::unset();
  CHECK(outcome([] { std::thread([] { German::set(); }).join(); }) == expected);
}
