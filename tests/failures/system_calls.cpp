// The functions of the system that this program, and the libraries that work for it, call in place of those of the C
// library: each fails on demand (failing.h) as its manual page says that it may. A function that triage comes to call
// gets a line here.
#include "tests/failures/failing.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>

namespace {

using triage::test::Fails;
using triage::test::fails_now;

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool refused(int error, void* caller) {
  if (!fails_now(Fails::system, caller)) return false;
  errno = error;
  return true;
}

/// Also one of those that a full disk refuses.
bool refused_or_full(int error, void* caller) {
  if (refused(error, caller)) return true;
  if (!fails_now(Fails::file, caller)) return false;
  errno = ENOSPC;
  return true;
}

mode_t mode_of(int flags, va_list rest) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; }

}  // namespace

// FUNCTION(result, name, parameters, arguments, what a failure gives, errno, exceptions)
#define FUNCTION(RESULT, NAME, PARAMETERS, ARGUMENTS, FAILED, ERROR, ...)         \
  RESULT NAME PARAMETERS __VA_ARGS__ {                                            \
    static auto* const real = original<RESULT PARAMETERS>(#NAME);                 \
    return refused(ERROR, __builtin_return_address(0)) ? FAILED : real ARGUMENTS; \
  }
#define OF_DISKS(RESULT, NAME, PARAMETERS, ARGUMENTS, FAILED, ERROR, ...)                 \
  RESULT NAME PARAMETERS __VA_ARGS__ {                                                    \
    static auto* const real = original<RESULT PARAMETERS>(#NAME);                         \
    return refused_or_full(ERROR, __builtin_return_address(0)) ? FAILED : real ARGUMENTS; \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  static auto* const real = original<int(const char*, int, ...)>("open");
  return refused_or_full(EMFILE, __builtin_return_address(0)) ? -1 : real(path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  static auto* const real = original<int(int, const char*, int, ...)>("openat");
  return refused(EMFILE, __builtin_return_address(0)) ? -1 : real(folder, path, flags, mode);
}

OF_DISKS(ssize_t, write, (int fd, const void* bytes, size_t count), (fd, bytes, count), -1, EIO)
OF_DISKS(size_t, fwrite, (const void* bytes, size_t size, size_t count, FILE* to), (bytes, size, count, to), 0, EIO)
OF_DISKS(int, fsync, (int fd), (fd), -1, EIO)
OF_DISKS(int, rename, (const char* from, const char* to), (from, to), -1, EACCES, noexcept)
OF_DISKS(int, mkdir, (const char* path, mode_t mode), (path, mode), -1, EACCES, noexcept)

FUNCTION(ssize_t, read, (int fd, void* to, size_t count), (fd, to, count), -1, EIO)
FUNCTION(ssize_t, pread, (int fd, void* to, size_t count, off_t at), (fd, to, count, at), -1, EIO)
FUNCTION(FILE*, fopen, (const char* path, const char* mode), (path, mode), nullptr, EMFILE)
FUNCTION(FILE*, fopen64, (const char* path, const char* mode), (path, mode), nullptr, EMFILE)
FUNCTION(int, fflush, (FILE * file), (file), EOF, EIO)
FUNCTION(DIR*, opendir, (const char* path), (path), nullptr, EMFILE)
FUNCTION(DIR*, fdopendir, (int fd), (fd), nullptr, ENOMEM)
FUNCTION(dirent*, readdir, (DIR * folder), (folder), nullptr, EIO)
FUNCTION(int, stat, (const char* path, struct stat* to), (path, to), -1, EACCES, noexcept)
FUNCTION(int, lstat, (const char* path, struct stat* to), (path, to), -1, EACCES, noexcept)
FUNCTION(int, fstat, (int fd, struct stat* to), (fd, to), -1, EIO, noexcept)
FUNCTION(int, fstatat, (int folder, const char* path, struct stat* to, int flags), (folder, path, to, flags), -1,
         EACCES, noexcept)
FUNCTION(ssize_t, readlink, (const char* path, char* to, size_t count), (path, to, count), -1, EACCES, noexcept)
FUNCTION(ssize_t, readlinkat, (int folder, const char* path, char* to, size_t count), (folder, path, to, count), -1,
         EACCES, noexcept)
FUNCTION(char*, realpath, (const char* path, char* to), (path, to), nullptr, EACCES, noexcept)
FUNCTION(char*, getcwd, (char* to, size_t count), (to, count), nullptr, ENOENT, noexcept)
FUNCTION(int, unlink, (const char* path), (path), -1, EACCES, noexcept)
FUNCTION(int, unlinkat, (int folder, const char* path, int flags), (folder, path, flags), -1, EACCES, noexcept)
FUNCTION(int, chmod, (const char* path, mode_t mode), (path, mode), -1, EPERM, noexcept)
FUNCTION(int, fchmod, (int fd, mode_t mode), (fd, mode), -1, EPERM, noexcept)
FUNCTION(int, fchmodat, (int folder, const char* path, mode_t mode, int flags), (folder, path, mode, flags), -1, EPERM,
         noexcept)
FUNCTION(char*, mkdtemp, (char* path), (path), nullptr, EACCES, noexcept)
FUNCTION(int, inotify_init1, (int flags), (flags), -1, EMFILE, noexcept)
FUNCTION(int, inotify_add_watch, (int fd, const char* path, uint32_t changes), (fd, path, changes), -1, ENOSPC,
         noexcept)
FUNCTION(int, eventfd, (unsigned count, int flags), (count, flags), -1, EMFILE, noexcept)
FUNCTION(int, poll, (pollfd * waited, nfds_t count, int milliseconds), (waited, count, milliseconds), -1, ENOMEM)
FUNCTION(int, pipe2, (int* ends, int flags), (ends, flags), -1, EMFILE, noexcept)
FUNCTION(int, memfd_create, (const char* name, unsigned flags), (name, flags), -1, EMFILE, noexcept)
FUNCTION(void*, dlopen, (const char* path, int flags), (path, flags), nullptr, ENOENT, noexcept)
FUNCTION(int, posix_spawnp,
         (pid_t * id, const char* path, const posix_spawn_file_actions_t* actions, const posix_spawnattr_t* attributes,
          char* const* words, char* const* variables),
         (id, path, actions, attributes, words, variables), EAGAIN, EAGAIN)
FUNCTION(int, pthread_create, (pthread_t * id, const pthread_attr_t* attributes, void* (*work)(void*), void* argument),
         (id, attributes, work, argument), EAGAIN, EAGAIN, noexcept)

}  // extern "C"
