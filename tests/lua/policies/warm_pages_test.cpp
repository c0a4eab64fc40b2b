// A warm call takes no fresh page: outputs and what lies between parts come from memory that is kept, however the heap
// of the process lies. Each layout of the heap is a process of its own, since glibc reads its settings when it begins.
// TRIAGE_WARM_PAGES=1 shows the faults of each policy and size, up to 64 MB.
#include "bindings/lua/engine/policies/lua_script.h"
#include "tests/cli/folder.h"
#include "tests/policy_library.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <triage/output_memory.h>
#include <triage/triage.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using triage::Policy;
using triage::Runtime;
using Tensors = std::vector<at::Tensor>;

/// The policies of the bench.
const std::pair<const char*, const char*> of_bench[] = {
    {"flag_nan", "return function(x) return flag_nan(x, 7) end"},
    {"flag_nan_and_inf", "return function(x) return flag_nan_and_inf(x, 7) end"},
    {"plain_repair",
     "return function(x) local bad = ~torch.isfinite(x):all(-1) "
     "return torch.where(bad:unsqueeze(1), torch.zeros_like(x), x), bad end"},
    {"detect_repair", "return function(x) local f = flag_nan_and_inf(x, 7) return fix(x, f, 7, {fallback = 0.0}) end"},
    {"zscore_clip",
     "return function(x) local f = flag_nan_and_inf(x, 7) x = err.take_ok_p(f, x) local mean = x:mean({-1}, true) "
     "local deviation = x:std({-1}, true, true) + 1e-6 local far = (x - mean):abs() > deviation * 3 "
     "f = push(f, err.VALUE_CLAMPED, 7, {where = far:any(-1)}) "
     "return torch.where(far, mean + deviation * 3 * torch.sign(x - mean), x), f end"},
    {"softmax_repair",
     "return function(x) local f = flag_nan_and_inf(x, 7) return err.take_ok_p(f, x:softmax(-1), 1 / x:size(1)), f "
     "end"},
    {"uniform_repair",
     "return function(x) local f = flag_nan_and_inf(x, 7) local p = x:softmax(-1) return IF(err.is_err(f), "
     "function() return torch.full_like(p, 1.0 / x:size(1)) end):ELSE(function() return p end) end"},
    {"branch",
     "return function(x) local f = flag_nan_and_inf(x, 7) "
     "local y = IF(err.has_nan(f), function() return torch.zeros_like(x) end)"
     ":ELIF(err.has_inf(f), function() return torch.nan_to_num(x, 0.0, 1e4, -1e4):clamp(-10, 10) end)"
     ":ELSE(function() return torch.tanh(x) end) return y, f end"},
};

int64_t faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

struct Work {
  std::string name;
  Policy policy;
  Tensors inputs;
};

/// Each policy with inputs of about so many bytes.
std::vector<Work> work(Runtime& runtime, int64_t bytes) {
  std::vector<Work> all;
  at::Tensor x = at::randn({std::max<int64_t>(4, bytes / 4 / 256), 256});
  x[1][2] = std::numeric_limits<float>::quiet_NaN();
  for (const auto& [name, source] : of_bench)
    all.push_back({name, runtime.load_source(source, std::string(name) + ".lua"), {x}});
  if (bytes > 4 << 20) return all;  // of which the short rows of the library's tests are too many for a script
  for (const fs::path& path : triage::test::library()) {
    triage::lua::LuaScript script(read_bytes(path), triage::test::script_options(path));
    if (path.stem() == "quarantine" || (path.stem() == "repetition" && bytes > 1 << 20))
      continue;  // take the square of the batch, or sixteen times the history
    Tensors inputs = script.test_arguments(0);
    const int64_t samples = inputs[0].size(0);
    const int64_t row = std::max<int64_t>(1, static_cast<int64_t>(inputs[0].nbytes()) / samples);
    const at::Tensor rows = at::arange(std::max<int64_t>(samples, bytes / row), at::kLong).remainder(samples);
    for (at::Tensor& input : inputs) input = input.index_select(0, rows);
    all.push_back({path.stem().string(), runtime.load(path), inputs});
  }
  return all;
}

/// Calls whose outputs a host frees in another order than it took them.
void call(const Work& one, int times) {
  std::deque<Tensors> held;
  for (int i = 0; i < times; ++i) {
    held.push_back(one.policy.run(one.inputs));
    if (i % 3 != 0) held.pop_front();
    if (i % 3 == 2) held.pop_back();
    held.resize(std::min<size_t>(held.size(), 2));
  }
}

bool shows() { return std::getenv("TRIAGE_WARM_PAGES") != nullptr; }

/// What they leave to ATen allocates its results: sums of the batch, cumulative sums, sorts. Whether the heap keeps the
/// pages that ATen frees depends on what lies above them, in small sizes least.
bool has_calls_of_aten(const std::string& name) {
  static const std::set<std::string> names{"error_budget", "repair_mean",   "repair_neighbour",
                                           "repetition",   "training_loss", "flat_distribution",
                                           "masked_rows",  "nan_rows",      "temperature_floor"};
  return names.count(name) != 0;
}

/// A call, on average of 20; the heap of a process may still grow now and then.
int64_t fresh_pages(const Work& one, int threads) {
  const auto calls = [&](int times) {
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t) others.emplace_back([&] { call(one, times); });
    call(one, times);
    for (auto& thread : others) thread.join();
  };
  calls(8);
  const int64_t before = faults();
  call(one, 20);
  return (faults() - before) / 20;
}

/// `forced`: the heap gives back what it can.
void check_pages(bool forced) {
  triage::RuntimeOptions options;
  Runtime runtime(options);
  std::vector<int64_t> sizes{4 << 10, 64 << 10};
  if (shows()) sizes.insert(sizes.end(), {4 << 20, 64 << 20});
  triage::free_idle_output_memory();
  const size_t before = triage::kept_output_memory();
  for (const int64_t bytes : sizes) {
    for (const Work& one : work(runtime, bytes)) {
      if ((forced || bytes > 4 << 10) && has_calls_of_aten(one.name)) continue;
      for (const int threads : {1, 4}) {
        const int64_t fresh = fresh_pages(one, threads);
        if (shows()) MESSAGE(one.name, ", ", bytes, " bytes, ", threads, " threads: ", fresh);
        CHECK_MESSAGE(fresh == 0, one.name << ", " << bytes << " bytes, " << threads << " threads: " << fresh);
      }
    }
    triage::free_idle_output_memory();
    CHECK(triage::kept_output_memory() <= before);  // nobody holds any of it
  }
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which have pages and a heap of their own

TEST_CASE("warm calls take no fresh page") { check_pages(/*forced=*/false); }

TEST_CASE("a process whose heap gives back what it can" * doctest::skip()) { check_pages(/*forced=*/true); }

TEST_CASE("warm calls take no fresh page, however the heap lies") {
  const std::string self = fs::read_symlink("/proc/self/exe");
  for (const char* threshold : {"16384", "131072"}) {
    if (!shows() && std::string(threshold) == "131072") continue;
    const std::string settings = std::string("MALLOC_TOP_PAD_=0 MALLOC_TRIM_THRESHOLD_=") + threshold +
                                 " MALLOC_MMAP_THRESHOLD_=" + threshold + " ";
    const std::string command =
        settings + "'" + self + "' --no-skip --test-case='a process whose heap gives back what it can'";
    CHECK_MESSAGE(std::system(command.c_str()) == 0, settings);
  }
}

#endif
