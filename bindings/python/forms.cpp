#include "bindings/python/forms.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/python/as_outside.h"
#include "bindings/python/autocast.h"

namespace triage::python {
namespace {

/// Open sizes have numbers. A size is fixed, or is one of them.
struct OpenSize {
  int64_t fixed = 0;
  int number = -1;
};

struct OpenInput {
  at::ScalarType dtype;
  c10::Device device;
  std::vector<OpenSize> sizes;
};

/// A size of an output by the open sizes: `constant` + the sum of factors[i] * open size i; of a product, `constant`
/// times those whose factor is 1.
struct SizeRule {
  bool is_product = false;
  int64_t constant = 0;
  std::vector<int64_t> factors;

  int64_t of(const std::vector<int64_t>& open) const {
    int64_t size = constant;
    for (size_t i = 0; i < factors.size(); ++i) {
      if (is_product)
        size *= factors[i] ? open[i] : 1;
      else
        size += factors[i] * open[i];
    }
    return size;
  }
};

struct OpenOutput {
  at::ScalarType dtype;
  c10::Device device;
  std::vector<SizeRule> sizes;
};

/// What a program is told: for such inputs, such outputs.
struct OpenForm {
  std::vector<OpenInput> inputs;
  std::vector<OpenOutput> outputs;
};

std::vector<TensorMetadata> with_sizes(const std::vector<OpenInput>& inputs, const std::vector<int64_t>& values) {
  std::vector<TensorMetadata> tensors;
  for (const OpenInput& input : inputs) {
    tensors.push_back({input.dtype, {}, input.device});
    for (const OpenSize& size : input.sizes)
      tensors.back().sizes.push_back(size.number < 0 ? size.fixed : values[static_cast<size_t>(size.number)]);
  }
  return tensors;
}

class Learner {
 public:
  Learner(const Policy& policy, const std::vector<OpenInput>& inputs, std::vector<int64_t> values)
      : policy_(policy), inputs_(inputs), values_(std::move(values)) {}

  std::vector<OpenOutput> learn() {
    usual_ = ask(values_);
    check_open();
    varied_.resize(values_.size());
    for (size_t i = 0; i < values_.size(); ++i) vary(i);
    proof_values_ = values_;
    for (size_t i = 0; i < values_.size(); ++i) proof_values_[i] += 3 * (varied_[varied_[i].leader].value - values_[i]);
    proof_ = try_ask(proof_values_);
    std::vector<OpenOutput> outputs;
    for (size_t output = 0; output < usual_.size(); ++output) {
      outputs.push_back({usual_[output].dtype, usual_[output].device, {}});
      for (size_t dim = 0; dim < usual_[output].sizes.size(); ++dim) outputs.back().sizes.push_back(rule(output, dim));
    }
    return outputs;
  }

 private:
  using Answer = std::vector<TensorMetadata>;
  struct Varied {
    int64_t value = 0;
    Answer answer;
    size_t leader = 0;  // itself, or the one that it must be as large as
    bool is_done = false;
  };

  Answer ask(const std::vector<int64_t>& values) const { return output_metadata(policy_, with_sizes(inputs_, values)); }

  /// Nothing: the policy does not take these sizes, or answers in another form.
  std::optional<Answer> try_ask(const std::vector<int64_t>& values) const {
    try {
      Answer answer = ask(values);
      const bool alike = std::equal(answer.begin(), answer.end(), usual_.begin(), usual_.end(),
                                    [](const TensorMetadata& a, const TensorMetadata& b) {
                                      return a.dtype == b.dtype && a.sizes.size() == b.sizes.size();
                                    });
      if (alike) return answer;
    } catch (const PolicyError&) {
    } catch (const InputError&) {
    }
    return std::nullopt;
  }

