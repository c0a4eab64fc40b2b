#include <c10/util/StringUtil.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>

namespace triage::flags {

std::array<std::array<std::atomic<uint64_t>, KnownForms::most_words / 64 + 1>, 4> KnownForms::bits_{};

namespace check {
namespace {

bool is_known(const Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.dim() == 2 &&
         KnownForms::has(tensor.scalar_type(), tensor.size(1));
}

bool could_be_flags(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return tensor.dim() == 2 && tensor.size(1) >= 1 &&
         (dtype == ScalarType::Long || dtype == ScalarType::Int || dtype == ScalarType::Float ||
          dtype == ScalarType::Double);
}

[[noreturn]] void refuse_unknown(const char* op, const Tensor& flags, const Tensor* beside) {
  const ErrorConfig& config = get_config();
  throw InputError(c10::str(op, ": `f` is no flags tensor: ", flags.scalar_type(), " of shape ", flags.sizes(),
                            beside && is_known(*beside) ? "; are the two swapped?" : ".",
                            " Flags of the configuration are ", config.flag_dtype, " of shape (N, ", config.num_words(),
                            "). Those of another one are known once it was made (ErrorConfig{...}) or recorded with."));
}

}  // namespace

void known(const char* op, const Tensor& flags, const Tensor* beside) {
  if (is_known(flags)) return;
  if (!flags.defined() || flags.layout() != c10::kStrided) return;
  if (flags.dim() != 2) throw InputError(c10::str(op, ": ", no_flags_shape(flags)));
  if (!could_be_flags(flags)) return;
  const ErrorConfig& config = get_config();  // the first one of the process was never validated
  if (flags.scalar_type() == config.flag_dtype && flags.size(1) == config.num_words())
    return KnownForms::add(config.flag_dtype, config.num_words());
  refuse_unknown(op, flags, beside);
}

}  // namespace check
}  // namespace triage::flags
