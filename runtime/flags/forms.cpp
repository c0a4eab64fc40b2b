#include <c10/util/StringUtil.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>

namespace triage::flags {

thread_local constinit ThreadContext context{};

KnownForms KnownForms::of_process_;

namespace check {
namespace {

bool is_known(const Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.dim() != 2) return false;
  const ErrorConfig& in_force = get_config();
  return (tensor.scalar_type() == in_force.flag_dtype && tensor.size(1) == in_force.num_words()) ||
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
                            "). Those of another one are known where the script made it (ErrorConfig{...}) or recorded "
                            "with it, or declares an input of that type (Tensor(error_t))."));
}

}  // namespace

void known(const char* op, const Tensor& flags, const Tensor* beside) {
  if (is_known(flags)) return;
  if (!flags.defined() || flags.layout() != c10::kStrided) return;
  if (flags.dim() != 2) throw InputError(c10::str(op, ": ", no_flags_shape(flags)));
  if (could_be_flags(flags)) refuse_unknown(op, flags, beside);
}

}  // namespace check
}  // namespace triage::flags