  /// Alone; where the policy wants several to be the same, together with another one, or with all.
  void vary(size_t number) {
    if (varied_[number].is_done) return;
    std::vector<std::vector<size_t>> ties{{number}};
    std::vector<size_t> all{number};
    for (size_t i = number + 1; i < values_.size(); ++i)
      if (!varied_[i].is_done && values_[i] == values_[number]) {
        ties.push_back({number, i});
        all.push_back(i);
      }
    if (all.size() > 2) ties.push_back(all);
    for (const std::vector<size_t>& tied : ties)
      for (const int64_t value : {values_[number] + 1, values_[number] * 2, values_[number] + 8}) {
        std::vector<int64_t> values = values_;
        for (const size_t i : tied) values[i] = value;
        auto answer = try_ask(values);
        if (!answer) continue;
        for (const size_t i : tied) varied_[i] = {value, *answer, number, true};
        return;
      }
    fail("takes no other size than " + std::to_string(values_[number]) + " for " + place_of(number) +
         ", which the program leaves open");
  }

  std::string place_of(size_t number) const {
    const Signature signature = policy_.signature();
    for (size_t i = 0; i < inputs_.size(); ++i)
      for (size_t dim = 0; dim < inputs_[i].sizes.size(); ++dim)
        if (inputs_[i].sizes[dim].number == static_cast<int>(number))
          return c10::str("dimension ", dim, " of input '", signature.inputs.at(i), "'");
    return "an input";
  }

  std::string name_of(size_t output) const {
    const std::vector<std::string> names = policy_.signature().outputs;
    return output < names.size() ? "'" + names[output] + "'" : std::to_string(output + 1);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw PolicyError(
        c10::str("policy '", policy_.name(), "' ", what,
                 ", so that torch.compile and torch.export cannot know what it returns. Keep it out of the "
                 "program: torch.compiler.disable(policy.__call__)."));
  }

  void check_open() const {
    for (size_t output = 0; output < usual_.size(); ++output)
      for (size_t dim = 0; dim < usual_[output].sizes.size(); ++dim)
        if (usual_[output].sizes[dim] < 0)
          fail(c10::str("gives output ", name_of(output), " whose dimension ", dim, " depends on values",
                        line_of_values()));
  }

  /// " (filter.lua:4)": where values decide a size, as the break of a graph tells it; empty where nothing does.
  std::string line_of_values() const {
    const auto text = [](const Source& at) {
      return at.file.empty() ? std::string() : c10::str(" (", at.file, ":", at.line, ")");
    };
    std::vector<at::Tensor> made;
    for (const TensorMetadata& input : with_sizes(inputs_, values_))
      made.push_back(at::ones(input.sizes, at::TensorOptions(input.dtype).device(input.device)));
    try {
      policy_.prepare(made);
    } catch (const GraphBreakError& error) {
      return text(error.source());
    } catch (const Error&) {
      return "";
    }
    for (const BreakReport& one : policy_.breaks())
      if (one.id == "TB0002") return text(one.where);
    return "";
  }

  SizeRule rule(size_t output, size_t dim) const {
    for (const bool is_product : {false, true})
      if (const auto found = is_product ? product(output, dim) : sum(output, dim))
        if (!proof_ || found->of(proof_values_) == proof_->at(output).sizes[dim]) return *found;
    fail(c10::str("gives output ", name_of(output), " whose dimension ", dim,
                  " is neither a sum nor a product of sizes of its inputs"));
  }

  std::optional<SizeRule> sum(size_t output, size_t dim) const {
    const int64_t usual = usual_[output].sizes[dim];
    SizeRule rule{false, usual, {}};
    for (size_t i = 0; i < values_.size(); ++i) {
      if (varied_[i].leader != i) {
        rule.factors.push_back(0);
        continue;
      }
      const int64_t more = varied_[i].answer[output].sizes[dim] - usual, step = varied_[i].value - values_[i];
      if (more % step != 0) return std::nullopt;
      rule.factors.push_back(more / step);
      rule.constant -= rule.factors.back() * values_[i];
    }
    return rule;
  }

