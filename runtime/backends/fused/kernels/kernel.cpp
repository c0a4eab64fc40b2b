#include "runtime/backends/fused/kernels/kernel.h"

#include <dlfcn.h>
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
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "runtime/backends/fused/kernel_cache/cached_calls.h"
#include "runtime/backends/fused/kernel_cache/checksum_trailer.h"
#include "runtime/backends/fused/kernel_cache/kernel_files.h"
#include "runtime/backends/fused/kernel_cache/kernel_manifest.h"
#include "runtime/backends/fused/kernels/system_compiler.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log.h"
#include "runtime/messages/profiling/phase_times.h"
#include "runtime/messages/start_thread.h"

namespace triage::fused {
namespace {

/// A reason in which no name stands that is another one each time.
std::string without(const std::string& folder, std::string reason) {
  for (size_t at; (at = reason.find(folder)) != std::string::npos;) reason.erase(at, folder.size());
  while (!reason.empty() && reason.back() == '\n') reason.pop_back();
  return reason;
}

void log_kernel(const std::string& graph, const std::string& key, const std::string& origin) {
  messages::trace(
      [&] { return messages::TraceEvent("kernel").text("key", key.substr(0, 8)).text("origin", origin).graph(graph); });
  if (messages::logs(messages::Artefact::kernels))
    messages::log_artefact(messages::Artefact::kernels, LogLevel::info,
                           fmt::format("kernel {} of graph `{}`: {}", key.substr(0, 8), graph, origin), {}, graph);
}

std::string seconds_since(std::chrono::steady_clock::time_point begin) {
  return fmt::format("{:.2f} s", std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

struct CannotLoad : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While alive, threads that are started here take no signal but of what goes wrong in them: one for the host's own threads, or one
/// by which the system says that a file grows too long, is not to run in a thread of ours.
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

/// The kernels of this process, and the thread that compiles. Lives until the process ends: kernels may run in threads that
/// outlive everything else.
///
/// A forked child has the kernels, and what was still to be compiled, but not the thread: it starts one of its own when a
/// kernel is asked for or waited for.
class Compiler {
 public:
  static Compiler& instance() {
    static Compiler* compiler = [] {
      std::atexit([] { instance().end(); });
      pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(); },
                     [] { instance().after_fork_in_child(); });
      return new Compiler;
    }();
    return *compiler;
  }

  bool may_have(CompilerMode mode) {
    std::lock_guard lock(mutex_);
    return mode != CompilerMode::off || !added_.empty() || !noting_.empty();
  }

  std::shared_ptr<const Kernel> get(const std::string& source, const std::string& graph, CompilerMode mode) {
    std::unique_lock lock(mutex_);
    if (!noting_.empty()) {
      for (auto* sources : noting_) sources->insert(source);
      return finished(nullptr);
    }
    if (const auto known = kernels_.find(source); known != kernels_.end()) return known->second;
    if (const auto found = added_.find(source); found != added_.end()) {
      const AddedKernel added = found->second;
      lock.unlock();
      const RowsFunction function = load_added(added);
      lock.lock();
      if (function) {
        const auto kernel = kernels_.emplace(source, finished(function)).first->second;
        lock.unlock();
        log_kernel(graph, hash_of(source), added.shared_object ? "from a bundle" : "built ahead of time");
        return kernel;
      }
      if (const auto known = kernels_.find(source); known != kernels_.end()) return known->second;
    }
    if (mode == CompilerMode::off) {
      const std::string files = added_from_;
      lock.unlock();
      say_lacking(files, "Its loop runs as a tape");
      return finished(nullptr);
    }
    const auto kernel = compile_later(source, graph, std::nullopt);
    const std::string files = added_from_;
    lock.unlock();
    say_lacking(files, "The kernel comes from the cache or the compiler");
    return kernel;
  }

  std::shared_ptr<const Kernel> get(const GpuProgram& program, const std::string& graph) {
    const std::string key = fmt::format("// {}\n{}", program.device.str(), program.source);
    std::lock_guard lock(mutex_);
    if (const auto known = kernels_.find(key); known != kernels_.end()) return known->second;
    return compile_later(key, graph, program);
  }

  void add(const std::vector<AddedKernel>& kernels, const std::string& file) {
    std::vector<std::pair<std::shared_ptr<Kernel>, AddedKernel>> wanted;  // already, and not there
    {
      std::lock_guard lock(mutex_);
      if (added_from_.find('"' + file + '"') == std::string::npos)
        added_from_ += fmt::format("{}\"{}\"", added_from_.empty() ? "" : ", ", file);
      for (const AddedKernel& kernel : kernels) {
        added_.emplace(kernel.source, kernel);
        if (const auto asked = kernels_.find(kernel.source); asked != kernels_.end() && !asked->second->function())
          wanted.emplace_back(asked->second, kernel);
      }
    }
    for (const auto& [kernel, added] : wanted)
      if (const RowsFunction function = load_added(added)) kernel->function_.store(function, std::memory_order_release);
  }

  std::vector<KernelInUse> in_use() {
    std::unique_lock lock(mutex_);
    if (!queue_.empty()) start_thread();
    one_is_done_->wait(lock, [&] { return queue_.empty() && !running_.kernel; });
    std::vector<KernelInUse> found;
    for (const auto& [source, kernel] : kernels_) {
      if (!kernel->function()) continue;
      const auto added = added_.find(source);
      found.push_back({source, added == added_.end() ? nullptr : added->second.shared_object});
    }
    return found;
  }

  void keep_later(const KnownCall& call) {
    std::lock_guard lock(mutex_);
    calls_to_keep_.push_back(call);
    try_start_thread();
    work_there_is_->notify_one();
  }
  void wait_for_kept() {
    std::unique_lock lock(mutex_);
    if (!calls_to_keep_.empty() && !try_start_thread()) return;
    one_is_done_->wait(lock, [&] { return calls_to_keep_.empty(); });
  }

  void note(std::set<std::string>& sources) {
    std::lock_guard lock(mutex_);
    noting_.push_back(&sources);
  }
  void stop_noting(std::set<std::string>& sources) {
    std::lock_guard lock(mutex_);
    noting_.erase(std::remove(noting_.begin(), noting_.end(), &sources), noting_.end());
  }
  std::set<std::string> noted(const std::set<std::string>& sources) {
    std::lock_guard lock(mutex_);
    return sources;
  }

  void wait(const Kernel& kernel) {
    std::unique_lock lock(mutex_);
    if (!kernel.finished_ && !try_start_thread()) return;
    one_is_done_->wait(lock, [&] { return kernel.finished_; });
  }

 private:
  struct Job {
    std::string source;
    std::shared_ptr<Kernel> kernel;
    std::string graph;  // its name, for messages; empty: it is not known
    messages::Logger logger;
    std::optional<GpuProgram> gpu;  // then it is no source for the CPU
  };

  /// Under the mutex. The next graph that wants it tries again where too many wait.
  std::shared_ptr<const Kernel> compile_later(const std::string& source, const std::string& graph,
                                              const std::optional<GpuProgram>& gpu) {
    if (queue_.size() >= most_waiting) drop_unwanted();
    if (queue_.size() >= most_waiting) return finished(nullptr);
    const auto kernel = kernels_[source] = std::make_shared<Kernel>();
    queue_.push_back({source, kernel, on_one_line(graph), messages::LogTo::current(), gpu});
    try_start_thread();
    work_there_is_->notify_one();
    return kernel;
  }

  static std::shared_ptr<Kernel> finished(RowsFunction function) {
    auto kernel = std::make_shared<Kernel>();
    kernel->function_.store(function, std::memory_order_release);
    kernel->finished_ = true;
    return kernel;
  }

  /// Kernels of graphs that are gone need not be compiled.
  bool is_unwanted(const Job& job) const {
    constexpr long held_here = 2;  // by the job and by kernels_
    return job.kernel.use_count() <= held_here;
  }

  void drop_unwanted() {
    std::erase_if(queue_, [&](const Job& job) {
      if (!is_unwanted(job)) return false;
      kernels_.erase(job.source);
      return true;
    });
  }

  void start_thread() {
    if (thread_of_ == ::getpid()) return;
    const NoSignals in_the_thread;
    messages::start_thread([this] { work(); }, "to compile kernels", "Loops run as tapes").detach();
    thread_of_ = ::getpid();
  }

  /// False where the system gives none: tapes serve meanwhile, and whoever asks next tries again. Not told: a log's callback may
  /// come back here.
  bool try_start_thread() {
    try {
      start_thread();
      return true;
    } catch (const LimitError&) {
      return false;
    }
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      work_there_is_->wait(lock, [&] { return !queue_.empty() || !calls_to_keep_.empty(); });
      if (queue_.empty()) {  // kernels first: somebody waits for those
        keep_noted(lock);
        continue;
      }
      if (is_unwanted(queue_.front())) {
        kernels_.erase(queue_.front().source);
        queue_.pop_front();
        one_is_done_->notify_all();
        continue;
      }
      running_ = std::move(queue_.front());
      queue_.pop_front();
      const Job job = running_;
      lock.unlock();
      const RowsFunction function = job.gpu ? nullptr : make(job);
      if (job.gpu && !ending_) job.kernel->gpu_code_.store(make_for_gpu(job), std::memory_order_release);
      lock.lock();
      if (function)
        job.kernel->function_.store(function, std::memory_order_release);
      else if (!job.kernel->function() && !job.kernel->gpu_code())  // nor was one added meanwhile
        kernels_.erase(job.source);                                 // the next graph that wants it tries again
      job.kernel->finished_ = true;
      running_ = {};
      one_is_done_->notify_all();
    }
  }

