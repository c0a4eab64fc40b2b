#pragma once
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// What reads bytes from outside. For any bytes a target gives something whole, or throws an Error of triage;
/// everything else is a fault: a crash, another exception, a hang, memory without bound, a broken law (throw Broken).
///
/// `fuzz_inputs` is libFuzzer over these targets (./dev fuzz). test_fuzz runs them on the seeds, and on what the fuzzer
/// has found.
namespace triage::fuzz {

struct InputTarget {
  const char* name;
  const char* what;  // a clause for `--list`
  void (*run)(std::string_view bytes);
  /// Valid inputs, which fuzzing starts from. Formats with a checksum are without it: `run` adds one that fits.
  std::vector<std::string> (*seeds)();
};

const std::vector<InputTarget>& input_targets();
/// Throws std::invalid_argument that lists the names.
const InputTarget& find_input_target(std::string_view name);

struct Broken : std::logic_error {
  using std::logic_error::logic_error;
};

/// Runs a target on `bytes`: false where it refused them. What must not be thrown passes through.
bool accepts(const InputTarget& target, std::string_view bytes);

/// A regular file without a name in any folder, for readers that take paths.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const;

 private:
  int fd_ = -1;
};

// Each in the file of its name.
void read_npy_file(std::string_view bytes);
void read_safetensors_file(std::string_view bytes);
void read_pt_file(std::string_view bytes);
void read_pickle(std::string_view bytes);
std::vector<std::string> npy_seeds(), safetensors_seeds(), pt_seeds(), pickle_seeds();  // tensor_files.cpp
void read_graph(std::string_view text);
std::vector<std::string> graph_seeds();  // graph_text.cpp
void read_program(std::string_view text);
std::vector<std::string> program_seeds();  // exported_program.cpp
void read_bundle(std::string_view text);
std::vector<std::string> bundle_seeds();  // bundle.cpp
void read_capsule(std::string_view json);
std::vector<std::string> capsule_seeds();  // capsule.cpp
void load_policy(std::string_view source);
std::vector<std::string> policy_seeds();  // policy.cpp
void load_state(std::string_view bytes);
std::vector<std::string> state_seeds();  // state_file.cpp
void read_decisions(std::string_view lines);
std::vector<std::string> decision_seeds();  // decision_log.cpp
void read_trace(std::string_view lines);
std::vector<std::string> trace_seeds();  // trace.cpp

}  // namespace triage::fuzz
