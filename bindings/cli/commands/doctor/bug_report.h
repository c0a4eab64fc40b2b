#pragma once
#include <string>
#include <vector>

#include "runtime/files/disk.h"

/// `triage doctor --bundle`: one file for a bug report, a zip archive. What goes into it is collected before the doctor
/// looks, whose probes leave logs of their own.
namespace triage::cli::doctor {

struct Attachment {
  std::string name;     // in the archive
  std::string from;     // the file that it was; empty: the doctor made it
  std::string says;     // what it is, for a person who decides whether to send it
  std::string content;  // empty where it was left out
  std::string missing;  // why it was left out; else empty
};

/// The newest capsule, the end of the log, and the logs of the newest run in the debug folder.
std::vector<Attachment> collect_attachments();
/// What a person reads first: a line for each, and what may be private in them.
std::string contents_text(const std::vector<Attachment>& attachments);
/// Throws FileError. The file is written whole or not at all.
void write_archive(files::OutputFile& file, const std::vector<Attachment>& attachments);

}  // namespace triage::cli::doctor
