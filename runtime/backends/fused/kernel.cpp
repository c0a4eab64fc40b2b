#include "runtime/backends/fused/kernel.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "runtime/backends/fused/kernel_files.h"
#include "runtime/backends/fused/system_compiler.h"

namespace triage::fused {

/// The kernels of this process, and the thread that compiles. Lives until the process ends: kernels may run in threads that
/// outlive everything else.
///
/// A forked child has the kernels, and what was still to be compiled, but not the thread: it starts one of its own when a
/// kernel is asked for or waited for.
class Compiler {
 public:
  static Compiler& instance() {
    static Compiler* compiler = [] {
      spdlog::default_logger();  // made before the handler is registered, so it is destroyed after it has run
      std::atexit([] { instance().end(); });
      pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(); },
                     [] { instance().after_fork_in_child(); });
      return new Compiler;
    }();
    return *compiler;
  }

  std::shared_ptr<const Kernel> get(const std::string& source) {
    std::lock_guard lock(mutex_);
    auto& kernel = kernels_[source];
    if (!kernel) {
      kernel = std::make_shared<Kernel>();
      queue_.emplace_back(source, kernel);
      start_thread();
      work_there_is_->notify_one();
    }
    return kernel;
  }

  void wait(const Kernel& kernel) {
    std::unique_lock lock(mutex_);
    if (!kernel.finished_) start_thread();
    one_is_done_->wait(lock, [&] { return kernel.finished_; });
  }

 private:
  using Job = std::pair<std::string, std::shared_ptr<Kernel>>;

  void start_thread() {
    if (thread_of_ == ::getpid()) return;
    thread_of_ = ::getpid();
    std::thread([this] { work(); }).detach();
  }

  void work() {
    sigset_t pipe;  // a compiler that ends early must not end this process when its input is written
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
      work_there_is_->wait(lock, [&] { return !queue_.empty(); });
      running_ = std::move(queue_.front());
      queue_.pop_front();
      const Job job = running_;
      lock.unlock();
      const RowsFunction function = make(job.first);
      lock.lock();
      if (!function) kernels_.erase(job.first);  // the next graph that wants it tries again
      job.second->function_.store(function, std::memory_order_release);
      job.second->finished_ = true;
      running_ = {};
      one_is_done_->notify_all();
    }
  }

  /// Null where there is none.
  RowsFunction make(const std::string& source) {
    try {
      return load(shared_object(source));
    } catch (const std::exception& error) {
      say_once(error.what());
      return nullptr;
    }
  }

  void say_once(const char* what) {
    std::lock_guard lock(saying_);
    if (!std::exchange(silent_, true))
      spdlog::default_logger()->warn("no fused kernels, the interpreter serves in their place: {}", what);
  }

  /// The process ends, and its loggers with it. What is being compiled is given up, so that neither the system's compiler nor
  /// its half-written file is left behind.
  void end() {
    {
      std::lock_guard lock(saying_);
      silent_ = true;
    }
    ending_ = true;
    std::unique_lock lock(mutex_);
    queue_.clear();
    one_is_done_->wait_for(lock, std::chrono::seconds(5), [&] { return !running_.second; });
  }

  void before_fork() {
    whole_.lock();
    mutex_.lock();
    saying_.lock();
  }
  void after_fork() {
    saying_.unlock();
    mutex_.unlock();
    whole_.unlock();
  }
  void after_fork_in_child() {
    // The old ones count threads that are not there. They are left as they are: nobody may destroy them.
    work_there_is_ = new std::condition_variable;
    one_is_done_ = new std::condition_variable;
    if (running_.second) queue_.push_front(std::exchange(running_, {}));
    after_fork();
  }

  /// A file with the machine code: from the cache, or compiled now.
  KernelFile shared_object(const std::string& source) {
    const SystemCompiler& compiler = [&]() -> const SystemCompiler& {
      std::lock_guard lock(whole_);
      return SystemCompiler::instance();
    }();
    KernelFiles files;
    const std::string key = hash_of(compiler.identity() + source);
    if (auto known = files.find(key)) return std::move(*known);
    KernelFile made = files.scratch(key);
    compiler.compile(source, made.path(), ending_);
    return files.keep(key, std::move(made));
  }

  RowsFunction load(const KernelFile& file) {
    std::lock_guard lock(whole_);
    void* library = ::dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(fmt::format("cannot load a compiled kernel: {}", ::dlerror()));
    auto* function = reinterpret_cast<RowsFunction>(::dlsym(library, "triage_rows"));
    if (!function)
      throw std::runtime_error(fmt::format("a compiled kernel has no function triage_rows: {}", file.path()));
    return function;
  }

  std::mutex whole_;  // held while what a fork must not cut in two is done; taken before the others
  std::mutex mutex_;
  std::condition_variable* work_there_is_ = new std::condition_variable;
  std::condition_variable* one_is_done_ = new std::condition_variable;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;
  std::deque<Job> queue_;
  Job running_;  // what the thread is at
  pid_t thread_of_ = -1;
  std::atomic<bool> ending_{false};
  std::mutex saying_;
  bool silent_ = false;
};

void Kernel::wait() const { Compiler::instance().wait(*this); }

std::shared_ptr<const Kernel> kernel_of(const std::string& source) { return Compiler::instance().get(source); }

}  // namespace triage::fused
