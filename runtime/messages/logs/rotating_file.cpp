#include "runtime/messages/logs/rotating_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <sys/stat.h>
#include <triage/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace triage::messages {
namespace {

namespace fs = std::filesystem;

/// A pipe would make us wait for its reader, and a device must not be renamed.
void check_kind(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  throw FileError(fmt::format("cannot write \"{}\": expected a regular file, but this is {}", path.string(),
                              fs::is_directory(status) ? "a folder" : "something else"));
}

void make_folder(const fs::path& folder) {
  std::error_code ignored;
  if (folder.empty() || fs::exists(folder, ignored)) return;
  make_folder(folder.parent_path());
  if (::mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    throw FileError(fmt::format("cannot make the folder \"{}\": {}", folder.string(), std::strerror(errno)));
}

/// Whoever opens it next by its name gets this one: nobody else can have read it meanwhile.
void make_private(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd >= 0) ::close(fd);
}

bool ends_amid_a_line(const fs::path& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (!file) return false;
  const bool found = std::fseek(file, -1, SEEK_END) == 0 && std::fgetc(file) != '\n';
  std::fclose(file);
  return found;
}

}  // namespace

class RotatingFile::RotatingSink {
 public:
  RotatingSink(const fs::path& path, uint64_t most_bytes, size_t most_files)
      : sink_(path.string(), most_bytes, most_files, /*rotate_on_open=*/false, handlers()) {
    sink_.set_formatter(
        std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc, /*eol=*/"\n"));
  }

  void write(std::string_view line) {
    sink_.log(spdlog::details::log_msg("", spdlog::level::info, spdlog::string_view_t(line.data(), line.size())));
  }
  void flush() { sink_.flush(); }
  bool is_open_as(const fs::path& path) const {
    struct stat now {};
    return ::stat(path.c_str(), &now) == 0 && now.st_dev == opened_.st_dev && now.st_ino == opened_.st_ino;
  }

 private:
  spdlog::file_event_handlers handlers() {
    spdlog::file_event_handlers events;
    events.before_open = [](const std::string& path) { make_private(path); };
    events.after_open = [this](const std::string&, std::FILE* file) {
      ::fcntl(::fileno(file), F_SETFD, FD_CLOEXEC);
      // A line goes to the system whole: at the end of the process, `exit` flushes buffers that this thread may be
      // filling.
      std::setvbuf(file, nullptr, _IONBF, 0);
      ::fstat(::fileno(file), &opened_);
    };
    return events;
  }

  struct stat opened_ {};  // before the sink, which fills it
  spdlog::sinks::rotating_file_sink_st sink_;
};

RotatingFile::RotatingFile(fs::path path, uint64_t most_bytes, size_t most_files)
    : path_(std::move(path)), most_bytes_(most_bytes), most_files_(most_files) {}

RotatingFile::~RotatingFile() = default;

void RotatingFile::open() {
  if (sink_ && sink_->is_open_as(path_)) return;
  sink_.reset();
  make_folder(path_.parent_path());
  check_kind(path_);
  const bool torn = ends_amid_a_line(path_);  // by a crash, or a full disk
  try {
    sink_ = std::make_unique<RotatingSink>(path_, most_bytes_, most_files_);
  } catch (const spdlog::spdlog_ex& error) {
    throw FileError(fmt::format("cannot write \"{}\": {}", path_.string(), error.what()));
  }
  if (torn) write("");
}

/// spdlog's sink must not be used again once its file could not be opened.
void RotatingFile::write(std::string_view line) {
  try {
    sink_->write(line);
  } catch (...) {
    sink_.reset();
    throw;
  }
}

void RotatingFile::flush() {
  try {
    sink_->flush();
  } catch (...) {
    sink_.reset();
    throw;
  }
}

}  // namespace triage::messages
