#include "tests/fuzz/operators/worker.h"

#include "tests/fuzz/operators/fenced_allocator.h"

#include <ATen/Parallel.h>
#include <c10/util/Logging.h>
#include <execinfo.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

namespace triage::fuzz {
namespace {

constexpr int died_of_signal = 86;

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  const size_t size = std::min(N - 1, text.size());
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}

double seconds_of(pid_t process) {
  clockid_t clock;
  timespec used{};
  if (::clock_getcpuclockid(process, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// Says where the fault lies, then which functions led to it.
void on_signal(int signal, siginfo_t* info, void*) {
  char text[200], place[120] = "";
  FencedAllocator::install().describe(info->si_addr, place, sizeof place);
  const int size =
      std::snprintf(text, sizeof text, "signal %d (%s)%s%s\n", signal, strsignal(signal), *place ? ": " : "", place);
  if (size > 0 && ::write(2, text, static_cast<size_t>(size)) < 0) ::_exit(died_of_signal);
  void* frames[24];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, 24), 2);
  ::_exit(died_of_signal);
}

void catch_signals() {
  static unsigned char stack[64 << 10];
  const stack_t alternative{stack, 0, sizeof stack};
  ::sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
  void* frames[1];
  ::backtrace(frames, 1);  // loads what it needs, which a handler may not
}

void limit_memory(uint64_t extra) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (sanitized) return;
  long pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  const rlimit space{static_cast<rlim_t>(pages) * 4096 + extra, RLIM_INFINITY};
  if (pages) ::setrlimit(RLIMIT_AS, &space);
}

}  // namespace

Worker::Worker(const std::vector<Target>& targets, WorkerOptions options, size_t most_calls)
    : targets_(targets),
      options_(options),
      shared_bytes_(sizeof(Shared) + most_calls * sizeof(Record)),
      words_(::memfd_create("words", 0)) {
  void* memory = ::mmap(nullptr, shared_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || words_ < 0) throw std::runtime_error("no memory to share with workers");
  shared_ = new (memory) Shared;
}

Worker::~Worker() {
  ::munmap(shared_, shared_bytes_);
  ::close(words_);
}

const Record* Worker::run(int64_t first, size_t count, unsigned char fill, const std::vector<bool>& skipped) {
  std::memset(static_cast<void*>(shared_->records), 0, count * sizeof(Record));
  const int64_t end = first + static_cast<int64_t>(count);
  int64_t from = first;
  std::vector<bool> left_out = skipped;
  std::map<size_t, int> deaths;
  while (from < end) {
    int ends[2];
    if (::pipe(ends) != 0 || ::ftruncate(words_, 0) != 0) throw std::runtime_error("no pipe for a worker");
    shared_->current = from;
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("no process for a worker");
    if (process == 0) {
      ::close(ends[0]);
      work(first, from, end, fill, left_out);
    }
    ::close(ends[1]);
    const std::string death = watch(process, ends[0]);
    ::close(ends[0]);
    if (death.empty()) break;
    from = shared_->current;
    if (from >= end) break;  // at its end, after the last call
    Record& record = shared_->records[from - first];
    record.outcome = Outcome::died;
    put(record.fault, death);
    put(record.text, last_words());
    const size_t position = static_cast<size_t>(from) % targets_.size();
    if (++deaths[position] >= options_.most_deaths) left_out[position] = true;
    ++from;
  }
  return shared_->records;
}

void Worker::work(int64_t first, int64_t from, int64_t end, unsigned char fill, const std::vector<bool>& skipped) {
  ::lseek(words_, 0, SEEK_SET);
  ::dup2(words_, 2);
  FencedAllocator& memory = FencedAllocator::install();
  memory.fill = fill;
  memory.fence_behind = first / 4096 % 4 != 3;  // the same in both of two workers
  if (!sanitized) {
    ::mallopt(M_PERTURB, fill == 0xff ? 1 : static_cast<unsigned char>(~fill));  // 0 would be none
    catch_signals();
  }
  limit_memory(options_.extra_bytes);
  c10::SetStackTraceFetcher([]() -> std::string { return ""; });  // takes a millisecond for each error
  at::set_num_threads(1);
  for (int64_t i = from; i < end; ++i) {
    shared_->current = i;
    const auto position = static_cast<size_t>(i) % targets_.size();
    if (skipped[position]) continue;
    const CallResult result = make_call(targets_[position], {options_.seed, i});
    Record& record = shared_->records[i - first];
    record.digest = result.digest;
    record.nanoseconds = result.nanoseconds;
    put(record.text, result.text);
    put(record.fault, result.fault);
    record.outcome = result.outcome;
  }
  shared_->current = end;
  ::_exit(0);
}

std::string Worker::watch(pid_t process, int pipe) {
  int64_t seen = -1;
  double since = 0;
  int idle = 0;
  const double patience = options_.hang_seconds * (sanitized ? 10 : 1);
  pollfd waited{pipe, 0, 0};
  while (::poll(&waited, 1, 100) == 0) {  // ends when the other end is closed, with the process
    const double now = seconds_of(process);
    if (shared_->current != seen) {
      seen = shared_->current;
      since = now;
      idle = 0;
    }
    if (now - since < patience && ++idle < 600) continue;
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    return now - since < patience ? "hang: waits for ever"
                                  : "hang: more than " + std::to_string(patience).substr(0, 4) + " s of processor time";
  }
  int status = 0;
  ::waitpid(process, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return shared_->current < 0 ? "?" : "";
  if (WIFSIGNALED(status)) return std::string("crash: ") + strsignal(WTERMSIG(status));
  return "crash: exit status " + std::to_string(WEXITSTATUS(status));
}

/// What stands at the end of what the process said: warnings of LibTorch may stand before it.
std::string Worker::last_words() const {
  constexpr off_t most = sanitized ? 6000 : 4000;
  const off_t end = ::lseek(words_, 0, SEEK_END), begin = std::max<off_t>(0, end - most);
  std::string text(static_cast<size_t>(end - begin), '\0');
  const ssize_t size = ::pread(words_, text.data(), text.size(), begin);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  for (const char* start : {"signal ", "ERROR: AddressSanitizer", "runtime error:"}) {
    const size_t found = text.find(start);
    if (found != std::string::npos) return text.substr(found);
  }
  return text;
}

}  // namespace triage::fuzz