  /// They go to a folder, which is no reason for anything to fail.
  void keep_noted(std::unique_lock<std::mutex>& lock) {
    const std::vector<KnownCall> calls = calls_to_keep_;
    lock.unlock();
    try {
      std::lock_guard whole(whole_);
      keep_calls(calls);
    } catch (const std::exception&) {
    }
    lock.lock();
    calls_to_keep_.erase(calls_to_keep_.begin(), calls_to_keep_.begin() + static_cast<ptrdiff_t>(calls.size()));
    one_is_done_->notify_all();
  }

  /// Null where it cannot be loaded, which is said: then there is none in that file.
  RowsFunction load_added(const AddedKernel& kernel) {
    try {
      return kernel.load();
    } catch (const std::exception& error) {
      say_once(error.what(), error.what());
      return nullptr;
    }
  }

  struct Timed {  // as the phase `kernels`
    ~Timed() { messages::add_phase_time("kernels", graph, std::chrono::steady_clock::now() - begin); }
    const std::string& graph;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  };

  /// Null where there is none, which is said: once that there is no compiler, and for each kernel that it fails for.
  RowsFunction make(const Job& job) {
    const messages::LogTo log_to(job.logger);
    const Timed timed{job.graph};
    if (const RowsFunction function = from_bundle(job)) return function;
    const SystemCompiler* const compiler = find_compiler();
    if (!compiler) return nullptr;
    const std::string text = kernel_text(compiler->identity(), job.source);
    try {
      return from_cache_or_compiler(*compiler, job.source, text, job.graph);
    } catch (const std::exception& error) {
      const std::string name = job.graph.empty() ? "a graph" : '"' + job.graph + '"';
      const std::string key = hash_of(text);
      say_once(key + error.what(),
               fmt::format("no fused kernel for a part of {} (kernel {}), a tape runs in its place: {}", name,
                           key.substr(0, 8), error.what()));
      return nullptr;
    }
  }

