#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/error.h>
#include <triage/front_end.h>
#include <triage/params.h>
#include <triage/runtime.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The laws of a recovery policy, tried on every kind of bad sample: `triage verify` for C++.
namespace triage {

/// What a policy keeps to, whatever its samples hold.
enum class Law : uint8_t {
  answers,    ///< no sample makes a call fail
  finite,     ///< NaN and Inf leave only with a record that tells of them, behind its last repair
  unchanged,  ///< a sample without an entry in its record keeps its bits, in outputs that are named as inputs
  isolated,   ///< a bad sample changes no other one, in its call and in the next one
  order,      ///< the record of a sample depends neither on its place in the batch nor on the size of the batch
  stable,     ///< the policy changes nothing in its own outputs
  gradients,  ///< no sample leaves NaN or Inf in the gradient of an input; only for policies that promise it
};
/// In the order of the enumeration.
inline constexpr std::array<Law, 7> all_laws = {Law::answers, Law::finite, Law::unchanged, Law::isolated,
                                                Law::order,   Law::stable, Law::gradients};
/// "answers", "finite", ...: as in `verify = {...}` of a policy.
TRIAGE_API const char* to_string(Law law) noexcept;
/// The law as a sentence.
TRIAGE_API const char* text_of(Law law) noexcept;

/// What a policy says of one law: `verify = {unchanged = false, finite = {"z"}}`.
struct Promise {
  Law law = Law::answers;
  bool kept = true;                       ///< false: the policy does not promise the law
  std::vector<std::string> outputs = {};  ///< kept for these outputs only; empty: for all
  bool only_nan = false;                  ///< of Law::finite: Inf may leave, as the mask of logits; `finite = "nan"`
};

/// One way in which a law is broken: the samples that break it at one place of the script.
struct Violation {
  std::string output;  ///< empty: it concerns none of them
  std::string what;    ///< what came, in one line: "leaves NaN; its record says that it was repaired: NAN @ x, ..."
  std::string sample;  ///< the first sample that showed it: "one NaN in x"
  /// How many of those that were tried showed it. Of many, not all are looked at: the others count at the first place.
  size_t samples = 0;
  Source source = {};   ///< the line of the script; the file is empty where no line could be found
  std::string op = {};  ///< the operator of that line: "aten::div.Tensor"; may be empty
  /// The smallest batch that was found to show it, by the names of the inputs, and the sample of it.
  std::vector<std::pair<std::string, at::Tensor>> inputs = {};
  int64_t row = 0;
};

/// What became of one law.
struct LawResult {
  enum class Verdict : uint8_t { held, broken, not_promised, not_tried };
  Law law = Law::answers;
  Verdict verdict = Verdict::held;
  std::string why = {};  ///< of not_tried: why it could not be
  std::vector<Violation> violations = {};
};
TRIAGE_API const char* to_string(LawResult::Verdict verdict) noexcept;

struct Verification {
  std::string policy;
  size_t samples = 0;  ///< that were tried
  size_t calls = 0;    ///< of the policy
  std::vector<LawResult> laws;
  std::vector<std::string> left_out = {};  ///< batches that could not be tried, with the reason
  /// No law is broken, and one at least was tried.
  bool ok() const noexcept;
};

struct VerifyOptions {
  /// Batches to begin with, each in the order of the policy's inputs. Their good samples are those that are made bad.
  /// Empty: those that the policy's tests call it with.
  std::vector<std::vector<at::Tensor>> batches = {};
  Params params = {};           ///< else the defaults, or what a test sets
  RuntimeOptions runtime = {};  ///< backend, limits; `print` and `log` are not used
  /// Samples that are drawn, to meet several conditions of the script at once; at most 1,000,000. Of samples with more
  /// than 1024 elements fewer are drawn, but at least 256.
  size_t search = 16384;
  uint64_t seed = 0;                              ///< of the samples drawn, and of the policy's random numbers
  std::vector<HostFunction> host_functions = {};  ///< that the policy calls: `name` and `fn`
  std::vector<HostTensor> host_tensors = {};      ///< that it reads
  /// Told before each step of a law, how many of all are done. Null: nobody.
  std::function<void(const std::string& step)> progress = {};
};

/// Loads the policy, which no Runtime of the caller notices, and tries each law that it promises. It finds what the
/// samples show, and proves nothing: a law that held may be broken by a sample that was not tried. The same options
/// give the same result. Throws InputError where there is no batch to begin with, FileError, LoadError, and what the
/// policy throws for the batches given.
TRIAGE_API Verification verify_policy(const std::filesystem::path& policy, const VerifyOptions& options = {});

}  // namespace triage
