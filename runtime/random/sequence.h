#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

/// Random numbers of a policy's own. Operators of ATen that are given no generator draw from the default one, which
/// belongs to the host; many (`dropout`, `rand_like`) cannot be given one. All of them end in operators that can
/// (`bernoulli_`, `uniform_`, `normal_`, ...). Those have a kernel here, above all others, which puts the generator of
/// the scope where none is named. It is switched on a thread by a dispatch key, so outside of the scopes nothing
/// changes and nothing is slower.
namespace triage::random {

/// Generators, one a device, that begin with one seed. Thread-safe: each operator draws as a whole.
class Sequence {
 public:
  explicit Sequence(uint64_t seed = c10::default_rng_seed_val);
  /// Goes on from where `cpu` is; it stays where it is.
  explicit Sequence(const at::Generator& cpu);
  /// From here on as a sequence that begins with `seed`.
  void reseed(uint64_t seed);
  at::Generator generator(c10::Device device);

 private:
  friend class GoBack;
  std::mutex mutex_;
  uint64_t seed_;
  std::vector<std::pair<c10::Device, at::Generator>> generators_;
};

/// How a thread inside a scope differs from one outside. It changes which generator a call is given and nothing else,
/// so what is guarded by the thread's keys leaves it out: a graph that was captured inside of a scope answers calls
/// from outside. Of the keys that LibTorch has for tests of modes, and uses nowhere itself.
inline constexpr c10::DispatchKey scope_key = c10::DispatchKey::TESTING_ONLY_GenericMode;
inline constexpr c10::DispatchKeySet scope_keys{scope_key};

/// While alive on a thread, what draws without a generator of its own draws from `sequence`; null: from the default
/// generators, as code of the host does inside of a scope. The sequence must outlive it.
class DrawFrom {
 public:
  explicit DrawFrom(Sequence* sequence);
  ~DrawFrom();
  DrawFrom(const DrawFrom&) = delete;
  DrawFrom& operator=(const DrawFrom&) = delete;

 private:
  Sequence* previous_;
  bool included_;
};

/// While alive on a thread, `or_aside` gives a sequence of this object: runs that answer nobody (captures on synthetic
/// values) leave the numbers of real calls as they are.
class DrawAside {
 public:
  DrawAside();
  ~DrawAside();
  DrawAside(const DrawAside&) = delete;
  DrawAside& operator=(const DrawAside&) = delete;

 private:
  Sequence sequence_;
  Sequence* previous_;
};
Sequence* or_aside(Sequence* sequence);

/// 64 random bits from where this thread's random numbers on the CPU come from.
uint64_t draw_bits();

/// Where this thread's random numbers on the CPU come from, as a copy that draws the same ones.
at::Generator copy_of_current();

/// Has this thread's random numbers go on from where they were when it was made: for a run that may fail in the middle,
/// after which the call restarts. `tensors`: on whose devices it draws, and on the CPU. Does nothing where that is not
/// `needed`.
class GoBack {
 public:
  GoBack(bool needed, at::ArrayRef<at::Tensor> tensors);
  void operator()() const;

 private:
  Sequence* sequence_ = nullptr;
  std::vector<std::pair<at::Generator, at::Generator>> then_;  // a generator, and a copy of it
};

/// While alive, the thread draws as it would from `state` on (undefined: from where it is); the numbers that others
/// draw, and those it draws afterwards, stay as they are. Does nothing where that is not `needed`.
class Replay {
 public:
  explicit Replay(bool needed, const at::Generator& state = {});

 private:
  std::optional<Sequence> sequence_;
  std::optional<DrawFrom> scope_;
};

}  // namespace triage::random
