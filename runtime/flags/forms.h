#pragma once
// Which forms (carrier and width) flags have. Nothing in a tensor tells flags from data; its form tells most data from
// flags: flags have that of the configuration in force, of another one that was set, or of one that an operation
// recorded or read with. Questions and combinators take no configuration and so ask this. A script knows the forms that
// it met itself, so that its answers do not depend on what else ran in the process; a host knows all that the process
// met.
#include <ATen/core/Tensor.h>
#include <runtime/flags/context.h>
#include <runtime/flags/operators.h>
#include <triage/config.h>

#include <array>
#include <atomic>
#include <optional>
#include <utility>

namespace triage::flags {

class KnownForms {
 public:
  static void add(ScalarType carrier, int64_t words) noexcept {
    of_process_.note(carrier, words);
    if (context.forms_of_script) context.forms_of_script->note(carrier, words);
  }
  /// What a call is given as the configuration of its flags. Throws InputError for one that is none.
  static void add(const std::optional<ErrorConfig>& config) {
    if (!config) return;
    config->validate();
    add(config->flag_dtype, config->num_words());
  }
  static bool has(ScalarType carrier, int64_t words) noexcept {
    return (context.forms_of_script ? *context.forms_of_script : of_process_).knows(carrier, words);
  }
  /// The forms of the script that this thread runs from here on; null: those of the host. Returns what was there.
  static KnownForms* enter(KnownForms* script) noexcept { return std::exchange(context.forms_of_script, script); }

 private:
  void note(ScalarType carrier, int64_t words) noexcept {
    std::atomic<uint64_t>* bits = at(carrier, words);
    const uint64_t bit = uint64_t{1} << (words & 63);
    if (bits && !(bits->load(std::memory_order_relaxed) & bit)) bits->fetch_or(bit, std::memory_order_relaxed);
  }
  bool knows(ScalarType carrier, int64_t words) noexcept {
    const std::atomic<uint64_t>* bits = at(carrier, words);
    return bits && (bits->load(std::memory_order_relaxed) >> (words & 63) & 1);
  }
  static constexpr int64_t most_words = 16384;  // MAX_SLOTS in words of two
  std::atomic<uint64_t>* at(ScalarType carrier, int64_t words) noexcept {
    if (words < 1 || words > most_words) return nullptr;
    size_t which;
    switch (carrier) {
      case ScalarType::Long:
        which = 0;
        break;
      case ScalarType::Int:
        which = 1;
        break;
      case ScalarType::Float:
        which = 2;
        break;
      case ScalarType::Double:
        which = 3;
        break;
      default:
        return nullptr;
    }
    return &bits_[which][static_cast<size_t>(words) / 64];
  }
  std::array<std::array<std::atomic<uint64_t>, most_words / 64 + 1>, 4> bits_{};
  static KnownForms of_process_;
};

namespace check {
/// Whether it has the form of flags that are known here.
bool has_known_form(const Tensor& tensor);
/// Refuses a tensor of another rank than flags, and one that has the shape and dtype that some flags could have, but
/// not those of known flags. What else flags cannot have is left to the operator. `beside`: the other tensor of the
/// call, for the question whether the two are swapped.
void known(const char* op, const Tensor& flags, const Tensor* beside = nullptr);
}  // namespace check

}  // namespace triage::flags
