// Kinds of live versions against kinds of bad new ones, while threads call: no call fails or gets another form of
// answer, the failure is told once, and putting the file back works.
#include <ATen/ATen.h>
#include <doctest/doctest.h>
#include <triage/triage.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;
using triage::Policy;
using triage::Reload;
using triage::WatchEvent;

/// A way in which a policy that gives (z * 2, flags of z) is made: `before` comes in front of the body of its function.
struct Live {
  const char *name, *fields, *parameters, *before;
  const char* backend = "eager";

  /// The body stands on line 5.
  std::string source(const std::string& body, const std::string& more_fields = "") const {
    return "local calls, log = 0, {}\nreturn policy {" + std::string(fields) + more_fields + "\nrun = function(" +
           parameters + ") local f = flag_nan_and_inf(z, 'z')\n" + before + "\n" + body + "\nend}";
  }
  std::string good() const { return source("return z * 2, f"); }
};

constexpr const char* named = "outputs = {'y', 'f'},";
const Live lives[] = {
    {"one graph", named, "z", ""},
    {"one graph, fused", named, "z", "", "fused"},
    {"one graph, aot_eager", named, "z", "", "aot_eager"},
    {"several graphs", named, "z", "local top = z:sum():item()"},
    {"several graphs, fused", named, "z", "local top = z:sum():item()", "fused"},
    {"a function of the host", named, "z", "z = same(z)"},
    {"with params", "outputs = {'y', 'f'}, params = {k = 2.0, on = true},", "z, p", "local by = z * p.k"},
    {"with state", named, "z", "log[1] = z"},
    {"natural Lua", "outputs = {'y', 'f'}, lua = 'tensor',", "z",
     "local w = z * 1 if (w > 1e20):any(-1) then w = w * 0.5 end"},
    {"outputs without names", "", "z", ""},
    {"several graphs, outputs without names", "", "z", "local top = z:sum():item()"},
    {"typed", "outputs = {'y', 'f'}, signature = {z = Tensor(float32_t, {'N', 3}), y = Tensor(float32_t, {'N', 3})},",
     "z", ""},
};

/// What a new version does instead, and a part of what is said of it.
struct Bad {
  const char *name, *body, *says;
  const char* more_fields = "";
};

const Bad bads[] = {
    {"error", "error('bad thing')", "bad thing"},
    {"error that reads a value first", "if z:sum():item() ~= 12345 then error('bad thing') end return z * 2, f",
     "bad thing"},
    {"error on the third call", "calls = calls + 1 if calls >= 3 then error('bad thing') end return z * 2, f",
     "bad thing"},
    {"error on the twentieth call", "calls = calls + 1 if calls >= 20 then error('bad thing') end return z * 2, f",
     "bad thing"},
    {"error on some sizes", "if z:size(0) == 5 then error('bad thing') end return z * 2, f", "bad thing"},
    {"error on some values", "if z:max():item() > 1.5 then error('bad thing') end return z * 2, f", "bad thing"},
    {"dtype", "return (z * 2):to(torch.float64), f", "the type of output"},
    {"dtype on some values", "if z:max():item() > 1.5 then return (z * 2):to(torch.float64), f end return z * 2, f",
     "the type of output"},
    {"rank", "return (z * 2):unsqueeze(0), f", "the shape of output"},
    {"sum", "return (z * 2):sum(-1), f", "the shape of output"},
    {"size", "return (z * 2):narrow(1, 0, 2), f", "the shape of output"},
    {"size of some batches", "if z:size(0) == 5 then return (z * 2):narrow(0, 0, 4), f end return z * 2, f",
     "the shape of output"},
    {"one output less", "return z * 2", "output"},
    {"one output more", "return z * 2, f, z", "output"},
    {"other order", "return f, z * 2", "the type of output"},
    {"no flags", "return z * 2, torch.zeros({z:size(0), 4}, {dtype = torch.int64})", "from flags to Long"},
    {"flags", "return f, f", "from Float to flags"},
    {"nil", "return z * 2, nil", "returned nil"},
    {"a number", "return z * 2, 3", "returned a number"},
    {"nothing", "local y = z * 2", "output"},
    {"hostile error", "error(setmetatable({}, {__tostring = function() error('x') end}))", "error object"},
    {"error without a value", "error()", "nil"},
    {"endless", "while true do end return z * 2, f", "budget"},
    {"endless on some values", "while z:max():item() > 1.5 do end return z * 2, f", "budget"},
    {"memory", "local t = {} for i = 1, 100 do t[i] = torch.zeros({1 << 24}) end return z * 2, f", "budget"},
    {"an operator that throws", "return (z * 2):view({7, 11}), f", "invalid for input"},
    {"an unknown operator", "return z:no_such_thing(), f", "no_such_thing"},
    {"writes to its input", "z:add_(1) if z:size(0) == 5 then error('x') end return (z - 1) * 2, f",
     "belong to the host"},
    {"writes to a view of its input", "z:t():narrow(0, 0, 1):zero_() return z * 2, f", "belong to the host"},
    {"syntax", "return return z * 2, f", "near 'return'"},
    {"endless when it is read", "return z * 2, f", "budget", "tests = (function() while true do end end)(),"},
    {"its own tests", "return z * 2, f", "fails its own tests",
     "tests = {{name = 'never', args = function() return torch.ones({2, 3}) end, check = function() return false "
     "end}},"},
};

