#include "tests/distributed/ranks.h"

#include <ATen/Parallel.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <filesystem>
#include <stdexcept>

// Groups are made of any process group of c10d, not of Gloo's alone.
template triage::Group::Group(c10::intrusive_ptr<c10d::ProcessGroup>);

namespace triage::test {
namespace {

struct Rank {
  pid_t process = 0;
  int pipe = -1;
  bool ended = false;
  std::string text;
};

Group connect(const std::string& file, int rank, int count, std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = timeout;
  auto store = c10::make_intrusive<c10d::FileStore>(file, count);
  return Group(c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, count, options));
}

[[noreturn]] void run(int pipe, const std::function<std::string()>& work) {
  std::string text;
  try {
    text = work();
  } catch (const std::exception& error) {
    text = std::string("threw: ") + error.what();
  }
  for (size_t written = 0; written < text.size();) {
    const ssize_t more = ::write(pipe, text.data() + written, text.size() - written);
    if (more <= 0) ::_exit(1);
    written += static_cast<size_t>(more);
  }
  ::_exit(0);  // without the destructors of the group, which would wait for threads
}

Rank start(const std::function<std::string()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  Rank rank;
  rank.process = ::fork();
  if (rank.process < 0) throw std::runtime_error("no process");
  if (rank.process == 0) {
    ::signal(SIGPIPE, SIG_IGN);
    run(ends[1], work);
  }
  ::close(ends[1]);
  rank.pipe = ends[0];
  return rank;
}

/// Short texts, which fit into a pipe.
void take_text(Rank& rank, int status) {
  rank.ended = true;
  char buffer[4096];
  for (ssize_t count; (count = ::read(rank.pipe, buffer, sizeof buffer)) > 0;)
    rank.text.append(buffer, static_cast<size_t>(count));
  ::close(rank.pipe);
  if (WIFSIGNALED(status)) rank.text = std::string("signal: ") + ::strsignal(WTERMSIG(status));
}

void kill_rest(std::vector<Rank>& ranks, const char* text) {
  for (Rank& rank : ranks) {
    if (rank.ended) continue;
    ::kill(rank.process, SIGKILL);
    ::waitpid(rank.process, nullptr, 0);
    ::close(rank.pipe);
    rank.ended = true;
    rank.text = text;
  }
}

}  // namespace

std::vector<std::string> in_ranks(int count, std::chrono::milliseconds timeout, const RankWork& work) {
  at::set_num_threads(1);  // threads of OpenMP do not live on in a child
  const TemporaryFolder folder;
  std::vector<Rank> ranks;
  for (int i = 0; i < count; ++i)
    ranks.push_back(start([&] { return work(connect(folder.file("store"), i, count, timeout)); }));
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  int stopped = 0, left = count;
  while (left > stopped && std::chrono::steady_clock::now() < end) {
    for (Rank& rank : ranks) {
      int status = 0;
      if (rank.ended || ::waitpid(rank.process, &status, WNOHANG | WUNTRACED | WCONTINUED) != rank.process) continue;
      if (WIFSTOPPED(status)) {
        ++stopped;
      } else if (WIFCONTINUED(status)) {
        --stopped;
      } else {
        take_text(rank, status);
        --left;
      }
    }
    ::usleep(2000);
  }
  kill_rest(ranks, left > stopped ? "it hangs" : "stopped");
  std::vector<std::string> texts;
  for (const Rank& rank : ranks) texts.push_back(rank.text);
  return texts;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "triage-ranks-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("no folder for a test");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace triage::test
