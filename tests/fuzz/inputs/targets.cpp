#include "tests/fuzz/inputs/targets.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <triage/error.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace triage::fuzz {

const std::vector<InputTarget>& input_targets() {
  static const std::vector<InputTarget> all = {
      {"policy", "the Lua source of a policy, which is then run", load_policy, policy_seeds},
      {"npy", "a .npy file", read_npy_file, npy_seeds},
      {"safetensors", "a .safetensors file", read_safetensors_file, safetensors_seeds},
      {"pt", "a .pt file", read_pt_file, pt_seeds},
      {"pickle", "the pickle in a .pt file", read_pickle, pickle_seeds},
      {"state", "the pickle of a file of a policy's state", load_state, state_seeds},
      {"graph", "the text of a graph", read_graph, graph_seeds},
      {"program", "the file of an exported program, which is then run", read_program, program_seeds},
      {"bundle", "the bundle.json of a bundle", read_bundle, bundle_seeds},
      {"capsule", "the text of a capsule, which is then replayed", read_capsule, capsule_seeds},
      {"decisions", "a file of a decision log", read_decisions, decision_seeds},
      {"trace", "a trace, of which the page of `triage report` is made", read_trace, trace_seeds},
  };
  return all;
}

const InputTarget& find_input_target(std::string_view name) {
  std::string names;
  for (const InputTarget& target : input_targets()) {
    if (name == target.name) return target;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", target.name);
  }
  throw std::invalid_argument(fmt::format("there is no target \"{}\": there are {}", name, names));
}

bool accepts(const InputTarget& target, std::string_view bytes) {
  try {
    target.run(bytes);
    return true;
  } catch (const Error&) {
    return false;
  }
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("triage-fuzz", MFD_CLOEXEC)) {
  for (size_t done = 0; fd_ >= 0 && done < bytes.size();) {
    const ssize_t count = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (count <= 0) throw std::system_error(errno, std::generic_category(), "cannot write an input of the fuzzer");
    done += static_cast<size_t>(count);
  }
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot make an input of the fuzzer");
}

MemoryFile::~MemoryFile() { ::close(fd_); }

std::string MemoryFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

}  // namespace triage::fuzz