  /// Null where it cannot be compiled, which is said. It lives until the process ends: streams may be running it.
  const GpuCode* make_for_gpu(const Job& job) {
    const messages::LogTo log_to(job.logger);
    const Timed timed{job.graph};
    const auto begin = std::chrono::steady_clock::now();
    const std::string key = hash_of(job.source), device = job.gpu->device.str();
    try {
      const Accelerator* const accelerator = accelerator_of(job.gpu->device.type());
      if (!accelerator) throw std::runtime_error("there is nothing that compiles for this device");
      auto code = accelerator->compile(job.gpu->device, job.gpu->source, job.gpu->parameters);
      log_kernel(job.graph, key, fmt::format("compiled for {} in {}", device, seconds_since(begin)));
      return code.release();
    } catch (const std::exception& error) {
      say_once(
          key + error.what(),
          fmt::format("no fused kernel for a part of {} on {} (kernel {}), ATen runs in its place: {}",
                      job.graph.empty() ? "a graph" : '"' + job.graph + '"', device, key.substr(0, 8), error.what()));
      return nullptr;
    }
  }

  const SystemCompiler* find_compiler() {
    try {
      std::lock_guard lock(whole_);
      return &SystemCompiler::instance(ending_);
    } catch (const std::exception& error) {
      say_once(error.what(), fmt::format("no fused kernels, tapes run in their place: {}", error.what()));
      return nullptr;
    }
  }

