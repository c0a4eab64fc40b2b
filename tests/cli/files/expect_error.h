#pragma once
#include <doctest/doctest.h>

#include <initializer_list>
#include <string>

/// `fn` throws `Error`, and its message holds each of `parts`.
template <typename Error, typename F>
void expect_error(F fn, std::initializer_list<const char*> parts) {
  std::string message;
  try {
    fn();
    FAIL("no error was thrown");
  } catch (const Error& error) {
    message = error.what();
  }
  CAPTURE(message);
  for (std::string part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
  CHECK(message.find('\n') == std::string::npos);
}
