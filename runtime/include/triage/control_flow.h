#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <triage/api.h>
#include <triage/flags.h>
#include <triage/layout.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/// Branches with tensor conditions, as IF, ELIF, ELSE, WHERE, HAS, IS, AND, OR and NOT of the Lua API:
///
///     at::Tensor y = triage::IF(triage::err::has_nan(f), [&] { return at::zeros_like(z); })
///                        .ELIF(triage::err::has_inf(f), [&] { return z.clamp(-10, 10); })
///                        .ELSE([&] { return z.tanh(); });
///
/// A condition is a bool tensor: shape (N,) selects per sample, shape () decides for the batch, more dimensions select
/// per element. The first true condition wins, ELSE if none is true. A branch of the first and the last kind runs on
/// all samples, and `triage::select` takes its rows, `at::where` its elements. A condition for the batch is read (which
/// synchronizes with an accelerator), and a branch that it rules out does not run. For a plain bool, write `if`.
///
/// Branches return an at::Tensor, a std::pair or std::tuple of them, or a std::vector of them; all branches of one
/// chain have the same type, number and device, and the same shapes and dtypes. Where elements are selected, shapes
/// broadcast and dtypes are promoted as by `at::where`; a condition has no more dimensions than results that have any,
/// and flags cannot be results. A tensor that every branch returns is returned unchanged.
///
/// Rows, or elements, that do not take a branch contribute nothing to any gradient: a NaN or Inf in the backward pass
/// of such a row (the log of a 0 in a branch not taken) stops at the entry of the branch; where elements are selected,
/// at every operation of the branch. That holds for everything that the functions capture, and for data with the
/// samples in dim 0, or of sizes that broadcast with the condition. Not for a tensor that an operation broadcasts,
/// where the *other* operand is not finite (x * w with an Inf in x, for the gradient of a scale w): write
/// w.expand_as(x).
///
/// Errors are InputError with the name of the branch; exceptions of the functions pass through. No shared state.
namespace triage {

namespace control_flow {

using Results = std::vector<at::Tensor>;
struct Branch {
  at::Tensor condition;  ///< undefined: ELSE
  std::function<Results()> run;
};

/// Throws InputError, in the name of `construct`, for an invalid condition or a missing function.
TRIAGE_API void check_branch(const char* construct, const at::Tensor& condition, bool has_function);
/// The results of the chain; the last branch is ELSE.
TRIAGE_API Results decide(const std::vector<Branch>& branches);
/// Those of WHERE.
TRIAGE_API Results choose(const at::Tensor& condition, const std::function<Results()>& a,
                          const std::function<Results()>& b);
/// A number that takes part in type promotion as one.
TRIAGE_API at::Tensor number(const c10::Scalar& value);
TRIAGE_API at::Tensor combine_and(const at::Tensor& a, const at::Tensor& b);
TRIAGE_API at::Tensor combine_or(const at::Tensor& a, const at::Tensor& b);
/// Returns `condition` if it is one for the batch, else throws InputError in the name of `construct`.
TRIAGE_API const at::Tensor& batch_condition(const char* construct, const at::Tensor& condition);

template <class... Leaves>
Results pack(const std::tuple<Leaves...>& leaves) {
  return std::apply([](const auto&... leaf) { return Results{leaf...}; }, leaves);
}
inline Results pack(const std::pair<at::Tensor, at::Tensor>& leaves) { return {leaves.first, leaves.second}; }
inline Results pack(const at::Tensor& leaf) { return {leaf}; }
inline Results pack(Results leaves) { return leaves; }

template <class Result>
Result unpack(Results leaves) {
  if constexpr (std::same_as<Result, Results>) {
    return leaves;
  } else if constexpr (std::same_as<Result, at::Tensor>) {
    return std::move(leaves[0]);
  } else {
    return [&]<size_t... i>(std::index_sequence<i...>) { return Result{std::move(leaves[i])...}; }
    (std::make_index_sequence<std::tuple_size_v<Result>>());
  }
}

template <class T>
inline constexpr bool is_result =
    std::same_as<T, at::Tensor> || std::same_as<T, Results> || std::same_as<T, std::pair<at::Tensor, at::Tensor>>;
template <class... Leaves>
inline constexpr bool is_result<std::tuple<Leaves...>> = (std::same_as<Leaves, at::Tensor> && ...);

template <class Fn>
using ResultOf = std::remove_cvref_t<std::invoke_result_t<Fn&>>;

/// A function without arguments whose results `triage::select` can take.
template <class Fn>
concept BranchFunction = std::copy_constructible<Fn> && std::invocable<Fn&> && is_result<ResultOf<Fn>>;

/// What WHERE takes for a branch: a function, or what that would return, or a number.
template <class T>
concept Choice = BranchFunction<T> || is_result<T> || std::is_arithmetic_v<T>;

template <Choice T>
auto as_branch(T choice) {
  if constexpr (std::is_arithmetic_v<T>)
    return [value = number(choice)] { return value; };
  else if constexpr (is_result<T>)
    return [choice = std::move(choice)] { return choice; };
  else
    return choice;
}
template <Choice T>
using ChoiceOf = ResultOf<decltype(as_branch(std::declval<T>()))>;

}  // namespace control_flow

/// The result of IF. Nothing runs before ELSE ends the chain.
template <class Result>
class [[nodiscard("end the chain with ELSE")]] Chain {
 public:
  template <control_flow::BranchFunction Fn>
  requires std::same_as<control_flow::ResultOf<Fn>, Result> Chain ELIF(const at::Tensor& condition, Fn fn) && {
    add("ELIF", condition, std::move(fn));
    return std::move(*this);
  }