  std::optional<SizeRule> product(size_t output, size_t dim) const {
    int64_t constant = usual_[output].sizes[dim];
    SizeRule rule{true, 0, {}};
    for (size_t i = 0; i < values_.size(); ++i) {
      const int64_t usual = usual_[output].sizes[dim];
      const int64_t with = varied_[i].leader == i ? varied_[i].answer[output].sizes[dim] : usual;
      rule.factors.push_back(with != usual);
      if (with == usual) continue;
      if (with * values_[i] != usual * varied_[i].value || constant % values_[i] != 0) return std::nullopt;
      constant /= values_[i];
    }
    rule.constant = constant;
    return rule;
  }

  const Policy& policy_;
  const std::vector<OpenInput>& inputs_;
  const std::vector<int64_t> values_;
  Answer usual_;
  std::vector<Varied> varied_;
  std::optional<Answer> proof_;
  std::vector<int64_t> proof_values_;
};

/// The open sizes of a call; nothing where it is of other inputs.
std::optional<std::vector<int64_t>> open_sizes(const std::vector<OpenInput>& promised, at::TensorList inputs) {
  if (promised.size() != inputs.size()) return std::nullopt;
  std::vector<int64_t> open;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OpenInput& input = promised[i];
    if (inputs[i].scalar_type() != input.dtype || inputs[i].dim() != static_cast<int64_t>(input.sizes.size()))
      return std::nullopt;
    for (size_t dim = 0; dim < input.sizes.size(); ++dim) {
      const int64_t size = inputs[i].size(static_cast<int64_t>(dim));
      if (input.sizes[dim].number < 0) {
        if (size != input.sizes[dim].fixed) return std::nullopt;
        continue;
      }
      const auto number = static_cast<size_t>(input.sizes[dim].number);
      if (open.size() <= number) open.resize(number + 1, -1);
      if (open[number] >= 0 && open[number] != size) return std::nullopt;
      open[number] = size;
    }
  }
  return open;
}

bool is_as_promised(const OpenOutput& promised, const at::Tensor& output, const std::vector<int64_t>& open) {
  if (output.scalar_type() != promised.dtype || output.dim() != static_cast<int64_t>(promised.sizes.size()))
    return false;
  for (size_t dim = 0; dim < promised.sizes.size(); ++dim)
    if (output.size(static_cast<int64_t>(dim)) != promised.sizes[dim].of(open)) return false;
  return true;
}

std::string text_of(const OpenForm& promise) {
  std::vector<int64_t> numbers{0, static_cast<int64_t>(promise.inputs.size())};
  for (const OpenInput& input : promise.inputs) {
    numbers.push_back(static_cast<int64_t>(input.dtype));
    numbers.push_back(static_cast<int64_t>(input.sizes.size()));
    for (const OpenSize& size : input.sizes) {
      numbers.push_back(size.number < 0 ? size.fixed : -1 - size.number);
      numbers[0] = std::max<int64_t>(numbers[0], size.number + 1);
    }
  }
  numbers.push_back(static_cast<int64_t>(promise.outputs.size()));
  for (const OpenOutput& output : promise.outputs) {
    const auto like = std::find_if(promise.inputs.begin(), promise.inputs.end(),
                                   [&](const OpenInput& input) { return input.device.type() == output.device.type(); });
    numbers.push_back(static_cast<int64_t>(output.dtype));
    numbers.push_back(like == promise.inputs.end() ? -1 : like - promise.inputs.begin());
    numbers.push_back(static_cast<int64_t>(output.sizes.size()));
    for (const SizeRule& rule : output.sizes) {
      numbers.push_back(rule.is_product);
      numbers.push_back(rule.constant);
      numbers.insert(numbers.end(), rule.factors.begin(), rule.factors.end());
    }
  }
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

}  // namespace

std::string learn_form(const Policy& policy, at::TensorList inputs, const std::string& autocast) {
  const AsOutside plain;
  const AutocastScope scope(autocast);
  OpenForm promise;
  std::map<std::string, int> numbers;  // of open sizes, by their expressions
  for (const at::Tensor& input : inputs) {
    promise.inputs.push_back({input.scalar_type(), input.device(), {}});
    for (const c10::SymInt& size : input.sym_sizes()) {
      if (const auto fixed = size.maybe_as_int())
        promise.inputs.back().sizes.push_back({*fixed, -1});
      else
        promise.inputs.back().sizes.push_back(
            {0, numbers.emplace(size.toSymNode()->str(), static_cast<int>(numbers.size())).first->second});
    }
  }
  // Small values first; a policy may want more, or several to be the same.
  for (const int64_t least : {5, 64, 1024})
    for (const int64_t step : {2, 0}) {
      std::vector<int64_t> values;
      for (size_t i = 0; i < numbers.size(); ++i) values.push_back(least + step * static_cast<int64_t>(i));
      try {
        promise.outputs = Learner(policy, promise.inputs, std::move(values)).learn();
        return text_of(promise);
      } catch (const Error&) {
        if (numbers.empty() || (least == 1024 && step == 0)) throw;
      }
    }
  return {};
}

namespace {

class FormReader {
 public:
  explicit FormReader(const std::string& text) : next_(text.c_str()), end_(next_ + text.size()) {}