class Host {
 public:
  Host(const Live& live, bool watched, double seconds) : file_(folder() / "p.lua") {
    triage::RuntimeOptions options;
    options.backend = live.backend;
    options.limits.seconds = seconds;
    options.limits.tensor_bytes = 1u << 30;
    options.log = [this](const triage::LogRecord& record) {
      const std::lock_guard lock(mutex_);
      if (record.level == triage::LogLevel::error) errors_.emplace_back(record.text);
    };
    runtime.emplace(options);
    runtime->define("same", [](const std::vector<at::Tensor>& in) { return in; });
    write(live.good());
    policy = runtime->load(file_);
    for (int i = 0; i < 3; ++i)
      for (const at::Tensor& z : batches()) policy.run({z});
    if (!watched) return;
    watch = runtime->watch(file_.parent_path(),
                           {.debounce = std::chrono::milliseconds(2), .on_event = [this](const WatchEvent& event) {
                              const std::lock_guard lock(mutex_);
                              events_.push_back(event);
                            }});
    watch.rescan();
  }
  ~Host() {
    watch.stop();
    fs::remove_all(file_.parent_path());
  }

  void write(const std::string& source) {
    std::ofstream(file_.string() + "~") << source;
    fs::rename(file_.string() + "~", file_);
  }
  /// Takes up the file as it is now.
  void take_up() {
    if (watch)
      watch.rescan();
    else
      policy.reload();
  }
  /// Calls from this thread; returns how the answer was wrong.
  std::string call(const at::Tensor& z) const {
    try {
      const auto outputs = policy.run({z});
      if (outputs.size() != 2) return "number of outputs";
      if (outputs[0].scalar_type() != at::kFloat || !outputs[0].equal(z * 2)) return "another y";
      if (outputs[1].scalar_type() != at::kLong || outputs[1].sizes() != at::IntArrayRef{z.size(0), 4})
        return "another f";
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  }
  size_t events(WatchEvent::Kind kind) const {
    const std::lock_guard lock(mutex_);
    size_t count = 0;
    for (const auto& event : events_) count += event.kind == kind;
    return count;
  }
  std::vector<std::string> errors() const {
    const std::lock_guard lock(mutex_);
    return errors_;
  }
  static std::vector<at::Tensor> batches() {
    std::vector<at::Tensor> all;
    for (const int64_t rows : {4, 5, 1}) all.push_back(at::arange(rows * 3, at::kFloat).view({rows, 3}) + 2);
    return all;
  }

  std::optional<triage::Runtime> runtime;
  Policy policy;
  triage::Watch watch;

 private:
  static fs::path folder() {
    static std::atomic<int> serial{0};
    const fs::path path =
        fs::temp_directory_path() / ("triage-matrix-" + std::to_string(::getpid()) + "-" + std::to_string(serial++));
    fs::create_directories(path);
    return path;
  }
  const fs::path file_;
  std::vector<std::string> errors_;
  mutable std::mutex mutex_;
  std::vector<WatchEvent> events_;
};

/// Threads that call while it lives, and what went wrong.
class Load {
 public:
  Load(const Host& host, int count) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, &host] {
        const auto batches = Host::batches();
        for (size_t n = 0; !stop_; ++n) {
          const std::string wrong = host.call(batches[n % batches.size()]);
          ++calls_;
          if (wrong.empty()) continue;
          const std::lock_guard lock(mutex_);
          if (first_.empty()) first_ = wrong;
          ++failed_;
        }
      });
  }
  ~Load() { finish(); }
  void wait_for(int calls) const {
    for (const int seen = calls_; calls_ < seen + calls;) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  void finish() {
    stop_ = true;
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
  }
  int failed() const { return failed_; }
  std::string first() const {
    const std::lock_guard lock(mutex_);
    return first_;
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0}, failed_{0};
  mutable std::mutex mutex_;
  std::string first_;
  std::vector<std::thread> threads_;
};