  template <control_flow::BranchFunction Fn>
  requires std::same_as<control_flow::ResultOf<Fn>, Result> Result ELSE(Fn fn) && {
    add("ELSE", {}, std::move(fn));
    return control_flow::unpack<Result>(control_flow::decide(branches_));
  }

 private:
  template <control_flow::BranchFunction Fn>
  friend Chain<control_flow::ResultOf<Fn>> IF(const at::Tensor& condition, Fn fn);

  template <class Fn>
  void add(const char* construct, const at::Tensor& condition, Fn fn) {
    std::function<Result()> function(std::move(fn));
    control_flow::check_branch(construct, condition, static_cast<bool>(function));
    branches_.push_back({condition, [function = std::move(function)] { return control_flow::pack(function()); }});
  }

  std::vector<control_flow::Branch> branches_;
};

template <control_flow::BranchFunction Fn>
Chain<control_flow::ResultOf<Fn>> IF(const at::Tensor& condition, Fn fn) {
  Chain<control_flow::ResultOf<Fn>> chain;
  chain.add("IF", condition, std::move(fn));
  return chain;
}

/// `at::where` with functions for branches: both run, and nothing that is not finite comes back from elements (with a
/// condition of shape (N,): from samples) that did not take a branch. `at::where` itself multiplies 0 by what the other
/// branch's derivative is there. A condition of shape () is not read. A number, or a tensor, may stand for a function:
///
///     at::Tensor y = triage::WHERE(x > 0, [&] { return x.log(); }, 0.0);
template <control_flow::Choice A, control_flow::Choice B>
requires std::same_as<control_flow::ChoiceOf<A>, control_flow::ChoiceOf<B>> control_flow::ChoiceOf<A> WHERE(
    const at::Tensor& condition, A a, B b) {
  auto one = control_flow::as_branch(std::move(a));
  auto other = control_flow::as_branch(std::move(b));
  return control_flow::unpack<control_flow::ChoiceOf<A>>(control_flow::choose(
      condition, [&] { return control_flow::pack(one()); }, [&] { return control_flow::pack(other()); }));
}

/// Conditions for the batch, bool (): any entry in `f`; any entry with this code.
TRIAGE_API at::Tensor HAS(const at::Tensor& f, const ConfigOptions& options = {});
TRIAGE_API at::Tensor IS(Code code, const at::Tensor& f, const ConfigOptions& options = {});

/// For conditions of the batch; combine masks with & | ~.
template <std::same_as<at::Tensor>... More>
at::Tensor AND(const at::Tensor& first, const More&... more) {
  at::Tensor result = control_flow::batch_condition("AND", first);
  ((result = control_flow::combine_and(result, control_flow::batch_condition("AND", more))), ...);
  return result;
}
template <std::same_as<at::Tensor>... More>
at::Tensor OR(const at::Tensor& first, const More&... more) {
  at::Tensor result = control_flow::batch_condition("OR", first);
  ((result = control_flow::combine_or(result, control_flow::batch_condition("OR", more))), ...);
  return result;
}
TRIAGE_API at::Tensor NOT(const at::Tensor& condition);

}  // namespace triage
