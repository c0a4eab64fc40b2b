#include "runtime/backends/unmasked_rows.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/backends/eager.h"
#include "runtime/messages/logs/log.h"

namespace triage {
namespace {

bool any_requires_grad(at::ArrayRef<at::Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

class LeftToEager final : public Executable {
 public:
  LeftToEager(const graph::Graph& graph, const std::vector<at::Tensor>& examples, std::string backend, UnmaskedRows why)
      : eager_(compile_eager(graph, examples)),
        graph_(graph.name()),
        backend_(std::move(backend)),
        why_(std::move(why)),
        logger_(messages::LogTo::current()) {
    for (const auto& constant : graph.constants()) has_weights_ |= constant.tensor.requires_grad();
  }

  void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs, const CallContext& call) const override {
    if (wants_gradients(inputs)) {
      if (required_) refuse_unmasked_rows("graph `" + graph_ + "`", why_);
      if (!said_.exchange(true)) logger_.write(LogLevel::warn, left_to_eager_text(graph_, backend_, why_));
    }
    eager_->run(inputs, outputs, call);
  }
  std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> inputs) const override {
    return wants_gradients(inputs) ? std::optional(why_) : std::nullopt;
  }
  void require_masked_rows() override { required_ = true; }
  size_t spared_calls() const override { return eager_->spared_calls(); }
  size_t bytes() const override { return sizeof(*this) + eager_->bytes(); }

 private:
  bool wants_gradients(at::ArrayRef<at::Tensor> inputs) const {
    return c10::GradMode::is_enabled() && (has_weights_ || any_requires_grad(inputs));
  }

  std::unique_ptr<Executable> eager_;
  std::string graph_, backend_;
  UnmaskedRows why_;
  const messages::Logger logger_;  // of whoever had it compiled
  bool has_weights_ = false, required_ = false;
  mutable std::atomic<bool> said_{false};
};

}  // namespace

std::optional<UnmaskedRows> Executable::unmasked_rows(at::ArrayRef<at::Tensor> inputs) const {
  if (!c10::GradMode::is_enabled() || !any_requires_grad(inputs)) return std::nullopt;
  return UnmaskedRows{"the backend leaves gradients to ATen, which does not mask rows"};
}

std::string with_place(const UnmaskedRows& why) {
  return why.where.file.empty() ? why.reason : fmt::format("{} ({}:{})", why.reason, why.where.file, why.where.line);
}

UnmaskedRows unmasked_by_break(const std::string& what, const Source& where) {
  return {"of a graph break: " + what, where};
}

std::string left_to_eager_text(const std::string& graph, const std::string& backend, const UnmaskedRows& why) {
  return fmt::format(
      "graph `{}`: the `eager` backend runs instead of `{}`, because {}; values of rows that the function masks may "
      "reach gradients",
      graph, backend, with_place(why));
}

void refuse_unmasked_rows(const std::string& what, const UnmaskedRows& why) {
  throw MaskedRowsRequired(
      fmt::format("{}: masked_rows is \"require\", but values of masked rows may reach gradients, because {}\n  Hint: "
                  "repair the rows before that operator, or allow it with masked_rows = \"warn\"",
                  what, with_place(why)),
      why.where);
}

std::unique_ptr<Executable> left_to_eager(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                          const std::string& backend, UnmaskedRows why) {
  return std::make_unique<LeftToEager>(graph, examples, backend, std::move(why));
}

}  // namespace triage
