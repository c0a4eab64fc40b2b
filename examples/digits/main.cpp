// One bad sample should not cost the batch. A digit classifier that keeps its activations in half precision meets
// images from a camera that sends raw counts instead of 0..1: some overflow to Inf, and then to NaN. A policy in Lua
// finds them, says where it happened and repairs those rows; then the policy file is edited, and the running program
// follows.
//
//   demo_digits [--data examples/data/digits.npy] [--policies examples/digits/policies]
#include "model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <triage/triage.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace fs = std::filesystem;

namespace {

/// Every eighth image comes as raw counts: 2^10 to 2^22 times as bright.
at::Tensor from_mixed_cameras(const at::Tensor& images) {
  at::Tensor gain = at::ones({images.size(0), 1});
  int64_t raw = (images.size(0) + 7) / 8;
  gain.slice(0, 0, images.size(0), 8) = at::exp2(at::rand({raw, 1}) * 12 + 10);
  return images * gain;
}

/// Median microseconds of a call.
template <typename Call>
double microseconds(const Call& call) {
  std::vector<double> times;
  for (int round = 0; round < 51; ++round) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / 20);
  }
  std::nth_element(times.begin(), times.begin() + 25, times.end());
  return times[25];
}

void replace_file(const fs::path& file, const std::string& text) {
  fs::path temporary = file.string() + ".new";
  std::ofstream(temporary) << text;
  fs::rename(temporary, file);
}

