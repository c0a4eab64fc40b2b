#pragma once
#include <ATen/core/Tensor.h>
#include <triage/compile_profiler.h>
#include <triage/runtime.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bindings/cli/commands.h"

namespace triage::cli {

/// The text of a script; "-" is standard input, which is read once. Throws FileError where there is no such file, or it
/// is a folder.
std::string read_source(const std::string& path);
/// The same for a script that is trusted: pipes and devices that can be read to an end are taken too, as the shell
/// makes of
/// `<(...)`.
std::string read_script(const std::string& path);
/// How messages name a script: its path, "stdin.lua" for standard input.
std::string script_name(const std::string& path);
/// Throws FileError, LoadError.
Policy load_policy(Runtime& runtime, const std::string& path);
/// What the script may read while it is loaded; nothing where it comes from standard input.
decltype(ScriptOptions::read_file) files_of(const std::string& path);
/// Files as they are; in the place of a folder the .lua files below it, in the order of their names, but for those of a
/// folder `lib`, which are modules. Throws FileError where a folder has none.
std::vector<std::string> with_files_of_folders(const std::vector<std::string>& paths,
                                               std::vector<std::string>* modules = nullptr);

/// "float32 32x512"
std::string describe(const at::Tensor& tensor);

/// Throws UsageError that lists the backends there are, unless `name` is one.
void check_backend(const std::string& name);

/// `left=right` taken apart; throws UsageError that names the option where there is no `=` or nothing before it.
std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option);

/// Whether both name one file, there or not: `z.npy`, `./z.npy`, a link to it.
bool same_file(const std::string& a, const std::string& b);
/// Throws UsageError where `file`, which `option` gives to be written, is a folder or the policy itself.
void check_destination(const char* option, const std::string& file, const std::string& policy);

/// Throws UsageError where this LibTorch has no such device.
c10::Device parse_device(const std::string& text);
/// `NAME=VALUE` for params of the signature.
Params parse_params(const std::vector<std::string>& texts, const Signature& signature, const std::string& policy);
/// The same; throws InputError where a param of the policy does not take its value.
Params checked_params(const std::vector<std::string>& texts, const Signature& signature, const std::string& policy);
using Assignments = std::vector<std::pair<std::string, std::string>>;
/// `NAME=FILE` for each of `names`, in their order.
Assignments match_inputs(const std::vector<std::string>& texts, const std::vector<std::string>& names,
                         const std::string& policy);
/// Several calls in turn, of which each has `NAME=FILE` for its inputs: an input that is given several times has one
/// for each call, any other is the same in all. Throws UsageError where two are given several times, but not as often.
std::vector<std::vector<std::string>> inputs_of_calls(const std::vector<std::string>& texts);
/// The tensor that a file holds or a generator makes.
at::Tensor read_input(const std::string& source, c10::Device device);

/// A loaded policy with its inputs in the order of its signature.
struct PreparedCall {
  Runtime runtime;
  Policy policy;
  std::vector<at::Tensor> inputs;
  std::vector<std::string> sources;  // what each input was read from
  RunOptions options;
  std::shared_ptr<CompileProfiler> profiler;  // counts why it was captured again
  CodeNames codes = {};  // of what is shown of the call: those of the policy, and of flags that it is given
};
/// Options for a Runtime in this program. What it would log of a policy goes nowhere, because that is in the report, or
/// is thrown. What scripts print goes to standard error where standard output must hold nothing but JSON.
RuntimeOptions quiet_runtime(bool json);

/// Loads the policy and reads the inputs. Throws UsageError for names that do not fit the signature, and for a backend
/// or device that is not there.
PreparedCall prepare_call(const CallOptions& options, bool json, std::shared_ptr<DecisionLog> decisions = {},
                          const std::string& cache_dir = {});
/// Other inputs for the policy, likewise.
void read_inputs(PreparedCall& call, const CallOptions& options, const std::vector<std::string>& inputs);

/// "1 kernel, 2 tapes"
std::string loops_text(const LoopTiers& loops);
nlohmann::ordered_json loops_json(const LoopTiers& loops);

/// What broke its graphs, each in full.
void print_breaks(const std::vector<BreakReport>& breaks);

/// All graphs that the policy became: those that hold a whole call, and those between graph breaks, which have no
/// guards.
std::vector<CapturedGraph> graphs_of(const Policy& policy);

}  // namespace triage::cli
