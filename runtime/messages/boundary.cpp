#include "runtime/messages/boundary.h"

#include <fmt/format.h>
#include <triage/error.h>

#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/printable.h"

namespace triage::messages {
namespace {

/// "cannot make absolute path: No such file or directory ["p.lua"]" says what and why; the rest is what to do.
std::string message_of(const std::filesystem::filesystem_error& error) {
  const bool is_relative = !error.path1().empty() && error.path1().is_relative();
  const char* hint = error.path1().empty() ? "; the path is empty: name a file or folder"
                     : is_relative         ? "; the path is relative: is the current folder of the process still there?"
                                           : "";
  return one_line(error.what()) + hint;
}

}  // namespace

void throw_as_error() {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::filesystem::filesystem_error& error) {
    throw FileError(message_of(error));
  } catch (const std::exception& error) {
    throw Error(message_without_backtrace(error));
  }
}

}  // namespace triage::messages
