// The host of docs/embedding.md that uses only files of its release.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>

namespace fs = std::filesystem;

namespace {

std::string digest(std::string_view bytes) { return std::to_string(std::hash<std::string_view>()(bytes)); }

}  // namespace

TEST_CASE("a host that uses only files of its release") {
  const fs::path folder = fs::temp_directory_path() / ("triage-verified-" + std::to_string(::getpid()));
  fs::create_directories(folder / "policies/lib");
  std::ofstream(folder / "policies/lib/limit.lua") << "return 2";
  std::ofstream(folder / "policies/p.lua") << "local limit = require 'limit'\nreturn function(z) return z * limit end";
  const std::set<std::string> released = {
      digest("return 2"), digest("local limit = require 'limit'\nreturn function(z) return z * limit end")};
  {
    triage::RuntimeOptions options;
    options.log = [](const triage::LogRecord&) {};
    options.cache_dir = folder / "cache";
    options.verify = [&released](const std::filesystem::path& path, std::string_view bytes) {
      if (!released.count(digest(bytes)))
        throw std::runtime_error(path.filename().string() + " is not of this release");
    };
    triage::Runtime runtime(options);
    const triage::Policy policy = runtime.load(folder / "policies/p.lua");
    std::ofstream(folder / "policies/lib/limit.lua") << "return 3";
    CHECK(policy.reload() == triage::Reload::refused);
    CHECK(policy.version().last_error->message.find("limit.lua is not of this release") != std::string::npos);
    CHECK(policy.run({at::ones({2})})[0].equal(at::full({2}, 2.0f)));
  }
  fs::remove_all(folder);
}
