// What both ports do alike: limits, errors, and the end.
#include <sys/socket.h>
#include <cerrno>
#include <cstring>

#include "server.h"

namespace {

constexpr size_t most_bytes = 4 << 20;
constexpr int most_threads = 128, most_waiting = 1024, patience = 5;  // connections, connections, seconds

std::string message_of(const httplib::Response& response) {
  if (response.has_header("EXCEPTION_WHAT")) return response.get_header_value("EXCEPTION_WHAT");
  if (response.status == 404) return "there is nothing at this path, or not for this method";
  if (response.status == 413) return "a body has at most " + std::to_string(most_bytes) + " bytes";
  return "the request is not valid HTTP, or did not arrive in time";
}

/// The client's mistakes are its own; everything else is a failure of the server.
int status_of(const std::exception& error, int failure) {
  if (dynamic_cast<const std::out_of_range*>(&error)) return 404;
  const bool mistake = dynamic_cast<const nlohmann::json::exception*>(&error) ||
                       dynamic_cast<const std::invalid_argument*>(&error) ||
                       dynamic_cast<const triage::InputError*>(&error);
  return mistake ? 400 : failure;
}

}  // namespace

void answer(httplib::Response& response, const nlohmann::json& content) {
  // Names come from scripts and clients: what is no UTF-8 is replaced.
  response.set_content(content.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n",
                       "application/json");
}

void refuse(httplib::Response& response, int status, const std::string& message) {
  response.status = status;
  answer(response, {{"error", message.substr(0, 4096)}});  // a message may quote the client
}

Port::Port(const Service& service, int failure) : failure_(failure) {
  // Without nodelay an answer waits for the client's delayed acknowledgement.
  set_tcp_nodelay(true).set_payload_max_length(most_bytes);
  set_socket_options([](int socket) {  // by default also SO_REUSEPORT, with which two servers may share a port
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  // A connection keeps a thread while it is open, so an idle one must not stay for long.
  new_task_queue = [] { return new httplib::ThreadPool(most_threads); };
  set_keep_alive_timeout(patience).set_read_timeout(patience).set_write_timeout(patience);
  set_error_handler([](const auto&, auto& response) {
    if (response.body.empty()) refuse(response, response.status, message_of(response));
  });
  set_post_routing_handler([&service](const auto&, auto& response) {
    if (!service.draining) return;
    for (const char* name : {"Keep-Alive", "Connection"}) response.headers.erase(name);
    response.set_header("Connection", "close");
  });
}

/// httplib would parse bodies of curl's default type as forms, and limit these to 8 kB.
void Port::post(const std::string& pattern, const Handler& handler) {
  Post(pattern, [this, handler](const auto& request, auto& response, const httplib::ContentReader& read) {
    std::string body;
    bool fits = true;
    const auto keep = [&](const char* data, size_t size) {
      fits = fits && size <= most_bytes - body.size();
      if (fits) body.append(data, size);
      return true;  // also what does not fit is read: it would be taken for the next request
    };
    const bool has_body = request.has_header("Content-Length") || request.has_header("Transfer-Encoding");
    if (has_body && !(request.is_multipart_form_data() ? read([](const auto&) { return true; }, keep) : read(keep)))
      return;  // httplib has set the status
    if (!fits) return static_cast<void>(response.status = 413);
    try {
      handler(request, response, body);
    } catch (const std::exception& error) {
      refuse(response, status_of(error, failure_), error.what());
    }
  });
}

void Port::open(const std::string& address, int port) {
  if (!bind_to_port(address, port))
    throw std::runtime_error("cannot open port " + std::to_string(port) + " on " + address + ": " +
                             std::strerror(errno) + "; choose another with --port or --admin-port");
  ::listen(svr_sock_, most_waiting);  // httplib lets 5 wait
  serving_ = std::async(std::launch::async, [this] { return listen_after_bind(); });
}

Port::~Port() {
  if (serving_.valid()) close(std::chrono::seconds(0));  // then the future waits for it
}

/// httplib's stop() drops connections that wait for a thread. This only ends its loop that accepts them.
bool Port::close(std::chrono::seconds limit) {
  if (serving_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) ::shutdown(svr_sock_, SHUT_RDWR);
  return serving_.wait_for(limit) == std::future_status::ready;
}
