#pragma once
#include <cstdio>
#include <string>

/// Results that are lost must not look like success: whether standard output took all that was written to it.
namespace triage::cli {

/// At the start of the program. A closed descriptor 0, 1 or 2 would be that of the next file that is opened, and what
/// is printed would go into this file: each gets one that cannot be written to.
void reserve_standard_streams();

/// Writes, and remembers why where it fails: the stream itself only knows that something failed.
void write_bytes(std::FILE* to, const std::string& bytes);
/// The same for what `to` still holds.
void flush(std::FILE* to);

/// The exit status of `command`, which is "triage run" in messages: that of a failure where standard output could not
/// be written, which is then told. For the end of main.
int finish_output(const std::string& command, int status);
/// The same where a script ends the program with `os.exit`.
void check_output_at_exit(const std::string& command);

}  // namespace triage::cli
