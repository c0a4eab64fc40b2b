#include "runtime/backends/fused/gpu/gpu_kernel.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "runtime/files/checksum.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/printable.h"
#include "runtime/messages/profiling/phase_times.h"
#include "runtime/messages/start_thread.h"

namespace triage::fused {
namespace {

using Clock = std::chrono::steady_clock;

void log_kernel(const std::string& graph, const std::string& key, const std::string& origin) {
  messages::trace([&] { return messages::TraceEvent("kernel").text("key", key).text("origin", origin).graph(graph); });
  if (messages::logs(messages::Artefact::kernels))
    messages::log_artefact(messages::Artefact::kernels, LogLevel::info,
                           fmt::format("kernel {} of graph `{}`: {}", key, graph, origin), {}, graph);
}

/// While alive, threads that are started here take no signal but of what goes wrong in them: one for the host's own
/// threads, or one by which the system says that a file grows too long, is not to run in a thread of ours.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

/// The kernels of this process, and the thread that compiles. Lives until the process ends: kernels may run in threads
/// that outlive everything else.
///
/// A forked child has neither the thread nor the device: what was still to be compiled has no kernel there.
class GpuCompiler {
 public:
  static GpuCompiler& instance() {
    static GpuCompiler* compiler = [] {
      std::atexit([] { instance().end(); });
      pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(); },
                     [] { instance().after_fork_in_child(); });
      return new GpuCompiler;
    }();
    return *compiler;
  }

  /// The next graph that wants it tries again where too many wait.
  std::shared_ptr<const GpuKernel> get(const GpuProgram& program, const std::string& graph) {
    const std::string key = fmt::format("// {}\n{}", program.device.str(), program.source);
    std::lock_guard lock(mutex_);
    if (const auto known = kernels_.find(key); known != kernels_.end()) return known->second;
    if (queue_.size() >= most_waiting) drop_unwanted();
    const auto kernel = std::make_shared<GpuKernel>();
    kernel->finished_ = queue_.size() >= most_waiting;
    if (kernel->finished_) return kernel;
    kernels_[key] = kernel;
    queue_.push_back({key, program, kernel, messages::one_line(graph), messages::LogTo::current()});
    try_start_thread();
    work_there_is_->notify_one();
    return kernel;
  }

  void wait(const GpuKernel& kernel) {
    std::unique_lock lock(mutex_);
    if (!kernel.finished_ && !try_start_thread()) return;
    one_is_done_->wait(lock, [&] { return kernel.finished_; });
  }

 private:
  struct Job {
    std::string key;
    GpuProgram program;
    std::shared_ptr<GpuKernel> kernel;
    std::string graph;  // its name, for messages; empty: it is not known
    messages::Logger logger;
  };

  /// Kernels of graphs that are gone need not be compiled.
  static bool is_unwanted(const Job& job) {
    constexpr long held_here = 2;  // by the job and by kernels_
    return job.kernel.use_count() <= held_here;
  }

  void drop_unwanted() {
    std::erase_if(queue_, [&](const Job& job) {
      if (!is_unwanted(job)) return false;
      kernels_.erase(job.key);
      return true;
    });
  }

  /// False where the system gives none: ATen serves meanwhile, and whoever asks next tries again. Not told: a log's
  /// callback may come back here.
  bool try_start_thread() {
    if (thread_of_ == ::getpid()) return true;
    try {
      const NoSignals in_the_thread;
      messages::start_thread([this] { work(); }, "to compile kernels", "Loops run as calls of ATen").detach();
      thread_of_ = ::getpid();
      return true;
    } catch (const LimitError&) {
      return false;
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_there_is_->wait(lock, [&] { return !queue_.empty(); });
      const Job job = std::move(queue_.front());
      queue_.pop_front();
      const GpuCode* code = nullptr;
      if (!is_unwanted(job)) {
        running_ = job.kernel;
        lock.unlock();
        code = ending_ ? nullptr : make(job);
        lock.lock();
      }
      job.kernel->code_.store(code, std::memory_order_release);
      if (!code) kernels_.erase(job.key);  // the next graph that wants it tries again
      job.kernel->finished_ = true;
      running_ = nullptr;
      one_is_done_->notify_all();
    }
  }

