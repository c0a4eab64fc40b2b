// One bad sample should not cost the batch. A digit classifier that keeps its activations in half precision meets images
// from a camera that sends raw counts instead of 0..1: some overflow to Inf, and then to NaN. A policy in Lua finds them,
// says where it happened and repairs those rows; then the policy file is edited, and the running program follows.
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

  triage::Runtime runtime;
  triage::Policy repair = runtime.load(folder / "repair.lua");
  auto [logits, f] = repair.run<2>(inputs);

  int64_t samples = test.labels.size(0), bad = triage::err::is_err(f).sum().item<int64_t>();
  fmt::print("\n{} test images, every eighth from a camera that sends raw counts. Activations are stored as f16.\n",
             samples);
  fmt::print("  {}\n", triage::flags::repr(f));
  fmt::print("  {} samples overflowed, for instance:\n", bad);
  int shown = 0;
  auto all = triage::flags::unpack_all(f);
  for (size_t i = 0; i < all.size() && shown < 3; ++i) {
    if (all[i].empty()) continue;
    ++shown;
    fmt::print("    sample {:3}:", i);
    for (const auto& entry : all[i]) fmt::print(" {} at {};", entry.code_name, entry.location_name);
    fmt::print("\n");
  }

  fmt::print("\nAccuracy\n");
  fmt::print("  {:5.1f} %   all images from the good camera\n", 100 * accuracy(clean.logits, test.labels));
  fmt::print("  {:5.1f} %   mixed cameras, no policy (NaN in {} rows)\n", 100 * accuracy(mixed.logits, test.labels),
             mixed.logits.isnan().any(1).sum().item<int64_t>());
  at::Tensor answered = triage::err::is_ok(f).nonzero().squeeze(1);
  fmt::print("  {:5.1f} %   of the {} that repair.lua version {} answers; {} say \"no digit\" instead of a wrong one\n",
             100 * accuracy(logits.index_select(0, answered), test.labels.index_select(0, answered)), samples - bad,
             repair.version().number, bad);

  fmt::print("\nThe graph that repair.lua became (Lua is not called any more):\n{}\n",
             triage::graph::print(*repair.graphs().front().graph));
  double policy = microseconds([&] { repair.run(inputs); });
  double read = microseconds([&] { at::sum(mixed.logits); });
  fmt::print("A call costs {:.1f} us; reading the {}x{} logits once (at::sum) costs {:.1f} us: {:.1f} times a read.\n",
             policy, samples, mixed.logits.size(1), read, policy / read);

  fmt::print("\nNow somebody edits the policy, while the program runs.\n");
  triage::Watch watch = runtime.watch(folder);
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
  replace_file(folder / "repair.lua", "return policy { run = function(z) return end\n");
  wait_until([&] { return repair.version().last_error.has_value(); });
  fmt::print("  a broken edit is refused, version {} stays live:\n    {}\n", repair.version().number,
             repair.version().last_error ? repair.version().last_error->message : "(no word of it)");
  replace_file(folder / "repair.lua", read_file(policies / "recompute.lua"));
  bool followed = wait_until([&] { return repair.version().number >= 2; });
  stop = true;
  server.join();
  if (!followed) {
    fmt::print(stderr, "the edited policy was not picked up\n");
    return 1;
  }
  auto [better, g] = repair.run<2>(inputs);
  fmt::print("  a good edit is live as version {}, after {} calls of which {} failed:\n", repair.version().number,
             calls.load(), failed.load());
  fmt::print("  {:5.1f} %   mixed cameras, repair.lua version {}: bad rows are computed again\n",
             100 * accuracy(better, test.labels), repair.version().number);
  fmt::print("  {}\n", triage::flags::repr(g));
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
    return run(data, policies);
  } catch (const std::exception& error) {
    fmt::print(stderr, "demo_digits: {}\n", error.what());
    return 1;
  }
}
