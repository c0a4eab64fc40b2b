#pragma once

/// The boundary of the library: public functions throw exceptions of triage, so that a host needs one `catch`. Inside,
/// what the standard library and LibTorch throw passes freely; each public function that can meet such an exception
/// does its work here.
namespace triage::messages {

/// For a `catch` block: throws an Error in the place of the exception that is handled, a FileError where the file
/// system failed. Errors of triage pass, and std::bad_alloc, which takes no memory; so does what is no std::exception,
/// which is not ours.
[[noreturn]] void throw_as_error();

template <class Work>
auto errors_only(const Work& work) {
  try {
    return work();
  } catch (...) {
    throw_as_error();
  }
}

}  // namespace triage::messages
