#include "runtime/random/sequence.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>

namespace triage::random {
namespace {

/// Of the thread, because operators that draw are called by LibTorch.
thread_local struct {
  Sequence* current;  // DrawFrom
  Sequence* aside;    // DrawAside
} context{};

bool is_generator(const c10::Argument& argument) {
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
  return type->kind() == c10::TypeKind::GeneratorType;
}

/// That of the first tensor; of a call without tensors, the one it names.
c10::Device device_of(at::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments)
    if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  for (const c10::IValue& argument : arguments)
    if (argument.isDevice()) return argument.toDevice();
  return c10::kCPU;
}

/// The kernel of every operator that takes a generator.
void name_generator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  if (context.current) {
    const at::ArrayRef<c10::IValue> given = torch::jit::last(*stack, arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
      if (!is_generator(arguments[i]) || !value.isNone()) continue;
      const c10::Device device = device_of(given);
      if (!device.is_meta()) value = context.current->generator(device);
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, scope_key), stack);
}

/// In all versions of LibTorch, whichever operators they have.
struct Registration {
  Registration() : others(torch::Library::IMPL, "_", scope_key, __FILE__, __LINE__) {
    others.fallback(torch::CppFunction::makeFallthrough());
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (!op || name.name.rfind("aten::", 0) != 0) continue;
      const auto& arguments = op->schema().arguments();
      if (std::any_of(arguments.begin(), arguments.end(), is_generator))
        own.impl(c10::toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&name_generator>());
    }
  }
  torch::Library others;
  torch::Library own{torch::Library::IMPL, "aten", scope_key, __FILE__, __LINE__};
};
const Registration registration;

bool include(bool included) {
  const bool before = c10::impl::tls_is_dispatch_key_included(scope_key);
  if (before != included) c10::impl::tls_set_dispatch_key_included(scope_key, included);
  return before;
}

at::Generator copied(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.clone();
}

}  // namespace

Sequence::Sequence(uint64_t seed) : seed_(seed) {}

Sequence::Sequence(const at::Generator& cpu) : seed_(c10::default_rng_seed_val) {
  generators_.emplace_back(c10::kCPU, copied(cpu));
}

void Sequence::reseed(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  seed_ = seed;
  for (auto& [device, generator] : generators_) {
    const std::lock_guard<std::mutex> drawing(generator.mutex());
    generator.set_current_seed(seed);
  }
}

at::Generator Sequence::generator(c10::Device device) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [known, generator] : generators_)
    if (known == device) return generator;
  at::Generator made =
      device.is_cpu() ? at::detail::createCPUGenerator(seed_) : copied(at::globalContext().defaultGenerator(device));
  if (!device.is_cpu()) made.set_current_seed(seed_);
  generators_.emplace_back(device, made);
  return made;
}

DrawFrom::DrawFrom(Sequence* sequence)
    : previous_(std::exchange(context.current, sequence)), included_(include(sequence != nullptr)) {}

DrawFrom::~DrawFrom() {
  include(included_);
  context.current = previous_;
}

DrawAside::DrawAside() : previous_(std::exchange(context.aside, &sequence_)) {}

DrawAside::~DrawAside() { context.aside = previous_; }

Sequence* or_aside(Sequence* sequence) { return context.aside ? context.aside : sequence; }

/// Where this thread's random numbers on the CPU come from.
static at::Generator of_cpu() {
  return context.current ? context.current->generator(c10::kCPU) : at::detail::getDefaultCPUGenerator();
}

uint64_t draw_bits() {
  at::Generator generator = of_cpu();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
}

at::Generator copy_of_current() { return copied(of_cpu()); }

GoBack::GoBack(bool needed, at::ArrayRef<at::Tensor> tensors) {
  if (!needed) return;
  const auto keep = [this](at::Generator generator) { then_.emplace_back(generator, copied(generator)); };
  if ((sequence_ = context.current)) {
    const std::lock_guard<std::mutex> lock(sequence_->mutex_);
    for (const auto& [device, generator] : sequence_->generators_) keep(generator);
    return;
  }
  keep(at::detail::getDefaultCPUGenerator());
  for (const at::Tensor& tensor : tensors) {
    if (tensor.device().is_cpu() || tensor.is_meta()) continue;
    const at::Generator& generator = at::globalContext().defaultGenerator(tensor.device());
    const auto is_known = [&](const auto& kept) { return kept.first == generator; };
    if (std::none_of(then_.begin(), then_.end(), is_known)) keep(generator);
  }
}

void GoBack::operator()() const {
  const auto put_back = [](at::Generator generator, const at::Tensor& state) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  };
  for (const auto& [generator, copy] : then_) put_back(generator, copy.get_state());
  if (!sequence_) return;
  const std::lock_guard<std::mutex> lock(sequence_->mutex_);
  auto& made = sequence_->generators_;  // since then: those begin again
  const auto is_new = [&](const auto& one) {
    return std::none_of(then_.begin(), then_.end(), [&](const auto& kept) { return kept.first == one.second; });
  };
  made.erase(std::remove_if(made.begin(), made.end(), is_new), made.end());
}

Replay::Replay(bool needed, const at::Generator& state) {
  if (!needed) return;
  sequence_.emplace(state.defined() ? state : copy_of_current());
  scope_.emplace(&*sequence_);
}

}  // namespace triage::random
