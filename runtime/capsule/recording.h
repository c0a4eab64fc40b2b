#pragma once
#include <ATen/core/Generator.h>
#include <triage/error.h>
#include <triage/front_end.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/capsule/capsule.h"

namespace triage::capsule {

/// Something that can say what a function sees besides its arguments, in the form of its front end.
class SavesState {
 public:
  virtual ~SavesState() = default;
  /// Tensors go to `tensors`; those of variables named in `masked` without their values.
  virtual Json save_state(SavedTensors& tensors, const std::vector<std::string>& masked) = 0;
};

/// A script that also takes it back.
class HasState : public SavesState {
 public:
  /// Of a script of the same source, before its first call. Throws files::Malformed for a state that is none.
  virtual void restore_state(const Json& state, const RestoredTensors& tensors) = 0;
};

/// Does anybody want capsules: those of failures, or one of a call on this thread? One load of each.
bool wanted() noexcept;

/// What a call depended on, while it runs on this thread. Whoever makes it writes the capsule.
class CapsuleRecording {
 public:
  /// `generator`: where the call's random numbers on the CPU come from. `whole`: of a call that somebody asked for,
  /// which is told to `done` whether or not it fails.
  explicit CapsuleRecording(const at::Generator& generator, bool later = false);
  struct CapsuleRequest {
    bool bad_rows = false;            // only samples with flags
    std::vector<std::string> masked;  // besides those of the process
    std::optional<Json> done = {};
    std::string file = {};  // where it will be
  };
  explicit CapsuleRecording(CapsuleRequest& whole);
  ~CapsuleRecording();
  CapsuleRecording(const CapsuleRecording&) = delete;
  CapsuleRecording& operator=(const CapsuleRecording&) = delete;
  /// The innermost.
  static CapsuleRecording* current() noexcept { return current_; }
  /// The one that somebody has begun for a call that is still to be made; null where there is none.
  static CapsuleRecording* asked_for() noexcept;

  /// Before the script runs for the first time in the call: what it sees, which it may change. Does not throw what that
  /// fails with.
  void before_script(SavesState& script);
  bool has_script() const { return !script_.is_null(); }
  void note_host_call(const std::string& name, const std::vector<at::Tensor>& results);
  /// Of a function or module of the host that is a node of graphs. It copies the tensors.
  struct NodeCall {
    std::string name;
    bool is_module;
    std::vector<at::Tensor> arguments, results;
  };
  void note_node_call(NodeCall call);
  const std::vector<NodeCall>& node_calls() const { return node_calls_; }

  /// Common facts, what the script saw, calls of the host; to which the caller adds `kind`, `name`, `call` and
  /// `result`.
  Json facts();
  SavedTensors& tensors() { return tensors_; }
  bool is_masked(const std::string& name) const;
  /// Whether values of this call were left out: what was computed from them tells of them. Once `facts` was asked for,
  /// and inputs were saved.
  bool leaves_out() const { return tensors_.leaves_out() || (script_.is_object() && script_.value("masked", false)); }
  /// Null where nobody asked for this call.
  CapsuleRequest* whole() const { return whole_; }
  /// Where the call's random numbers on the CPU come from: copied now, or with `later` when the script is about to run,
  /// where nothing else draws in the call.
  void set_generator(at::Generator generator, bool later = false);

 private:
  inline static thread_local CapsuleRecording* current_ =
      nullptr;  // front ends that run a script know nothing of the host's call
  CapsuleRecording* outer_;
  CapsuleRequest* whole_ = nullptr;
  SavedTensors tensors_;
  Json script_, host_calls_ = Json::array();
  std::vector<NodeCall> node_calls_;
  size_t node_call_bytes_ = 0;
  void copy_generator();
  at::Generator source_, generator_;  // the copy is as it was before the call
};

/// {"kind": "PolicyError", "message": ..., "file": ..., "line": ...}
Json error_facts(const std::exception& error);

/// Writes the capsule of a call that failed to the folder of such, and says in the log where it is, or why it cannot
/// be. Its path; empty where there is none.
std::string write_failure(const std::string& name, Json facts, const SavedTensors& tensors) noexcept;

}  // namespace triage::capsule
