// A decoding loop whose requests do not pay for each other's faults. A model of random weights serves 64 requests in 24
// rows that change their order in every step; in eight requests it computes NaN or Inf from some token on. Policies
// repair or end those rows, and the policy file changes twice meanwhile. The tokens of the other 56 and their
// probabilities must be, bit for bit, those of a run without faults and changes.
//
//   demo_decoding [--policies examples/decoding/policies] [--library scripts/policies/serving]
#include "engine.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

namespace fs = std::filesystem;

namespace {

constexpr int64_t requests = 64, faulty = 8;
constexpr size_t rows = 24, length = 120;

std::string read_file(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void replace_file(const fs::path& file, const std::string& text) {
  const fs::path temporary = file.string() + ".new";
  std::ofstream(temporary) << text;
  fs::rename(temporary, file);
}

/// Changes the policy at two steps. Decoding goes on until the new version is live; where it is not by the next of
/// these steps, decoding waits for it, so that each version decodes some.
class Edits {
 public:
  Edits(fs::path file, triage::Policy policy)
      : file_(std::move(file)), policy_(std::move(policy)), first_(read_file(file_)) {
    strict_ = first_;
    const std::string line = "most_nan <const> = 64";
    strict_.replace(strict_.find(line), line.size(), "most_nan <const> = 0");
  }

  void after_step(int step) {
    if (step == 20) replace_file(file_, strict_);
    if (step == 80) wait_for(2);
    if (step == 140) wait_for(3);
    if (step == 80) replace_file(file_, first_);
    if (const int number = policy_.version().number; number != version_)
      fmt::print("  step {:3}: version {} of decoding.lua is live\n", step, version_ = number);
  }
  int version() const { return version_; }

 private:
  void wait_for(int number) const {
    for (int i = 0; i < 3000 && policy_.version().number < number; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  fs::path file_;
  triage::Policy policy_;
  std::string first_, strict_;
  int version_ = 0;
};

const char* name_of(Fault fault) {
  switch (fault) {
    case Fault::activations:
      return "NaN in all activations";
    case Fault::infinity:
      return "Inf in one logit";
    case Fault::some_logits:
      return "NaN in 20 logits";
    case Fault::none:
      break;
  }
  return "none";
}

void print_faults(const std::vector<Request>& decoded) {
  fmt::print("\n  request  fault                   from token  tokens  repaired steps  ended by\n");
  for (const Request& request : decoded)
    if (request.fault != Fault::none)
      fmt::print("  {:7}  {:<22}  {:10}  {:6}  {:14}  {}\n", request.id, name_of(request.fault), request.fault_at,
                 request.tokens.size(), request.repaired, request.ended_by);
}

/// Whether the faulty requests ended, and the others have the tokens of the run without faults.
bool compare(const std::vector<Request>& decoded, const std::vector<Request>& clean) {
  std::map<std::string, int> ended;
  size_t same = 0, stopped = 0, tokens = 0;
  for (size_t i = 0; i < decoded.size(); ++i) {
    const Request& request = decoded[i];
    if (request.fault != Fault::none) {
      stopped += request.ended_by == "decoding" || request.ended_by == "quarantine";
      continue;
    }
    same += request.tokens == clean[i].tokens && request.probabilities == clean[i].probabilities &&
            request.ended_by == clean[i].ended_by;
    tokens += request.tokens.size();
    ++ended[request.ended_by];
  }
  fmt::print(
      "\n  {} of {} faulty requests were ended\n  {} of {} others have the tokens and probabilities of a run without "
      "faults ({} tokens; ",
      stopped, faulty, same, requests - faulty, tokens);
  fmt::print("{} ended by length, {} by eos)\n", ended["length"], ended["eos"]);
  return stopped == static_cast<size_t>(faulty) && same == static_cast<size_t>(requests - faulty);
}

/// A folder of its own for the policy that is edited.
fs::path copy_of(const fs::path& policy) {
  const fs::path folder =
      fs::temp_directory_path() /
      fmt::format("triage-decoding-{}", std::chrono::steady_clock::now().time_since_epoch().count());
  fs::create_directories(folder);
  fs::copy_file(policy, folder / policy.filename());
  return folder / policy.filename();
}

int run(const fs::path& policies, const fs::path& library) {
  at::set_num_threads(1);
  const Model model(11);
  const fs::path file = copy_of(policies / "decoding.lua");
  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};  // this program tells itself what happens
  triage::Runtime runtime(options);
  const triage::Policy decoding = runtime.load(file), quarantine = runtime.load(library / "quarantine.lua");

  fmt::print("{} requests in {} rows, {} of them with a fault\n", requests, rows, faulty);
  std::vector<Request> clean = make_requests(requests), decoded = make_requests(requests);
  Engine(model, decoding, quarantine, rows, length).decode(clean, [](int) {});
  quarantine.reset_state();  // the ids begin anew
  add_faults(decoded, faulty, clean);
  Edits edits(file, decoding);
  {
    const triage::Watch watch = runtime.watch(file.parent_path());
    Engine(model, decoding, quarantine, rows, length).decode(decoded, [&](int step) { edits.after_step(step); });
  }
  fs::remove_all(file.parent_path());

  print_faults(decoded);
  const bool equal = compare(decoded, clean);
  if (edits.version() < 3) fmt::print(stderr, "an edit of the policy was not picked up\n");
  return equal && edits.version() == 3 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string policies = "examples/decoding/policies", library = "scripts/policies/serving";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--policies") policies = argv[i + 1];
    if (std::string(argv[i]) == "--library") library = argv[i + 1];
  }
  try {
    return run(policies, library);
  } catch (const std::exception& error) {
    fmt::print(stderr, "demo_decoding: {}\n", error.what());
    return 1;
  }
}
