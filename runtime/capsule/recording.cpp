#include "runtime/capsule/recording.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <utility>

#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/replay_settings.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/log.h"

namespace triage::capsule {
namespace {

constexpr int most_capsules = 100;  // of a process

void warn(const std::string& text) { messages::LogTo::current().write(LogLevel::warn, text); }

const char* kind_of(const std::exception& error) {
  if (dynamic_cast<const GraphBreakError*>(&error)) return "GraphBreakError";
  if (dynamic_cast<const LimitError*>(&error)) return "LimitError";
  if (dynamic_cast<const PolicyError*>(&error)) return "PolicyError";
  if (dynamic_cast<const InputError*>(&error)) return "InputError";
  return "Error";
}

}  // namespace

bool wanted() noexcept { return CapsuleRecording::current() != nullptr || messages::replay_record_on(); }

CapsuleRecording::CapsuleRecording(const at::Generator& generator, bool later) : outer_(std::exchange(current_, this)) {
  set_generator(generator, later);
}

CapsuleRecording::CapsuleRecording(CapsuleRequest& whole) : outer_(std::exchange(current_, this)), whole_(&whole) {}

CapsuleRecording::~CapsuleRecording() { current_ = outer_; }

CapsuleRecording* CapsuleRecording::asked_for() noexcept {
  return current_ && current_->whole_ && !current_->whole_->done ? current_ : nullptr;
}

void CapsuleRecording::set_generator(at::Generator generator, bool later) {
  source_ = std::move(generator);
  generator_ = {};
  if (!later) copy_generator();
}

void CapsuleRecording::copy_generator() {
  if (generator_.defined() || !source_.defined()) return;
  const std::lock_guard<std::mutex> lock(source_.mutex());
  generator_ = source_.clone();
}

void CapsuleRecording::before_script(SavesState& script) {
  copy_generator();
  if (has_script()) return;
  try {
    std::vector<std::string> masked = messages::replay_masked();
    if (whole_) masked.insert(masked.end(), whole_->masked.begin(), whole_->masked.end());
    script_ = script.save_state(tensors_, masked);
  } catch (const std::exception& error) {  // no reason to fail the call
    warn(fmt::format("what a script sees cannot be kept for a capsule: {}", error.what()));
  }
}

void CapsuleRecording::note_host_call(const std::string& name, const std::vector<at::Tensor>& results) {
  Json numbers = Json::array();
  for (const at::Tensor& result : results) numbers.push_back(tensors_.add(result));
  host_calls_.push_back({{"name", name}, {"results", std::move(numbers)}});
}

void CapsuleRecording::note_node_call(NodeCall call) {
  for (const std::vector<at::Tensor>* tensors : {&call.arguments, &call.results})
    for (const at::Tensor& tensor : *tensors) node_call_bytes_ += tensor.numel() * tensor.element_size();
  if (node_call_bytes_ > most_bytes) return node_calls_.clear();  // `facts` refuses
  for (std::vector<at::Tensor>* tensors : {&call.arguments, &call.results})
    for (at::Tensor& tensor : *tensors) tensor = tensor.detach().clone();
  node_calls_.push_back(std::move(call));
}

bool CapsuleRecording::is_masked(const std::string& name) const {
  const auto among = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return among(messages::replay_masked()) || (whole_ && among(whole_->masked));
}

Json CapsuleRecording::facts() {
  if (node_call_bytes_ > most_bytes)
    throw Error(fmt::format("functions and modules of the host were given and returned more than {} MiB of tensors",
                            most_bytes >> 20));
  copy_generator();
  if (leaves_out())
    for (const Json& call : host_calls_)
      for (const Json& result : call["results"]) tensors_.leave_out(result.get<size_t>());
  Json facts = common_facts();
  facts["random"] = generator_.defined() ? Json(tensors_.add(generator_.get_state())) : Json();
  facts["script"] = script_;
  facts["host_calls"] = host_calls_;
  return facts;
}

Json error_facts(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  Json facts = {{"kind", kind_of(error)}, {"message", messages::message_without_backtrace(error)}};
  facts["file"] = own ? own->source().file : "";
  facts["line"] = own ? own->source().line : 0;
  return facts;
}

std::string write_failure(const std::string& name, Json facts, const SavedTensors& tensors) noexcept {
  try {
    static std::atomic<int> written{0};
    const int number = ++written;
    if (number == most_capsules + 1)
      warn(fmt::format("{} capsules of calls that failed were written; no more are", most_capsules));
    if (number > most_capsules) return {};
    if (tensors.bytes() > most_bytes) {
      warn(fmt::format("a call of '{}' failed, and its tensors have {} MiB: no capsule is written; the limit is {} MiB",
                       name, tensors.bytes() >> 20, most_bytes >> 20));
      return {};
    }
    const std::filesystem::path folder = messages::replay_dir();
    std::filesystem::create_directories(folder);
    const std::string path =
        (folder / fmt::format("{}-pid_{}-{}.pt", messages::folder_name(name), ::getpid(), number)).string();
    facts["why"] = "the call failed";
    save(path, std::move(facts), tensors);
    warn(fmt::format("the call of '{}' that failed is in {}: `triage replay {}` repeats it", name, path, path));
    return path;
  } catch (const std::exception& error) {
    try {
      warn(fmt::format("a call of '{}' failed, and its capsule cannot be written: {}", name, error.what()));
    } catch (const std::exception&) {  // no memory for the record
    }
    return {};
  }
}

}  // namespace triage::capsule
