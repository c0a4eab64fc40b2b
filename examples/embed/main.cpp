// Loads a policy, runs it on batches of which some samples are bad, and prints what was flagged.
//
//   embed POLICY.lua             one batch
//   embed POLICY.lua SECONDS     a batch every 20 ms, following changes of the file meanwhile
#include <ATen/ATen.h>
#include <triage/triage.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <thread>

namespace {

// Stands for the model of a real program: 8 samples of 4 logits, two of them spoilt.
at::Tensor make_logits() {
  at::Tensor logits = at::randn({8, 4});
  logits[2][1] = std::numeric_limits<float>::quiet_NaN();
  logits[5][3] = std::numeric_limits<float>::infinity();
  return logits;
}

void run_once(const triage::Policy& repair) {
  auto [logits, flags] = repair.run<2>({make_logits()});
  std::cout << triage::flags::repr(flags) << "\n";
  if (!triage::has_err(flags)) return;
  const std::vector<std::vector<triage::flags::UnpackedError>> samples = triage::flags::unpack_all(flags);
  for (size_t i = 0; i < samples.size(); ++i) {
    for (const auto& error : samples[i]) {
      std::cout << "  sample " << i << ": " << error.severity_name << " " << error.code_name << " at "
                << error.location_name << "\n";
    }
  }
  std::cout << "all finite now: " << std::boolalpha << at::isfinite(logits).all().item<bool>() << "\n";
}

void run_for(const triage::Policy& repair, std::chrono::milliseconds duration) {
  const auto end = std::chrono::steady_clock::now() + duration;
  int shown = 0;
  std::string refused;
  while (std::chrono::steady_clock::now() < end) {
    auto [logits, flags] = repair.run<2>({make_logits()});
    const triage::VersionInfo version = repair.version();
    if (version.number != shown) {
      std::cout << "version " << version.number << ": " << triage::flags::repr(flags) << std::endl;
      shown = version.number;
    }
    // A file that is no good policy changes nothing; why it was not taken stands here until a better one comes.
    const std::string problem = version.last_error ? version.last_error->message : "";
    if (problem != refused && !problem.empty()) std::cout << "refused: " << problem << std::endl;
    refused = problem;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: embed POLICY.lua [SECONDS]\n";
    return 2;
  }
  const std::filesystem::path file = argv[1];
  try {
    triage::Runtime runtime;
    triage::Policy repair = runtime.load(file);
    repair.prepare({make_logits()});
    run_once(repair);
    if (argc > 2) {
      triage::Watch watch = runtime.watch(std::filesystem::absolute(file).parent_path());
      run_for(repair, std::chrono::milliseconds(static_cast<int>(1000 * std::stod(argv[2]))));
    }
  } catch (const triage::Error& error) {
    std::cerr << error.what() << "\n" << error.traceback();
    return 1;
  }
  return 0;
}
