// fuzz_inputs --target=NAME [libFuzzer's options] [folders]: libFuzzer over one of the targets. `./dev fuzz` runs it.
//   --list              the targets, one a line
//   --write-seeds=DIR   writes the seeds of the target, and ends
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/cli/folder.h"
#include "tests/fuzz/inputs/targets.h"

using namespace triage::fuzz;

const std::string& triage::test::source_dir() {
  static const std::string path = TRIAGE_SOURCE_DIR;
  return path;
}

namespace {

const InputTarget* target = nullptr;

void write_seeds(const std::string& folder) {
  int number = 0;
  for (const std::string& seed : target->seeds()) write_bytes(fmt::format("{}/seed-{}", folder, ++number), seed);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  c10::SetStackTraceFetcher(
      [] { return std::string(); });  // LibTorch 1.13 makes one for each error, which takes most of the time
  std::string folder;
  try {
    for (int i = 1; i < *count; ++i) {
      const std::string argument = (*arguments)[i];
      if (argument == "--list") {
        for (const InputTarget& each : input_targets()) std::printf("%-12s %s\n", each.name, each.what);
        std::exit(0);
      }
      if (argument.starts_with("--target=")) target = &find_input_target(argument.substr(argument.find('=') + 1));
      if (argument.starts_with("--write-seeds=")) folder = argument.substr(argument.find('=') + 1);
    }
    if (!target) throw std::invalid_argument("which target? --target=NAME says; --list has them");
    if (folder.empty()) return 0;
    write_seeds(folder);
    std::exit(0);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_inputs: %s\n", error.what());
    std::exit(2);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    accepts(*target, {reinterpret_cast<const char*>(data), size});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_inputs: target %s threw: %s\n", target->name, error.what());
    std::abort();
  }
  return 0;
}