void try_bad(const Live& live, const Bad& bad, bool watched) {
  CAPTURE(std::string(live.name));
  CAPTURE(std::string(bad.name));
  CAPTURE(watched);
  // What ends by itself may take long on a busy machine.
  const bool endless = std::string_view(bad.name).starts_with("endless");
  Host host(live, watched, endless ? 0.3 : 20);
  Load load(host, 2);
  load.wait_for(10);
  host.write(live.source(bad.body, bad.more_fields));
  host.take_up();
  load.wait_for(80);  // within its trial
  load.finish();
  CHECK_MESSAGE(load.failed() == 0, load.first());
  const triage::VersionInfo now = host.policy.version();
  CHECK(now.number == 1);
  REQUIRE(now.last_error);
  const auto says = [&](const char* text) { return now.last_error->message.find(text) != std::string::npos; };
  CHECK_MESSAGE((says(bad.says) || says("declared type")), now.last_error->message);
  CHECK(fs::path(now.last_error->source.file).filename() == "p.lua");
  CHECK_MESSAGE(now.last_error->source.line > 0, now.last_error->message);
  CHECK_MESSAGE(host.errors().size() == 1, host.errors().back());
  if (watched) {
    host.take_up();
    CHECK(host.events(WatchEvent::Kind::refused) + host.events(WatchEvent::Kind::reverted) == 1);
  }

  host.write(live.good());
  host.take_up();
  CHECK_FALSE(host.policy.version().last_error);
  CHECK(host.policy.version().number == 1);
  host.write(live.source("return z * 2 + 0, f"));
  host.take_up();
  CHECK_FALSE(host.policy.version().last_error);
  CHECK(host.policy.version().hash != now.hash);
  for (const at::Tensor& z : Host::batches()) CHECK(host.call(z) == "");
  CHECK_FALSE(host.policy.version().last_error);
}

/// A third of the pairs, in which each kind meets several of the others; all of them where TRIAGE_RELOADS is set.
void try_pairs(c10::ArrayRef<Live> lives, bool watched) {
  const size_t step = std::getenv("TRIAGE_RELOADS") ? 1 : 3;
  size_t number = 0;
  for (const Live& live : lives) {
    for (size_t i = number++ % step; i < std::size(bads); i += step) try_bad(live, bads[i], watched);
  }
}

}  // namespace

TEST_CASE("reload: no bad version reaches a caller, whatever is live (threads)") {
  try_pairs(lives, /*watched=*/false);
}

TEST_CASE("reload: a Watch tells of a bad version once (threads)") {
  const Live watched[] = {lives[0], lives[3], lives[5]};
  try_pairs(watched, /*watched=*/true);
}
