#pragma once
#include <cstdlib>
#include <filesystem>
#include <string>

namespace triage::bench {

/// Kernels go to an empty folder of our own while it lives: what is compiled is compiled now.
class EmptyCache {
 public:
  EmptyCache() {
    std::error_code error;
    std::string own = (std::filesystem::temp_directory_path(error) / "triage-bench-XXXXXX").string();
    if (const char* before = std::getenv(variable)) before_ = before;
    if (::mkdtemp(own.data())) folder_ = own, ::setenv(variable, own.c_str(), 1);
  }
  ~EmptyCache() {
    if (folder_.empty()) return;
    before_.empty() ? ::unsetenv(variable) : ::setenv(variable, before_.c_str(), 1);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  EmptyCache(const EmptyCache&) = delete;
  EmptyCache& operator=(const EmptyCache&) = delete;

 private:
  static constexpr const char* variable = "TRIAGE_KERNEL_CACHE";
  std::string folder_, before_;
};

}  // namespace triage::bench