  OpenForm read() {
    const int64_t open = take();
    OpenForm promise;
    for (int64_t left = take(); left > 0; --left) {
      promise.inputs.push_back({static_cast<at::ScalarType>(take()), at::kCPU, {}});
      for (int64_t rank = take(); rank > 0; --rank) {
        const int64_t size = take();
        promise.inputs.back().sizes.push_back(size >= 0 ? OpenSize{size, -1}
                                                        : OpenSize{0, static_cast<int>(-1 - size)});
      }
    }
    for (int64_t left = take(); left > 0; --left) {
      promise.outputs.push_back({static_cast<at::ScalarType>(take()), at::kCPU, {}});
      take();  // the device
      for (int64_t rank = take(); rank > 0; --rank) {
        SizeRule rule{take() != 0, take(), {}};
        for (int64_t i = 0; i < open; ++i) rule.factors.push_back(take());
        promise.outputs.back().sizes.push_back(std::move(rule));
      }
    }
    return promise;
  }

 private:
  int64_t take() {
    int64_t number = 0;
    const auto [behind, error] = std::from_chars(next_, end_, number);
    if (error != std::errc()) throw InputError("triage::run_policy: the argument `form` is none that triage wrote.");
    next_ = behind == end_ ? behind : behind + 1;
    return number;
  }

  const char* next_;
  const char* const end_;
};

}  // namespace

void check_form(const Policy& policy, const std::string& form, at::TensorList inputs, at::TensorList outputs) {
  const OpenForm promise = FormReader(form).read();
  const auto open = open_sizes(promise.inputs, inputs);
  const std::string advice =
      "its form depends on values or on params, or another version gives another one. Compile the program again "
      "(torch._dynamo.reset()), or declare the types of the outputs in the policy.";
  if (!open || promise.outputs.size() != outputs.size())
    throw PolicyError(c10::str("policy '", policy.name(), "' gave ", outputs.size(),
                               " outputs to a compiled program that was "
                               "made for ",
                               promise.outputs.size(), " of other inputs: ", advice));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_as_promised(promise.outputs[i], outputs[i], *open)) continue;
    std::vector<int64_t> sizes;
    for (const SizeRule& rule : promise.outputs[i].sizes) sizes.push_back(rule.of(*open));
    throw PolicyError(c10::str("policy '", policy.name(), "' gave output ", i + 1, " as ", outputs[i].scalar_type(),
                               " of shape ", outputs[i].sizes(), " to a compiled program that was made for ",
                               promise.outputs[i].dtype, " of shape ", at::IntArrayRef(sizes), ": ", advice));
  }
}

}  // namespace triage::python
