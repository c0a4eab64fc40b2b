#pragma once
#include <triage/triage.h>

#include <httplib.h>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

/// What the handlers of both ports share.
struct Service {
  triage::Runtime& runtime;
  triage::Policy repair;
  std::atomic<bool> draining{false};
};

/// A port with the same limits for all clients. Every error has a body `{"error": ...}`.
class Port : public httplib::Server {
 public:
  using Handler = std::function<void(const httplib::Request&, httplib::Response&, const std::string& body)>;

  /// While `service.draining`, each answer asks the client to close its connection.
  /// `failure` is the status of what is no mistake of the client.
  Port(const Service& service, int failure);
  ~Port() override;
  /// Bodies have any content type. If the handler throws, the answer is an error: std::out_of_range is 404.
  void post(const std::string& pattern, const Handler& handler);
  /// Serves from now on. Throws if the port is taken.
  void open(const std::string& address, int port);
  /// Takes no more connections, and answers what has come on those that it has. Returns whether it did so within
  /// `limit`.
  bool close(std::chrono::seconds limit);

 private:
  const int failure_;
  std::future<bool> serving_;
};

/// /metrics, /policies, and a page that shows them. For operators: bind it to an address that clients cannot reach.
void add_admin_routes(Port& port, Service& service);

/// Answers with `{"error": ...}`.
void refuse(httplib::Response& response, int status, const std::string& message);
void answer(httplib::Response& response, const nlohmann::json& content);

/// Throws std::invalid_argument if `text` is something else than a number in this range.
template <class T>
T number(const std::string& name, const std::string& text, T least, T most) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end && value >= least && value <= most) return value;
  throw std::invalid_argument(name + " is a " + (std::is_integral_v<T> ? "whole " : "") + "number from " +
                              nlohmann::json(least).dump() + " to " + nlohmann::json(most).dump() + ", got '" +
                              text.substr(0, 40) + "'");
}
