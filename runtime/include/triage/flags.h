#pragma once
#include <ATen/core/Tensor.h>
#include <triage/config.h>
#include <triage/location.h>

#include <array>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

/// Flags operations for C++ hosts: the names, argument order and results of the Lua API, with options in a trailing struct.
///
/// `f` is a flags tensor `(N, num_words)` (config.h), `z` data with the batch in front, `(N, ...)`, of any dtype and strides,
/// a mask is a bool `(N,)`. No operation writes to its arguments. Results of N = 0 batches are empty, not errors. Where a
/// config is not given, the global one holds; it must be the one that the flags were made with (width and policy), the
/// carrier is read off the flags themselves. What asks about flags takes none: flags have the width and carrier of the global
/// configuration or of another one that this process validated or recorded with; anything else is data, and an InputError.
/// Wrong arguments throw triage::InputError; a bad sample never throws.
///
/// All run on any device that ATen serves, on CPU as one pass over the data. Masks, counts and flags never require grad;
/// a row (or element) that was repaired gets gradient exactly 0.
namespace triage {

struct ConfigOptions {
  std::optional<ErrorConfig> config = {};
};
struct NewOptions {
  c10::Device device = c10::kCPU;
  std::optional<ErrorConfig> config = {};
};
struct FromCodeOptions {
  c10::Device device = c10::kCPU;
  std::optional<Severity> severity = {};  ///< default: the code's own (default_severity)
  std::optional<ErrorConfig> config = {};
};
struct PushOptions {
  std::optional<Severity> severity =
      {};                 ///< default: the code's own; for a tensor of codes, the config's default_severity
  at::Tensor where = {};  ///< only these samples; undefined: all
  std::optional<ErrorConfig> config = {};
};
struct SeverityOptions {
  std::optional<Severity> severity = {};
  std::optional<ErrorConfig> config = {};
};
struct FixOptions {
  /// What bad samples get: a number, a tensor that broadcasts to z, or a function that makes one of them.
  std::variant<double, at::Tensor, std::function<at::Tensor()>> fallback = 0.0;
  std::vector<Code> codes = {};       ///< only entries with these codes count; empty: all
  Severity min_severity = err::warn;  ///< only entries at least this bad count
  std::optional<ErrorConfig> config = {};
};
/// Elements that `err::replace` replaces.
struct ReplaceTargets {
  bool nan = false;
  bool posinf = false;
  bool neginf = false;
  std::vector<double> values = {};
  std::vector<int64_t> integers = {};  ///< in integer data compared exactly
};
/// One entry of a list of them: err::nan, err::inf, "nan", "inf", "posinf", "neginf", or a number.
class ReplaceTarget {
 public:
  /// Throws InputError for a code other than err::nan and err::inf.
  ReplaceTarget(Code code);  // NOLINT(google-explicit-constructor)
  template <std::integral T>
  requires(!std::same_as<T, bool>) ReplaceTarget(T value)
      : target_(static_cast<int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  template <std::floating_point T>
  ReplaceTarget(T value) : target_(static_cast<double>(value)) {}  // NOLINT(google-explicit-constructor)
  ReplaceTarget(const char* name) : target_(name) {}               // NOLINT(google-explicit-constructor)
  /// Throws InputError for a name that is none of these.
  void add_to(ReplaceTargets& targets) const;

 private:
  std::variant<int64_t, double, const char*> target_;
};

namespace err {

/// --- making flags ---
/// Flags without errors for the samples of `x`, on its device.
at::Tensor new_(const at::Tensor& x, const ConfigOptions& options = {});
at::Tensor new_t(int64_t samples, const NewOptions& options = {});
/// Flags of `samples` samples, each with this one error.
at::Tensor from_code(Code code, Location location, int64_t samples, const FromCodeOptions& options = {});

/// --- recording ---
at::Tensor push(const at::Tensor& f, Code code, Location location, const PushOptions& options = {});
/// A code a sample, `(N,)` of any integer dtype; 0 records nothing; a number that is no code (outside 0..15) is recorded
/// as UNKNOWN.
at::Tensor push(const at::Tensor& f, const at::Tensor& codes, Location location, const PushOptions& options = {});
at::Tensor push_scalar(const at::Tensor& f, Code code, Location location, const SeverityOptions& options = {});
/// The entries of each further tensor, slot 0 first, pushed into the first. Of one tensor, a copy.
at::Tensor merge(at::ArrayRef<at::Tensor> flags, const ConfigOptions& options = {});
/// Empties every slot with this code; the others stay where they are.
at::Tensor clear(const at::Tensor& f, Code code);

/// --- asking: bool `(N,)` ---
at::Tensor is_ok(const at::Tensor& f);
at::Tensor is_err(const at::Tensor& f);
at::Tensor has_nan(const at::Tensor& f);
at::Tensor has_inf(const at::Tensor& f);
at::Tensor has_code(const at::Tensor& f, Code code);
at::Tensor has_critical(const at::Tensor& f);
at::Tensor has_domain(const at::Tensor& f, Domain domain);
at::Tensor has_fallback(const at::Tensor& f);
/// bool `()`
at::Tensor all_ok(const at::Tensor& f);
at::Tensor any_err(const at::Tensor& f);
inline at::Tensor has_any(const at::Tensor& f) { return any_err(f); }
/// int32 `(N,)` and int64 `(N,)`
at::Tensor count_errors(const at::Tensor& f);
at::Tensor max_severity(const at::Tensor& f);
/// Of slot 0, int32 `(N,)`; and the bits of slot `index`, int64 `(N,)`.
at::Tensor get_first_code(const at::Tensor& f);
at::Tensor get_first_location(const at::Tensor& f);
at::Tensor get_first_severity(const at::Tensor& f);
at::Tensor get_slot(const at::Tensor& f, int64_t index);

/// --- choosing samples: results of M <= N rows ---
at::Tensor get_ok(const at::Tensor& f);
at::Tensor get_err(const at::Tensor& f);
at::Tensor take_ok(const at::Tensor& f, const at::Tensor& z);
at::Tensor take_err(const at::Tensor& f, const at::Tensor& z);
inline at::Tensor Ok(const at::Tensor& f, const at::Tensor& z) { return take_ok(f, z); }
inline at::Tensor Err(const at::Tensor& f, const at::Tensor& z) { return take_err(f, z); }
std::pair<at::Tensor, at::Tensor> partition(const at::Tensor& f, const at::Tensor& z);
std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> partition_many(const at::Tensor& f,
                                                                           at::ArrayRef<at::Tensor> zs);
/// Shape of `z`; the other samples are filled. Without a fill of its own that is 0 in the dtype of z; a number with a
/// fraction makes floats of integers, 0 and 1 are false and true in bool data, and a number that the dtype has no room for
/// is an InputError. The same holds for the value of `replace`.
at::Tensor take_ok_p(const at::Tensor& f, const at::Tensor& z, const at::Scalar& fill = false);
at::Tensor take_err_p(const at::Tensor& f, const at::Tensor& z, const at::Scalar& fill = false);

/// --- combinators: `fn` runs on all rows; what it made of the other rows is dropped, and their gradient with it. That holds
/// for its argument. Data of the samples that `fn` captures besides is not guarded (as it is in Lua): where gradients matter,
/// pass it in with `z`, or repair it first. What `fn` makes of data must have its dtype and a shape that broadcasts to its own
/// (x.sum(-1, true)). An empty function, or one that returns an undefined tensor, is an InputError. ---
using Transform = std::function<at::Tensor(const at::Tensor&)>;
using Step = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&)>;  // z -> z, f
at::Tensor map_ok(const at::Tensor& f, const at::Tensor& z, const Transform& fn);
at::Tensor map_err(const at::Tensor& f, const at::Tensor& z, const Transform& fn);
at::Tensor map_err_flags(const at::Tensor& f, const Transform& fn);
/// A sample with errors is frozen: neither its value nor its flags change.
std::pair<at::Tensor, at::Tensor> and_then(const at::Tensor& f, const at::Tensor& z, const Step& fn,
                                           const ConfigOptions& options = {});
/// The value of a sample with errors is frozen; its flags go on to accumulate.
std::pair<at::Tensor, at::Tensor> bind(const at::Tensor& f, const at::Tensor& z, const Step& fn,
                                       const ConfigOptions& options = {});
/// Records `code` where `fine` is false.
at::Tensor ensure_mask(const at::Tensor& f, const at::Tensor& fine, Code code, Location location,
                       const SeverityOptions& options = {});
/// Records `code` where `predicate(z)`, bool `(N,)`, is false.
at::Tensor guard(const at::Tensor& f, const at::Tensor& z, const Transform& predicate, Code code, Location location,
                 const SeverityOptions& options = {});
/// Gives samples with errors the fallback, which broadcasts to z, and records FALLBACK_VALUE (WARN) there: `z, f`.
std::pair<at::Tensor, at::Tensor> recover_with_fallback(const at::Tensor& f, const at::Tensor& z,
                                                        const at::Tensor& fallback, Location location,
                                                        const SeverityOptions& options = {});
std::pair<at::Tensor, at::Tensor> recover_with_fallback(const at::Tensor& f, const at::Tensor& z,
                                                        const at::Scalar& fallback, Location location,
                                                        const SeverityOptions& options = {});
/// Replaces elements, not samples. Throws InputError when nothing is targeted.
at::Tensor replace(const at::Tensor& z, const at::Scalar& value, const ReplaceTargets& targets);
/// The same by a list: err::replace(z, 0, {err::nan, "posinf", 999}).
at::Tensor replace(const at::Tensor& z, const at::Scalar& value, std::initializer_list<ReplaceTarget> targets);

}  // namespace err

/// True when any sample has any error. Reads a value: on an accelerator it waits for it.
bool has_err(const at::Tensor& f);
/// The samples with this code, as err::has_code. (In Lua the code is the first argument.)
at::Tensor find(const at::Tensor& f, Code code);
at::Tensor push(const at::Tensor& f, Code code, Location location, const PushOptions& options = {});
/// Gives every sample with any entry in `f` the fallback in all its elements, and records FALLBACK_VALUE (WARN) there: `z, f`.
std::pair<at::Tensor, at::Tensor> fix(const at::Tensor& z, const at::Tensor& f, Location location,
                                      const FixOptions& options = {});
/// Record what is wrong with the samples of `z`, in `f` or, when that is undefined, in new flags. Integers hold neither NaN
/// nor Inf. A sample with both gets NAN first, then INF.
at::Tensor flag_nan(const at::Tensor& z, Location location, const at::Tensor& f = {},
                    const ConfigOptions& options = {});
at::Tensor flag_inf(const at::Tensor& z, Location location, const at::Tensor& f = {},
                    const ConfigOptions& options = {});
at::Tensor flag_nan_and_inf(const at::Tensor& z, Location location, const at::Tensor& f = {},
                            const ConfigOptions& options = {});
/// OUT_OF_BOUNDS for samples with an index below 0 or not below `num_embeddings`.
at::Tensor flag_oob_indices(const at::Tensor& ids, int64_t num_embeddings, Location location, const at::Tensor& f = {},
                            const ConfigOptions& options = {});

/// At the boundary: what happened, as plain C++ values. Copies the flags to the CPU where they are not. The configuration, the
/// global one where none is given, only tells whether the last slot is an overflow record (track_overflow, layout.h); that
/// of flags of another width is none.
namespace flags {

/// Where `summary` counts dropped errors, as {"UNKNOWN": how many}.
inline constexpr const char* DROPPED = "(dropped)";

struct UnpackedError {
  Severity severity;
  Code code;
  int64_t location;  ///< of an overflow record: how many errors were dropped
  std::string severity_name;
  std::string code_name;
  std::string location_name;  ///< of an overflow record: `(3 dropped)`, `(at least 1023 dropped)`
  friend bool operator==(const UnpackedError&, const UnpackedError&) = default;
};

/// One row of `to_table`: an error with its sample and slot.
struct TableRow {
  int64_t sample;
  int64_t slot;
  UnpackedError error;
};

/// location name -> code name -> how often
using Summary = std::map<std::string, std::map<std::string, int64_t>>;

/// The errors of one sample, slot 0 first. `sample` counts from the end where negative.
std::vector<UnpackedError> unpack(const at::Tensor& f, int64_t sample, const ConfigOptions& options = {});
/// The errors of every sample. Costs one look at each word, and memory only for samples and errors.
std::vector<std::vector<UnpackedError>> unpack_all(const at::Tensor& f, const ConfigOptions& options = {});
Summary summary(const at::Tensor& f, const ConfigOptions& options = {});
/// `ErrorFlags(32 samples, no errors)` or `ErrorFlags(32 samples, 5 errors: 3xNAN, 2xINF @ encoder, output)`: codes by
/// falling count, of equals the one met first; at most three locations in order of their names, then ` +K more`. Where errors
/// were dropped, `; 7 dropped` follows.
std::string repr(const at::Tensor& f, const ConfigOptions& options = {});
/// One sample in lines for people: `[OK] No errors`, or a line an error.
std::string pretty_print(const at::Tensor& f, int64_t sample, const ConfigOptions& options = {});
/// Every error of the batch, samples in order, slot 0 first.
std::vector<TableRow> to_table(const at::Tensor& f, const ConfigOptions& options = {});

}  // namespace flags
}  // namespace triage