  /// Null where it cannot be compiled, which is said. It lives until the process ends: streams may be running it.
  const GpuCode* make(const Job& job) {
    const messages::LogTo log_to(job.logger);
    const auto begin = Clock::now();
    const std::string key = files::checksum_text(files::checksum(job.key)).substr(0, 8),
                      device = job.program.device.str();
    const GpuCode* made = nullptr;
    try {
      const Accelerator* const accelerator = accelerator_of(job.program.device.type());
      if (!accelerator) throw std::runtime_error("there is nothing that compiles for this device");
      made = accelerator->compile(job.program.device, job.program.source, job.program.parameters).release();
      const std::chrono::duration<double> taken = Clock::now() - begin;
      log_kernel(job.graph, key, fmt::format("compiled for {} in {:.2f} s", device, taken.count()));
    } catch (const std::exception& error) {
      say_once(key + error.what(),
               fmt::format("no fused kernel for a part of {} on {} (kernel {}), ATen runs in its place: {}",
                           job.graph.empty() ? "a graph" : '"' + job.graph + '"', device, key, error.what()));
    }
    messages::add_phase_time("kernels", job.graph, Clock::now() - begin);
    return made;
  }

  /// `key` is what this process remembers it by; of very many different things the last are not said.
  void say_once(const std::string& key, const std::string& what) {
    std::lock_guard lock(saying_);
    if (silent_ || said_.size() > most_said || !said_.insert(key).second) return;
    messages::warn(what);
    if (said_.size() > most_said)
      messages::warn(fmt::format("what else there is to say of kernels is not said: it was {} lines", most_said));
  }

  /// The process ends, and what its log refers to with it.
  void end() {
    {
      std::lock_guard lock(saying_);
      silent_ = true;
    }
    ending_ = true;
    std::unique_lock lock(mutex_);
    forget_queue();  // a reload may wait for it
    one_is_done_->notify_all();
    one_is_done_->wait_for(lock, std::chrono::seconds(5), [&] { return !running_; });
  }

  void forget_queue() {
    for (const Job& job : queue_) {
      kernels_.erase(job.key);
      job.kernel->finished_ = true;
    }
    queue_.clear();
  }

  void before_fork() {
    mutex_.lock();
    saying_.lock();
  }
  void after_fork() {
    saying_.unlock();
    mutex_.unlock();
  }
  void after_fork_in_child() {
    // The old ones count threads that are not there. They are left as they are: nobody may destroy them.
    work_there_is_ = new std::condition_variable;
    one_is_done_ = new std::condition_variable;
    if (const auto cut_short = std::exchange(running_, nullptr)) {
      cut_short->finished_ = true;
      std::erase_if(kernels_, [&](const auto& known) { return known.second == cut_short; });
    }
    forget_queue();
    after_fork();
  }

  std::mutex mutex_;
  std::condition_variable* work_there_is_ = new std::condition_variable;
  std::condition_variable* one_is_done_ = new std::condition_variable;
  std::unordered_map<std::string, std::shared_ptr<GpuKernel>> kernels_;  // by device and source
  std::deque<Job> queue_;
  std::shared_ptr<GpuKernel> running_;  // what the thread is at
  pid_t thread_of_ = -1;
  std::atomic<bool> ending_{false};
  std::mutex saying_;
  bool silent_ = false;  // the process ends
  static constexpr size_t most_said = 256;
  static constexpr size_t most_waiting = 256;  // a script may make graphs faster than any compiler compiles
  std::unordered_set<std::string> said_;
};

void GpuKernel::wait() const { GpuCompiler::instance().wait(*this); }

std::shared_ptr<const GpuKernel> gpu_kernel_of(const GpuProgram& program, const std::string& graph) {
  return GpuCompiler::instance().get(program, graph);
}

}  // namespace triage::fused
