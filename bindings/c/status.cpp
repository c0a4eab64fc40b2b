#include "bindings/c/status.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <triage/error.h>

#include <exception>
#include <new>
#include <utility>

#include "bindings/c/thread_context.h"

namespace triage::c {

void LastError::set(TriageStatus status, std::string text, const Error* of_script) {
  message = std::move(text);
  file = of_script ? of_script->source().file : "";
  traceback = of_script ? of_script->traceback() : "";
  error = {status, of_script ? of_script->source().line : 0, message.c_str(), file.c_str(), traceback.c_str()};
}

namespace {

TriageStatus status_of(const Error& error) {
  if (dynamic_cast<const InputError*>(&error)) return TRIAGE_ERROR_INPUT;
  if (dynamic_cast<const PolicyError*>(&error)) return TRIAGE_ERROR_POLICY;
  if (dynamic_cast<const GraphBreakError*>(&error)) return TRIAGE_ERROR_GRAPH_BREAK;
  if (dynamic_cast<const LimitError*>(&error)) return TRIAGE_ERROR_LIMIT;
  if (dynamic_cast<const LoadError*>(&error)) return TRIAGE_ERROR_LOAD;
  if (dynamic_cast<const FileError*>(&error)) return TRIAGE_ERROR_FILE;
  if (dynamic_cast<const ConfigError*>(&error)) return TRIAGE_ERROR_CONFIG;
  return TRIAGE_ERROR_OTHER;
}

void keep_handled(const char* function) {
  LastError& last = context.error;
  try {
    throw;
  } catch (const Misuse& error) {
    last.set(TRIAGE_ERROR_ARGUMENT, fmt::format("{}: {}", function, error.what()));
  } catch (const Error& error) {
    last.set(status_of(error), error.what(), &error);
  } catch (const std::bad_alloc&) {
    last.set(TRIAGE_ERROR_MEMORY, fmt::format("{}: there is not enough memory", function));
  } catch (const c10::Error& error) {
    last.set(TRIAGE_ERROR_OTHER, error.what_without_backtrace());
  } catch (const std::exception& error) {
    last.set(TRIAGE_ERROR_OTHER, fmt::format("{}: {}", function, error.what()));
  } catch (...) {
    last.set(TRIAGE_ERROR_OTHER, fmt::format("{}: an exception that is no std::exception", function));
  }
}

}  // namespace

TriageStatus failed(const char* function) noexcept {
  try {
    keep_handled(function);
  } catch (...) {  // no memory for the message
    context.error.error = {TRIAGE_ERROR_MEMORY, 0, "there is not enough memory, not even for the message of an error",
                           "", ""};
  }
  return context.error.error.status;
}

const TriageError* last_error() noexcept { return &context.error.error; }

const char* status_name(TriageStatus status) noexcept {
  switch (status) {
    case TRIAGE_OK:
      return "TRIAGE_OK";
    case TRIAGE_ERROR_ARGUMENT:
      return "TRIAGE_ERROR_ARGUMENT";
    case TRIAGE_ERROR_INPUT:
      return "TRIAGE_ERROR_INPUT";
    case TRIAGE_ERROR_POLICY:
      return "TRIAGE_ERROR_POLICY";
    case TRIAGE_ERROR_GRAPH_BREAK:
      return "TRIAGE_ERROR_GRAPH_BREAK";
    case TRIAGE_ERROR_LIMIT:
      return "TRIAGE_ERROR_LIMIT";
    case TRIAGE_ERROR_LOAD:
      return "TRIAGE_ERROR_LOAD";
    case TRIAGE_ERROR_FILE:
      return "TRIAGE_ERROR_FILE";
    case TRIAGE_ERROR_CONFIG:
      return "TRIAGE_ERROR_CONFIG";
    case TRIAGE_ERROR_MEMORY:
      return "TRIAGE_ERROR_MEMORY";
    case TRIAGE_ERROR_OTHER:
      return "TRIAGE_ERROR_OTHER";
  }
  return "unknown status";
}

}  // namespace triage::c