std::string read_file(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <typename Done>
bool wait_until(const Done& done) {
  for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return done();
}

/// How many images get their digit, another one, or none: ten equal logits say "no digit". NaN counts as a wrong
/// answer.
void print_answers(const std::string& who, const at::Tensor& logits, const at::Tensor& labels) {
  at::Tensor answers = logits.to(at::kFloat);
  at::Tensor none = answers.eq(answers.select(1, 0).unsqueeze(1)).all(1);
  int64_t silent = none.sum().item<int64_t>();
  int64_t right = (answers.argmax(1).eq(labels) & ~none & ~answers.isnan().any(1)).sum().item<int64_t>();
  fmt::print("  {:<40}  {:5}  {:5}  {:8}\n", who, right, labels.size(0) - right - silent, silent);
}

/// The lines of a script with their numbers, but for the comment at its head.
std::string listing(const std::string& text) {
  std::istringstream lines(text);
  std::string listed, line;
  for (int number = 1; std::getline(lines, line); ++number)
    if (line.rfind("--", 0) != 0) listed += fmt::format("{:4}  {}\n", number, line);
  return listed;
}

int run(const std::string& data, const fs::path& policies) {
  at::manual_seed(7);
  at::set_num_threads(1);
  Digits digits = load_digits(data);
  Digits training = digits.slice(0, 1200), test = digits.slice(1200, digits.labels.size(0));
  fmt::print("Training a 64-64-32-10 classifier on {} handwritten digits ...\n", training.labels.size(0));
  Model model = train(training, 30);

  at::Tensor images = from_mixed_cameras(test.images);
  Model::Output clean = model.forward(test.images), mixed = model.forward(images);
  std::vector<at::Tensor> inputs = {images,   mixed.hidden, mixed.logits, model.w0, model.b0,
                                    model.w2, model.b2,     model.w,      model.b};

  fs::path folder = fs::temp_directory_path() /
                    fmt::format("triage-demo-{}", std::chrono::steady_clock::now().time_since_epoch().count());
  fs::create_directories(folder);
  fs::copy_file(policies / "repair.lua", folder / "repair.lua");
  fs::current_path(folder);  // so that graphs and errors name `repair.lua`

  triage::RuntimeOptions options;
  options.log = [](const triage::LogRecord&) {};  // this program tells itself what happens
  options.reload_latency_ratio = 0;  // the second version computes bad rows again, which may take many times as long
  triage::Runtime runtime(options);
  triage::Policy repair = runtime.load("repair.lua");
  auto [logits, f] = repair.run<2>(inputs);

  int64_t samples = test.labels.size(0), bad = triage::err::is_err(f).sum().item<int64_t>();
  int64_t became_nan = mixed.logits.isnan().any(1).sum().item<int64_t>();
  fmt::print("\n{} test images, every eighth from a camera that sends raw counts. Activations are stored as f16.\n",
             samples);
  fmt::print("  {} of {} images went bad (their activations overflowed); in {} of them the logits became NaN.\n", bad,
             samples, became_nan);
  fmt::print("  What repair.lua recorded, several entries an image:\n  {}\n", triage::flags::repr(f));
  int shown = 0;
  auto all = triage::flags::unpack_all(f);
  for (size_t i = 0; i < all.size() && shown < 3; ++i) {
    if (all[i].empty()) continue;
    ++shown;
    fmt::print("    image {:3}:", i);
    for (const auto& entry : all[i]) fmt::print(" {} at {};", entry.code_name, entry.location_name);
    fmt::print("\n");
  }

  fmt::print("\n  {:<40}  right  wrong  no digit\n", fmt::format("Of all {} images", samples));
  print_answers("all images from the good camera", clean.logits, test.labels);
  print_answers("mixed cameras, no policy", mixed.logits, test.labels);
  print_answers("mixed cameras, repair.lua version 1", logits, test.labels);

  fmt::print("\nrepair.lua says\n{}and became this graph (Lua is not called any more)\n{}\n",
             listing(read_file("repair.lua")), triage::graph::print(*repair.graphs().front().graph));
  double policy = microseconds([&] { repair.run(inputs); });
  double read = microseconds([&] { at::sum(mixed.logits); });
  fmt::print("A call costs {:.1f} us, {:.1f} us more than reading the {}x{} logits once (at::sum, {:.1f} us).\n",
             policy, policy - read, samples, mixed.logits.size(1), read);

  fmt::print("\nNow somebody edits the policy, while the program runs.\n");
  triage::Watch watch = runtime.watch(".");
  std::atomic<bool> stop{false};
  std::atomic<int64_t> calls{0}, failed{0};
  std::thread server([&] {
    while (!stop) {
      try {
        repair.run(inputs);
      } catch (const std::exception&) {
        ++failed;
      }
      ++calls;
    }
  });
  replace_file("repair.lua", "return policy { run = function(z) return end\n");
  wait_until([&] { return repair.version().last_error.has_value(); });
  fmt::print("  a broken edit is refused, version {} stays live:\n    {}\n", repair.version().number,
             repair.version().last_error ? repair.version().last_error->message : "(no word of it)");
  replace_file("repair.lua", read_file(policies / "recompute.lua"));
  bool followed = wait_until([&] { return repair.version().number >= 2; });
  stop = true;
  server.join();
  if (!followed) {
    fmt::print(stderr, "the edited policy was not picked up: {}\n",
               repair.version().last_error ? repair.version().last_error->message : "no word of it");
    return 1;
  }
  auto [better, g] = repair.run<2>(inputs);
  fmt::print("  a good edit is live as version {}, after {} calls of which {} failed:\n", repair.version().number,
             calls.load(), failed.load());
  print_answers(fmt::format("mixed cameras, repair.lua version {}", repair.version().number), better, test.labels);
  fmt::print("  It computes bad rows again, and still records them: {}\n", triage::flags::repr(g));
  fs::current_path(folder.parent_path());
  fs::remove_all(folder);
  return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string data = "examples/data/digits.npy", policies = "examples/digits/policies";
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--data") data = argv[i + 1];
    if (std::string(argv[i]) == "--policies") policies = argv[i + 1];
  }
  try {
    return run(data, fs::absolute(policies));
  } catch (const std::exception& error) {
    fmt::print(stderr, "demo_digits: {}\n", error.what());
    return 1;
  }
}
