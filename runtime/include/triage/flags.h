#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/config.h>
#include <triage/location.h>
#include <triage/positions.h>

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

/// Operations on flags for C++ hosts: the names, argument order and results of the Lua API, with options in a trailing
/// struct.
///
/// `f` is a flags tensor `(N, num_words)` (config.h), `z` is data `(N, ...)` of any dtype and strides, a mask is a bool
/// `(N,)`. No operation writes to its arguments. Results for N = 0 are empty, not errors. Without a config, operations
/// use the global one. The config must be the one that made the flags (width and policy); the carrier comes from the
/// flags themselves. Flags have the width and carrier of the global configuration, or of another one that this process
/// set, recorded or read flags with; any other tensor is data: InputError. The config of a query only makes its form
/// known: queries and readers look at every slot of every word, those that no configuration uses too. Wrong arguments
/// throw triage::InputError; a bad sample never throws.
///
/// All run on any device that ATen supports, on the CPU as one pass over the data. Masks, counts and flags never
/// require grad; a repaired row (or element) gets gradient exactly 0.
namespace triage {

struct ConfigOptions {
  std::optional<ErrorConfig> config = {};
};
struct InspectOptions {
  std::optional<ErrorConfig> config = {};
  CodeNames codes = {};  ///< what the policy that the flags are of calls the free codes: `policy.signature().codes`
  std::vector<FirstPositions> positions = {};  ///< of the call that returned the flags: RunInfo::positions
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
  /// The value for bad samples: a number, a tensor that broadcasts to z, or a function that returns one.
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
  std::vector<int64_t> integers = {};  ///< compared exactly with integer data
};
/// One target in a list: err::nan, err::inf, "nan", "inf", "posinf", "neginf", or a number.
class TRIAGE_API ReplaceTarget {
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

/// --- create --- Flags without errors for the samples of `x`, on its device.
TRIAGE_API at::Tensor new_(const at::Tensor& x, const ConfigOptions& options = {});
TRIAGE_API at::Tensor new_t(int64_t samples, const NewOptions& options = {});
/// Flags for `samples` samples, each with this error.
TRIAGE_API at::Tensor from_code(Code code, Location location, int64_t samples, const FromCodeOptions& options = {});

/// --- record ---
TRIAGE_API at::Tensor push(const at::Tensor& f, Code code, Location location, const PushOptions& options = {});
/// One code per sample, `(N,)` of any integer dtype; 0 records nothing; a number outside 0..15 becomes UNKNOWN.
TRIAGE_API at::Tensor push(const at::Tensor& f, const at::Tensor& codes, Location location,
                           const PushOptions& options = {});
TRIAGE_API at::Tensor push_scalar(const at::Tensor& f, Code code, Location location,
                                  const SeverityOptions& options = {});
/// Pushes the entries of each further tensor, slot 0 first, into the first. With one tensor, returns a copy.
TRIAGE_API at::Tensor merge(at::ArrayRef<at::Tensor> flags, const ConfigOptions& options = {});
/// Empties every slot with this code; the others stay where they are.
TRIAGE_API at::Tensor clear(const at::Tensor& f, Code code, const ConfigOptions& options = {});

/// --- query: bool `(N,)` ---
TRIAGE_API at::Tensor is_ok(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor is_err(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_nan(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_inf(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_code(const at::Tensor& f, Code code, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_critical(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_domain(const at::Tensor& f, Domain domain, const ConfigOptions& options = {});
TRIAGE_API at::Tensor has_fallback(const at::Tensor& f, const ConfigOptions& options = {});
/// bool `()`
TRIAGE_API at::Tensor all_ok(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor any_err(const at::Tensor& f, const ConfigOptions& options = {});
inline at::Tensor has_any(const at::Tensor& f, const ConfigOptions& options = {}) { return any_err(f, options); }
/// int32 `(N,)` and int64 `(N,)`
TRIAGE_API at::Tensor count_errors(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor max_severity(const at::Tensor& f, const ConfigOptions& options = {});
/// Of slot 0, int32 `(N,)`; and the bits of slot `index`, int64 `(N,)`.
TRIAGE_API at::Tensor get_first_code(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor get_first_location(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor get_first_severity(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor get_slot(const at::Tensor& f, int64_t index, const ConfigOptions& options = {});

/// --- filter samples: results of M <= N rows ---
TRIAGE_API at::Tensor get_ok(const at::Tensor& f);
TRIAGE_API at::Tensor get_err(const at::Tensor& f);
TRIAGE_API at::Tensor take_ok(const at::Tensor& f, const at::Tensor& z);
TRIAGE_API at::Tensor take_err(const at::Tensor& f, const at::Tensor& z);
inline at::Tensor Ok(const at::Tensor& f, const at::Tensor& z) { return take_ok(f, z); }
inline at::Tensor Err(const at::Tensor& f, const at::Tensor& z) { return take_err(f, z); }
TRIAGE_API std::pair<at::Tensor, at::Tensor> partition(const at::Tensor& f, const at::Tensor& z);
TRIAGE_API std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>> partition_many(const at::Tensor& f,
                                                                                      at::ArrayRef<at::Tensor> zs);
/// Keeps the shape of `z` and fills the other samples. The default fill is 0 in the dtype of z. A number with a
/// fraction converts integers to floats, 0 and 1 are false and true in bool data, and a number beyond the range of the
/// dtype is an InputError. The same holds for the value of `replace`.
TRIAGE_API at::Tensor take_ok_p(const at::Tensor& f, const at::Tensor& z, const at::Scalar& fill = false);
TRIAGE_API at::Tensor take_err_p(const at::Tensor& f, const at::Tensor& z, const at::Scalar& fill = false);

/// --- combinators: `fn` runs on all rows; its results for the other rows are dropped, and so is their gradient. That
/// holds for its argument. Other data that `fn` captures is not guarded (unlike in Lua): if gradients matter, pass it
/// in with `z`, or repair it first. The result of `fn` must have the dtype of its data and a shape that broadcasts to
/// the data's (x.sum(-1, true)). An empty function, or one that returns an undefined tensor, is an InputError. ---
using Transform = std::function<at::Tensor(const at::Tensor&)>;
using Step = std::function<std::pair<at::Tensor, at::Tensor>(const at::Tensor&)>;  // z -> z, f
TRIAGE_API at::Tensor map_ok(const at::Tensor& f, const at::Tensor& z, const Transform& fn);
TRIAGE_API at::Tensor map_err(const at::Tensor& f, const at::Tensor& z, const Transform& fn);
TRIAGE_API at::Tensor map_err_flags(const at::Tensor& f, const Transform& fn);
/// A sample with errors is frozen: neither its value nor its flags change.
TRIAGE_API std::pair<at::Tensor, at::Tensor> and_then(const at::Tensor& f, const at::Tensor& z, const Step& fn,
                                                      const ConfigOptions& options = {});
/// The value of a sample with errors is frozen; its flags keep accumulating.
TRIAGE_API std::pair<at::Tensor, at::Tensor> bind(const at::Tensor& f, const at::Tensor& z, const Step& fn,
                                                  const ConfigOptions& options = {});
/// Records `code` where `fine` is false.
TRIAGE_API at::Tensor ensure_mask(const at::Tensor& f, const at::Tensor& fine, Code code, Location location,
                                  const SeverityOptions& options = {});
/// Records `code` where `predicate(z)`, bool `(N,)`, is false.
TRIAGE_API at::Tensor guard(const at::Tensor& f, const at::Tensor& z, const Transform& predicate, Code code,
                            Location location, const SeverityOptions& options = {});
/// Replaces samples with errors by the fallback, which broadcasts to z, and records FALLBACK_VALUE (WARN) there:
/// `z, f`.
TRIAGE_API std::pair<at::Tensor, at::Tensor> recover_with_fallback(const at::Tensor& f, const at::Tensor& z,
                                                                   const at::Tensor& fallback, Location location,
                                                                   const SeverityOptions& options = {});
TRIAGE_API std::pair<at::Tensor, at::Tensor> recover_with_fallback(const at::Tensor& f, const at::Tensor& z,
                                                                   const at::Scalar& fallback, Location location,
                                                                   const SeverityOptions& options = {});
/// Replaces elements, not samples. Throws InputError if there are no targets.
TRIAGE_API at::Tensor replace(const at::Tensor& z, const at::Scalar& value, const ReplaceTargets& targets);
/// The same with a list: err::replace(z, 0, {err::nan, "posinf", 999}).
TRIAGE_API at::Tensor replace(const at::Tensor& z, const at::Scalar& value,
                              std::initializer_list<ReplaceTarget> targets);

}  // namespace err

/// True if any sample has any error. Reads a value, so it synchronizes with an accelerator.
TRIAGE_API bool has_err(const at::Tensor& f, const ConfigOptions& options = {});
/// The samples with this code, as err::has_code. (In Lua the code is the first argument.)
TRIAGE_API at::Tensor find(const at::Tensor& f, Code code, const ConfigOptions& options = {});
TRIAGE_API at::Tensor push(const at::Tensor& f, Code code, Location location, const PushOptions& options = {});
/// Replaces all elements of every sample with an entry in `f` by the fallback, and records FALLBACK_VALUE (WARN) there:
/// `z, f`.
TRIAGE_API std::pair<at::Tensor, at::Tensor> fix(const at::Tensor& z, const at::Tensor& f, Location location,
                                                 const FixOptions& options = {});
/// Record errors of the samples of `z` in `f` or, if `f` is undefined, in new flags. Integers hold neither NaN nor Inf.
/// A sample with both gets NAN first, then INF.
TRIAGE_API at::Tensor flag_nan(const at::Tensor& z, Location location, const at::Tensor& f = {},
                               const ConfigOptions& options = {});
TRIAGE_API at::Tensor flag_inf(const at::Tensor& z, Location location, const at::Tensor& f = {},
                               const ConfigOptions& options = {});
TRIAGE_API at::Tensor flag_nan_and_inf(const at::Tensor& z, Location location, const at::Tensor& f = {},
                                       const ConfigOptions& options = {});
/// OUT_OF_BOUNDS for samples with an index below 0 or not below `num_embeddings`.
TRIAGE_API at::Tensor flag_oob_indices(const at::Tensor& ids, int64_t num_embeddings, Location location,
                                       const at::Tensor& f = {}, const ConfigOptions& options = {});

/// Reads flags as plain C++ values. Copies the flags to the CPU if necessary. The configuration (default: the global
/// one) only says whether the last slot is an overflow record (track_overflow, layout.h); in flags of another width it
/// is not one.
namespace flags {

/// The key under which `summary` counts dropped errors, as {"UNKNOWN": count}.
inline constexpr const char* DROPPED = "(dropped)";

struct UnpackedError {
  Severity severity;
  Code code;
  int64_t location;  ///< of an overflow record: how many errors were dropped
  std::string severity_name;
  std::string code_name;
  std::string location_name;           ///< of an overflow record: `(3 dropped)`, `(at least 1023 dropped)`
  std::vector<int64_t> position = {};  ///< in the sample, of the first value with this error; empty if not known
  friend bool operator==(const UnpackedError&, const UnpackedError&) = default;
};

/// One row of `to_table`: an error with its sample and slot.
struct TableRow {
  int64_t sample;
  int64_t slot;
  UnpackedError error;
};

/// location name -> code name -> count
using Summary = std::map<std::string, std::map<std::string, int64_t>>;

/// The errors of one sample, slot 0 first. A negative `sample` counts from the end.
TRIAGE_API std::vector<UnpackedError> unpack(const at::Tensor& f, int64_t sample, const InspectOptions& options = {});
/// The errors of every sample. Reads each word once, and takes memory only for samples and errors.
TRIAGE_API std::vector<std::vector<UnpackedError>> unpack_all(const at::Tensor& f, const InspectOptions& options = {});
TRIAGE_API Summary summary(const at::Tensor& f, const InspectOptions& options = {});
/// `ErrorFlags(32 samples, no errors)` or `ErrorFlags(32 samples, 5 errors: 3xNAN, 2xINF @ encoder, output)`: codes by
/// descending count, ties in order of first occurrence; at most three locations in order of their names, then
/// ` +K more`. If errors were dropped, `; 7 dropped` follows.
TRIAGE_API std::string repr(const at::Tensor& f, const InspectOptions& options = {});
/// One sample as readable text: `[OK] No errors`, or one line per error.
TRIAGE_API std::string pretty_print(const at::Tensor& f, int64_t sample, const InspectOptions& options = {});
/// Every error of the batch, samples in order, slot 0 first.
TRIAGE_API std::vector<TableRow> to_table(const at::Tensor& f, const InspectOptions& options = {});

/// Writes flags as save_tensor (files.h) does and, into `.pt` and `.pth` files, the names of their locations and codes
/// beside them: a record of the file that `torch.load` passes over.
TRIAGE_API void save(const std::string& path, const at::Tensor& f, const InspectOptions& options = {});
/// Flags of a file, and what the policy that they are of calls the free codes.
struct Loaded {
  at::Tensor f;
  CodeNames codes;
};
/// The flags of a file, whichever process wrote it. An id of a location is a number of one process: it becomes the id
/// that its name has here, which the host then has registered. An id without a name in the file, as all ids of an .npy
/// file, is the location `Location_<id>`. The words are those of the file where no other location has one of the ids
/// here. Throws FileError, and InputError for a tensor that has not the form of flags. The configuration (default: the
/// global one) says which form that is, and whether the last slot is an overflow record.
TRIAGE_API Loaded load(const std::string& path, const ConfigOptions& options = {});

}  // namespace flags
}  // namespace triage
