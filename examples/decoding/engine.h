#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <triage/triage.h>

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "model.h"

/// What a fault in the model does to one request, from one of its tokens on.
enum class Fault { none, activations, infinity, some_logits };

struct Request {
  int64_t id = 0;
  double temperature = 1;
  Fault fault = Fault::none;
  size_t fault_at = 0;   // the token before which the fault comes
  at::Generator random;  // its own: what it draws does not depend on its neighbours
  at::Tensor hidden;     // (width,)
  std::vector<int64_t> tokens;
  std::vector<float> probabilities;  // with which they were drawn
  int repaired = 0;                  // steps whose logits a policy repaired
  std::string ended_by = {};         // "length", "eos", "decoding", "quarantine"
};

std::vector<Request> make_requests(int64_t count);

/// Gives some of the requests a fault, at a random token of the first half of what they said without it.
void add_faults(std::vector<Request>& requests, int64_t faulty, const std::vector<Request>& clean);

/// Decodes requests in a batch of at most `rows` rows. A request that ends leaves its row to one that waits, and the
/// rows change their order in every step, as those of serving engines do.
class Engine {
 public:
  /// `decoding` takes logits and temperatures, `quarantine` is that of the library.
  Engine(const Model& model, triage::Policy decoding, triage::Policy quarantine, size_t rows, size_t length);

  /// Decodes all of them; `after_step` is called with the number of steps so far.
  void decode(std::vector<Request>& requests, const std::function<void(int)>& after_step);

 private:
  struct Judged {
    at::Tensor logits, decoding, verdict;  // the verdict of the first policy, and of both
  };
  Judged judge(const at::Tensor& logits) const;
  at::Tensor run_model();
  void sample(const Judged& judged);

  const Model& model_;
  triage::Policy decoding_, quarantine_;
  size_t rows_, length_;
  at::Generator order_;
  std::vector<Request*> batch_;
};
