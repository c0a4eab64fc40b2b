// examples/training is run as a user would run it.
#include "bindings/lua/engine/exec.h"
#include "tests/paths.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace {

namespace fs = std::filesystem;

/// Standard output of a script, which runs in this process.
std::string output_of(const std::string& script, const std::vector<std::string>& arguments, int& status) {
  const fs::path file = fs::temp_directory_path() / ("triage-training-" + std::to_string(::getpid()) + ".out");
  std::fflush(stdout);
  const int saved = ::dup(1);
  std::FILE* out = std::fopen(file.c_str(), "w");
  ::dup2(::fileno(out), 1);
  status = triage::lua::exec_script(script, arguments);
  std::fflush(stdout);
  ::dup2(saved, 1);
  ::close(saved);
  std::fclose(out);
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  fs::remove(file);
  return text;
}

}  // namespace

TEST_CASE("T31, T33: examples/training: the loss falls, and bad samples leave no trace") {
  int status = 1;
  const std::string folder = triage::test::source_dir() + "/examples/";
  const fs::path here = fs::current_path();
  fs::current_path(fs::temp_directory_path());  // the script finds its data beside itself
  const std::string text = output_of(folder + "training/train.lua", {}, status);
  fs::current_path(here);
  CAPTURE(text);
  REQUIRE(status == 0);  // it stops itself where a parameter is not finite
  std::smatch found;
  REQUIRE(
      std::regex_search(text, found, std::regex("good samples, with and without the bad ones: at most (\\S+) apart")));
  CHECK(std::stod(found[1]) < 1e-7);
  CHECK(text.find("gradients of bad samples are zero: true") != std::string::npos);
  CHECK(text.find("masking the loss alone: NaN in the weight's gradient: true") != std::string::npos);
  REQUIRE(std::regex_search(text, found,
                            std::regex("200 steps: loss (\\S+) -> (\\S+); 1600 of 12800 samples were bad; "
                                       "(\\S+)% of the digits are read right")));
  CHECK(std::stod(found[1]) > 2.0);
  CHECK(std::stod(found[2]) < 0.5);
  CHECK(std::stod(found[3]) > 90.0);
  CHECK(std::regex_search(text, std::regex("step   1  loss 2\\.\\d+  ErrorFlags\\(64 samples, 22 errors: "
                                           "14xFALLBACK_VALUE, 5xINF, 3xNAN @ hidden, input\\)")));
  // One for a batch whose inputs require grad, one for training.
  CHECK(text.find("compiled function SafeModel (2 graphs)") != std::string::npos);
}

TEST_CASE("T31, T33: examples/training: in bfloat16, bad samples and bad batches leave no trace in the weights") {
  int status = 1;
  const std::string folder = triage::test::source_dir() + "/examples/";
  const fs::path here = fs::current_path();
  fs::current_path(fs::temp_directory_path());
  const std::string text = output_of(folder + "training/mixed_precision.lua", {}, status);
  fs::current_path(here);
  CAPTURE(text);
  REQUIRE(status == 0);
  std::smatch found;
  REQUIRE(std::regex_search(text, found, std::regex("loss (\\S+) after 120 steps in bfloat16")));
  CHECK(std::stod(found[1]) < 0.5);
  // A product of matrices may add up rows of zeros in another order: to the rounding of bfloat16, then.
  REQUIRE(std::regex_search(text, found, std::regex("with 960 bad samples: (the same bits|at most (\\S+) apart)")));
  if (found[2].matched) CHECK(std::stod(found[2]) < 1e-2);
  CHECK(text.find("with 12 bad batches left out: the same bits; the scale fell from 262144 to 16\n") !=
        std::string::npos);
}
