#include "engine.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();

/// One value for each row.
template <typename Value, typename Get>
at::Tensor column(const std::vector<Request*>& batch, at::ScalarType dtype, const Get& get) {
  std::vector<Value> values;
  for (const Request* request : batch) values.push_back(get(*request));
  return at::tensor(values, dtype);
}

bool is_faulty(const Request& request, Fault fault) {
  return request.fault == fault && request.tokens.size() >= request.fault_at;
}

}  // namespace

std::vector<Request> make_requests(int64_t count) {
  std::vector<Request> requests(static_cast<size_t>(count));
  for (int64_t id = 0; id < count; ++id) {
    Request& request = requests[static_cast<size_t>(id)];
    request.id = id;
    request.temperature = 0.5 + 0.25 * static_cast<double>(id % 5);
    request.random = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(1000 + id));
    request.hidden = at::zeros({Model::width});
  }
  return requests;
}

void add_faults(std::vector<Request>& requests, int64_t faulty, const std::vector<Request>& clean) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
  const at::Tensor chosen = at::randperm(static_cast<int64_t>(requests.size()), generator, at::kLong);
  for (int64_t i = 0; i < faulty; ++i) {
    const auto id = static_cast<size_t>(chosen[i].item<int64_t>());
    const auto first_half = static_cast<int64_t>(clean[id].tokens.size() + 1) / 2;
    requests[id].fault =
        std::array{Fault::activations, Fault::infinity, Fault::some_logits}[static_cast<size_t>(i % 3)];
    requests[id].fault_at = static_cast<size_t>(at::randint(0, first_half, {1}, generator, at::kLong).item<int64_t>());
  }
}

Engine::Engine(const Model& model, triage::Policy decoding, triage::Policy quarantine, size_t rows, size_t length)
    : model_(model),
      decoding_(std::move(decoding)),
      quarantine_(std::move(quarantine)),
      rows_(rows),
      length_(length),
      order_(at::make_generator<at::CPUGeneratorImpl>(9)) {}

at::Tensor Engine::run_model() {
  std::vector<at::Tensor> states;
  for (const Request* request : batch_) states.push_back(request->hidden);
  at::Tensor hidden = at::stack(states);
  for (size_t row = 0; row < batch_.size(); ++row)
    if (is_faulty(*batch_[row], Fault::activations)) hidden[static_cast<int64_t>(row)].fill_(not_a_number);
  at::Tensor logits =
      model_.step(column<int64_t>(batch_, at::kLong,
                                  [](const Request& r) { return r.tokens.empty() ? 1 + r.id : r.tokens.back(); }),
                  hidden);
  for (size_t row = 0; row < batch_.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    if (is_faulty(*batch_[row], Fault::infinity)) logits[at][7] = infinity;
    if (is_faulty(*batch_[row], Fault::some_logits)) logits[at].slice(0, 0, 20).fill_(not_a_number);
    batch_[row]->hidden = hidden[at];
  }
  return logits;
}

Engine::Judged Engine::judge(const at::Tensor& logits) const {
  const at::Tensor temperatures = column<double>(batch_, at::kFloat, [](const Request& r) { return r.temperature; });
  const at::Tensor ids = column<int64_t>(batch_, at::kLong, [](const Request& r) { return r.id; });
  const auto [scaled, verdict, f] = decoding_.run<3>({logits, temperatures});
  const auto [kept, both, g] = quarantine_.run<3>({scaled, verdict, ids});
  return {kept, verdict, both};
}

/// Each row draws from the stream of its request; also a row that ends, as in a sampler of the whole batch.
void Engine::sample(const Judged& judged) {
  const at::Tensor probabilities = judged.logits.softmax(-1);
  const auto first = judged.decoding.accessor<int8_t, 1>(), verdict = judged.verdict.accessor<int8_t, 1>();
  for (size_t row = 0; row < batch_.size(); ++row) {
    const auto at = static_cast<int64_t>(row);
    Request& request = *batch_[row];
    const int64_t token = at::multinomial(probabilities[at], 1, false, request.random).item<int64_t>();
    request.repaired += verdict[at] == 1;
    if (verdict[at] == 2) {
      request.ended_by = first[at] == 2 ? "decoding" : "quarantine";
      if (token != Model::eos) throw std::logic_error("a row that ended drew another token than eos");
      continue;  // it goes to nobody
    }
    request.tokens.push_back(token);
    request.probabilities.push_back(probabilities[at][token].item<float>());
    if (token == Model::eos)
      request.ended_by = "eos";
    else if (request.tokens.size() == length_)
      request.ended_by = "length";
  }
}

void Engine::decode(std::vector<Request>& requests, const std::function<void(int)>& after_step) {
  std::deque<Request*> waiting;
  for (Request& request : requests) waiting.push_back(&request);
  for (int step = 1; !waiting.empty() || !batch_.empty(); ++step) {
    for (; batch_.size() < rows_ && !waiting.empty(); waiting.pop_front()) batch_.push_back(waiting.front());
    const at::Tensor order = at::randperm(static_cast<int64_t>(batch_.size()), order_, at::kLong);
    std::vector<Request*> moved;
    for (int64_t row = 0; row < order.size(0); ++row)
      moved.push_back(batch_[static_cast<size_t>(order[row].item<int64_t>())]);
    batch_ = std::move(moved);
    sample(judge(run_model()));
    batch_.erase(std::remove_if(batch_.begin(), batch_.end(), [](const Request* r) { return !r->ended_by.empty(); }),
                 batch_.end());
    after_step(step);
  }
}
