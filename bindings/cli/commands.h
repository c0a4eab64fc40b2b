#pragma once
#include <triage/verify.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

/// The `triage` program. options.cpp fills in the command that the command line names, and main runs it: `run` returns
/// the exit status, 0 fine, 1 the policy or script failed, 2 wrong use. What it throws is printed by main as one
/// message: UsageError, InputError, FileError and ConfigError are wrong use, every other triage::Error is a failure of
/// the policy.
namespace triage::cli {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Which policy to call with what.
struct CallOptions {
  std::string policy;               // a file, or "-": standard input
  std::vector<std::string> inputs;  // NAME=FILE or NAME=generator
  std::vector<std::string> params;  // NAME=VALUE
  std::string backend = "fused";
  std::string device = "cpu";
  std::vector<std::string> given;   // NAME=FILE: what the host gives the policy
  std::vector<std::string> limits;  // NAME=NUMBER,...
  bool fullgraph = false;
  std::string masked_rows = "warn";
};

struct RunCommand {
  CallOptions call;
  std::vector<std::string> outputs;  // NAME=FILE
  std::string compare;               // "eager,fused": backends to compare; empty: none
  std::string capsule;               // a .pt file for the call; empty: none
  bool bad_rows = false;             // only these go into it
  std::string decisions;             // a decision log for the calls of the command line; empty: none
  std::string state;                 // a .pt file with the policy's state, read and written; empty: none
  std::vector<int64_t> samples;      // shown line by line, in the place of all else; empty: none
  int repeat = 10;
  bool json = false;
};
int run(const RunCommand& options);
/// `triage run --compare`: 1 where a backend is wrong.
int compare(const RunCommand& options);

struct ExecCommand {
  std::string script;  // a file, or "-": standard input; empty with `code`
  std::string code;    // -e
  std::vector<std::string> arguments;
  std::string ranks;  // how many processes run the script, or "env": those that a launcher has started; empty: this one
  double timeout = 1800;  // seconds that an operation of the ranks may take
};
int run(const ExecCommand& options);

struct CheckCommand {
  std::vector<std::string> paths;  // files, folders, or "-": standard input
  std::vector<std::string> given;  // NAME: a function of the host; NAME=FILE: a tensor or module
  std::vector<std::string> limits;
  bool json = false;
};
int run(const CheckCommand& options);

struct TestCommand {
  std::vector<std::string> paths;
  std::vector<int64_t> batches;
  std::vector<std::string> given;  // NAME=FILE
  std::vector<std::string> limits;
  std::string backend = "fused";
  std::string junit;
  bool full_coverage = false, json = false;
};
int run(const TestCommand& options);

struct ExplainCommand {
  CallOptions call;
  std::vector<std::string> benign;
  std::vector<std::string> gradients;  // of outputs, with `backward`
  bool decomposed = false, loops = false, guards = false, provenance = false, backward = false, json = false;
};
int run(const ExplainCommand& options);

struct IsolateCommand {
  CallOptions call;
  std::vector<std::string> shared;  // inputs that have no samples, however long they are
  int64_t rows = 64;                // at most so many samples of a batch are made bad
  bool json = false;
};
/// 1 where a bad sample changes another.
int run(const IsolateCommand& options);

struct VerifyCommand {
  CallOptions call;
  std::vector<std::string> laws;    // only these; empty: those that the policy promises
  std::vector<std::string> shared;  // inputs that have no samples, however long they are
  size_t search = VerifyOptions{}.search;
  uint64_t seed = 0;
  bool json = false;
};
/// 1 where a law is broken.
int run(const VerifyCommand& options);

struct StatisticsCommand {
  CallOptions call;           // `policy` may be a TorchScript model, or a file of statistics
  std::string html, metrics;  // files to write; empty: none
  bool json = false;
};
/// 1 where the call fails.
int run(const StatisticsCommand& options);

struct ExportCommand {
  std::string policy, output, torchscript, device = "cpu";
  std::vector<std::string> inputs, params, given;
  bool decomposed = false, fixed_sizes = false, json = false;
};
int run(const ExportCommand& options);

struct BundleCommand {
  std::string action;  // "check", "pack", "diff"
  std::string folder, other;
  std::string output, name, version, triage;  // of pack
  std::vector<std::string> given;             // of check: NAME=FILE
  bool json = false;
};
int run(const BundleCommand& options);

struct BenchCommand {
  CallOptions call;
  std::vector<int64_t> batches;
  std::string profile;  // a file for a trace of warm calls; empty: none
  double seconds = 1;
  int threads = 1;
  bool json = false;
};
int run(const BenchCommand& options);

struct WatchCommand {
  std::string folder;  // a policy, where there is a candidate
  int debounce_ms = 50;
  int poll_ms = 0;
  bool json = false;
  /// A candidate for the policy, and what the policy is called with meanwhile.
  std::string canary, shadow;
  std::string decisions, cache;  // a decision log, and a cache_dir; empty: none
  CallOptions call;
  double share = 0;    // 0: as the library has it, and for a shadow all calls
  int64_t calls = -1;  // -1: until a canary is promoted or reverted, or for a shadow 1000
  int64_t promote_after = 10'000, failures = 1;
  double flagged_ratio = 2, p99_ratio = 1.5, tolerance = 0;
};
int run(const WatchCommand& options);
/// `triage watch POLICY --canary FILE`, `--shadow FILE`: 1 where the canary was reverted.
int try_candidate(const WatchCommand& options);

struct ReplCommand {};
int run(const ReplCommand& options);

struct MinifyCommand {
  std::string program, output;
  bool numbers = false, json = false;
  double time_limit = 10, seconds = 300;
  int memory_mib = 4096;
};
int run(const MinifyCommand& options);

struct ReportCommand {
  std::vector<std::string> traces;  // files, or folders with trace-*.jsonl
  std::string output;
  bool json = false;
};
int run(const ReportCommand& options);

struct ReplayCommand {
  std::string capsule, backend, extract;
  bool trusted = false, minify = false, json = false;
  bool must_minify = false;      // a replay in which no graph fails is an error
  std::vector<int64_t> samples;  // shown line by line; empty: none
};
/// 1 where the replay gives something else than the call that was recorded.
int run(const ReplayCommand& options);

struct DecisionsCommand {
  std::vector<std::string> files;  // of a decision log; "-": standard input
  std::string policy, version, code, location, sample, decision, since, until, answered;  // which; empty: all
  bool list = false, json = false;
};
int run(const DecisionsCommand& options);

struct IncidentCommand {
  std::vector<std::string> files;           // of a decision log; "-": standard input
  std::string cache, policy, since, until;  // empty: as the log says, all
  std::string html;                         // a page to write; empty: none
  bool ids = false, json = false;
};
int run(const IncidentCommand& options);

struct DoctorCommand {
  std::string bundle;  // a .zip file for a bug report; empty: none
  bool json = false;
};
/// 0: nothing to do, 1: something works worse than it could, 3: something does not work.
int run(const DoctorCommand& options);

struct GenerateCommand {
  std::string folder;
};
int run(const GenerateCommand& options);

struct VersionCommand {
  bool json = false;
};
int run(const VersionCommand& options);

}  // namespace triage::cli
