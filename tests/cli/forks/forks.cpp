// Most of a short call of `triage` is LibTorch's start. Preloaded into the program, this library takes the place of its
// main function: the program starts once, and each call that tests/cli/program.cpp sends goes on in a fork of it.
//
// A call comes through the socket `calls` as its size (uint64_t) and texts that end with a zero byte: the folder to run
// in, the files for standard output and error, the environment, an empty text, the arguments. Back comes the status, as
// waitpid has it.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);

Main program = nullptr;
constexpr int calls = 3;

bool receive(void* to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t count = ::read(calls, static_cast<char*>(to) + done, size - done);
    if (count <= 0) return false;
    done += static_cast<size_t>(count);
  }
  return true;
}

void redirect(int to, const char* file, int flags) {
  const int opened = ::open(file, flags, 0644);
  if (opened < 0 || ::dup2(opened, to) < 0) ::_exit(126);
  ::close(opened);
}

[[noreturn]] void go_on(std::string& call) {
  std::vector<char*> texts;
  for (size_t at = 0; at < call.size(); at = call.find('\0', at) + 1) texts.push_back(call.data() + at);
  size_t begin = 3;  // of the environment
  size_t end = begin;
  while (*texts[end]) ++end;
  const auto count = static_cast<int>(texts.size() - end - 1);
  texts[end] = nullptr;
  texts.push_back(nullptr);
  ::close(calls);
  if (::chdir(texts[0]) != 0) ::_exit(126);
  redirect(STDIN_FILENO, "/dev/null", O_RDONLY);
  redirect(STDOUT_FILENO, texts[1], O_WRONLY | O_CREAT | O_TRUNC);
  redirect(STDERR_FILENO, texts[2], O_WRONLY | O_CREAT | O_TRUNC);
  ::environ = &texts[begin];
  std::exit(program(count, &texts[end + 1], ::environ));
}

int answer_calls(int, char**, char**) {
  uint64_t size = 0;
  while (receive(&size, sizeof size)) {
    std::string call(size, '\0');
    if (!receive(call.data(), size)) break;
    const pid_t child = ::fork();
    if (child == 0) go_on(call);
    int status = -1;
    ::waitpid(child, &status, 0);
    if (::write(calls, &status, sizeof status) != sizeof status) break;
  }
  ::_exit(0);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(Main main, int count, char** arguments,
                                                                        void (*init)(), void (*fini)(), void (*end)(),
                                                                        void* stack) {
  program = main;
  const auto start = reinterpret_cast<decltype(&__libc_start_main)>(::dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(answer_calls, count, arguments, init, fini, end, stack);
}