  /// `key` is what this process remembers it by; of very many different things the last are not said.
  void say_once(const std::string& key, const std::string& what) {
    std::lock_guard lock(saying_);
    if (silent_ || said_.size() > most_said || !said_.insert(key).second) return;
    messages::warn(what);
    if (said_.size() > most_said)
      messages::warn(fmt::format("what else there is to say of kernels is not said: it was {} lines", most_said));
  }

  void say_lacking(const std::string& files, const char* instead) {
    if (files.empty()) return;
    say_once("lacks", fmt::format("a part of a graph has no kernel in {}: that was built from another policy, another "
                                  "version of it, for other kinds of inputs, or without --gradients. {}",
                                  files, instead));
  }

  /// The process ends, and what its log refers to with it. What is being compiled is given up, so that neither the system's
  /// compiler nor its half-written file is left behind.
  void end() {
    {
      std::lock_guard lock(saying_);
      silent_ = true;
    }
    ending_ = true;
    std::unique_lock lock(mutex_);
    for (const Job& job : queue_) {  // a reload may wait for it
      kernels_.erase(job.source);
      job.kernel->finished_ = true;
    }
    queue_.clear();
    one_is_done_->notify_all();
    one_is_done_->wait_for(lock, std::chrono::seconds(5), [&] { return !running_.kernel && calls_to_keep_.empty(); });
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
    if (running_.kernel) queue_.push_front(std::exchange(running_, {}));
    std::erase_if(queue_, [&](const Job& job) {  // no child of a fork can use the device
      if (job.gpu) job.kernel->finished_ = true, kernels_.erase(job.source);
      return job.gpu.has_value();
    });
    calls_to_keep_.clear();  // the parent keeps them
    after_fork();
  }

  /// What a bundle has put into the cache folder; null where there is none, or it cannot be loaded.
  RowsFunction from_bundle(const Job& job) {
    const auto known = KernelFiles().find(kernel_text(identity_of_bundles(), job.source));
    if (!known) return nullptr;
    try {
      const RowsFunction function = load(*known, hash_of(job.source));
      log_kernel(job.graph, hash_of(job.source), "from a bundle, in the cache: " + *known);
      return function;
    } catch (const std::runtime_error&) {
      return nullptr;
    }
  }

