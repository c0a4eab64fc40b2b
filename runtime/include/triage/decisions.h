#pragma once
#include <triage/api.h>
#include <triage/log.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// The decision log: what policies did to samples, as lines of JSON. docs/decisions.md lists the fields.
///
///     triage::DecisionLogOptions log;
///     log.file = "decisions.jsonl";
///     triage::RuntimeOptions options;
///     options.decisions = std::make_shared<triage::DecisionLog>(log);
///
/// A call gets a line if it has flagged samples, if the live version failed it, or if nothing or an earlier version
/// answered it. Flags on another device than the CPU are not read.
namespace triage {

namespace policy {
class DecisionQueue;
}

struct DecisionLogOptions {
  /// The file that lines are appended to. A file that is made, and its folder, belong to the user alone (modes 0600 and
  /// 0700). No other log may write to it: two that rotate one file lose lines. Empty: none; then there must be
  /// `on_line`.
  std::filesystem::path file = {};
  /// A file that would get larger becomes NAME.1.EXT, that one NAME.2.EXT, and so on; at most `max_files` of these are
  /// kept.
  uint64_t max_file_bytes = uint64_t{64} << 20;
  size_t max_files = 5;
  /// Whether what happens to policies gets lines, too: which version went live, when and by what, what was refused,
  /// pins, candidates, params (docs/decisions.md). These have the field `event`, which no line of a call has.
  /// RuntimeOptions::cache_dir then also keeps the sources that were live, 64 of each policy file.
  bool events = true;
  /// Gets each line, without its end, on the thread of the log. It may use this log and its Runtimes; `flush` returns
  /// at once there. What it throws is counted (DecisionCounts::failed).
  std::function<void(std::string_view line)> on_line = {};
  /// The share, 0 to 1, of other calls that get a line, too: by hash of RunOptions::decision_id, so that a decision is
  /// in or out wherever it is made; calls without one are counted.
  double clean_share = 0;
  /// At most so many decisions wait for the thread of the log; further ones are dropped, and counted.
  size_t queue_records = 1024;
  /// At most so many bad samples of a call (10,000 or fewer) are listed, with at most 64 errors each; the line has the
  /// number of all.
  size_t max_samples = 100;
  /// A call returns when its line is written: for processes that end without destructors, such as forked workers of a
  /// data loader.
  bool at_once = false;
  /// Names of fields that are left out ("sample_id", "path"), and of fields of text that are replaced by a hash: equal
  /// values stay equal.
  std::vector<std::string> drop = {};
  std::vector<std::string> mask = {};
  /// With a key the hash is HMAC-SHA256, without one SHA-256, from which short values can be guessed.
  std::string mask_key = {};
  /// A folder for capsules (triage/capsule.h) of calls with flagged samples and of failed calls: a line then names a
  /// file that `triage replay` repeats. Copies the inputs of such calls, on the calling thread. Empty: none.
  std::filesystem::path capsule_dir = {};
  size_t max_capsules = 100;
  /// Only flagged samples go into them. Policies whose samples depend on each other give other results for these.
  bool capsule_bad_rows = false;
  /// Where is told, once, that a file or `on_line` fails. Default: the log of the process (set_log).
  Log log = {};
};

/// Of decisions; `dropped` and `failed` also of lines about policies. None decreases.
struct DecisionCounts {
  uint64_t written = 0;
  uint64_t dropped = 0;  ///< too many waited
  uint64_t failed = 0;   ///< the file could not be written, or `on_line` threw
};

/// Writes decisions on a thread of its own: `run` never waits for it, and no failure of it reaches a call. Runtimes may
/// share one; each keeps it alive. Thread-safe.
///
/// `fork`: as with a Runtime, a child has no such thread. Create the log in the child. The one that it inherited writes
/// nothing, and neither `flush` nor the destructor waits.
class TRIAGE_API DecisionLog {
 public:
  /// Throws ConfigError for options that are out of range or contradict each other, FileError if the file cannot be
  /// opened.
  explicit DecisionLog(DecisionLogOptions options);
  /// Writes what waits.
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  /// Returns when the decisions of all calls that have returned are written, or counted as failed.
  void flush();
  DecisionCounts counts() const noexcept;

 private:
  friend class policy::DecisionQueue;
  std::shared_ptr<policy::DecisionQueue> queue_;
};

}  // namespace triage
