#pragma once
#include <triage/error.h>

#include <exception>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

/// A value or an error, for code that does not throw: the C++ form of `Ok`, `Err` and `as_result` in Lua.
///
///     auto loaded = triage::as_result([&] { return runtime.load(path); });
///     triage::Policy policy = loaded.unwrap_or(fallback);
namespace triage {

/// A caught exception.
class Failure {
 public:
  Failure(std::exception_ptr error, std::string message) : error_(std::move(error)), message_(std::move(message)) {}
  const std::string& message() const noexcept { return message_; }
  [[noreturn]] void rethrow() const { std::rethrow_exception(error_); }
  /// Whether the exception is an `E`.
  template <class E>
  bool is() const {
    try {
      std::rethrow_exception(error_);
    } catch (const E&) {
      return true;
    } catch (...) {
      return false;
    }
  }

 private:
  std::exception_ptr error_;
  std::string message_;
};

template <class T>
struct OkValue {
  T value;
};
template <class E>
struct ErrValue {
  E error;
};
template <class T>
OkValue<std::decay_t<T>> Ok(T&& value) {
  return {std::forward<T>(value)};
}
inline OkValue<std::monostate> Ok() { return {}; }
template <class E>
ErrValue<std::decay_t<E>> Err(E&& error) {
  return {std::forward<E>(error)};
}

/// Holds a T (nothing if T is void), or an E. Moved-from results hold moved-from contents.
template <class T, class E = Failure>
class [[nodiscard]] Result {
 public:
  using Value = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  template <class U>
  Result(OkValue<U> ok)
      : content_(std::in_place_index<0>, std::move(ok.value)) {}  // NOLINT(google-explicit-constructor)
  template <class U>
  Result(ErrValue<U> err)  // NOLINT(google-explicit-constructor)
      : content_(std::in_place_index<1>, std::move(err.error)) {}

  bool is_ok() const noexcept { return content_.index() == 0; }
  bool is_err() const noexcept { return content_.index() == 1; }

  /// The value. For an error, throws it if it is a Failure or an exception; otherwise throws InputError.
  const Value& unwrap() const& {
    if (is_err()) raise();
    return std::get<0>(content_);
  }
  Value unwrap() && {
    if (is_err()) raise();
    return std::get<0>(std::move(content_));
  }
  /// The error; throws InputError if there is a value.
  const E& unwrap_err() const& {
    if (is_ok()) throw InputError("Result::unwrap_err: the result is Ok; ask is_err() first");
    return std::get<1>(content_);
  }
  Value unwrap_or(Value fallback) const& { return is_ok() ? std::get<0>(content_) : std::move(fallback); }
  Value unwrap_or(Value fallback) && { return is_ok() ? std::get<0>(std::move(content_)) : std::move(fallback); }

  /// Result<U, E> with `fn(value)`; errors pass through.
  template <class Fn>
  auto map(Fn&& fn) const -> Result<std::invoke_result_t<Fn, const Value&>, E> {
    using U = std::invoke_result_t<Fn, const Value&>;
    if (is_err()) return Err(std::get<1>(content_));
    if constexpr (std::is_void_v<U>) {
      std::forward<Fn>(fn)(std::get<0>(content_));
      return Ok();
    } else {
      return Ok(std::forward<Fn>(fn)(std::get<0>(content_)));
    }
  }
  /// Result<T, F> with `fn(error)`; values pass through.
  template <class Fn>
  auto map_err(Fn&& fn) const -> Result<T, std::invoke_result_t<Fn, const E&>> {
    if (is_ok()) return Ok(std::get<0>(content_));
    return Err(std::forward<Fn>(fn)(std::get<1>(content_)));
  }
  /// Returns `fn(value)`, a Result with the same error type; errors pass through.
  template <class Fn>
  auto and_then(Fn&& fn) const -> std::invoke_result_t<Fn, const Value&> {
    if (is_err()) return Err(std::get<1>(content_));
    return std::forward<Fn>(fn)(std::get<0>(content_));
  }

 private:
  [[noreturn]] void raise() const {
    const E& error = std::get<1>(content_);
    if constexpr (std::is_same_v<E, Failure>) {
      error.rethrow();
    } else if constexpr (std::is_base_of_v<std::exception, E>) {
      throw error;
    } else if constexpr (std::is_convertible_v<const E&, std::string>) {
      throw InputError("Result::unwrap: the result is an error: " + std::string(error));
    } else {
      throw InputError("Result::unwrap: the result is an error; ask is_ok() first");
    }
  }

  std::variant<Value, E> content_;
};

/// Calls `fn` and keeps what it returns, or the std::exception that it throws.
template <class Fn>
auto as_result(Fn&& fn) -> Result<std::invoke_result_t<Fn>> {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Fn>>) {
      std::forward<Fn>(fn)();
      return Ok();
    } else {
      return Ok(std::forward<Fn>(fn)());
    }
  } catch (const std::exception& error) {
    return Err(Failure(std::current_exception(), error.what()));
  }
}

/// The inverse: a function that returns the value of the Result of `fn`, or throws its error.
template <class Fn>
auto as_exception(Fn fn) {
  return [fn = std::move(fn)](auto&&... arguments) {
    return fn(std::forward<decltype(arguments)>(arguments)...).unwrap();
  };
}

}  // namespace triage
