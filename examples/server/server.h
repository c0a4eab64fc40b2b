#pragma once
#include <triage/triage.h>

#include <httplib.h>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

/// What the handlers of both ports share.
struct Service {
  triage::Runtime& runtime;
  triage::Policy repair;
  std::atomic<bool> draining{false};
};

/// /metrics, /policies, and a page that shows them. For operators: bind it to an address that clients cannot reach.
void add_admin_routes(httplib::Server& server, Service& service);

/// Answers with `{"error": ...}`.
void refuse(httplib::Response& response, int status, const std::string& message);
void answer(httplib::Response& response, const nlohmann::json& content);
