#include "runtime/backends/fused/kernel.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <thread>
#include <unordered_map>

#include "runtime/backends/fused/kernel_files.h"
#include "runtime/backends/fused/system_compiler.h"

namespace triage::fused {

void Kernel::wait() const {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return finished_; });
}

void Kernel::finish(RowsFunction function) {
  {
    std::lock_guard lock(mutex_);
    finished_ = true;
    function_.store(function, std::memory_order_release);
  }
  done_.notify_all();
}

/// The kernels of this process, and the thread that compiles. Lives until the process ends: kernels may run in threads that
/// outlive everything else.
class Compiler {
 public:
  static Compiler& instance() {
    static Compiler* compiler = [] {
      spdlog::default_logger();  // made before the handler is registered, so it is destroyed after it has run
      std::atexit([] { instance().fall_silent(); });
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
      wake_.notify_one();
    }
    return kernel;
  }

 private:
  /// One for this process: after a fork the child has none.
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
      wake_.wait(lock, [&] { return !queue_.empty(); });
      auto [source, kernel] = queue_.front();
      queue_.pop_front();
      lock.unlock();
      make(source, *kernel);
      lock.lock();
    }
  }

  void make(const std::string& source, Kernel& kernel) {
    try {
      kernel.finish(load(shared_object(source)));
    } catch (const std::exception& error) {
      say_once(error.what());
      {
        std::lock_guard lock(mutex_);
        kernels_.erase(source);  // the next graph that wants it tries again
      }
      kernel.finish(nullptr);
    }
  }

  void say_once(const char* what) {
    std::lock_guard lock(saying_);
    if (!std::exchange(silent_, true))
      spdlog::default_logger()->warn("no fused kernels, the interpreter serves in their place: {}", what);
  }

  /// The process ends, and its loggers with it.
  void fall_silent() {
    std::lock_guard lock(saying_);
    silent_ = true;
  }

  /// A file with the machine code: from the cache, or compiled now.
  static KernelFile shared_object(const std::string& source) {
    const SystemCompiler& compiler = SystemCompiler::instance();
    KernelFiles files;
    const std::string key = hash_of(compiler.identity() + source);
    if (auto known = files.find(key)) return std::move(*known);
    KernelFile made = files.scratch(key);
    compiler.compile(source, made.path());
    return files.keep(key, std::move(made));
  }

  static RowsFunction load(const KernelFile& file) {
    void* library = ::dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(fmt::format("cannot load a compiled kernel: {}", ::dlerror()));
    auto* function = reinterpret_cast<RowsFunction>(::dlsym(library, "triage_rows"));
    if (!function)
      throw std::runtime_error(fmt::format("a compiled kernel has no function triage_rows: {}", file.path()));
    return function;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;
  std::deque<std::pair<std::string, std::shared_ptr<Kernel>>> queue_;
  pid_t thread_of_ = -1;
  std::mutex saying_;
  bool silent_ = false;
};

std::shared_ptr<const Kernel> kernel_of(const std::string& source) { return Compiler::instance().get(source); }

}  // namespace triage::fused