  /// From the cache, or compiled now. A file that cannot be loaded is not kept longer.
  RowsFunction from_cache_or_compiler(const SystemCompiler& compiler, const std::string& source,
                                      const std::string& text, const std::string& graph) {
    const auto begin = std::chrono::steady_clock::now();
    KernelFiles files;
    const std::string key = hash_of(text), of_source = hash_of(source);
    if (const auto known = files.find(text)) {
      try {
        const RowsFunction function = load(*known, of_source);
        log_kernel(graph, key, "from the cache: " + *known);
        return function;
      } catch (const std::runtime_error&) {  // what is compiled now replaces it, where that can be loaded from there
      }
    }
    const auto say_refused = [&] {
      if (!files.refused().empty())
        say_once("unkept", fmt::format("compiled kernels are not kept for the next process: {}", files.refused()));
    };
    const auto compile_in = [&](const BuildDirectory& build_directory) {
      const std::string object = build_directory / "kernel.so";
      try {
        compiler.compile(source, object, {"-Dtriage_rows=" + rows_symbol(of_source)}, ending_);
        return std::pair(object, load(object, of_source));
      } catch (const CannotLoad& error) {
        throw CannotLoad(without(build_directory / "", error.what()));
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(without(build_directory / "", error.what()));
      }
    };
    std::optional<std::string> not_loaded;
    if (const auto build_directory = folder_loads_nothing_ ? nullptr : files.build_directory()) {
      try {
        const auto [object, function] = compile_in(*build_directory);  // loaded before it is kept
        files.keep(text, object, *build_directory);
        say_refused();
        log_kernel(graph, key, "compiled in " + seconds_since(begin));
        return function;
      } catch (const CannotLoad& error) {
        not_loaded = error.what();
      } catch (const std::runtime_error&) {
        if (ending_ || files.has_room(*build_directory)) throw;
      }
    }
    const RowsFunction function = compile_in(BuildDirectory()).second;
    if (not_loaded) {  // from the folder, and it is from here: the folder is to blame
      folder_loads_nothing_ = true;
      files.refuse_unloadable(*not_loaded);
    }
    say_refused();
    log_kernel(graph, key, "compiled in " + seconds_since(begin) + ", and not kept");
    return function;
  }

  /// The symbol tells the kernel: where a loader answers with another file, it is not taken for this one.
  RowsFunction load(const std::string& path, const std::string& of_source) {
    std::lock_guard lock(whole_);
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw CannotLoad(fmt::format("cannot load a compiled kernel: {}", ::dlerror()));
    auto* function = reinterpret_cast<RowsFunction>(::dlsym(library, rows_symbol(of_source).c_str()));
    if (!function)
      throw std::runtime_error(fmt::format("a compiled kernel has no function {}: {}", rows_symbol(of_source), path));
    return function;
  }

  std::mutex whole_;  // held while what a fork must not cut in two is done; taken before the others
  std::mutex mutex_;
  std::condition_variable* work_there_is_ = new std::condition_variable;
  std::condition_variable* one_is_done_ = new std::condition_variable;
  std::unordered_map<std::string, std::shared_ptr<Kernel>> kernels_;
  std::unordered_map<std::string, AddedKernel> added_;  // from files that were named ahead of time
  std::string added_from_;                              // these files
  std::vector<std::set<std::string>*> noting_;          // of those who build such files
  std::deque<Job> queue_;
  std::vector<KnownCall> calls_to_keep_;
  Job running_;  // what the thread is at
  pid_t thread_of_ = -1;
  std::atomic<bool> ending_{false};
  bool folder_loads_nothing_ = false;  // of the thread that compiles
  std::mutex saying_;
  bool silent_ = false;  // the process ends
  static constexpr size_t most_said = 256;
  static constexpr size_t most_waiting = 256;  // a script may make graphs faster than any compiler compiles
  std::unordered_set<std::string> said_;
};

void Kernel::wait() const { Compiler::instance().wait(*this); }

std::shared_ptr<const Kernel> kernel_of(const std::string& source, const std::string& graph, CompilerMode compiler) {
  return Compiler::instance().get(source, graph, compiler);
}

std::shared_ptr<const Kernel> gpu_kernel_of(const GpuProgram& program, const std::string& graph) {
  return Compiler::instance().get(program, graph);
}

bool may_have_kernel(CompilerMode compiler) { return Compiler::instance().may_have(compiler); }

void add_kernels(const std::vector<AddedKernel>& kernels, const std::string& file) {
  Compiler::instance().add(kernels, file);
}

std::vector<KernelInUse> kernels_in_use() { return Compiler::instance().in_use(); }

void keep_calls_later(const KnownCall& call) { Compiler::instance().keep_later(call); }

void wait_for_kept_calls() { Compiler::instance().wait_for_kept(); }

void note_kernels(std::set<std::string>& sources) { Compiler::instance().note(sources); }

void stop_noting(std::set<std::string>& sources) { Compiler::instance().stop_noting(sources); }

std::set<std::string> noted(const std::set<std::string>& sources) { return Compiler::instance().noted(sources); }

}  // namespace triage::fused
